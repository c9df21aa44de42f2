//! Field reports about stores and their rounds of background work, which these tests make themselves.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use keeplog::inspect::offsets::record::{OffsetKey, OffsetValue};
use keeplog::inspect::record::{BatchSpec, BatchWriter};
use keeplog::inspect::storage::{MemoryStorage, OpenMode, Storage, write_all_at};
use keeplog::{
    CONSUMER_OFFSETS, Durability, ErrorKind, Log, LogOptions, OffsetAndMetadata, OffsetOptions, OffsetStore, Record, RequiredAcks, Store,
    StoreOptions, TransactionEnd, TxnResult,
};
use tracing::span;

use crate::disk::{T0, disk};
const DAY_MS: u64 = 86_400_000;

fn rounds_by_hand() -> StoreOptions {
    StoreOptions::new().log(LogOptions::new().segment_bytes(4096)).background_thread(false)
}

fn open(disk: &Arc<MemoryStorage>, options: StoreOptions) -> Store {
    Store::open_with(Arc::clone(disk) as Arc<dyn Storage>, Path::new("/data"), options).unwrap()
}

fn append(log: &Log, records: u64) {
    for i in 0..records {
        log.append(&[Record::new(format!("key-{}", i % 10), "x".repeat(100))], Durability::Buffered).unwrap();
    }
}

/// Counts what is worth a warning.
struct Warnings(Arc<AtomicUsize>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[test]
fn b09_a_mark_that_leaves_the_log_is_corrected_once_whether_the_log_is_due_or_not() {
    let disk = disk();
    let lazy = LogOptions::new().segment_bytes(4096).min_cleanable_dirty_ratio(1.0);
    let store = open(&disk, rounds_by_hand().log(lazy.clone()));
    let log = store.log("t", 0).unwrap();
    append(&log, 1000);
    let (name, data_dir) = (log.topic_partition().clone(), Arc::clone(log.data_dir()));
    let warnings = Arc::new(AtomicUsize::new(0));
    let rounds = |store: &Store| {
        warnings.store(0, Ordering::Relaxed);
        tracing::subscriber::with_default(Warnings(Arc::clone(&warnings)), || (0..5).for_each(|_| _ = store.housekeep()));
        (data_dir.cleaner_offset(&name), warnings.load(Ordering::Relaxed), store.cleaner().uncleanable.len())
    };
    data_dir.set_cleaner_offset(&name, Some(500));
    assert_eq!(rounds(&store), (Some(500), 0, 0));
    log.advance_start(800).unwrap();
    assert_eq!(rounds(&store), (Some(800), 1, 0), "below the start");
    log.advance_start(999).unwrap();
    assert!(log.segments().active().base_offset() < 999);
    assert_eq!(rounds(&store), (Some(999), 1, 0), "below a start within the active segment");
    // A truncation lowers the mark itself.
    log.truncate_to(200).unwrap();
    assert_eq!(rounds(&store).1, 0);
    assert!(data_dir.cleaner_offset(&name).unwrap() <= 200);
    append(&log, 300);
    log.roll().unwrap();
    data_dir.set_cleaner_offset(&name, Some(10_000));
    assert_eq!(rounds(&store), (Some(log.start_offset()), 1, 0), "above the end");
    assert_eq!(store.clean(&log).unwrap().records_kept, 10, "no pass is lost");

    store.delete_log("t", 0).unwrap();
    assert_eq!(rounds(&store), (None, 0, 0), "deleted");
    store.close().unwrap();
    let checkpoint = disk.open(Path::new("/data/cleaner-offset-checkpoint"), OpenMode::Truncate).unwrap();
    write_all_at(&*checkpoint, b"0\n1\nnobody 0 77\n", 0).unwrap();
    let store = open(&disk, rounds_by_hand().log(lazy));
    tracing::subscriber::with_default(Warnings(Arc::clone(&warnings)), || (0..5).for_each(|_| _ = store.housekeep()));
    assert!(store.cleaner().uncleanable.is_empty() && store.cleaner().dead.is_none());
    assert_eq!(warnings.load(Ordering::Relaxed), 0, "an entry of a log that is not there");
}

#[test]
fn b08_a_store_refuses_a_map_without_room_and_works_with_the_smallest() {
    let disk = disk();
    for bytes in [0, 1, 63, 1023] {
        let options = rounds_by_hand().log_cleaner_dedupe_buffer_size(bytes);
        let error = Store::open_with(Arc::clone(&disk) as Arc<dyn Storage>, Path::new("/data"), options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("log_cleaner_dedupe_buffer_size"), "{error}");
    }
    let store = open(&disk, rounds_by_hand().log_cleaner_dedupe_buffer_size(1024));
    let log = store.log("t", 0).unwrap();
    for i in 0..2000 {
        log.append(&[Record::new(format!("key-{}", i % 1000), "v")], Durability::Buffered).unwrap();
    }
    log.roll().unwrap();
    let mut passes = 0;
    while store.clean(&log).unwrap().new_dirty < 2000 {
        passes += 1;
        assert!(passes < 2000 / 90, "{passes} passes with room for 96 keys");
    }
    assert_eq!(log.read_from(0).unwrap().count(), 1000);
}

#[test]
fn b19_what_the_cleaner_tells_is_there_at_any_time_and_leaves_out_deleted_logs() {
    let disk = disk();
    let store = open(&disk, rounds_by_hand());
    let (good, bad) = (store.log("good", 0).unwrap(), store.log("bad", 0).unwrap());
    for log in [&good, &bad] {
        append(log, 200);
        log.roll().unwrap();
    }
    assert_eq!(store.cleaner().passes, 0);
    (0..4).for_each(|_| _ = store.housekeep());
    assert_eq!((store.cleaner().passes, store.cleaner().last.len()), (2, 2));
    append(&bad, 200);
    bad.roll().unwrap();
    let file = disk.open(&bad.segments().sealed().last().unwrap().path(), OpenMode::Write).unwrap();
    file.write_at(&[0xee], 100).unwrap();
    (0..4).for_each(|_| _ = store.housekeep());
    let status = store.cleaner();
    assert_eq!((status.passes, status.uncleanable.len(), status.last.len()), (2, 1, 2));
    assert!(status.uncleanable[bad.topic_partition()].contains("checksum"), "{:?}", status.uncleanable);
    store.delete_log("bad", 0).unwrap();
    let status = store.cleaner();
    assert_eq!((status.passes, status.uncleanable.len(), status.last.len()), (2, 0, 1));
    assert!(status.last.contains_key(good.topic_partition()) && status.cleaning.is_none() && status.dead.is_none());
    store.close().unwrap();
    assert_eq!((store.cleaner().passes, store.cleaner().last.len()), (2, 1));
}

#[test]
fn b21_a_quiet_log_has_its_turn_beside_a_busy_one() {
    let store = open(&disk(), rounds_by_hand());
    let (busy, quiet) = (store.log("busy", 0).unwrap(), store.log("quiet", 0).unwrap());
    append(&quiet, 100);
    quiet.roll().unwrap();
    store.clean(&quiet).unwrap();
    // Just over the limit of a half.
    append(&quiet, 14);
    quiet.roll().unwrap();
    let mut rounds = 0;
    let is_cleaned = || store.cleaner().last[quiet.topic_partition()].report.new_dirty == quiet.end_offset();
    while !is_cleaned() {
        append(&busy, 2000);
        busy.roll().unwrap();
        let end = busy.end_offset();
        store.housekeep();
        rounds += 1;
        assert!(rounds <= 4, "still waiting");
        if rounds < 4 {
            assert_eq!(store.cleaner().last[busy.topic_partition()].report.new_dirty, end, "a whole round of the busy one");
        }
    }
    assert_eq!(rounds, 4);
}

/// A batch of commits by a transactional producer.
fn commits(producer_id: i64, sequence: i32, group: &str, offset: i64) -> Vec<u8> {
    let mut writer = BatchWriter::new();
    writer.begin(BatchSpec { producer_id, producer_epoch: 0, base_sequence: sequence, transactional: true, ..BatchSpec::default() });
    for partition in 0..20 {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        assert!(OffsetKey { group, topic: "t", partition }.encode(&mut key));
        let (leader_epoch, commit_timestamp_ms, expire_timestamp_ms) = (None, T0, None);
        let committed = OffsetValue { offset, leader_epoch, metadata: "", commit_timestamp_ms, expire_timestamp_ms, topic_id: None };
        assert!(committed.encode(&mut value));
        writer.push(u64::try_from(partition).unwrap(), T0, Some(&key), Some(&value), &[]).unwrap();
    }
    let mut batch = Vec::new();
    writer.finish(&mut batch).unwrap();
    batch
}

#[test]
fn b20_an_offsets_log_stays_as_small_as_what_is_committed() {
    let disk = disk();
    let options = OffsetOptions::new()
        .offsets_commit_required_acks(RequiredAcks::Written)
        .offsets_topic_num_partitions(1)
        .offsets_topic_segment_bytes(65_536);
    let options = options.store(StoreOptions::new().background_thread(false));
    let offsets = OffsetStore::open_with(Arc::clone(&disk) as Arc<dyn Storage>, Path::new("/data"), options).unwrap();
    let log = offsets.store().log(CONSUMER_OFFSETS, 0).unwrap();
    let mut appended = 0;
    for round in 0..3000_i64 {
        let group = format!("group-{}", round % 10);
        if round / 10 % 10 == 0 {
            let producer_id = round % 10;
            let sequence = i32::try_from(round / 100 * 20).unwrap();
            log.append_batch(commits(producer_id, sequence, &group, round), Durability::Buffered).unwrap();
            let result = if round % 20 == 3 { TxnResult::Aborted } else { TxnResult::Committed };
            let end = TransactionEnd { producer_id, producer_epoch: 0, result, coordinator_epoch: 0 };
            log.end_transaction(&end, Durability::Buffered).unwrap();
        } else {
            let first = round / 10 % 5 * 20;
            let all: Vec<_> =
                (first..first + 20).map(|p| ("t", i32::try_from(p).unwrap(), OffsetAndMetadata::new(round.unsigned_abs()))).collect();
            offsets.commit(&group, &all).unwrap();
        }
        appended += 20;
        if round % 100 == 0 {
            disk.advance_ms(DAY_MS / 10);
            offsets.store().housekeep();
        }
    }
    let sealed = || log.segments().sealed().iter().map(|s| s.size_bytes()).sum::<u64>();
    let controls = || log.batches_from(log.start_offset()).unwrap().filter(|b| b.as_ref().unwrap().header.is_control()).count();
    let record_bytes = 70; // with its share of a batch's header
    for _ in 0..2 {
        disk.advance_ms(DAY_MS);
        offsets.commit("group-0", &[("t", 0, OffsetAndMetadata::new(1))]).unwrap();
        log.roll().unwrap();
        offsets.store().clean(&log).unwrap();
    }
    assert!(log.end_offset() > appended);
    assert!(sealed() <= 3 * 1000 * record_bytes, "{} bytes for 1,000 offsets", sealed());
    // What an idle producer's last transactions leave goes in the passes after that.
    assert!(controls() <= 2 * 10, "{} control batches, of 300", controls());
    let before = offsets.list().unwrap().len();
    offsets.reload().unwrap();
    assert_eq!((before, offsets.list().unwrap().len()), (1000, 1000));
}

/// A pass that would take years, in a thread of its own; what it came to.
fn crawling(store: &Store, log: &Log, then: impl FnOnce()) -> Option<keeplog::CleanOutcome> {
    std::thread::scope(|scope| {
        let pass = scope.spawn(|| store.clean(log));
        // Whether the pass has begun by then or not, it must end.
        std::thread::yield_now();
        then();
        pass.join().unwrap().ok().map(|report| report.outcome)
    })
}

#[test]
fn b16_a_pass_under_way_takes_a_new_rate() {
    let store = open(&disk(), rounds_by_hand().log_cleaner_io_max_bytes_per_second(1));
    assert_eq!(store.set_cleaner_rate(0).unwrap_err().kind(), ErrorKind::InvalidInput);
    let log = store.log("t", 0).unwrap();
    append(&log, 200);
    log.roll().unwrap();
    let outcome = crawling(&store, &log, || store.set_cleaner_rate(u64::MAX).unwrap());
    assert_eq!(outcome, Some(keeplog::CleanOutcome::Cleaned));
}

#[test]
fn b17_nothing_waits_for_a_pass_that_is_slowed_down() {
    for close_store in [true, false] {
        let disk = disk();
        let store = open(&disk, rounds_by_hand().log_cleaner_io_max_bytes_per_second(1));
        let log = store.log("t", 0).unwrap();
        append(&log, 200);
        log.roll().unwrap();
        let end = || if close_store { store.close().unwrap() } else { log.truncate_to(150).unwrap() };
        let outcome = crawling(&store, &log, || {
            end();
            store.close().unwrap();
        });
        assert!(matches!(outcome, Some(keeplog::CleanOutcome::Stopped) | None), "{outcome:?}");
        let names = disk.list(Path::new("/data/t-0")).unwrap();
        assert!(names.iter().all(|e| !e.name.contains(".cleaned") && !e.name.contains(".swap")), "{names:?}");
        let store = open(&disk, rounds_by_hand());
        assert!(store.logs()[0].recovery_report().clean);
        assert_eq!(store.logs()[0].read_from(0).unwrap().count(), if close_store { 200 } else { 150 });
    }
}
