//! What a finished sync vouches for.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keeplog_engine::record::Record;
use keeplog_engine::storage::{File, FileLayer, Layer, MemoryStorage, OpenMode, Storage};
use keeplog_engine::{DataDir, Durability, ErrorKind, Log, TopicPartition};

use crate::shim::{Call, Shim, Verdict};
use crate::support::{LOG, T0, all, disk, open, open_on, small};

type Meanwhile = Box<dyn FnOnce() + Send>;

/// Something that happens while a sync of a log file is under way, and how many such syncs began after it.
#[derive(Default)]
struct Syncs {
    meanwhile: Mutex<Option<Meanwhile>>,
    since: AtomicUsize,
}

impl std::fmt::Debug for Syncs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Syncs").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Watched<T: ?Sized> {
    syncs: Arc<Syncs>,
    below: Arc<T>,
}

impl Layer for Watched<MemoryStorage> {
    fn below(&self) -> &dyn Storage {
        &*self.below
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let below = self.below.open(path, mode)?;
        // Also the new file that a truncation gives the name of the old one.
        if !path.to_string_lossy().contains(".log") {
            return Ok(below);
        }
        Ok(Arc::new(Watched { syncs: Arc::clone(&self.syncs), below }))
    }
}

impl FileLayer for Watched<dyn File> {
    fn below(&self) -> &dyn File {
        &*self.below
    }

    fn sync_data(&self) -> io::Result<()> {
        self.below.sync_data()?;
        self.syncs.since.fetch_add(1, Ordering::SeqCst);
        let meanwhile = self.syncs.meanwhile.lock().unwrap().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile();
            self.syncs.since.store(0, Ordering::SeqCst);
        }
        Ok(())
    }
}

fn append(log: &Log, value: &str) {
    log.append(&[Record::new("k", value.to_owned()).timestamp_ms(T0)], Durability::Buffered).unwrap();
}

/// The offsets that a sync covered may stand for other records when it is done.
#[test]
fn a_sync_that_a_truncation_overtook_vouches_for_nothing() {
    let syncs = Arc::new(Syncs::default());
    let storage = Arc::new(Watched { syncs: Arc::clone(&syncs), below: disk() });
    let log = Log::open_with(storage, Path::new(LOG), small()).unwrap();
    for i in 0..10 {
        append(&log, &format!("old {i}"));
    }
    let other = log.clone();
    *syncs.meanwhile.lock().unwrap() = Some(Box::new(move || {
        other.truncate_to(5).unwrap();
        for i in 5..10 {
            append(&other, &format!("new {i}"));
        }
    }));
    log.sync().unwrap();
    assert_eq!(all(&log)[9], (9, "k".to_owned(), Some("new 9".to_owned())), "the truncation came in between");
    assert!(syncs.since.load(Ordering::SeqCst) > 0, "what was appended after it was synced, too");
    assert_eq!(log.recovery_point(), 10);
}

/// It waits for an end that never comes again: it must say so, and not sync for ever.
#[test]
fn an_append_that_a_truncation_overtook_is_not_acknowledged() {
    let syncs = Arc::new(Syncs::default());
    let storage = Arc::new(Watched { syncs: Arc::clone(&syncs), below: disk() });
    let log = Log::open_with(storage, Path::new(LOG), small()).unwrap();
    for i in 0..10 {
        append(&log, &format!("old {i}"));
    }
    for refill in [0, 10] {
        let other = log.clone();
        *syncs.meanwhile.lock().unwrap() = Some(Box::new(move || {
            other.truncate_to(5).unwrap();
            (0..refill).for_each(|i| append(&other, &format!("new {i}")));
        }));
        let error = log.append(&[Record::new("k", "gone").timestamp_ms(T0)], Durability::Synced).unwrap_err();
        assert_eq!((error.kind(), log.end_offset()), (ErrorKind::OutOfRange, 5 + refill), "{error}");
        assert!(all(&log).iter().all(|(_, _, value)| value.as_deref() != Some("gone")));
    }
    log.append(&[Record::new("k", "more").timestamp_ms(T0)], Durability::Synced).unwrap();
}

/// The turn of somebody else is not given back by one who did not get it.
#[test]
fn retention_leaves_a_rewrite_under_way_its_turn() {
    let log = Log::open_with(disk(), Path::new(LOG), small()).unwrap();
    append(&log, "v");
    let held = log.begin_rewrite().unwrap();
    log.apply_retention().unwrap();
    assert_eq!(log.begin_rewrite().unwrap_err().kind(), ErrorKind::Locked);
    drop(held);
    drop(log.begin_rewrite().unwrap());
}

/// Who is late speaks for the log that he has known, and not for a new one of the same name.
#[test]
fn a_closed_log_says_nothing_of_one_that_was_made_anew() {
    let dir = Arc::new(DataDir::open(disk(), Path::new("/data")).unwrap());
    let name = TopicPartition::new("t", 0).unwrap();
    let log = Log::open_in(&dir, &name, small()).unwrap();
    (0..10).for_each(|i| append(&log, &format!("old {i}")));
    log.close().unwrap();
    dir.remove(&name).unwrap();
    let new = Log::open_in(&dir, &name, small()).unwrap();
    (0..20).for_each(|i| append(&new, &format!("new {i}")));
    let _ = log.sync();
    log.note_offsets();
    log.set_cleaner_offset(9, 0);
    assert_eq!((dir.recovery_point(&name), dir.high_watermark(&name), dir.cleaner_offset(&name)), (0, None, None));
    assert_eq!(log.advance_start(5).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(log.truncate_to(5).unwrap_err().kind(), ErrorKind::Closed);
}

/// Whoever waits for another's sync gives up in time, and the sync goes on.
#[test]
fn waiting_for_a_sync_has_a_limit() {
    let syncs = Arc::new(Syncs::default());
    let storage = Arc::new(Watched { syncs: Arc::clone(&syncs), below: disk() });
    let log = Log::open_with(storage, Path::new(LOG), small()).unwrap();
    log.append(&[Record::new("a", "1")], Durability::Synced).unwrap();
    log.append(&[Record::new("b", "2")], Durability::Buffered).unwrap();
    let waiting = log.clone();
    *syncs.meanwhile.lock().unwrap() = Some(Box::new(move || {
        let other = std::thread::spawn(move || waiting.sync_within(Duration::ZERO));
        assert_eq!(other.join().unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
    }));
    log.sync_within(Duration::ZERO).unwrap();
    assert_eq!(log.recovery_point(), 2, "its own sync is not cut short");
    log.sync_within(Duration::MAX).unwrap();
}

/// What a sync under way has taken along is not known to be safe before it ends.
#[test]
fn a_close_waits_for_a_sync_under_way() {
    let syncs = Arc::new(Syncs::default());
    let storage = Arc::new(Watched { syncs: Arc::clone(&syncs), below: disk() });
    let log = Log::open_with(storage, Path::new(LOG), small()).unwrap();
    (0..100).for_each(|i| append(&log, &format!("{i}")));
    let (other, closed) = (log.clone(), Arc::new(Mutex::new(None)));
    let seen = Arc::clone(&closed);
    *syncs.meanwhile.lock().unwrap() = Some(Box::new(move || {
        let closing = std::thread::Builder::new().spawn(move || other.close()).unwrap();
        // Long enough for a close that does not wait.
        std::thread::park_timeout(std::time::Duration::from_millis(50));
        assert!(!closing.is_finished(), "it vouches for what is being synced");
        *seen.lock().unwrap() = Some(closing);
    }));
    log.sync().unwrap();
    let closing = closed.lock().unwrap().take().unwrap();
    closing.join().unwrap().unwrap();
    assert_eq!(log.recovery_point(), 100);
}

/// It says nothing of what is appended from then on, and the cleaner starts over; a truncation lowers it.
#[test]
fn a_cleaners_offset_above_the_end_is_forgotten() {
    let disk = disk();
    let log = crate::support::open(&disk, small());
    (0..10).for_each(|i| append(&log, &format!("{i}")));
    log.set_cleaner_offset(8, 0);
    log.data_dir().write_checkpoints().unwrap();
    let image = crate::support::crash(log, &disk);
    crate::support::put(&image, "00000000000000000000.log", b"");
    let log = crate::support::open(&image, small());
    assert_eq!((log.end_offset(), log.data_dir().cleaner_offset(log.topic_partition())), (0, None));
    let earlier = log.truncations();
    (0..10).for_each(|i| append(&log, &format!("{i}")));
    log.truncate_to(4).unwrap();
    log.set_cleaner_offset(8, earlier);
    assert_eq!(log.data_dir().cleaner_offset(log.topic_partition()), Some(4));
}

/// What `advance_start` has promised is not taken back by whoever notes the offsets at the same time.
#[test]
fn an_advanced_start_is_not_taken_back() {
    let log = Log::open_with(disk(), Path::new(LOG), small()).unwrap();
    (0..300).for_each(|i| append(&log, &format!("{i}")));
    std::thread::scope(|scope| {
        let noting = scope.spawn(|| {
            while log.start_offset() < 300 {
                log.note_offsets();
                log.data_dir().write_checkpoints().unwrap();
            }
        });
        for i in 1..=300 {
            log.advance_start(i).unwrap();
            assert_eq!(log.data_dir().log_start(log.topic_partition()), i);
        }
        noting.join().unwrap();
    });
}

/// The limits of a process, as it meets them: what is told names the limit and how to raise it, and with more of it all is as before.
#[test]
fn a_limit_of_the_process_is_told_with_what_raises_it() {
    use crate::support::append;
    const EMFILE: i32 = 24;
    const EFBIG: i32 = 27;
    let disk = disk();
    let log = open(&disk, small());
    (0..50).for_each(|i| _ = append(&log, &format!("{i:0200}")).unwrap());
    log.close().unwrap();
    let told = |error: keeplog_engine::Error, kind, words: &str| {
        assert!(error.kind() == kind && error.to_string().contains(words) && error.path().is_some(), "{error:?}");
    };
    let too_many = |call, _: &Path| if matches!(call, Call::Open | Call::Create) { Verdict::Os(EMFILE) } else { Verdict::Go };
    let shim = Shim::over(&disk);
    shim.set_rule(too_many);
    told(open_on(&shim, small()).unwrap_err(), ErrorKind::Io, "ulimit -n");
    shim.heal();
    let log = open_on(&shim, small()).unwrap();
    assert!(log.recovery_report().is_sound() && log.end_offset() == 50, "nothing was taken for damage: {}", log.recovery_report());
    shim.set_rule(too_many);
    told(log.read_from(0).and_then(|mut records| records.next().unwrap()).unwrap_err(), ErrorKind::Io, "ulimit -n");
    shim.heal();
    assert_eq!(log.read_from(0).unwrap().count(), 50);

    shim.set_rule(|call, _| if matches!(call, Call::Write(_)) { Verdict::Os(EFBIG) } else { Verdict::Go });
    told(append(&log, "v").unwrap_err(), ErrorKind::StorageFull, "ulimit -f");
    assert_eq!(append(&log, "v").unwrap_err().kind(), ErrorKind::Poisoned);
    drop(log);
    let log = open(&shim.live(), small());
    assert_eq!(log.end_offset(), 50);
}
