//! A pass of the cleaner as commands run and show it: its settings, its progress, its figures.

use std::num::NonZero;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::door::cleaner::{self, CleanReport, Watch};
use crate::door::{Log, Storage};
use crate::output;
use crate::progress::Progress;

/// Small segments are merged up to the size of the largest there is, but at least to this.
const SEGMENT_BYTES_DEFAULT: u64 = 10 << 20;
/// Memory for the keys of a pass, unless its size is given.
pub(crate) const DEDUPE_BUFFER_BYTES: u64 = 1 << 30;

/// Size up to which segments are merged.
pub(crate) fn segment_bytes(log: &Log) -> u32 {
    let largest = log.segments().all().iter().map(|segment| segment.size_bytes()).max().unwrap_or(0).max(SEGMENT_BYTES_DEFAULT);
    u32::try_from(largest).unwrap_or(i32::MAX as u32)
}

/// Threads of a pass: one for each processor.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Shows the progress of a pass.
pub(crate) struct PassBar<'s> {
    progress: Mutex<Progress<'s>>,
}

impl<'s> PassBar<'s> {
    /// `label` says what is being done ("compacting").
    pub(crate) fn new(storage: &'s dyn Storage, label: &str) -> Self {
        Self { progress: Mutex::new(Progress::new(storage, label, 0)) }
    }
}

impl Watch for PassBar<'_> {
    fn progress(&self, progress: cleaner::Progress) {
        let mut bar = self.progress.lock().unwrap_or_else(PoisonError::into_inner); // a bar is no state worth losing
        bar.note(|| progress.segment.map_or_else(|| "counting keys".to_owned(), |base| format!("segment {base}")));
        bar.set(progress.bytes_done, progress.bytes_total);
    }
}

/// Why a pass ends at its first uncleanable offset.
#[derive(Debug)]
pub(crate) struct Bound {
    /// Stable, for programs.
    pub(crate) code: &'static str,
    pub(crate) text: String,
}

impl Bound {
    /// Of a pass over `log` that was told to stay below `to`.
    pub(crate) fn of(log: &Log, to: Option<u64>) -> Self {
        let (active, stable) = (log.segments().active().base_offset(), log.last_stable_offset());
        if to.is_some_and(|to| to < active.min(stable)) {
            Self { code: "to", text: "the rest is left out by --to".to_owned() }
        } else if stable < active {
            let open = log.active_producers().into_iter().find(|producer| producer.open_txn_first_offset == Some(stable));
            let whose = open.map_or_else(String::new, |producer| format!(" of producer {} (epoch {})", producer.id, producer.epoch));
            Self { code: "open-transaction", text: format!("a transaction{whose} is open since offset {stable}") }
        } else {
            Self { code: "active-segment", text: format!("the active segment, from {active} on, is never cleaned") }
        }
    }
}

/// What a pass over one partition came to, by the names of the library's report. `bytes_read`, `bytes_kept` and `records_*` are
/// counted as Kafka does: of all segments in the range, before and after.
#[derive(Debug, Serialize)]
pub(crate) struct Passed {
    pub(crate) partition: String,
    pub(crate) dry_run: bool,
    pub(crate) first_dirty: u64,
    pub(crate) first_uncleanable: u64,
    pub(crate) new_dirty: u64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_kept: u64,
    pub(crate) bytes_dropped: u64,
    /// Bytes of new segments: less than `bytes_kept` where segments were left as they are.
    pub(crate) bytes_written: u64,
    /// Bytes of the segments with a part in the dirty section.
    pub(crate) dirty_bytes: u64,
    /// `bytes_written` for each byte dropped, and for each dirty one; null if there is none.
    pub(crate) write_amplification: Option<f64>,
    pub(crate) written_per_dirty_byte: Option<f64>,
    pub(crate) records_read: u64,
    pub(crate) records_kept: u64,
    pub(crate) map_size: u64,
    /// Share of the keys that the map had room for.
    pub(crate) map_use: f64,
    /// Memory that the keys took.
    pub(crate) map_bytes: u64,
    /// How often the log was read: more than once if the map could not take all keys at a time.
    pub(crate) readings: u32,
    pub(crate) seconds: f64,
    pub(crate) bytes_per_second: f64,
    pub(crate) segments_before: usize,
    pub(crate) segments_after: usize,
    pub(crate) tombstones_kept: u64,
    pub(crate) keyless_dropped: u64,
    /// What kept it from going beyond the first uncleanable offset: `active-segment`, `open-transaction` or `to`.
    pub(crate) bounded_by: &'static str,
    /// The same, for people. With no segments, this is why there was nothing to do.
    pub(crate) bound: String,
}

impl Passed {
    /// `bound` says why it ended where it did.
    pub(crate) fn new(partition: &str, report: &CleanReport, bound: Bound) -> Self {
        Self {
            partition: partition.to_owned(),
            dry_run: report.dry_run,
            first_dirty: report.first_dirty,
            first_uncleanable: report.first_uncleanable,
            new_dirty: report.new_dirty,
            bytes_read: report.bytes_read,
            bytes_kept: report.bytes_kept,
            bytes_dropped: report.bytes_dropped(),
            bytes_written: report.bytes_written,
            dirty_bytes: report.dirty_bytes,
            write_amplification: report.write_amplification(),
            written_per_dirty_byte: report.written_per_dirty_byte(),
            records_read: report.records_read,
            records_kept: report.records_kept,
            map_size: report.map_size,
            map_use: report.map_use(),
            map_bytes: report.map_bytes,
            readings: report.readings,
            seconds: report.seconds,
            bytes_per_second: report.bytes_per_second(),
            segments_before: report.segments_before,
            segments_after: report.segments_after,
            tombstones_kept: report.tombstones_kept,
            keyless_dropped: report.records_keyless,
            bounded_by: bound.code,
            bound: bound.text,
        }
    }

    /// Why there was nothing to do, if there was nothing.
    fn reason(&self) -> Option<&str> {
        (self.segments_before == 0).then_some(&*self.bound)
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        if let Some(why) = self.reason() {
            return format!(
                "{}: nothing to clean from offset {} to {} ({why})\n",
                self.partition, self.first_dirty, self.first_uncleanable
            );
        }
        let verb = if self.dry_run { "would clean" } else { "cleaned" };
        let rate = output::bytes(self.bytes_per_second as u64);
        let took = output::seconds(self.seconds);
        let mut lines = vec![
            format!("{}: {verb} offsets {}..{} in {took}, {rate}/s", self.partition, self.first_dirty, self.new_dirty),
            format!(
                "  bytes     {} to {}, {} of it",
                output::bytes(self.bytes_read),
                output::bytes(self.bytes_kept),
                output::percent(self.bytes_kept, self.bytes_read)
            ),
            format!("  written   {}", self.writes()),
            format!("  segments  {} to {}", output::count(self.segments_before as u64), output::count(self.segments_after as u64)),
            format!(
                "  records   {} to {}, {} among them",
                output::count(self.records_read),
                output::count(self.records_kept),
                output::counted(self.tombstones_kept, "tombstone", "tombstones")
            ),
            format!(
                "  keys      {} in the dirty section, {} of what the map takes; {} of memory",
                output::count(self.map_size),
                self.map_share(),
                output::bytes(self.map_bytes)
            ),
        ];
        if self.readings > 1 {
            lines.push(format!("  readings  {}: the map takes a share of the keys at a time", self.readings));
        }
        if self.keyless_dropped > 0 {
            lines.push(format!("  dropped   {} without a key", output::counted(self.keyless_dropped, "record", "records")));
        }
        if self.new_dirty < self.first_uncleanable {
            lines.push(format!("  the keys did not all fit: run it again, and it goes on at offset {}", self.new_dirty));
        }
        lines.join("\n") + "\n"
    }

    fn map_share(&self) -> String {
        let percent = self.map_use * 100.0;
        if percent < 0.1 { "under 0.1 %".to_owned() } else { format!("{percent:.1} %") }
    }

    /// `1.4 MiB: 0.02 for each byte dropped, 0.02 for each dirty one`.
    fn writes(&self) -> String {
        let mut text = output::bytes(self.bytes_written);
        let mut joint = ": ";
        let parts = [(self.write_amplification, "for each byte dropped"), (self.written_per_dirty_byte, "for each dirty one")];
        for (each, of_what) in parts {
            if let Some(each) = each {
                text.push_str(&format!("{joint}{each:.2} {of_what}"));
                joint = ", ";
            }
        }
        text
    }
}
