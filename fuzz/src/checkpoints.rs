//! Checkpoint files: offsets by partition, leader epochs, and a data directory that has them.

use std::path::Path;
use std::sync::Arc;

use keeplog_engine::DataDir;
use keeplog_engine::checkpoint::{LeaderEpochs, Loaded, read_offsets, write_offsets};
use keeplog_engine::storage::Storage;

use crate::world;

const DIR: &str = "/data";
const OFFSETS: &str = "/data/recovery-point-offset-checkpoint";
const ALL_OFFSETS: [&str; 4] =
    [OFFSETS, "/data/log-start-offset-checkpoint", "/data/replication-offset-checkpoint", "/data/cleaner-offset-checkpoint"];
const EPOCHS: &str = "/data/leader-epoch-checkpoint";

/// Any text as a checkpoint: what is read is written and read again to the same; a data directory opens over it
/// whatever it is, and closes.
pub fn checkpoint(data: &[u8]) {
    offsets(data);
    epochs(data);
    data_dir(data);
}

fn offsets(data: &[u8]) {
    let disk = world::with_file(OFFSETS, data);
    let path = Path::new(OFFSETS);
    if let Loaded::Found(offsets) = read_offsets(&disk, path).expect("memory can be read") {
        assert!(!offsets.is_empty() && offsets.values().all(|&offset| offset <= i64::MAX as u64));
        write_offsets(&disk, path, &offsets).expect("memory can be written");
        assert_eq!(read_offsets(&disk, path).expect("memory can be read"), Loaded::Found(offsets));
    }
}

fn epochs(data: &[u8]) {
    let disk = world::with_file(EPOCHS, data);
    let dir = Path::new(DIR);
    let Loaded::Found(epochs) = LeaderEpochs::read(&disk, dir).expect("memory can be read") else { return };
    let entries = epochs.entries().to_vec();
    assert!(entries.is_sorted_by(|a, b| a.epoch < b.epoch && a.start_offset < b.start_offset), "{entries:?}");
    epochs.write(&disk, dir).expect("memory can be written");
    assert_eq!(LeaderEpochs::read(&disk, dir).expect("memory can be read"), Loaded::Found(epochs.clone()));

    for at in entries.iter().flat_map(|e| [e.start_offset.saturating_sub(1), e.start_offset, e.start_offset + 1]) {
        assert_eq!(epochs.of_offset(at), entries.iter().rev().find(|e| e.start_offset <= at).copied());
        let mut cut = epochs.clone();
        assert_eq!(cut.truncate_tail(at), cut != epochs);
        assert!(cut.entries().iter().eq(entries.iter().filter(|e| e.start_offset < at)));
        let mut headless = epochs.clone();
        assert_eq!(headless.truncate_head(at), headless != epochs);
        let later = entries.iter().filter(|e| e.start_offset > at);
        let first = entries.iter().rev().find(|e| e.start_offset <= at).map(|e| (e.epoch, at));
        let expected = first.into_iter().chain(later.map(|e| (e.epoch, e.start_offset)));
        assert!(headless.entries().iter().map(|e| (e.epoch, e.start_offset)).eq(expected));
    }
}

fn data_dir(data: &[u8]) {
    let disk = world::with_file(OFFSETS, data);
    for path in ALL_OFFSETS {
        world::write(&disk, Path::new(path), data);
    }
    let storage: Arc<dyn Storage> = Arc::new(disk);
    let dir = DataDir::open(Arc::clone(&storage), Path::new(DIR)).expect("a checkpoint never stops a start");
    assert!(dir.warnings().len() <= ALL_OFFSETS.len());
    dir.close().expect("memory can be written");
    let again = DataDir::open(storage, Path::new(DIR)).expect("it was just closed");
    assert_eq!(again.warnings(), [], "what was closed in order has nothing to warn of");
}
