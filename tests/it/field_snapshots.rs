//! Field reports about snapshots of committed offsets.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use keeplog::inspect::storage::{MemoryStorage, OpenMode, Storage, read_exact_at, write_all_at};
use keeplog::{CONSUMER_OFFSETS, CleanOptions, CommitOptions, OffsetAndMetadata, OffsetOptions, OffsetStore, StoreOptions};

use crate::disk::{T0, disk};

fn options() -> OffsetOptions {
    let options = OffsetOptions::new().offsets_topic_segment_bytes(4096).offsets_topic_num_partitions(1);
    options.commit(CommitOptions::new().snapshot_interval_bytes(0)).store(StoreOptions::new().background_thread(false))
}

fn open(disk: &Arc<MemoryStorage>, options: OffsetOptions) -> OffsetStore {
    OffsetStore::open_with(Arc::clone(disk) as Arc<dyn Storage>, Path::new("/data"), options).unwrap()
}

fn path() -> PathBuf {
    Path::new("/data/__consumer_offsets-0/offsets.keeplog-snapshot").to_owned()
}

fn bytes(disk: &MemoryStorage) -> Option<Vec<u8>> {
    let file = disk.open(&path(), OpenMode::Read).ok()?;
    let mut bytes = vec![0; file.len().unwrap() as usize];
    read_exact_at(&*file, &mut bytes, 0).unwrap();
    Some(bytes)
}

fn fill(offsets: &OffsetStore, rounds: u64) {
    for round in 0..rounds {
        for group in 0..10 {
            let all: Vec<_> = (0..8).map(|p| ("t", p, OffsetAndMetadata::new(round * 10 + group))).collect();
            offsets.commit(&format!("group-{group}"), &all).unwrap();
        }
    }
}

#[test]
fn a_close_leaves_a_snapshot_and_an_open_reads_it() {
    let disk = disk();
    let offsets = open(&disk, options());
    fill(&offsets, 20);
    let expected = offsets.list().unwrap();
    offsets.close().unwrap();
    assert!(bytes(&disk).is_some());
    let offsets = open(&disk, options());
    let report = offsets.load_report();
    assert_eq!((report.from_snapshot, report.records, offsets.list().unwrap()), (80, 0, expected.clone()));
    let foreign = offsets.store().log(CONSUMER_OFFSETS, 0).unwrap().data_dir().foreign();
    assert!(foreign.is_empty(), "{foreign:?}");
    offsets.close().unwrap();
    disk.remove_file(&path()).unwrap();
    let offsets = open(&disk, options().snapshots(false));
    assert_eq!((offsets.load_report().from_snapshot, offsets.list().unwrap()), (0, expected));
    offsets.close().unwrap();
    assert!(bytes(&disk).is_none(), "they are switched off");
}

#[test]
fn c25_a_snapshot_of_before_a_pass_of_the_cleaner_is_not_believed() {
    let disk = disk();
    let offsets = open(&disk, options());
    fill(&offsets, 20);
    offsets.save_snapshots_at_close().unwrap();
    let older = bytes(&disk).unwrap();
    let log = offsets.store().log(CONSUMER_OFFSETS, 0).unwrap();
    offsets.delete_group("group-3").unwrap();
    log.roll().unwrap();
    let mut pass = CleanOptions::new(T0);
    pass.segment_bytes = 4096;
    let report = keeplog::clean(&log, &pass, &()).unwrap();
    assert!(report.bytes_written < report.bytes_read, "{report}");
    fill(&offsets, 1);
    let expected = offsets.list().unwrap();
    // The one of before the pass.
    let image = Arc::new(disk.image());
    write_all_at(&*image.open(&path(), OpenMode::Truncate).unwrap(), &older, 0).unwrap();
    let again = open(&image, options());
    assert_eq!((again.load_report().from_snapshot, again.list().unwrap()), (0, expected.clone()));
    // One that is saved after it counts.
    assert!(offsets.save_snapshots_at_close().unwrap().partitions == 1 && bytes(&disk).unwrap() != older);
    let again = open(&Arc::new(disk.image()), options());
    assert_eq!((again.load_report().from_snapshot, again.list().unwrap()), (80, expected));
}
