//! Field reports about stores with many segments that are opened, closed and removed: what counts are the calls to the storage.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use keeplog::inspect::storage::{Entry, Layer, MemoryStorage, OpenMode, Storage, write_all_at};
use keeplog::{Durability, LogOptions, Record, Store, StoreOptions};

use crate::disk::disk;
use crate::shim::{Call, Shim, Verdict, contents};

const LOGS: u32 = 200;
const FEW: u64 = 10;
/// 20,000 in all.
const MANY: u64 = 100;

fn open(storage: Arc<dyn Storage>) -> Store {
    let options = StoreOptions::new().log(LogOptions::new().segment_bytes(4096)).background_thread(false);
    Store::open_with(storage, Path::new("/data"), options).unwrap()
}

/// A closed store of logs with `segments` closed segments each.
fn closed_store(segments: u64) -> Arc<MemoryStorage> {
    let disk = disk();
    let store = open(disk.clone());
    for number in 0..LOGS {
        let log = store.log("t", number).unwrap();
        for _ in 0..segments {
            log.append(&[Record::new("k", "v")], Durability::Buffered).unwrap();
            log.roll().unwrap();
        }
        log.append(&[Record::new("k", "v")], Durability::Buffered).unwrap();
    }
    store.close().unwrap();
    disk
}

/// Calls by kind of call, file, and the partition that it is in.
type Calls = Arc<Mutex<BTreeMap<(&'static str, String, String), usize>>>;

fn counted(shim: &Shim) -> Calls {
    let calls = Calls::default();
    let counting = Arc::clone(&calls);
    shim.set_rule(move |call, path| {
        let kind = match call {
            Call::Read(_) => "read",
            Call::Open | Call::Create => "open",
            _ => "other",
        };
        let text = |part: Option<&std::ffi::OsStr>| part.map_or_else(String::new, |part| part.to_string_lossy().into_owned());
        let of = (kind, text(path.extension()), text(path.parent().and_then(Path::file_name)));
        *counting.lock().unwrap().entry(of).or_default() += 1;
        Verdict::Go
    });
    calls
}

fn sum(calls: &Calls, which: impl Fn(&str, &str, &str) -> bool) -> usize {
    calls.lock().unwrap().iter().filter(|((kind, file, partition), _)| which(kind, file, partition)).map(|(_, count)| count).sum()
}

fn is_index(file: &str) -> bool {
    ["index", "timeindex", "txnindex"].contains(&file)
}

/// 20,000 closed segments in 200 logs: closed in order, killed with one index damaged, killed within a swap.
#[test]
fn g02_a_start_over_twenty_thousand_segments_reads_no_log_data_but_what_may_be_torn() {
    let start = |disk: &MemoryStorage| {
        let shim = Shim::over(disk);
        let calls = counted(&shim);
        let store = open(shim.clone());
        assert!(store.failed().is_empty());
        (calls, store)
    };
    let (few, many) = (closed_store(FEW), closed_store(MANY));
    let (calls_few, calls_many) = (start(&few).0, start(&many).0);
    let of_log_data = |calls: &Calls| sum(calls, |kind, file, _| kind == "read" && file == "log");
    assert_eq!(of_log_data(&calls_few), of_log_data(&calls_many), "closed in order");
    assert!(of_log_data(&calls_many) <= 4 * LOGS as usize, "{} reads", of_log_data(&calls_many));
    let more = sum(&calls_many, |_, _, _| true) - sum(&calls_few, |_, _, _| true);
    assert!(more <= 12 * (MANY - FEW) as usize * LOGS as usize, "{more} calls more");

    many.remove_file(Path::new("/data/.kafka_cleanshutdown")).unwrap();
    let (damaged, swapped) = (many.image(), many.image());
    let (killed, _) = start(&many);
    assert!(of_log_data(&killed) <= 12 * LOGS as usize, "{} reads", of_log_data(&killed));

    let first = |suffix: &str| PathBuf::from(format!("/data/t-7/00000000000000000000{suffix}"));
    let put = |disk: &MemoryStorage, path: &Path, bytes: &[u8]| {
        write_all_at(&*disk.open(path, OpenMode::Truncate).unwrap(), bytes, 0).unwrap();
    };
    put(&damaged, &first(".index"), b"noise");
    for suffix in [".log", ".index", ".timeindex"] {
        put(&swapped, &first(&format!("{suffix}.swap")), &contents(&swapped, &first(suffix)));
    }
    for (disk, what) in [(&damaged, "a damaged index"), (&swapped, "an interrupted swap")] {
        let (calls, store) = start(disk);
        let report = store.log("t", 7).unwrap().recovery_report().clone();
        assert_eq!(report.rebuilt.len() + report.swaps_completed.len(), 1, "{report}");
        let others = |calls: &Calls| sum(calls, |kind, file, partition| kind == "read" && file == "log" && partition != "t-7");
        assert_eq!(others(&calls), others(&killed), "{what}");
        assert!(of_log_data(&calls) - of_log_data(&killed) <= 4, "{what}: no other segment is read");
    }
}

/// Lets nobody list the first log until a second one is being opened, too.
#[derive(Debug)]
struct Together {
    below: Arc<MemoryStorage>,
    arrived: (Mutex<usize>, Condvar),
}

impl Layer for Together {
    fn below(&self) -> &dyn Storage {
        &*self.below
    }

    fn list(&self, dir: &Path) -> std::io::Result<Vec<Entry>> {
        if dir.starts_with("/data/t-0") || dir.starts_with("/data/t-1") {
            let mut arrived = self.arrived.0.lock().unwrap();
            *arrived += 1;
            self.arrived.1.notify_all();
            // The time limit only ends a test that hangs.
            let wait = self.arrived.1.wait_timeout_while(arrived, Duration::from_secs(60), |arrived| *arrived < 2).unwrap();
            assert!(!wait.1.timed_out(), "logs are opened one after the other");
        }
        self.below.list(dir)
    }
}

#[test]
fn g02_logs_are_opened_side_by_side() {
    if std::thread::available_parallelism().is_ok_and(|threads| threads.get() > 1) {
        let disk = disk();
        let store = open(disk.clone());
        (0..2).for_each(|number| _ = store.log("t", number).unwrap());
        store.close().unwrap();
        let storage = Arc::new(Together { below: disk, arrived: (Mutex::new(0), Condvar::new()) });
        assert_eq!(open(storage).logs().len(), 2);
    }
}

/// 20,000 closed segments that nobody has read: a close opens no index but that of the active ones, and a removal, which renames
/// the directory first, none at all.
#[test]
fn g03_neither_a_close_nor_a_removal_opens_an_index_that_nobody_used() {
    let mut closing = Vec::new();
    for segments in [FEW, MANY] {
        let shim = Shim::over(&closed_store(segments));
        let store = open(shim.clone());
        let calls = counted(&shim);
        for number in 0..LOGS / 2 {
            store.delete_log("t", number).unwrap();
        }
        let of_sealed = sum(&calls, |kind, file, _| kind != "other" && is_index(file));
        // Before it goes a log is closed, and its active segment with it.
        assert!(of_sealed <= 4 * LOGS as usize / 2, "{of_sealed} calls");
        let opened = sum(&calls, |kind, file, partition| kind != "other" && is_index(file) && partition.ends_with("-delete"));
        assert_eq!(opened, 0, "once it has its new name");
        let calls = counted(&shim);
        store.close().unwrap();
        closing.push((of_sealed, sum(&calls, |kind, file, _| kind != "other" && (is_index(file) || file == "log"))));
    }
    assert_eq!(closing[0], closing[1]);
}
