//! A process of its own writes at full speed and is killed at random moments; what it had said to be acknowledged must be
//! there. `KEEPLOG_KILL_ROUNDS=1000 cargo test -p keeplog --test it kill` goes on for longer.

mod full_disk;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use keeplog::{Durability, OffsetAndMetadata, OffsetOptions, OffsetStore, Record, Store, StoreOptions};

const ROUNDS: u64 = 12;
const DIR: &str = "KEEPLOG_KILL_DIR";
const SEED: &str = "KEEPLOG_KILL_SEED";
const GROUPS: u64 = 3;
const PARTITIONS: i32 = 5;
/// The longest that a writer may take to its first acknowledgement.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a writer said.
#[derive(Debug, Default)]
struct Heard {
    /// The last offset that each group was told to have committed.
    commits: BTreeMap<u64, u64>,
    /// The records that the log of events was told to hold.
    events: BTreeMap<u64, u64>,
    /// What it was refused, and why.
    refused: Vec<String>,
}

fn open(dir: &Path, seed: u64) -> keeplog::Result<OffsetStore> {
    let segment_bytes = [4096, 64 << 10, 1 << 20][(seed % 3) as usize];
    let store = StoreOptions::new().log_cleaner_backoff_ms(5).log_cleaner_threads(1 + (seed % 4) as usize);
    let store = store.log(keeplog::LogOptions::new().segment_bytes(segment_bytes));
    OffsetStore::open(dir, OffsetOptions::new().offsets_topic_segment_bytes(segment_bytes).store(store))
}

fn say(line: &str) {
    // One write a line, so that a kill leaves whole ones.
    std::io::stdout().write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// What was refused ends the one who asked.
fn unless_refused<T>(answer: keeplog::Result<T>) -> Option<T> {
    answer.inspect_err(|e| say(&format!("refused {:?}: {e}", e.kind()))).ok()
}

/// Not a test: what the rounds below run, and kill.
#[test]
#[ignore = "runs for ever; started by the rounds"]
fn writer() {
    let (dir, seed) = (std::env::var_os(DIR).unwrap(), std::env::var(SEED).unwrap().parse().unwrap());
    let Some(offsets) = unless_refused(open(Path::new(&dir), seed)) else { return };
    std::thread::scope(|scope| {
        for group in 0..GROUPS {
            let offsets = &offsets;
            scope.spawn(move || commit(offsets, group));
        }
        scope.spawn(|| append(offsets.store()));
    });
}

fn commit(offsets: &OffsetStore, group: u64) -> Option<()> {
    let name = format!("group-{group}");
    let found = unless_refused(offsets.fetch(&name, &[("orders", 0)]))?;
    let first = found[0].as_ref().map_or(0, |o| o.offset + 1);
    for offset in first.. {
        let commit: Vec<_> = (0..PARTITIONS).map(|p| ("orders", p, OffsetAndMetadata::new(offset))).collect();
        unless_refused(offsets.commit(&name, &commit))?;
        say(&format!("commit {group} {offset}"));
    }
    None
}

fn append(store: &Store) -> Option<()> {
    let log = unless_refused(store.log("events", 0))?;
    loop {
        let next = log.end_offset();
        let record = Record::new(format!("key-{}", next % 50), next.to_string());
        let placed = unless_refused(log.append(&[record], Durability::Synced))?;
        say(&format!("event {} {next}", placed.base_offset));
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(dir: &Path, seed: u64) -> (Killed, Receiver<String>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "kill::writer", "--nocapture", "--test-threads=1"]);
    command.env(DIR, dir).env(SEED, seed.to_string()).stdout(Stdio::piped()).stdin(Stdio::null());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (sender, heard) = mpsc::channel();
    #[allow(clippy::disallowed_methods)] // it ends with its pipe
    std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
    (Killed(child), heard)
}

/// Takes in a line; false if it was one of the test runner's.
fn hear(line: &str, heard: &mut Heard) -> bool {
    if let Some(at) = line.find("refused ") {
        heard.refused.push(line[at..].to_string());
        return true;
    }
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        // The first one stands behind what the test runner says.
        [.., "commit", group, offset] => _ = heard.commits.insert(group.parse().unwrap(), offset.parse().unwrap()),
        [.., "event", at, value] => _ = heard.events.insert(at.parse().unwrap(), value.parse().unwrap()),
        _ => return false,
    }
    true
}

fn check(offsets: &OffsetStore, round: u64, heard: &mut Heard) {
    for log in offsets.store().logs() {
        assert!(log.recovery_report().damage.is_empty(), "round {round}: {}", log.recovery_report());
    }
    for (group, acknowledged) in &mut heard.commits {
        let places: Vec<_> = (0..PARTITIONS).map(|p| ("orders", p)).collect();
        let found: Vec<_> = offsets.fetch(&format!("group-{group}"), &places).unwrap().into_iter().map(|o| o.unwrap().offset).collect();
        // The commit under way may have got through, as a whole.
        assert!(found[0] == *acknowledged || found[0] == *acknowledged + 1, "round {round} group {group}: {found:?}, not {acknowledged}");
        assert!(found.iter().all(|offset| *offset == found[0]), "round {round} group {group}: half of a commit, {found:?}");
        // It was shown now, and stays.
        *acknowledged = found[0];
    }
    let log = offsets.store().log("events", 0).unwrap();
    let held: BTreeMap<Vec<u8>, (u64, String)> = log
        .read_from(log.start_offset())
        .unwrap()
        .map(|record| record.unwrap())
        .map(|r| (r.key().unwrap().to_vec(), (r.offset(), String::from_utf8(r.value().unwrap().to_vec()).unwrap())))
        .collect();
    for (offset, value) in &heard.events {
        let (at, newest) = &held[format!("key-{}", value % 50).as_bytes()];
        assert!(at >= offset && newest.parse::<u64>().unwrap() >= *value, "round {round}: event {value} at {offset} is lost");
        assert_eq!(*at, newest.parse::<u64>().unwrap(), "an offset was given twice");
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let rounds = std::env::var("KEEPLOG_KILL_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let mut heard = Heard::default();
    for round in 0..rounds {
        let (writer, lines) = start(dir.path(), round);
        // From its first acknowledgement on, another time in every round, some of them before the cleaner has begun.
        loop {
            let line = lines.recv_timeout(PATIENCE).unwrap_or_else(|e| panic!("round {round}: the writer says nothing: {e}"));
            if hear(&line, &mut heard) {
                break;
            }
        }
        std::thread::park_timeout(Duration::from_millis(round * 37 % 200));
        drop(writer);
        lines.iter().for_each(|line| _ = hear(&line, &mut heard));
        assert!(heard.refused.is_empty(), "round {round}: {:?}", heard.refused);
        let offsets = open(dir.path(), round).unwrap();
        check(&offsets, round, &mut heard);
        if round.is_multiple_of(2) {
            offsets.close().unwrap();
        }
    }
    assert!(heard.commits.len() as u64 == GROUPS && !heard.events.is_empty(), "too little to say anything: {heard:?}");
}
