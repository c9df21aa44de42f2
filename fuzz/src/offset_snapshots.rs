//! Snapshots of committed offsets, as anybody may have made them.

use std::path::Path;
use std::sync::Arc;

use keeplog_engine::storage::{MemoryStorage, Storage};
use keeplog_engine::{Log, LogOptions};
use keeplog_offsets::{Replay, snapshot};

const LOG: &str = "/data/__consumer_offsets-0";

/// Numbers of blocks and entries, and sections, each a code, a length and bytes: under right checksums, so that they come past
/// the door. And the same bytes as a file, which nothing vouches for.
pub fn offset_snapshot(data: &[u8]) {
    let disk = MemoryStorage::new();
    disk.create_dir(Path::new("/data")).expect("an empty disk takes it");
    let log = Log::open_with(Arc::new(disk), Path::new(LOG), LogOptions::new()).expect("an empty log opens");
    assert!(snapshot::read_bytes(&log, data).is_none(), "no fuzzer makes three checksums");
    let [blocks, entries, rest @ ..] = data else { return };
    let (mut sections, mut left) = (Vec::new(), rest);
    while let [code, high, low, rest @ ..] = left {
        let (bytes, after) = rest.split_at(rest.len().min(usize::from(u16::from_be_bytes([*high, *low]))));
        sections.push((*code, bytes));
        left = after;
    }
    if let Some(replay) = snapshot::read_sections(&log, &sections, (*blocks).into(), (*entries).into()) {
        check(&replay);
    }
}

/// What was taken for sound hangs together.
fn check(replay: &Replay) {
    let cache = replay.cache();
    assert_eq!(cache.iter().count(), cache.len());
    for (key, commit) in cache.iter() {
        assert_eq!(cache.get(&key).map(|found| found.as_commit() == commit), Some(true), "{key:?}");
        assert!(replay.pending_of(key.group).all(|waiting| waiting.group == key.group));
    }
    assert_eq!(cache.groups().map(|group| cache.list_group(group).len()).sum::<usize>(), cache.len());
    replay.groups().names().for_each(|group| drop(replay.groups().describe(group)));
}
