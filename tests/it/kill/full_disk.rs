//! The same on a disk that fills up, a small file system of its own, where the system lets us mount one.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use keeplog::ErrorKind;

use super::{DIR, Heard, check, hear, open, say, start};

/// The bytes of the disk: room for the directories of all partitions, and some more.
const DISK: u64 = 16 << 20;
const ROUNDS: &str = "KEEPLOG_FULL_DISK_ROUNDS";

/// Not a test: the rounds, in the process that has the disk.
#[test]
#[ignore = "needs a small disk; started by the test below"]
fn rounds() {
    let (dir, rounds): (_, u64) = (std::env::var_os(DIR).unwrap(), std::env::var(ROUNDS).unwrap().parse().unwrap());
    let (dir, ballast) = (Path::new(&dir).join("store"), Path::new(&dir).join("ballast"));
    let mut heard = Heard::default();
    let mut full = 0;
    for round in 0..rounds {
        // Every place may be the one where the space ends, in the first rounds one in the making of the directory.
        leave(round * 52_391 % (768 << 10), &ballast);
        full += u64::from(run(&dir, round, &mut heard));
        if round % 3 == 0 {
            match open(&dir, round) {
                Ok(offsets) => check(&offsets, round, &mut heard),
                Err(e) => assert_eq!(e.kind(), ErrorKind::StorageFull, "round {round}: {e}"),
            }
        }
        std::fs::remove_file(&ballast).unwrap();
        let offsets = open(&dir, round).unwrap_or_else(|e| panic!("round {round}: there is space again, but {e}"));
        check(&offsets, round, &mut heard);
        drop(offsets);
    }
    let (commits, events) = (heard.commits.len(), heard.events.len());
    assert!(full * 2 > rounds && commits > 0 && events > 0, "too little to say anything: full in {full} of {rounds}");
    say(&format!("{rounds} rounds, the disk full in {full}, {commits} groups, {events} events"));
}

/// Fills the disk but for `bytes`.
fn leave(bytes: u64, ballast: &Path) {
    let mut file = File::create(ballast).unwrap();
    let block = vec![7; 64 << 10];
    let mut written = 0;
    while let Ok(some @ 1..) = file.write(&block) {
        written += some as u64;
    }
    file.set_len(written.saturating_sub(bytes)).unwrap();
}

/// One writer, killed some time after it was refused something, or if it never is. Whether the disk was full.
fn run(dir: &Path, round: u64, heard: &mut Heard) -> bool {
    let (writer, lines) = start(dir, round);
    let (begin, wait) = (Instant::now(), Duration::from_millis(400 + round * 37 % 400));
    while let Ok(line) = lines.recv_timeout(wait.saturating_sub(begin.elapsed())) {
        hear(&line, heard);
        if !heard.refused.is_empty() {
            break;
        }
    }
    std::thread::park_timeout(Duration::from_millis(round * 13 % 40));
    drop(writer);
    lines.iter().for_each(|line| _ = hear(&line, heard));
    let refused = std::mem::take(&mut heard.refused);
    let expected = |why: &String| why.starts_with("refused StorageFull: ") || why.starts_with("refused Poisoned: ");
    assert!(refused.iter().all(expected), "round {round}: {refused:?}");
    !refused.is_empty()
}

#[test]
fn nothing_acknowledged_is_lost_on_a_disk_that_fills_up() {
    let rounds = std::env::var("KEEPLOG_KILL_ROUNDS").unwrap_or_else(|_| super::ROUNDS.to_string());
    let dir = tempfile::tempdir().unwrap();
    // A mount of its own goes with the last process that sees it, whatever becomes of the test.
    let mount = format!("mount -t tmpfs -o size={DISK} keeplog \"${DIR}\"");
    let isolated = |command: &str| {
        let mut unshare = Command::new("unshare");
        unshare
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", &format!("{mount} && {command}")])
            .arg(std::env::current_exe().unwrap());
        unshare.args(["--ignored", "--exact", "kill::full_disk::rounds", "--nocapture", "--test-threads=1"]);
        unshare.env(DIR, dir.path()).env(ROUNDS, &rounds);
        unshare
    };
    if !isolated("true").output().is_ok_and(|tried| tried.status.success()) {
        say("skipped: the system does not let us mount a small disk");
        return;
    }
    let out = isolated("exec \"$0\" \"$@\"").output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success() && said.contains("1 passed"), "{said}");
    said.lines().filter(|line| line.contains("the disk full in")).for_each(say);
}
