//! What is done to a directory beside reading it: a check, a pass of the cleaner, the load of what groups have committed.
//!
//! - A check says what is wrong, whatever that is.
//! - A pass keeps the newest record of every key, and where the log ends; one that fails changes nothing. So it is still after
//!   the next open.
//! - What is loaded is what a plain reading gives, also after a pass.

use std::collections::BTreeMap;
use std::path::Path;

use keeplog_check::Marks;
use keeplog_cleaner::{CleanOptions, clean};
use keeplog_engine::storage::MemoryStorage;
use keeplog_engine::{ErrorKind, Log};
use keeplog_offsets::record::{OffsetKey, OffsetValue};
use keeplog_offsets::{CommitOptions, OffsetStore};

const TOPIC: &str = "orders";

/// Key and value of a commit, the `round`th of a partition.
pub(crate) fn commit(round: u32, partition: u64) -> (Vec<u8>, Vec<u8>) {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let group = format!("group-{}", partition % 3);
    let partition = partition as i32;
    assert!(OffsetKey { group: &group, topic: TOPIC, partition }.encode(&mut key));
    let offset = i64::from(round) * 100 + i64::from(partition);
    let metadata = "abc".repeat(10);
    let at =
        OffsetValue { offset, leader_epoch: None, metadata: &metadata, commit_timestamp_ms: 7, expire_timestamp_ms: None, topic_id: None };
    assert!(at.encode(&mut value));
    (key, value)
}

/// Checks the directory as it lies there.
pub(crate) fn look_over(disk: &MemoryStorage, dir: &Path) {
    let mut bytes = 0;
    let report = keeplog_check::partition(disk, dir, Marks::default(), &mut |more| bytes += more).expect("memory can be read");
    assert!(bytes <= report.bytes, "{bytes} bytes read of {}", report.bytes);
    serde_json::to_string(&report).expect("a report has text only");
}

/// Cleans the log that `open` opens on `disk`, with one batch a chunk, little held and few keys at a time, and loads it before and after.
/// `whole` says that all of it can be read, in every way.
pub(crate) fn keeps_what_counts(disk: &MemoryStorage, open: impl Fn() -> Log, whole: bool, now_ms: i64) {
    let log = open();
    let before = Kept::of(&log);
    let loaded = loads(&log, whole);
    let options = CleanOptions::for_log(log.options(), now_ms).chunk_bytes(1).held_bytes_max(500).dedupe_keys_max(Some(7));
    match clean(&log, &options, &()) {
        Ok(_) => {}
        Err(error) => {
            let expected = [ErrorKind::Corrupt, ErrorKind::Unsupported, ErrorKind::Poisoned];
            assert!(expected.contains(&error.kind()) && !(whole && error.kind() == ErrorKind::Corrupt), "{error:?}");
        }
    }
    if whole {
        Kept::of(&log).must_be(&before, "after a pass");
        assert_eq!(loads(&log, whole), loaded, "what is committed, after a pass");
    }
    look_over(disk, log.path());
    drop(log);
    if whole {
        Kept::of(&open()).must_be(&before, "after a pass and a crash");
    }
}

/// What no pass may change.
#[derive(Debug, PartialEq)]
struct Kept {
    end_offset: u64,
    last_stable_offset: u64,
    /// Offset and value of the newest committed record of every key. A tombstone stays for a day.
    newest: BTreeMap<Vec<u8>, (u64, Option<Vec<u8>>)>,
}

impl Kept {
    fn of(log: &Log) -> Self {
        let records =
            log.read_committed_from(log.start_offset()).map(|records| records.map_while(Result::ok).collect()).unwrap_or(Vec::new());
        let newest = records.iter().filter_map(|r| Some((r.key()?.to_vec(), (r.offset(), r.value().map(|value| value.to_vec())))));
        Self { end_offset: log.end_offset(), last_stable_offset: log.last_stable_offset(), newest: newest.collect() }
    }

    /// Says how it differs, key by key.
    fn must_be(&self, before: &Self, when: &str) {
        let differs = |(key, kept): &(&Vec<u8>, &(u64, Option<Vec<u8>>))| before.newest.get(*key) != Some(*kept);
        let now: Vec<_> = self.newest.iter().filter(differs).map(|(key, (at, _))| (String::from_utf8_lossy(key), *at)).collect();
        let gone = before.newest.iter().filter(|(key, kept)| self.newest.get(*key) != Some(*kept));
        let gone: Vec<_> = gone.map(|(key, (at, _))| (String::from_utf8_lossy(key), *at)).collect();
        let ends = |kept: &Self| (kept.end_offset, kept.last_stable_offset);
        assert!(
            now.is_empty() && gone.is_empty() && ends(self) == ends(before),
            "{when}: {now:?} {:?}, not {gone:?} {:?}",
            ends(self),
            ends(before)
        );
    }
}

/// The offsets that are loaded from the log, which are those of a plain reading; none if it can't be loaded.
fn loads(log: &Log, whole: bool) -> Option<BTreeMap<(String, i32), u64>> {
    let store = match OffsetStore::open(vec![log.clone()], CommitOptions::new()) {
        Ok(store) => store,
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported | ErrorKind::Poisoned), "{error:?}");
            return None;
        }
    };
    let mut loaded = BTreeMap::new();
    for group in store.groups().expect("it is loaded") {
        for at in store.fetch_all(&group).expect("it is loaded") {
            loaded.insert((group.to_string(), at.partition), at.committed.offset);
        }
    }
    if whole {
        let mut read = BTreeMap::new();
        for (key, (_, value)) in Kept::of(log).newest {
            let (Ok(Some(key)), Some(value)) = (OffsetKey::decode(&key), value) else { continue };
            if let Ok(value) = OffsetValue::decode(&value) {
                read.insert((key.group.to_owned(), key.partition), value.offset as u64);
            }
        }
        assert_eq!(loaded, read, "what is loaded, and what a plain reading gives");
    }
    Some(loaded)
}
