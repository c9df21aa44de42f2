//! Field reports about what the cleaner asks of a log.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use keeplog_engine::record::{Attributes, BatchHeader, BatchSpec, Record, TxnResult, write_empty};
use keeplog_engine::storage::{Layer, MemoryStorage, Storage};
use keeplog_engine::{Durability, ErrorKind, Log, LogOptions, SealedOutput, TransactionEnd};

use crate::support::{LOG, T0, all, batch, crash, disk, files, open, producer, put, small};

/// A hundred records in segments of 4 KiB.
fn fill(log: &Log) {
    for i in 0..100 {
        log.append(&[Record::new(format!("k{i}"), "v".repeat(100))], Durability::Buffered).unwrap();
    }
    log.sync().unwrap();
}

/// Offsets below `end`, of which `cuts` are the first of a further output each.
fn outputs(log: &Log, rewrite: &keeplog_engine::Rewrite, cuts: &[u64], end: u64) -> Vec<SealedOutput> {
    let bounds: Vec<_> = [0].iter().chain(cuts).chain([&end]).copied().collect();
    let write = |bounds: &[u64]| {
        let mut output = rewrite.create_output(bounds[0]).unwrap();
        for batch in log.batches_from(0).unwrap().map(Result::unwrap).filter(|b| b.header.base_offset != bounds[0] + 1) {
            if (bounds[0]..bounds[1]).contains(&batch.header.base_offset) {
                output.append(&batch.bytes).unwrap();
            }
        }
        output.seal(T0).unwrap()
    };
    bounds.windows(2).map(write).collect()
}

/// A file system that writes down what changes the names in the log's directory, until a file is made there.
#[derive(Debug)]
struct Recorder {
    memory: Arc<MemoryStorage>,
    /// A group for the time between two syncs: the power may fail with any of it on the disk, and the rest not.
    groups: Mutex<Option<Vec<Vec<Change>>>>,
}

#[derive(Clone, Debug)]
enum Change {
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

impl Change {
    /// Makes the change on `disk`; that it was made before is fine.
    fn apply(&self, disk: &MemoryStorage) {
        let _ = match self {
            Self::Rename(from, to) => disk.rename(from, to),
            Self::Remove(path) => disk.remove_file(path),
        };
    }
}

impl Recorder {
    fn over(memory: &Arc<MemoryStorage>) -> Arc<Self> {
        Arc::new(Self { memory: Arc::clone(memory), groups: Mutex::default() })
    }

    fn begin(&self) {
        *self.groups.lock().unwrap() = Some(vec![Vec::new()]);
    }

    fn end(&self) -> Vec<Vec<Change>> {
        self.groups.lock().unwrap().take().unwrap_or_default().into_iter().filter(|group| !group.is_empty()).collect()
    }

    fn note(&self, path: &Path, change: Change) {
        if let Some(groups) = self.groups.lock().unwrap().as_mut().filter(|_| path.parent() == Some(Path::new(LOG))) {
            groups.last_mut().unwrap().push(change);
        }
    }
}

impl Layer for Recorder {
    fn below(&self) -> &dyn Storage {
        &*self.memory
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let renamed = self.memory.rename(from, to);
        if renamed.is_ok() {
            self.note(to, Change::Rename(from.to_owned(), to.to_owned()));
        }
        renamed
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let removed = self.memory.remove_file(path);
        if removed.is_ok() {
            self.note(path, Change::Remove(path.to_owned()));
        }
        removed
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        if let Some(groups) = self.groups.lock().unwrap().as_mut().filter(|_| dir == Path::new(LOG)) {
            groups.push(Vec::new());
        }
        self.memory.sync_dir(dir)
    }
}

/// What a power failure may leave of `groups`, made on copies of `before`: all of some groups and any part of the next.
fn power_failures(before: &MemoryStorage, groups: &[Vec<Change>], mut check: impl FnMut(&Arc<MemoryStorage>)) {
    let durable = before.image();
    for group in groups {
        assert!(group.len() <= 12, "too many to try: {group:?}");
        for some in 0..1_u32 << group.len() {
            let image = Arc::new(durable.image());
            group.iter().enumerate().filter(|(at, _)| some & (1 << at) != 0).for_each(|(_, change)| change.apply(&image));
            check(&image);
        }
        group.iter().for_each(|change| change.apply(&durable));
    }
}

/// A log of which three outputs are to take the place of two sources: the second bears the name of the second source,
/// the third that of none. The files before the swap, what the swap did, and what is to be read before and after it.
fn swapped() -> (MemoryStorage, Vec<Vec<Change>>, Contents, Contents) {
    let memory = disk();
    let recorder = Recorder::over(&memory);
    let log = Log::open_with(Arc::clone(&recorder) as Arc<dyn Storage>, Path::new(LOG), small()).unwrap();
    fill(&log);
    let old = all(&log);
    let bases: Vec<_> = log.segments().all().iter().map(|s| s.base_offset()).collect();
    let cuts = [bases[1], bases[1] + 20];
    let rewrite = log.begin_rewrite().unwrap();
    let sources = rewrite.sources().sealed()[..2].to_vec();
    let sealed = outputs(&log, &rewrite, &cuts, bases[2]);
    let before = memory.image();
    recorder.begin();
    rewrite.swap(&sources, sealed).unwrap();
    let changes = recorder.end();
    let new = all(&log);
    assert_eq!((old.len(), new.len()), (100, 97));
    assert_eq!(log.segments().all().iter().map(|s| s.base_offset()).take(4).collect::<Vec<_>>(), [0, cuts[0], cuts[1], bases[2]]);
    (before, changes, old, new)
}

type Contents = Vec<(u64, String, Option<String>)>;

#[test]
fn a06_several_outputs_take_the_place_of_their_sources_at_once_wherever_the_power_fails() {
    let (before, changes, old, new) = swapped();
    let mut seen = [0, 0];
    power_failures(&before, &changes, |image| {
        let log = open(image, small());
        let is_new = all(&log) == new;
        assert!(is_new || all(&log) == old);
        seen[usize::from(is_new)] += 1;
        assert_eq!((log.recovery_report().damage.len(), log.end_offset()), (0, 100));
        assert!(files(image).iter().all(|f| !f.contains(".cleaned") && !f.contains(".swap")), "{:?}", files(image));
    });
    assert!(seen[0] >= 64 && seen[1] >= 64, "{seen:?}");
}

#[test]
fn a06_a_recovery_that_completes_several_outputs_may_be_interrupted_too() {
    let (before, changes, _, new) = swapped();
    // All outputs are `.swap`, and the sources are there: from here on a crash completes the swap.
    let durable = before.image();
    let is_complete = |disk: &MemoryStorage| files(disk).iter().all(|f| !f.contains(".cleaned"));
    for change in changes.iter().flatten() {
        if is_complete(&durable) {
            break;
        }
        change.apply(&durable);
    }
    let recorder = Recorder::over(&Arc::new(durable.image()));
    recorder.begin();
    drop(Log::open_with(Arc::clone(&recorder) as Arc<dyn Storage>, Path::new(LOG), small()).unwrap());
    let mut groups = recorder.end();
    // What follows the renames is the close.
    let last = groups.iter().rposition(|group| group.iter().any(|c| matches!(c, Change::Rename(from, _) if is_swap(from)))).unwrap();
    groups.truncate(last + 1);
    assert!(groups.len() >= 4, "{groups:?}");
    power_failures(&durable, &groups, |image| {
        let log = open(image, small());
        assert!(all(&log) == new);
        assert_eq!((log.recovery_report().damage.len(), log.end_offset()), (0, 100));
    });
}

fn is_swap(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "swap")
}

#[test]
fn a06_an_output_that_reaches_into_the_next_is_refused() {
    let disk = disk();
    let log = open(&disk, small());
    fill(&log);
    let end = log.segments().all()[1].base_offset();
    let rewrite = log.begin_rewrite().unwrap();
    let sources = rewrite.sources().sealed()[..1].to_vec();
    let [first, second] = <[_; 2]>::try_from(outputs(&log, &rewrite, &[10], end)).unwrap();
    let error = rewrite.swap(&sources, vec![second, first]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    drop(rewrite);
    let rewrite = log.begin_rewrite().unwrap();
    let long = outputs(&log, &rewrite, &[], end + 1);
    assert_eq!(rewrite.swap(&sources, long).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(all(&log).len(), 100);
}

#[test]
fn a06_a_log_opens_whose_segment_spans_more_than_an_index_can_hold() {
    let disk = disk();
    let log = open(&disk, small());
    log.close().unwrap();
    let at = |base_offset| batch(BatchSpec { base_offset, ..BatchSpec::default() }, &[("k", Some("v"))]);
    put(&disk, "00000000000000000000.log", &[at(1), at((1 << 31) + 1)].concat());
    let log = open(&disk, small().recovery_full_scan(true));
    assert!(log.recovery_report().is_sound(), "{}", log.recovery_report());
    assert_eq!(all(&log).iter().map(|r| r.0).collect::<Vec<_>>(), [1, (1 << 31) + 1]);
    assert_eq!(log.append(&[Record::new("k", "v")], Durability::Synced).unwrap().base_offset, (1 << 31) + 2);
    assert_eq!(log.segments().all()[1].base_offset(), (1 << 31) + 2, "it goes on in a segment of its own");
}

#[test]
fn a15_readers_and_recovery_pass_over_a_control_batch_without_records() {
    let disk = disk();
    let log = open(&disk, LogOptions::new());
    let txn = |sequence| BatchSpec { transactional: true, ..producer(1, 0, sequence) };
    log.append_batch(batch(txn(0), &[("a", Some("1"))]), Durability::Buffered).unwrap();
    let like = log.batches_from(0).unwrap().next().unwrap().unwrap().header;
    let attributes = Attributes(Attributes::CONTROL | Attributes::TRANSACTIONAL);
    let mut emptied = Vec::new();
    write_empty(&BatchHeader { base_offset: 1, last_offset: 1, attributes, ..like }, &mut emptied);
    log.append_as_follower(&emptied, Durability::Buffered).unwrap();
    assert_eq!(log.last_stable_offset(), 0, "it ends no transaction");
    log.append_batch(batch(txn(1), &[("b", Some("1"))]), Durability::Buffered).unwrap();
    let end = TransactionEnd { producer_id: 1, producer_epoch: 0, result: TxnResult::Committed, coordinator_epoch: 0 };
    log.end_transaction(&end, Durability::Synced).unwrap();
    let look = |log: &Log| {
        let offsets = |records: keeplog_engine::Records| records.map(|r| r.unwrap().offset()).collect::<Vec<_>>();
        (offsets(log.read_from(0).unwrap()), offsets(log.read_committed_from(0).unwrap()), log.last_stable_offset())
    };
    assert_eq!(look(&log), (vec![0, 2], vec![0, 2], 4));
    let image = crash(log, &disk);
    let log = open(&image, LogOptions::new().recovery_full_scan(true));
    assert!(log.recovery_report().is_sound(), "{}", log.recovery_report());
    assert_eq!(look(&log), (vec![0, 2], vec![0, 2], 4));
}

/// A directory or a link with the name of a working file is nothing that was made here: it stays, with all that is in it.
#[test]
fn strangers_with_the_names_of_working_files_are_left_alone_and_told() {
    for suffix in [".log.cleaned", ".log.swap.x", ".index.swap", ".timeindex.deleted", ".log.deleted"] {
        for is_directory in [true, false] {
            let disk = disk();
            let log = open(&disk, small());
            fill(&log);
            let path = crate::support::path(&format!("{:020}{suffix}", 0));
            if is_directory {
                disk.create_dir(&path).unwrap();
                drop(disk.open(&path.join("inside"), keeplog_engine::storage::OpenMode::CreateNew).unwrap());
            } else {
                disk.create_other(&path).unwrap();
            }
            let is_working = !suffix.ends_with(".x");
            let check = |log: &Log| match log.begin_rewrite() {
                Ok(_) => assert!(!is_working, "{suffix}"),
                Err(error) => {
                    assert_eq!((error.kind(), error.path()), (ErrorKind::AlreadyExists, Some(&*path)), "{error}");
                    assert!(is_working && error.to_string().contains("move it away"), "{error}");
                }
            };
            check(&log);
            log.close().unwrap();
            let log = open(&disk, small());
            assert_eq!(log.recovery_report().notes.len(), usize::from(is_working), "{}", log.recovery_report());
            check(&log);
            assert_eq!(all(&log).len(), 100);
            assert!(disk.metadata(&path).is_ok() && (!is_directory || disk.metadata(&path.join("inside")).is_ok()), "{suffix} is gone");
        }
    }
}
