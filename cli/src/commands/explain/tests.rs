use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::door::Durability;
use crate::door::storage::{File, Layer, MemoryStorage, OpenMode};
use crate::target::Target;

const LOG: &str = "/data/t-0";

/// A storage on which another process cleans the log as soon as one of its segments is opened, the first few times.
#[derive(Debug)]
struct Cleaned {
    below: MemoryStorage,
    times: AtomicUsize,
}

impl Layer for Cleaned {
    fn below(&self) -> &dyn Storage {
        &self.below
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let is_wanted = path.extension().is_some_and(|e| e == "log") && path.starts_with(LOG);
        if is_wanted && self.times.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            clean(&self.below, 20);
        }
        self.below.open(path, mode)
    }
}

/// Appends to the log, in small segments, and cleans it.
fn clean(below: &MemoryStorage, records: u64) {
    let log = Log::open_with(Arc::new(below.clone()), Path::new(LOG), LogOptions::new().segment_bytes(4096)).unwrap();
    for i in 0..records {
        let record = crate::door::record::Record::new(format!("key-{}", i % 5), "x".repeat(1000));
        log.append(&[record], Durability::Buffered).unwrap();
    }
    log.roll().unwrap();
    cleaner::clean(&log, &CleanOptions::for_log(log.options(), 0), &()).unwrap();
    log.close().unwrap();
}

fn explained(times: usize) -> Result<Explained, Failure> {
    let below = MemoryStorage::new();
    below.create_dir(Path::new("/data")).unwrap();
    clean(&below, 50);
    let storage: Arc<dyn Storage> = Arc::new(Cleaned { below, times: AtomicUsize::new(times) });
    let log_options = LogOptions::new();
    let plan = Plan { dir: LOG.into(), storage: Arc::clone(&storage), now_ms: 0, fixed_now_ms: Some(0), log_options };
    let target = Target::find(&*storage, Path::new(LOG)).unwrap();
    let log_bytes = crate::target::log_bytes(&*storage, &target.partitions[0]);
    let topic_partition = crate::door::TopicPartition::new("t", 0).unwrap();
    explain_at_rest(&plan, &storage, &OwnedPartition { name: "t-0".to_owned(), topic_partition, log_bytes })
}

#[test]
fn a_log_that_is_cleaned_beside_the_reading_is_read_anew() {
    let explained = explained(3).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(!explained.is_damaged() && explained.pass.is_some_and(|pass| pass.records_dropped == 0), "all is clean by then");
}

#[test]
fn one_that_does_not_come_to_rest_is_told() {
    let failure = explained(usize::MAX).expect_err("it is never at rest").to_string();
    assert!(failure.contains("being replaced") && failure.contains("try again"), "{failure}");
}
