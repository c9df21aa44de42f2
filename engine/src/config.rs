//! Settings of one log, under Kafka's names.

use crate::record::{Codec, TimestampType};
use crate::{Error, Result};

/// Smallest `segment_bytes` that is accepted.
pub const SEGMENT_BYTES_MIN: u32 = 4096;

/// When an append or a commit is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Durability {
    /// Once it is written to the operating system: survives the process, not the machine.
    Buffered,
    /// Once it is on stable storage.
    Synced,
}

/// What happens to old records (`cleanup.policy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CleanupPolicy {
    /// The newest record of every key is kept.
    Compact,
    /// Whole old segments go, by age and by size.
    Delete,
    /// Both.
    CompactDelete,
}

impl CleanupPolicy {
    /// Whether the cleaner works on the log.
    #[must_use]
    pub fn compacts(self) -> bool {
        self != Self::Delete
    }

    /// Whether retention by age and size applies.
    #[must_use]
    pub fn deletes(self) -> bool {
        self != Self::Compact
    }
}

/// What recovery does with damage that is no torn tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecoveryMode {
    /// Any damage, and any tail that must be cut, is an error, and no segment is changed. Leftovers of interrupted work are
    /// tidied up all the same.
    Strict,
    /// A bad tail of the last segment is cut, counted and reported. Damage elsewhere is reported and stays: the
    /// log can be read around it.
    TruncateTail,
    /// As Kafka: the log is cut at the first damage above the recovery point, and all later segments are taken out of it.
    /// What they held is kept beside it, see [`Cut::kept_in`](crate::Cut::kept_in).
    Salvage,
}

/// Settings of one log. Methods set one value each and return the options.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LogOptions {
    /// `cleanup.policy`; default compact.
    pub cleanup_policy: CleanupPolicy,
    /// `segment.bytes`: a segment is closed before it would exceed this; default 1 GiB, at least 4 KiB.
    pub segment_bytes: u32,
    /// `segment.ms`: a segment is closed when a record is this much younger than its first; default 7 days.
    pub segment_ms: i64,
    /// `segment.index.bytes`: room of the offset and time index of a segment; default 10 MiB.
    pub segment_index_bytes: u32,
    /// `index.interval.bytes`: bytes of log between two index entries; default 4096.
    pub index_interval_bytes: u32,
    /// `max.message.bytes`: largest batch that is accepted, header included; default 1 MiB + 12.
    pub max_message_bytes: u32,
    /// `retention.ms`; `None` for ever; default 7 days. Counts where the policy deletes.
    pub retention_ms: Option<i64>,
    /// `retention.bytes`; default none. Counts where the policy deletes.
    pub retention_bytes: Option<u64>,
    /// `delete.retention.ms`: how long a tombstone stays after the first pass that saw it; default 24 h.
    pub delete_retention_ms: i64,
    /// `min.compaction.lag.ms`: younger records are not cleaned; default 0.
    pub min_compaction_lag_ms: i64,
    /// `max.compaction.lag.ms`: older dirty records make the log due; default never.
    pub max_compaction_lag_ms: i64,
    /// `min.cleanable.dirty.ratio`: a log is cleaned above this share of dirty bytes; default 0.5.
    pub min_cleanable_dirty_ratio: f64,
    /// `message.timestamp.type`; default create time.
    pub message_timestamp_type: TimestampType,
    /// `compression.type` of batches built here; default none.
    pub compression: Codec,
    /// `compression.gzip.level` of batches built here and of those that the cleaner writes again, 1 to 9; default Kafka's, which
    /// is the producer's too.
    pub compression_gzip_level: Option<i32>,
    /// `compression.zstd.level`, -131072 to 22, in the same way; default 3.
    pub compression_zstd_level: Option<i32>,
    /// `producer.id.expiration.ms`: an idle producer is forgotten after this; default 24 h.
    pub producer_id_expiration_ms: i64,
    /// Bytes that one batch may decompress to; default 256 MiB.
    pub decompressed_bytes_max: usize,
    /// What recovery does with damage; default [`RecoveryMode::TruncateTail`].
    pub recovery_mode: RecoveryMode,
    /// Check every byte of the log when opening, also below the recovery point; default no.
    pub recovery_full_scan: bool,
}

const DAY_MS: i64 = 24 * 3_600_000;

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            cleanup_policy: CleanupPolicy::Compact,
            segment_bytes: 1 << 30,
            segment_ms: 7 * DAY_MS,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4096,
            max_message_bytes: (1 << 20) + 12,
            retention_ms: Some(7 * DAY_MS),
            retention_bytes: None,
            delete_retention_ms: DAY_MS,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: i64::MAX,
            min_cleanable_dirty_ratio: 0.5,
            message_timestamp_type: TimestampType::Create,
            compression: Codec::None,
            compression_gzip_level: None,
            compression_zstd_level: None,
            producer_id_expiration_ms: DAY_MS,
            decompressed_bytes_max: 256 << 20,
            recovery_mode: RecoveryMode::TruncateTail,
            recovery_full_scan: false,
        }
    }
}

macro_rules! setters {
    ($($name:ident: $type:ty),* $(,)?) => {
        $(
            #[doc = concat!("Sets [`LogOptions::", stringify!($name), "`](#structfield.", stringify!($name), ").")]
            #[must_use]
            pub fn $name(mut self, $name: $type) -> Self {
                self.$name = $name;
                self
            }
        )*
    };
}

impl LogOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        cleanup_policy: CleanupPolicy,
        segment_bytes: u32,
        segment_ms: i64,
        segment_index_bytes: u32,
        index_interval_bytes: u32,
        max_message_bytes: u32,
        retention_ms: Option<i64>,
        retention_bytes: Option<u64>,
        delete_retention_ms: i64,
        min_compaction_lag_ms: i64,
        max_compaction_lag_ms: i64,
        min_cleanable_dirty_ratio: f64,
        message_timestamp_type: TimestampType,
        compression: Codec,
        compression_gzip_level: Option<i32>,
        compression_zstd_level: Option<i32>,
        producer_id_expiration_ms: i64,
        decompressed_bytes_max: usize,
        recovery_mode: RecoveryMode,
        recovery_full_scan: bool,
    }

    /// Refuses settings that can't work together, naming the setting.
    pub fn check(&self) -> Result<()> {
        let refuse = |what: &str| Err(Error::invalid("use these log options", what));
        if self.segment_bytes < SEGMENT_BYTES_MIN || self.segment_bytes > i32::MAX as u32 {
            return refuse("segment_bytes must be between 4096 and 2147483647");
        }
        if self.segment_index_bytes < 24 {
            return refuse("segment_index_bytes must be at least 24, two entries of the time index");
        }
        if self.max_message_bytes > i32::MAX as u32 {
            return refuse("max_message_bytes must be at most 2147483647");
        }
        if !(0.0..=1.0).contains(&self.min_cleanable_dirty_ratio) {
            return refuse("min_cleanable_dirty_ratio must be between 0 and 1");
        }
        if self.segment_ms < 1 || self.delete_retention_ms < 0 || self.retention_ms.is_some_and(|ms| ms < 0) {
            return refuse("segment_ms must be at least 1, delete_retention_ms and retention_ms at least 0");
        }
        if self.min_compaction_lag_ms < 0 || self.min_compaction_lag_ms > self.max_compaction_lag_ms {
            return refuse("min_compaction_lag_ms must be between 0 and max_compaction_lag_ms");
        }
        if self.message_timestamp_type == TimestampType::None {
            return refuse("message_timestamp_type must be create time or log append time");
        }
        for (codec, level) in [(Codec::Gzip, self.compression_gzip_level), (Codec::Zstd, self.compression_zstd_level)] {
            if level.is_some_and(|level| !codec.has_level(level)) {
                return refuse(&format!("compression_{}_level is none of its levels", codec.name()));
            }
        }
        Ok(())
    }

    /// The level for a codec; `None` is Kafka's default.
    #[must_use]
    pub(crate) fn compression_level(&self, codec: Codec) -> Option<i32> {
        match codec {
            Codec::Gzip => self.compression_gzip_level,
            Codec::Zstd => self.compression_zstd_level,
            Codec::None | Codec::Snappy | Codec::Lz4 => None,
        }
    }

    /// Age of its first record, ms, at which a segment is closed: on a compacted log no more than
    /// `max_compaction_lag_ms`, since an open segment can't be cleaned.
    #[must_use]
    pub(crate) fn roll_ms(&self) -> i64 {
        if self.cleanup_policy.compacts() { self.segment_ms.min(self.max_compaction_lag_ms) } else { self.segment_ms }
    }
}
