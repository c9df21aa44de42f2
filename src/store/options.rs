//! Settings of a store.

use std::collections::BTreeMap;

use keeplog_cleaner::CleanOptions;
use keeplog_engine::{Error, LogOptions, Result};

/// Settings of a [`crate::Store`]. Methods set one value each and return the options. Those of the cleaner can be changed while
/// the store is open ([`Store::set_cleaner`](crate::Store::set_cleaner)), those of logs in part
/// ([`Store::set_log_options`](crate::Store::set_log_options)).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StoreOptions {
    /// Settings of logs that have none of their own.
    pub log: LogOptions,
    /// Settings by topic.
    pub topics: BTreeMap<String, LogOptions>,
    /// `log.cleaner.enable`: whether the background cleaner runs; default yes. Without it compacted logs grow for ever.
    pub log_cleaner_enable: bool,
    /// Whether a thread of the store's own makes the rounds of background work; default yes. Without it the application
    /// calls [`Store::housekeep`](crate::Store::housekeep).
    pub background_thread: bool,
    /// `log.cleaner.backoff.ms`: how long the cleaner waits when nothing is due; default 15 s.
    pub log_cleaner_backoff_ms: u64,
    /// `log.cleaner.threads`: how many threads clean; default 1. All of them work on the same log, whose pass takes less time
    /// for it; there is no second setting for one large log.
    pub log_cleaner_threads: usize,
    /// `log.cleaner.dedupe.buffer.size`: memory of the cleaner's dedup set at most, bytes; default 128 MiB. A pass takes
    /// no more than the dirty records can need.
    pub log_cleaner_dedupe_buffer_size: u64,
    /// `log.cleaner.io.max.bytes.per.second`: what all passes may read and write together; default no limit.
    pub log_cleaner_io_max_bytes_per_second: u64,
    /// Whether passes rest while appends take longer beside them than alone; default yes. They go on for a tenth of their time
    /// at least, and do not rest once their log has grown by an eighth since they began.
    /// [`CleanerStatus::rested_seconds`](crate::CleanerStatus::rested_seconds) shows how long they have rested.
    pub yield_to_appends: bool,
    /// `log.flush.offset.checkpoint.interval.ms`: how often recovery points are saved; default 60 s. Less is to be
    /// scanned after a crash if it is shorter.
    pub log_flush_offset_checkpoint_interval_ms: u64,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            log: LogOptions::default(),
            topics: BTreeMap::new(),
            log_cleaner_enable: true,
            background_thread: true,
            log_cleaner_backoff_ms: 15_000,
            log_cleaner_threads: 1,
            log_cleaner_dedupe_buffer_size: 128 << 20,
            log_cleaner_io_max_bytes_per_second: u64::MAX,
            yield_to_appends: true,
            log_flush_offset_checkpoint_interval_ms: 60_000,
        }
    }
}

impl StoreOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the settings of logs that have none of their own.
    #[must_use]
    pub fn log(mut self, options: LogOptions) -> Self {
        self.log = options;
        self
    }

    /// Sets the settings of the logs of one topic.
    #[must_use]
    pub fn topic(mut self, topic: impl Into<String>, options: LogOptions) -> Self {
        self.topics.insert(topic.into(), options);
        self
    }

    /// Sets [`StoreOptions::log_cleaner_enable`](#structfield.log_cleaner_enable).
    #[must_use]
    pub fn log_cleaner_enable(mut self, enable: bool) -> Self {
        self.log_cleaner_enable = enable;
        self
    }

    /// Sets [`StoreOptions::background_thread`](#structfield.background_thread).
    #[must_use]
    pub fn background_thread(mut self, own: bool) -> Self {
        self.background_thread = own;
        self
    }

    /// Sets [`StoreOptions::log_cleaner_backoff_ms`](#structfield.log_cleaner_backoff_ms).
    #[must_use]
    pub fn log_cleaner_backoff_ms(mut self, ms: u64) -> Self {
        self.log_cleaner_backoff_ms = ms;
        self
    }

    /// Sets [`StoreOptions::log_cleaner_threads`](#structfield.log_cleaner_threads).
    #[must_use]
    pub fn log_cleaner_threads(mut self, threads: usize) -> Self {
        self.log_cleaner_threads = threads;
        self
    }

    /// Sets [`StoreOptions::log_cleaner_dedupe_buffer_size`](#structfield.log_cleaner_dedupe_buffer_size).
    #[must_use]
    pub fn log_cleaner_dedupe_buffer_size(mut self, bytes: u64) -> Self {
        self.log_cleaner_dedupe_buffer_size = bytes;
        self
    }

    /// Sets [`StoreOptions::log_cleaner_io_max_bytes_per_second`](#structfield.log_cleaner_io_max_bytes_per_second).
    #[must_use]
    pub fn log_cleaner_io_max_bytes_per_second(mut self, bytes: u64) -> Self {
        self.log_cleaner_io_max_bytes_per_second = bytes;
        self
    }

    /// Sets [`StoreOptions::yield_to_appends`](#structfield.yield_to_appends).
    #[must_use]
    pub fn yield_to_appends(mut self, yields: bool) -> Self {
        self.yield_to_appends = yields;
        self
    }

    /// Sets [`StoreOptions::log_flush_offset_checkpoint_interval_ms`](#structfield.log_flush_offset_checkpoint_interval_ms).
    #[must_use]
    pub fn log_flush_offset_checkpoint_interval_ms(mut self, ms: u64) -> Self {
        self.log_flush_offset_checkpoint_interval_ms = ms;
        self
    }

    /// The settings of a topic's logs.
    #[must_use]
    pub fn of_topic(&self, topic: &str) -> &LogOptions {
        self.topics.get(topic).unwrap_or(&self.log)
    }

    /// Refuses settings that can't work, naming the setting.
    pub fn check(&self) -> Result<()> {
        self.log.check()?;
        for options in self.topics.values() {
            options.check()?;
        }
        if self.log_cleaner_dedupe_buffer_size < 1024 {
            return Err(Error::invalid("use these store options", "log_cleaner_dedupe_buffer_size must be at least 1024 bytes"));
        }
        let most = CleanOptions::THREADS_MAX;
        if !(1..=most).contains(&self.log_cleaner_threads) {
            let detail = format!("log_cleaner_threads must be 1 to {most}; log_cleaner_enable switches the cleaner off");
            return Err(Error::invalid("use these store options", detail));
        }
        check_rate(self.log_cleaner_io_max_bytes_per_second)
    }
}

/// Refuses a rate at which a pass would never end.
pub(super) fn check_rate(bytes_per_second: u64) -> Result<()> {
    if bytes_per_second == 0 {
        let detail = "log_cleaner_io_max_bytes_per_second must be at least 1; log_cleaner_enable switches the cleaner off";
        return Err(Error::invalid("use this rate of the cleaner", detail));
    }
    Ok(())
}
