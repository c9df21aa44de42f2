use keeplog_engine::storage::{OpenMode, read_exact_at, write_all_at};

use super::*;
use crate::snapshot::NAME;

/// Snapshots are saved whatever little there is to be spared.
fn always() -> CommitOptions {
    CommitOptions::new().snapshot_interval_bytes(0)
}

fn open_with(disk: &MemoryStorage, partitions: u32, options: CommitOptions) -> OffsetStore {
    OffsetStore::open(open_logs(disk, partitions), options).unwrap()
}

fn path(partition: u32) -> std::path::PathBuf {
    Path::new(DATA).join(format!("__consumer_offsets-{partition}")).join(NAME)
}

fn bytes_of(disk: &MemoryStorage, partition: u32) -> Option<Vec<u8>> {
    let file = disk.open(&path(partition), OpenMode::Read).ok()?;
    let mut bytes = vec![0; file.len().unwrap() as usize];
    read_exact_at(&*file, &mut bytes, 0).unwrap();
    Some(bytes)
}

fn group(number: usize) -> String {
    format!("group-{number:03}")
}

fn fill(store: &OffsetStore, groups: usize) {
    for number in 0..groups {
        store.commit(&group(number), &[("t", 0, at(1)), ("t", 1, at(2).metadata("m")), ("u", 70, at(3).leader_epoch(4))]).unwrap();
    }
}

/// The store after a crash, and that it shows what `store` does and a plain reading of the logs.
fn crashed(disk: &MemoryStorage, store: &OffsetStore) -> OffsetStore {
    let again = open_with(&disk.image(), store.partitions().get(), always());
    let found = again.list().unwrap();
    assert_eq!(found, store.list().unwrap());
    let began = again.load_report();
    again.reload().unwrap();
    assert_eq!(found, again.list().unwrap());
    *again.inner.last_load.lock().unwrap() = began;
    again
}

#[test]
fn a_start_reads_the_snapshot_and_the_end_of_the_log() {
    let disk = disk();
    let store = open_with(&disk, 3, always());
    fill(&store, 60);
    let saved = store.save_snapshots_at_close().unwrap();
    assert!(saved.partitions == 3 && saved.bytes > 60 * 3 * 24, "{saved}");
    assert_eq!(store.save_snapshots_at_close().unwrap().partitions, 0, "there is nothing new");
    store.commit(&group(1), &[("t", 0, at(10)), ("v", 0, at(11))]).unwrap();
    store.delete_offsets(&group(2), &[("t", 0)]).unwrap();
    let again = crashed(&disk, &store);
    let report = again.load_report();
    assert_eq!((report.from_snapshot, report.records, report.tombstones, report.entries), (180, 3, 1, 180));
    assert!(report.bytes < 400 && report.snapshot_bytes == saved.bytes, "{report}");
    assert!(report.to_string().contains("180 of them from snapshots"), "{report}");
    let off = OffsetStore::open(open_logs(&disk.image(), 3), CommitOptions::new().snapshots(false)).unwrap();
    assert_eq!((off.list().unwrap(), off.load_report().from_snapshot), (store.list().unwrap(), 0));
    assert_eq!(off.save_snapshots_at_close().unwrap(), SavedSnapshots::default());
}

#[test]
fn commits_go_on_while_a_snapshot_is_saved_and_are_in_it_or_behind_it() {
    for round in 0..20_u64 {
        let disk = disk();
        let store = open_with(&disk, 1, always());
        fill(&store, 200);
        let (a, b) = (Producer { id: 7, epoch: 0 }, Producer { id: 8, epoch: 0 });
        store.commit_in_transaction(a, &group(3), &[("t", 0, at(100)), ("t", 5, at(101))]).unwrap();
        store.commit_in_transaction(b, &group(70), &[("t", 1, at(102))]).unwrap();
        let mut step = round;
        let saved = store.inner.shards[0].save_snapshot(&mut || {
            step += 1;
            let one = group((step as usize * 37) % 90);
            match step % 8 {
                0 => _ = store.delete_group(&one).unwrap(),
                1 => store.commit(&one, &[("t", 0, at(1000 + step)), ("new", 3, at(step).metadata(one.clone()))]).unwrap(),
                2 => _ = store.end_transaction(a, Outcome::Commit).unwrap(),
                3 => store.commit_in_transaction(a, &one, &[("t", 0, at(2000 + step)), ("w", 1, at(step))]).unwrap(),
                4 => _ = store.end_transaction(b, if round % 2 == 0 { Outcome::Commit } else { Outcome::Abort }).unwrap(),
                5 => _ = store.delete_offsets(&one, &[("t", 0), ("t", 5)]).unwrap(),
                6 => store.commit_in_transaction(b, &group(5), &[("t", 1, at(3000 + step))]).unwrap(),
                _ => _ = store.delete_topic(if round % 4 == 0 { "t" } else { "u" }).unwrap(),
            }
        });
        assert!(saved.unwrap() > 0, "round {round}");
        assert!(step > round + 6, "{step} in round {round}");
        let again = crashed(&disk, &store);
        assert!(again.load_report().from_snapshot > 0);
        for store in [&store, &again] {
            store.end_transaction(a, Outcome::Commit).unwrap();
            store.end_transaction(b, Outcome::Commit).unwrap();
        }
        assert_eq!(
            again.list().unwrap().iter().map(ToString::to_string).collect::<Vec<_>>(),
            store.list().unwrap().iter().map(ToString::to_string).collect::<Vec<_>>()
        );
    }
}

#[test]
fn what_a_snapshot_says_is_synced_before_it_is_there() {
    let disk = disk();
    let store = open_with(&disk, 1, always().offsets_commit_required_acks(RequiredAcks::Written));
    store.commit("g", &[("t", 0, at(1))]).unwrap();
    let log = store.inner.shards[0].log().clone();
    assert_eq!((log.recovery_point(), log.end_offset()), (0, 1));
    assert_eq!(store.save_snapshots_at_close().unwrap().partitions, 1);
    assert_eq!(log.recovery_point(), 1);
}

#[test]
fn what_somebody_else_has_written_is_not_taken_for_shown() {
    let disk = disk();
    let store = open_with(&disk, 1, always());
    fill(&store, 2);
    let log = store.inner.shards[0].log().clone();
    commit_in_transaction(&log, 0, "h", 5);
    store.commit("g", &[("t", 0, at(1))]).unwrap();
    assert_eq!(store.save_snapshots_at_close().unwrap().partitions, 0);
    store.reload().unwrap();
    assert_eq!(store.save_snapshots_at_close().unwrap().partitions, 1);
    log.advance_start(3).unwrap();
    store.commit("g", &[("t", 0, at(2))]).unwrap();
    assert_eq!(store.save_snapshots_at_close().unwrap().partitions, 0, "what lies below the start is still shown");
    store.reload().unwrap();
    assert_eq!(store.save_snapshots_at_close().unwrap().partitions, 1);
    crashed(&disk, &store);
}

#[test]
fn c25_a_snapshot_of_another_time_is_not_believed() {
    let disk = disk();
    let store = open_with(&disk, 1, always());
    fill(&store, 20);
    let older_files = disk.image();
    store.save_snapshots_at_close().unwrap();
    let log = store.inner.shards[0].log().clone();
    let older = bytes_of(&disk, 0).unwrap();
    store.delete_group(&group(3)).unwrap();
    fill(&store, 10);
    store.save_snapshots_at_close().unwrap();
    let newer = bytes_of(&disk, 0).unwrap();
    let put = |disk: &MemoryStorage, bytes: &[u8]| write_all_at(&*disk.open(&path(0), OpenMode::Truncate).unwrap(), bytes, 0).unwrap();
    // An older one of the same log counts, as of its time.
    let image = disk.image();
    put(&image, &older);
    assert!(crashed(&image, &store).load_report().from_snapshot > 0);
    // A newer one than its files does not, and is gone: the log may come to look like that again.
    put(&older_files, &newer);
    let again = open_with(&older_files, 1, always());
    assert_eq!((again.load_report().from_snapshot, again.list().unwrap().len()), (0, 60));
    assert!(bytes_of(&older_files, 0).is_none());
    // Nor does one of a log that was cut since, and went on otherwise.
    log.truncate_to(30).unwrap();
    assert!(bytes_of(&disk, 0).is_none(), "a truncation takes it along");
    store.reload().unwrap();
    for number in 0..30 {
        store.commit(&group(number), &[("other", 1, at(9)), ("t", 1, at(2).metadata("m")), ("u", 70, at(3).leader_epoch(4))]).unwrap();
    }
    for bytes in [&older, &newer] {
        let image = disk.image();
        put(&image, bytes);
        let again = open_with(&image, 1, always());
        assert_eq!((again.load_report().from_snapshot, again.list().unwrap()), (0, store.list().unwrap()));
        assert!(bytes_of(&image, 0).is_none());
    }
}

/// Written by one partition or by many: what a load after a crash reads is bounded by one number, and what is written to
/// bound it by what is committed.
#[test]
fn g13_what_a_load_reads_is_bounded_for_all_partitions_together_and_so_is_what_is_saved() {
    const INTERVAL: u64 = 4096;
    for partitions in [1, 40] {
        let disk = disk();
        let options = CommitOptions::new().snapshot_interval_bytes(INTERVAL);
        let store = open_with(&disk, partitions, options);
        let (mut written, mut saves, mut logs_bytes) = (0, 0, 0);
        for round in 0..600 {
            store.commit(&group(round % 120), &[("t", (round / 120) as i32, at(round as u64)), ("u", 0, at(1))]).unwrap();
            let saved = store.save_snapshots().unwrap();
            (written, saves) = (written + saved.bytes, saves + u64::from(saved.partitions > 0));
            logs_bytes = store.inner.shards.iter().map(|shard| crate::load::size_bytes(shard.log())).sum();
            let snapshots: u64 = (0..partitions).filter_map(|p| bytes_of(&disk, p)).map(|bytes| bytes.len() as u64).sum();
            if round % 60 == 59 {
                let read = crashed(&disk, &store).load_report().bytes;
                let bearable = INTERVAL.max(snapshots + 26 * store.list().unwrap().len() as u64);
                assert!(read <= bearable, "{read} bytes were read beside {snapshots} of snapshots");
            }
        }
        assert!(written <= 4 * logs_bytes && saves < 60, "{partitions}: {written} bytes in {saves} saves for {logs_bytes} of the logs");
        assert!(saves > 3);
    }
}
