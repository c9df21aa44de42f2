//! Field reports about what stops a store of several logs, and how it comes back.

use std::io::ErrorKind::{Other, StorageFull};
use std::path::Path;
use std::sync::{Arc, Mutex};

use keeplog::inspect::storage::{MemoryStorage, OpenMode, Storage, write_all_at};
use keeplog::{CleanupPolicy, Durability, ErrorKind, Log, LogOptions, Record, Store, StoreOptions};

use crate::shim::{Call, Shim, Verdict, contents, files_below};

use crate::disk::{T0, disk};
const MARK: &str = "/data/.kafka_cleanshutdown";

fn by_hand() -> StoreOptions {
    StoreOptions::new().log(LogOptions::new().segment_bytes(4096).index_interval_bytes(256)).background_thread(false)
}

fn open(storage: &Arc<impl Storage + 'static>, options: StoreOptions) -> keeplog::Result<Store> {
    Store::open_with(Arc::clone(storage) as Arc<dyn Storage>, Path::new("/data"), options)
}

fn append(log: &Log, records: u64) {
    for i in 0..records {
        log.append(&[Record::new(format!("key-{}", i % 10), "x".repeat(100))], Durability::Buffered).unwrap();
    }
}

fn put(disk: &MemoryStorage, path: &str, bytes: &[u8]) {
    write_all_at(&*disk.open(Path::new(path), OpenMode::Truncate).unwrap(), bytes, 0).unwrap();
}

fn records(log: &Log) -> usize {
    log.read_from(log.start_offset()).unwrap().map(Result::unwrap).count()
}

/// Files that no live log has.
fn working_files(disk: &MemoryStorage) -> Vec<String> {
    let names = files_below(disk, Path::new("/data")).into_iter().map(|path| path.to_string_lossy().into_owned());
    names.filter(|name| [".cleaned", ".swap", ".deleted", ".tmp", "-delete"].iter().any(|suffix| name.contains(suffix))).collect()
}

fn segment(partition: u32, base: u64, suffix: &str) -> String {
    format!("/data/t-{partition}/{base:020}{suffix}")
}

/// No byte is free, a tail is torn and an interrupted swap wants to be finished.
#[test]
fn c20_a_log_that_needs_space_waits_for_it_and_the_others_go_on() {
    let disk = disk();
    let store = open(&disk, by_hand()).unwrap();
    for partition in 0..3 {
        append(&store.log("t", partition).unwrap(), 100);
    }
    store.logs().iter().for_each(|log| log.sync().unwrap());
    store.checkpoint().unwrap();
    let image = Arc::new(disk.image());
    drop(store);
    let last = files_below(&*image, Path::new("/data/t-1")).into_iter().rfind(|path| path.extension().is_some_and(|e| e == "log")).unwrap();
    let torn = [contents(&*image, &last), b"torn".to_vec()].concat();
    put(&image, last.to_str().unwrap(), &torn);
    for suffix in [".log", ".index", ".timeindex"] {
        put(&image, &segment(1, 0, &format!("{suffix}.swap")), &contents(&*image, Path::new(&segment(1, 0, suffix))));
    }
    let shim = Shim::over(&image);
    // The device is full for one of them: as quotas make it, and as the order of events does.
    shim.set_rule(|call, path| if call.takes_space() && path.starts_with("/data/t-1") { Verdict::Fail(StorageFull) } else { Verdict::Go });
    let store = open(&shim, by_hand()).unwrap();
    assert_eq!(store.logs().len(), 2);
    let failed = store.failed();
    assert_eq!((failed.len(), failed[0].0.partition()), (1, 1));
    assert!(failed[0].1.to_lowercase().contains("no storage space") || failed[0].1.contains("full"), "{}", failed[0].1);
    append(&store.log("t", 0).unwrap(), 1);
    assert_eq!(store.log("t", 1).unwrap_err().kind(), ErrorKind::StorageFull);
    // Removing what nobody needs takes no space.
    store.delete_log("t", 2).unwrap();
    // A close now leaves no mark.
    let closed = Arc::new(shim.live().image());
    let other = Shim::over(&closed);
    other.set_rule(|call, path| if call.takes_space() && path.starts_with("/data/t-1") { Verdict::Fail(StorageFull) } else { Verdict::Go });
    let _ = open(&other, by_hand()).unwrap().close();
    assert!(other.live().metadata(Path::new(MARK)).is_err());
    // Space again: the same process brings it back.
    shim.heal();
    let log = store.log("t", 1).unwrap();
    assert_eq!((log.end_offset(), records(&log), store.failed().len()), (100, 100, 0));
    assert!(log.recovery_report().is_sound(), "{}", log.recovery_report());
    append(&log, 1);
    store.close().unwrap();
    assert!(shim.live().metadata(Path::new(MARK)).is_ok());
}

/// What makes room must need none.
#[test]
fn c20_old_segments_go_without_any_free_space() {
    let disk = disk();
    let policy = LogOptions::new().segment_bytes(4096).cleanup_policy(CleanupPolicy::Delete);
    let store = open(&disk, by_hand().log(policy.clone().retention_ms(None))).unwrap();
    append(&store.log("t", 0).unwrap(), 200);
    store.close().unwrap();
    let shim = Shim::over(&disk);
    let store = open(&shim, by_hand().log(policy.retention_ms(None).retention_bytes(Some(5000)))).unwrap();
    let log = store.log("t", 0).unwrap();
    let segments = log.segments().all().len();
    shim.set_rule(|call, _| if call.takes_space() { Verdict::Fail(StorageFull) } else { Verdict::Go });
    let report = log.apply_retention().unwrap();
    let start = log.start_offset();
    assert!(report.segments >= segments - 3 && start > 100, "{report:?} of {segments}");
    assert_eq!(records(&log) as u64, 200 - start);
    assert_eq!(working_files(&shim.live()), [""; 0]);
    for image in [shim.live(), shim.after_power_cut()] {
        let store = open(&image, by_hand()).unwrap();
        let log = store.log("t", 0).unwrap();
        assert_eq!((log.start_offset(), records(&log) as u64), (start, 200 - start), "{}", log.recovery_report());
        assert!(log.recovery_report().is_sound(), "{}", log.recovery_report());
    }
    shim.heal();
    append(&log, 1);
    store.close().unwrap();
}

/// One of ten logs fails to close, and retention is at work meanwhile.
#[test]
fn c21_one_log_that_does_not_close_costs_the_others_nothing() {
    let disk = disk();
    let options =
        by_hand().log(LogOptions::new().segment_bytes(4096).cleanup_policy(CleanupPolicy::CompactDelete).retention_bytes(Some(8192)));
    let shim = Shim::over(&disk);
    let store = open(&shim, options.clone()).unwrap();
    for partition in 0..10 {
        append(&store.log("t", partition).unwrap(), 60);
    }
    shim.set_rule(|call, path| if call == Call::Sync && path.starts_with("/data/t-3") { Verdict::Fail(Other) } else { Verdict::Go });
    let error = std::thread::scope(|scope| {
        let logs = store.logs();
        scope.spawn(move || {
            // Until the logs are closed beneath it.
            for log in logs.iter().cycle().take(1000) {
                if log.apply_retention().is_err() {
                    break;
                }
            }
        });
        store.close().unwrap_err()
    });
    assert!(error.path().is_some_and(|path| path.starts_with("/data/t-3")), "{error:?}");
    shim.heal();
    let image = shim.after_power_cut();
    assert!(image.metadata(Path::new(MARK)).is_err(), "the directory was not closed in order");
    let store = open(&image, options).unwrap();
    assert_eq!(store.logs().len(), 10);
    for log in store.logs() {
        let report = log.recovery_report();
        assert!(report.is_sound(), "{report}");
        if log.topic_partition().partition() != 3 {
            assert_eq!((log.end_offset(), report.recovery_point, report.bytes_settled), (60, 60, 0), "flushed: {report}");
        }
    }
}

/// A pass fails at each of its calls in turn; the next one finds nothing of it, and takes nothing from one that is alive.
#[test]
fn c22_no_working_file_of_a_failed_pass_stays() {
    let disk = disk();
    let store = open(&disk, by_hand()).unwrap();
    append(&store.log("t", 0).unwrap(), 200);
    store.log("t", 0).unwrap().roll().unwrap();
    store.close().unwrap();
    let mut left_some = 0;
    for at in 0.. {
        let shim = Shim::over(&disk.image());
        let store = open(&shim, by_hand()).unwrap();
        let log = store.log("t", 0).unwrap();
        shim.stop_at(at);
        let done = store.clean(&log).is_ok();
        shim.heal();
        left_some += usize::from(!working_files(&shim.live()).is_empty());
        if !done {
            let log = store.log("t", 0).unwrap();
            store.clean(&log).unwrap();
        }
        let log = store.log("t", 0).unwrap();
        if done {
            // What could not be removed behind the pass goes with the next one.
            append(&log, 100);
            log.roll().unwrap();
            store.clean(&log).unwrap();
        }
        store.checkpoint().unwrap();
        assert_eq!(working_files(&shim.live()), [""; 0], "failed at {at}");
        let end = if done { 300 } else { 200 };
        assert_eq!((log.end_offset(), records(&log)), (end, 10), "failed at {at}");
        if done && at > 250 {
            assert!(left_some > 0, "a pass leaves files where it is stopped");
            break;
        }
    }
    // While one pass is at work, another one is refused and touches none of its files.
    let store = open(&Arc::new(disk.image()), by_hand()).unwrap();
    let log = store.log("t", 0).unwrap();
    let rewrite = log.begin_rewrite().unwrap();
    let output = rewrite.create_output(0).unwrap();
    assert_eq!(store.clean(&log).unwrap_err().kind(), ErrorKind::Locked);
    assert!(output.seal(T0).is_ok(), "its files are there");
}

/// The mark of how far the cleaner got, from before and from after what the log holds.
#[test]
fn c25_a_cleaner_mark_of_another_time_loses_nothing() {
    let disk = disk();
    let mark = "/data/cleaner-offset-checkpoint";
    let store = open(&disk, by_hand()).unwrap();
    let log = store.log("t", 0).unwrap();
    append(&log, 100);
    log.roll().unwrap();
    store.clean(&log).unwrap();
    store.close().unwrap();
    let before = Arc::new(disk.image());
    let old = contents(&*disk, Path::new(mark));
    let store = open(&disk, by_hand()).unwrap();
    let log = store.log("t", 0).unwrap();
    append(&log, 100);
    log.roll().unwrap();
    store.clean(&log).unwrap();
    let newest: Vec<_> = log.read_from(0).unwrap().map(|r| r.unwrap().offset()).collect();
    store.close().unwrap();
    let new = contents(&*disk, Path::new(mark));
    assert_ne!(old, new);
    // An old mark has clean data read again, which changes nothing.
    put(&disk, mark, &old);
    let store = open(&disk, by_hand()).unwrap();
    let log = store.log("t", 0).unwrap();
    store.clean(&log).unwrap();
    assert_eq!(log.read_from(0).unwrap().map(|r| r.unwrap().offset()).collect::<Vec<_>>(), newest);
    // A mark above the end is not believed: what comes there is dirty.
    put(&before, mark, &new);
    let store = open(&before, by_hand()).unwrap();
    let log = store.log("t", 0).unwrap();
    append(&log, 100);
    log.roll().unwrap();
    let report = store.clean(&log).unwrap();
    assert!(report.first_dirty <= 100, "{report}");
    assert_eq!((log.end_offset(), records(&log)), (200, 10));
}

/// Ten logs, one with a first segment that can't be read: nine serve, the tenth is named, keeps its bytes, and can be deleted.
#[test]
fn c26_one_corrupt_log_blocks_none_of_the_others() {
    let disk = disk();
    let strict = LogOptions::new().segment_bytes(4096).recovery_mode(keeplog::RecoveryMode::Strict);
    let options = by_hand().log(strict);
    let store = open(&disk, options.clone()).unwrap();
    (0..10).for_each(|partition| append(&store.log("t", partition).unwrap(), 60));
    let image = Arc::new(disk.image());
    drop(store);
    let path = segment(7, 0, ".log");
    let noise = vec![0x5a; contents(&*image, Path::new(&path)).len()];
    put(&image, &path, &noise);
    let store = open(&image, options).unwrap();
    assert_eq!((store.logs().len(), store.failed().len()), (9, 1));
    assert!(store.failed()[0].1.contains(&path), "{}", store.failed()[0].1);
    assert_eq!(contents(&*image, Path::new(&path)), noise, "nothing is erased");
    store.logs().iter().for_each(|log| assert_eq!(records(log), 60));
    store.delete_log("t", 7).unwrap();
    assert!(files_below(&*image, Path::new("/data")).iter().all(|path| !path.starts_with("/data/t-7")));

    // In the other modes it opens, and what can't be read stays or is kept aside.
    for mode in [keeplog::RecoveryMode::TruncateTail, keeplog::RecoveryMode::Salvage] {
        let damaged = Arc::new(disk.image());
        damaged.remove_file(Path::new(MARK)).ok();
        put(&damaged, "/data/recovery-point-offset-checkpoint", b"0\n0\n");
        put(&damaged, &path, &noise);
        let store = open(&damaged, by_hand().log(LogOptions::new().segment_bytes(4096).recovery_mode(mode))).unwrap();
        assert_eq!(store.failed().len(), 0);
        let kept = files_below(&*damaged, Path::new("/data/t-7")).into_iter().any(|file| contents(&*damaged, &file) == noise);
        assert!(kept, "{mode:?}");
    }
}

/// Who reads the counters of a rule must not change what it counts.
#[test]
fn the_shim_forgets_what_no_sync_covered() {
    let shim = Shim::over(&MemoryStorage::new());
    let path = Path::new("/f");
    let file = Storage::open(&*shim, path, OpenMode::CreateNew).unwrap();
    write_all_at(&*file, &[1; 32], 0).unwrap();
    file.sync_data().unwrap();
    write_all_at(&*file, &[2; 32], 32).unwrap();
    let syncs = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&syncs);
    shim.set_rule(move |call, _| {
        *seen.lock().unwrap() += usize::from(call == Call::Sync);
        if call == Call::Sync { Verdict::Fail(Other) } else { Verdict::Go }
    });
    file.sync_data().unwrap_err();
    shim.heal();
    write_all_at(&*file, &[3; 16], 64).unwrap();
    file.sync_data().unwrap();
    assert_eq!(*syncs.lock().unwrap(), 1);
    assert_eq!(contents(&*shim.live(), path), [vec![1; 32], vec![2; 32], vec![3; 16]].concat());
    assert_eq!(contents(&*shim.after_power_cut(), path), [vec![1; 32], vec![0; 32], vec![3; 16]].concat());
}
