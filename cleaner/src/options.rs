//! What a pass is told, what it tells while it runs, and what it reports.

use std::fmt;

use keeplog_engine::record::Codec;
use keeplog_engine::{Error, LogOptions, Result};

use crate::dedup::{BUCKET_BYTES, DedupSet};
use crate::walk::OP;

/// Bytes of the largest `.log` file that the formats allow.
const OUTPUT_BYTES_MAX: u32 = i32::MAX as u32;

/// Settings of one pass over one log. Names are Kafka's where Kafka has them. Methods set one value each and return
/// the options.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CleanOptions {
    /// The time of the pass, ms since the Unix epoch: expired delete horizons are measured by it, and new ones
    /// counted from it.
    pub now_ms: i64,
    /// Where the dirty section begins: the offset that the last pass reported as [`CleanReport::new_dirty`].
    /// Everything below is free of duplicates, but is cleaned again where newer records replace it. Default 0.
    pub first_dirty: u64,
    /// The moment that `first_dirty` is from, as [`keeplog_engine::Log::truncations`] gave it: if the log was truncated
    /// below it since, the dirty section begins there. Default: none, for a log that nobody truncates.
    pub as_of_truncations: Option<usize>,
    /// Upper bound of the pass, as compaction lag may set it. It is lowered to the last stable offset and to the
    /// active segment, and rounded down to the start of a segment. Default: none.
    pub first_uncleanable: Option<u64>,
    /// Memory of the dedup set at most, in bytes; 10.7 bytes a key. Default 128 MiB (Kafka:
    /// `log.cleaner.dedupe.buffer.size`).
    pub dedupe_buffer_bytes: u64,
    /// Distinct dirty keys that the set takes at most, where that is to be less than the buffer holds. Default: none.
    pub dedupe_keys_max: Option<u64>,
    /// What a pass does about more distinct dirty keys than that. Default [`Overflow::ReadAgain`].
    pub overflow: Overflow,
    /// Segments are merged as long as their sizes add up to at most this many bytes. Default 10 MiB.
    pub segment_bytes: u32,
    /// Whether the sizes that count are those of what stays, or those before. Default [`Merge::Kept`].
    pub merge: Merge,
    /// With [`Merge::Sources`] the same limit for the sizes of their offset indexes, and of their time indexes. Default
    /// 10 MiB.
    pub segment_index_bytes: u32,
    /// Segments are merged only if their newest records lie in the same window of this many ms, counted from 1970: retention
    /// by age removes whole segments, and would never come to one that each pass merges with newer ones. Default none;
    /// [`CleanOptions::for_log`] sets it to `segment_ms` where the policy deletes too.
    pub merge_window_ms: Option<i64>,
    /// An output that grows beyond this goes on in a second file: a batch that is written again can be larger than before.
    /// Default, and most that a file can hold, 2^31 - 1.
    pub output_bytes_max: u32,
    /// How long a tombstone stays after the pass that first met it, ms. Default one day.
    pub delete_retention_ms: i64,
    /// A segment is read in pieces of about this many bytes; a larger batch is read whole. Default 512 KiB.
    pub chunk_bytes: u32,
    /// Decompressed size of one batch at most, in bytes; a larger one stops the pass as damage does. Default 1 GiB.
    pub batch_bytes_max: usize,
    /// How hard batches in gzip are compressed that are written again, 1 to 9. Default: as Kafka's producer does.
    pub gzip_level: Option<i32>,
    /// The same for zstd, -131072 to 22. Default: as Kafka's producer does, 3.
    pub zstd_level: Option<i32>,
    /// What stays of the segments at hand is held in memory until their outputs are written, up to so many bytes; what is
    /// beyond is read once more. Default 96 MiB.
    pub held_bytes_max: u64,
    /// Threads that work on the pass, the caller's among them. Default 1: it starts none.
    pub threads: usize,
    /// Seed of the key hash, for runs that must repeat exactly. Default: a fresh secret for every pass.
    pub hash_seed: Option<u64>,
    /// Decide and count, but write nothing. Default false.
    pub dry_run: bool,
}

/// What a pass does about more distinct dirty keys than its dedup set takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// It reads the log several times, each time for another share of the keys, and writes once. Takes one bit a record
    /// beside the set.
    ReadAgain,
    /// It ends where they would no longer fit, as Kafka's does, and the next one goes on from there.
    EndPass,
}

/// Which sizes count when segments are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Merge {
    /// Those of what stays of them: outputs are as large as segments may be, and few. A segment that loses nothing and is
    /// more than half full stays as it is.
    Kept,
    /// Those before cleaning, as Kafka has it: the files are the same that Kafka's cleaner would leave.
    Sources,
}

macro_rules! setters {
    ($($name:ident: $type:ty),* $(,)?) => {
        $(
            #[doc = concat!("Sets [`CleanOptions::", stringify!($name), "`](#structfield.", stringify!($name), ").")]
            #[must_use]
            pub fn $name(mut self, $name: $type) -> Self {
                self.$name = $name;
                self
            }
        )*
    };
}

impl CleanOptions {
    /// Threads of a pass at most.
    pub const THREADS_MAX: usize = 256;

    setters! {
        first_dirty: u64,
        as_of_truncations: Option<usize>,
        first_uncleanable: Option<u64>,
        dedupe_buffer_bytes: u64,
        dedupe_keys_max: Option<u64>,
        overflow: Overflow,
        segment_bytes: u32,
        merge: Merge,
        segment_index_bytes: u32,
        merge_window_ms: Option<i64>,
        output_bytes_max: u32,
        delete_retention_ms: i64,
        chunk_bytes: u32,
        batch_bytes_max: usize,
        gzip_level: Option<i32>,
        zstd_level: Option<i32>,
        held_bytes_max: u64,
        threads: usize,
        hash_seed: Option<u64>,
        dry_run: bool,
    }

    /// Defaults, for a pass at the time `now_ms`, whatever the log's own settings are; [`CleanOptions::for_log`] takes those.
    #[must_use]
    pub fn new(now_ms: i64) -> Self {
        Self {
            now_ms,
            first_dirty: 0,
            as_of_truncations: None,
            first_uncleanable: None,
            dedupe_buffer_bytes: 128 << 20,
            dedupe_keys_max: None,
            overflow: Overflow::ReadAgain,
            segment_bytes: 10 << 20,
            merge: Merge::Kept,
            segment_index_bytes: 10 << 20,
            merge_window_ms: None,
            output_bytes_max: OUTPUT_BYTES_MAX,
            delete_retention_ms: 24 * 60 * 60 * 1000,
            chunk_bytes: 512 << 10,
            batch_bytes_max: 1 << 30,
            gzip_level: None,
            zstd_level: None,
            held_bytes_max: 96 << 20,
            threads: 1,
            hash_seed: None,
            dry_run: false,
        }
    }

    /// For a pass over a log with these settings: sizes, retention and limits are the log's.
    #[must_use]
    pub fn for_log(options: &LogOptions, now_ms: i64) -> Self {
        Self {
            segment_bytes: options.segment_bytes,
            segment_index_bytes: options.segment_index_bytes,
            merge_window_ms: options.cleanup_policy.deletes().then_some(options.segment_ms),
            delete_retention_ms: options.delete_retention_ms,
            batch_bytes_max: options.decompressed_bytes_max,
            gzip_level: options.compression_gzip_level,
            zstd_level: options.compression_zstd_level,
            ..Self::new(now_ms)
        }
    }

    /// Distinct dirty keys that the dedup set can take.
    #[must_use]
    pub fn dedupe_keys(&self) -> u64 {
        DedupSet::capacity_of(self.dedupe_buffer_bytes).min(self.dedupe_keys_max.unwrap_or(u64::MAX))
    }

    /// Refuses settings that no pass can work with.
    ///
    /// # Errors
    /// [`keeplog_engine::ErrorKind::InvalidInput`], naming the setting.
    pub fn check(&self) -> Result<()> {
        let refuse = |detail: String| Err(Error::invalid(OP, detail));
        if self.dedupe_keys() == 0 {
            let (bytes, keys) = (self.dedupe_buffer_bytes, self.dedupe_keys_max);
            return refuse(format!(
                "dedupe_buffer_bytes = {bytes} and dedupe_keys_max = {keys:?} leave no room for a key: give at least {BUCKET_BYTES} bytes and 1 key"
            ));
        }
        if self.now_ms < 0 {
            return refuse(format!("now_ms = {} is before 1970", self.now_ms));
        }
        if self.delete_retention_ms < 0 {
            return refuse(format!("delete_retention_ms = {} is negative", self.delete_retention_ms));
        }
        if self.merge_window_ms.is_some_and(|ms| ms < 1) {
            return refuse(format!("merge_window_ms = {:?}: give at least 1", self.merge_window_ms));
        }
        if self.output_bytes_max > OUTPUT_BYTES_MAX {
            return refuse(format!("output_bytes_max = {}: a file holds at most {OUTPUT_BYTES_MAX} bytes", self.output_bytes_max));
        }
        if self.threads == 0 {
            return refuse("threads = 0: give at least 1, which is the caller's own".to_owned());
        }
        if self.threads > Self::THREADS_MAX {
            return refuse(format!("threads = {}: at most {}; beyond seven they wait for each other", self.threads, Self::THREADS_MAX));
        }
        for (codec, level) in [(Codec::Gzip, self.gzip_level), (Codec::Zstd, self.zstd_level)] {
            if let Some(level) = level.filter(|level| !codec.has_level(*level)) {
                return refuse(format!("{}_level = {level} is none of its levels", codec.name()));
            }
        }
        if self.chunk_bytes == 0 {
            return refuse("chunk_bytes = 0: give at least 1, or leave the default".to_owned());
        }
        Ok(())
    }
}

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanOutcome {
    /// Everything below [`CleanReport::new_dirty`] is clean.
    Cleaned,
    /// There was nothing dirty below the first uncleanable offset; nothing was read.
    NothingDirty,
    /// It was told to stop. The log is as before, and so is its first dirty offset.
    Stopped,
}

/// What a pass did.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CleanReport {
    /// How it ended.
    pub outcome: CleanOutcome,
    /// Nothing was written: the numbers say what would have been.
    pub dry_run: bool,
    /// Where the dirty section began.
    pub first_dirty: u64,
    /// First offset that the pass had to leave alone, a segment's base.
    pub first_uncleanable: u64,
    /// First dirty offset from now on: below `first_uncleanable` if the keys did not all fit into the dedup set.
    pub new_dirty: u64,
    /// Segments in the range of the pass, before.
    pub segments_before: usize,
    /// Segments in their place, after.
    pub segments_after: usize,
    /// Bytes of the segments in the range, before.
    pub bytes_read: u64,
    /// Bytes of the segments in their place, after.
    pub bytes_kept: u64,
    /// Bytes of the segments in the range that had a part in the dirty section, before.
    pub dirty_bytes: u64,
    /// Bytes of new segments. Less than `bytes_kept` where segments that lost nothing were left untouched.
    pub bytes_written: u64,
    /// Records read; those of batches dropped unread do not count.
    pub records_read: u64,
    /// Records in the range, after.
    pub records_kept: u64,
    /// Tombstones among `records_kept`.
    pub tombstones_kept: u64,
    /// Records without a key below `new_dirty`: dropped.
    pub records_keyless: u64,
    /// Distinct keys in the dirty section.
    pub map_size: u64,
    /// Distinct keys that the dedup set could take at a time.
    pub map_capacity: u64,
    /// Bytes of the dedup set, and of the bits beside it.
    pub map_bytes: u64,
    /// How often the log was read: more than once if the dedup set could not take all keys.
    pub readings: u32,
    /// How long it took, until all outputs were in place and on stable storage. Removing what they replace comes after that.
    pub seconds: f64,
}

impl CleanReport {
    /// The report of a pass that has not begun.
    pub(crate) fn begin(options: &CleanOptions) -> Self {
        Self {
            outcome: CleanOutcome::NothingDirty,
            dry_run: options.dry_run,
            first_dirty: options.first_dirty,
            first_uncleanable: options.first_dirty,
            new_dirty: options.first_dirty,
            segments_before: 0,
            segments_after: 0,
            bytes_read: 0,
            bytes_kept: 0,
            dirty_bytes: 0,
            bytes_written: 0,
            records_read: 0,
            records_kept: 0,
            tombstones_kept: 0,
            records_keyless: 0,
            map_size: 0,
            map_capacity: options.dedupe_keys(),
            map_bytes: 0,
            readings: 0,
            seconds: 0.0,
        }
    }
}

impl CleanReport {
    /// Bytes that are gone.
    #[must_use]
    pub fn bytes_dropped(&self) -> u64 {
        self.bytes_read.saturating_sub(self.bytes_kept)
    }

    /// Bytes written for each byte that is gone; `None` if none is.
    #[must_use]
    pub fn write_amplification(&self) -> Option<f64> {
        ratio(self.bytes_written, self.bytes_dropped())
    }

    /// Bytes written for each byte of the dirty section; `None` if that is empty.
    #[must_use]
    pub fn written_per_dirty_byte(&self) -> Option<f64> {
        ratio(self.bytes_written, self.dirty_bytes)
    }

    /// Keys that there were, of those that the dedup set had room for in all readings, 0 to 1.
    #[must_use]
    pub fn map_use(&self) -> f64 {
        ratio(self.map_size, self.map_capacity.saturating_mul(self.readings.into())).unwrap_or(0.0)
    }

    /// Bytes of the range a second; 0 for a pass that took no time that could be measured.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes_read as f64 / self.seconds } else { 0.0 }
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl fmt::Display for CleanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.outcome {
            CleanOutcome::NothingDirty => return write!(f, "nothing to clean below offset {}", self.first_uncleanable),
            CleanOutcome::Stopped => return write!(f, "stopped after {:.1} s; the log is as before", self.seconds),
            CleanOutcome::Cleaned => {}
        }
        let verb = if self.dry_run { "would clean" } else { "cleaned" };
        write!(f, "{verb} offsets {}..{} in {:.1} s", self.first_dirty, self.new_dirty, self.seconds)?;
        let rate = self.bytes_per_second() / 1e6;
        if rate > 0.0 {
            write!(f, ", {rate:.1} MB/s")?;
        }
        writeln!(f)?;
        let percent = 100.0 * ratio(self.bytes_kept, self.bytes_read).unwrap_or(1.0);
        writeln!(f, "  bytes     {} -> {} ({percent:.1} %)", self.bytes_read, self.bytes_kept)?;
        write!(f, "  written   {} bytes", self.bytes_written)?;
        if let Some(each) = self.write_amplification() {
            write!(f, ", {each:.2} for each byte dropped")?;
        }
        if let Some(each) = self.written_per_dirty_byte() {
            write!(f, ", {each:.2} for each dirty one")?;
        }
        writeln!(f, "\n  segments  {} -> {}", self.segments_before, self.segments_after)?;
        writeln!(f, "  records   {} -> {}, of which {} tombstones", self.records_read, self.records_kept, self.tombstones_kept)?;
        let percent = 100.0 * self.map_use();
        write!(f, "  keys      {} in the dirty section ({percent:.1} % of the map), {} bytes of memory", self.map_size, self.map_bytes)?;
        if self.readings > 1 {
            write!(f, "\n  readings  {}: the dedup set takes a share of the keys at a time", self.readings)?;
        }
        if self.records_keyless > 0 {
            write!(f, "\n  dropped   {} records without a key", self.records_keyless)?;
        }
        if self.new_dirty < self.first_uncleanable {
            write!(f, "\n  goes on   at offset {} in the next pass: the dedup set is full", self.new_dirty)?;
        }
        Ok(())
    }
}

/// How far a pass is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Base offset of the segment at hand: passes go from the newest to the oldest. `None` while it is settled where the
    /// pass ends, if there may be too many keys.
    pub segment: Option<u64>,
    /// Bytes read so far. Starts over in the rare case that the pass has to begin again: the dedup set did not take
    /// all keys, or an index was wrong.
    pub bytes_done: u64,
    /// Bytes to be read in all, as far as is known.
    pub bytes_total: u64,
}

/// Whoever watches a pass, and may slow or stop it. Called between pieces of [`CleanOptions::chunk_bytes`].
pub trait Watch: Sync {
    /// Told when it is known how much is to be read, and after each piece.
    fn progress(&self, progress: Progress) {
        let _ = progress;
    }

    /// Asked before each piece, and before the swap; `true` stops the pass and leaves the log as it was, but for what was swapped
    /// already: see [`Watch::wants_room`].
    fn is_stopped(&self) -> bool {
        false
    }

    /// Asked when outputs are finished; `true` puts them in the place of their sources at once, instead of all of them at the end,
    /// so that the device has to hold less at a time. What lost tombstones waits for the end all the same.
    ///
    /// What was swapped stays so if the pass fails or is stopped, or if it does not come to its end because of a damaged batch.
    fn wants_room(&self) -> bool {
        false
    }

    /// Told of bytes about to be read, or written by other than a dry run; may block, to keep to a rate.
    fn charge(&self, bytes: u64) {
        let _ = bytes;
    }
}

/// Nobody watches.
impl Watch for () {}
