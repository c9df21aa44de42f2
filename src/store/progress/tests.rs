use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use keeplog_cleaner::{CleanOptions, clean};
use keeplog_engine::record::Record;
use keeplog_engine::storage::{MemoryStorage, Storage};
use keeplog_engine::sync::Arc;
use keeplog_engine::{Durability, LogOptions};
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

use super::*;

fn two_segments() -> Log {
    let storage = MemoryStorage::new();
    storage.create_dir(Path::new("/data")).unwrap();
    let log = Log::open_with(Arc::new(storage), Path::new("/data/prices-0"), LogOptions::new()).unwrap();
    for _ in 0..2 {
        for i in 0..100 {
            log.append(&[Record::new(format!("key-{}", i % 10), "x".repeat(100))], Durability::Buffered).unwrap();
        }
        log.roll().unwrap();
    }
    log
}

/// Looks, while a pass is under way, at what is told of it.
struct Looks<'a> {
    in_progress: &'a InProgress,
    log: &'a Log,
    seen: AtomicUsize,
    /// Of the last look: the segment, and the bytes.
    last: Mutex<(Option<u64>, u64, u64)>,
}

impl Watch for Looks<'_> {
    fn progress(&self, progress: Progress) {
        let all = self.in_progress.all(self.log.storage().monotonic() + Duration::from_secs(2));
        assert_eq!(all.len(), 1);
        assert_eq!(&all[0].log, self.log.topic_partition());
        assert_eq!((all[0].segment, all[0].bytes_done, all[0].bytes_total), (progress.segment, progress.bytes_done, progress.bytes_total));
        assert!(all[0].elapsed >= Duration::from_secs(2));
        assert!(all[0].bytes_per_second() <= all[0].bytes_done as f64 / 2.0);
        self.seen.fetch_add(1, Ordering::Relaxed);
        *self.last.lock().unwrap() = (progress.segment, progress.bytes_done, progress.bytes_total);
    }
}

#[test]
fn a_pass_under_way_is_told_of_until_it_ends() {
    let (in_progress, log) = (InProgress::default(), two_segments());
    let bytes: u64 = log.segments().all().iter().map(|segment| segment.size_bytes()).sum();
    let looks = Looks { in_progress: &in_progress, log: &log, seen: AtomicUsize::new(0), last: Mutex::default() };
    let options = CleanOptions::new(log.storage().now_ms()).chunk_bytes(1000);
    {
        // One that never comes to work does not hide the other.
        drop(in_progress.watch(&log, &()));
        let watched = in_progress.watch(&log, &looks);
        clean(&log, &options, &watched).unwrap();
    }
    assert!(looks.seen.into_inner() > 10);
    assert_eq!(looks.last.into_inner().unwrap(), (Some(0), bytes, bytes));
    assert_eq!(in_progress.all(Duration::ZERO), []);
}

#[test]
fn the_rate_so_far_tells_the_time_left() {
    let log = TopicPartition::new("prices", 0).unwrap();
    let mut progress = PassProgress { log, segment: None, bytes_done: 0, bytes_total: 1000, elapsed: Duration::ZERO };
    assert_eq!((progress.bytes_per_second(), progress.time_left()), (0.0, None));
    (progress.bytes_done, progress.elapsed) = (250, Duration::from_secs(5));
    assert_eq!((progress.bytes_per_second(), progress.time_left()), (50.0, Some(Duration::from_secs(15))));
}

/// Keeps events as text, one line each: ` name=value` for every field.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("keeplog::store::progress")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        struct Fields(String);
        impl Visit for Fields {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                let _ = write!(self.0, " {}={value:?}", field.name());
            }
        }
        let mut fields = Fields(event.metadata().level().to_string());
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[test]
fn a_summary_is_one_event_with_all_figures() {
    let log = two_segments();
    let report = clean(&log, &CleanOptions::new(log.storage().now_ms()).dedupe_keys_max(Some(40)), &()).unwrap();
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        summarize(log.topic_partition(), &report);
        let again = CleanOptions::new(log.storage().now_ms()).first_dirty(report.new_dirty);
        summarize(log.topic_partition(), &clean(&log, &again, &()).unwrap());
    });
    let lines = lines.0.lock().unwrap();
    assert_eq!(lines.len(), 2, "{lines:?}");
    let (before, after) = (report.bytes_read, report.bytes_kept);
    assert!(before > 10 * after);
    let amplification = after as f64 / (before - after) as f64;
    for field in [
        "INFO".to_owned(),
        format!("message=cleaned offsets 0..200: {after} of {before} bytes stay, in"),
        " log=prices-0".to_owned(),
        " first_dirty=0 new_dirty=200 first_uncleanable=200".to_owned(),
        format!(" bytes_before={before} bytes_after={after}"),
        format!(" bytes_written={after} write_amplification={amplification:?}"),
        format!(" written_per_dirty_byte={:?}", after as f64 / before as f64),
        " segments_before=2 segments_after=1 records_before=200 records_after=10 tombstones=0 keyless=0 keys=10".to_owned(),
        " map_use_percent=25.0".to_owned(),
        " seconds=".to_owned(),
        " megabytes_per_second=".to_owned(),
    ] {
        assert!(lines[0].contains(&field), "{field:?} is not in {}", lines[0]);
    }
    assert!(lines[1].contains("nothing to clean below offset 200"), "{}", lines[1]);
}
