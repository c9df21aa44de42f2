//! What a finished sync vouches for.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use keeplog_engine::record::Record;
use keeplog_engine::storage::{File, FileLayer, Layer, MemoryStorage, OpenMode, Storage};
use keeplog_engine::{Durability, Log};

use crate::support::{LOG, T0, all, disk, small};

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
