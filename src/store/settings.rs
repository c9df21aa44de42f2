//! Settings that change while a store is open, and pauses.

use keeplog_engine::{Error, ErrorKind, Log, LogOptions, Result, TopicPartition};

use super::passes::CleaningPause;
use super::{Store, StoreOptions, closed};

/// The settings of the cleaner that can change while a store is open: those of [`StoreOptions`] under the same names. Methods
/// set one value each and return the settings.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CleanerSettings {
    /// [`StoreOptions::log_cleaner_enable`]. Where it is switched off, the background cleaner's pass under way ends.
    pub log_cleaner_enable: bool,
    /// [`StoreOptions::log_cleaner_backoff_ms`].
    pub log_cleaner_backoff_ms: u64,
    /// [`StoreOptions::log_cleaner_threads`]. A pass under way goes on with as many as it began with.
    pub log_cleaner_threads: usize,
    /// [`StoreOptions::log_cleaner_dedupe_buffer_size`]. A pass under way keeps what it has.
    pub log_cleaner_dedupe_buffer_size: u64,
    /// [`StoreOptions::log_cleaner_io_max_bytes_per_second`]. It counts at once, also for a pass under way.
    pub log_cleaner_io_max_bytes_per_second: u64,
    /// [`StoreOptions::yield_to_appends`]. It counts at once, also for a pass under way.
    pub yield_to_appends: bool,
}

macro_rules! setters {
    ($($name:ident: $type:ty),* $(,)?) => {
        $(
            #[doc = concat!("Sets [`CleanerSettings::", stringify!($name), "`](#structfield.", stringify!($name), ").")]
            #[must_use]
            pub fn $name(mut self, $name: $type) -> Self {
                self.$name = $name;
                self
            }
        )*
    };
}

impl CleanerSettings {
    setters! {
        log_cleaner_enable: bool,
        log_cleaner_backoff_ms: u64,
        log_cleaner_threads: usize,
        log_cleaner_dedupe_buffer_size: u64,
        log_cleaner_io_max_bytes_per_second: u64,
        yield_to_appends: bool,
    }

    fn of(options: &StoreOptions) -> Self {
        Self {
            log_cleaner_enable: options.log_cleaner_enable,
            log_cleaner_backoff_ms: options.log_cleaner_backoff_ms,
            log_cleaner_threads: options.log_cleaner_threads,
            log_cleaner_dedupe_buffer_size: options.log_cleaner_dedupe_buffer_size,
            log_cleaner_io_max_bytes_per_second: options.log_cleaner_io_max_bytes_per_second,
            yield_to_appends: options.yield_to_appends,
        }
    }

    /// `options` with these settings.
    fn within(&self, options: &StoreOptions) -> StoreOptions {
        options
            .clone()
            .log_cleaner_enable(self.log_cleaner_enable)
            .log_cleaner_backoff_ms(self.log_cleaner_backoff_ms)
            .log_cleaner_threads(self.log_cleaner_threads)
            .log_cleaner_dedupe_buffer_size(self.log_cleaner_dedupe_buffer_size)
            .log_cleaner_io_max_bytes_per_second(self.log_cleaner_io_max_bytes_per_second)
            .yield_to_appends(self.yield_to_appends)
    }
}

impl Store {
    /// The settings of the cleaner as they are now: to change some of them, and give them to [`Store::set_cleaner`].
    #[must_use]
    pub fn cleaner_settings(&self) -> CleanerSettings {
        CleanerSettings::of(&self.inner.options())
    }

    /// Changes the settings of the cleaner, from its next look on, and wakes it. The next open takes those that it is given.
    ///
    /// # Errors
    /// `InvalidInput`, naming the setting, for one that can't work; nothing is changed then. `Closed` if the store was closed.
    pub fn set_cleaner(&self, settings: &CleanerSettings) -> Result<()> {
        self.inner.check_open("change the cleaner's settings of")?;
        {
            let mut options = self.inner.options();
            let changed = settings.within(&options);
            changed.check()?;
            *options = changed;
        }
        self.inner.data_dir.append_latency().set_wanted(settings.yield_to_appends);
        self.inner.pace.set_rate(settings.log_cleaner_io_max_bytes_per_second, self.inner.data_dir.storage().monotonic());
        self.background.wake();
        Ok(())
    }

    /// Sets how many bytes a second all passes of this store may read and write together, from now on and also for a pass
    /// under way; `u64::MAX` for no limit. As [`Store::set_cleaner`] does, with this one setting.
    ///
    /// # Errors
    /// `InvalidInput` for 0; `Closed` if the store was closed.
    pub fn set_cleaner_rate(&self, bytes_per_second: u64) -> Result<()> {
        self.set_cleaner(&self.cleaner_settings().log_cleaner_io_max_bytes_per_second(bytes_per_second))
    }

    /// Changes the settings of the logs of a topic: those that may change while a log is open, listed at
    /// [`Log::set_options`](keeplog_engine::Log::set_options), from the next look at each log on; all others when it is opened
    /// the next time. As with [`StoreOptions::topic`], the background cleaner takes logs of this topic from now on, where the
    /// policy compacts. Where it does not any more, passes under way end and leave their log as it was.
    ///
    /// # Errors
    /// `InvalidInput`, naming the setting, for one that can't work, or that one of the open logs can't take; nothing is changed
    /// for that log and those after it. `Closed` if the store was closed.
    pub fn set_log_options(&self, topic: &str, options: &LogOptions) -> Result<()> {
        options.check()?;
        let logs: Vec<Log> = {
            // Held until all is changed: no log of the topic is opened meanwhile.
            let logs = self.inner.logs();
            if logs.closed {
                return Err(closed(&self.inner, "change the settings of logs of"));
            }
            let of_topic: Vec<_> = logs.open.values().filter(|log| log.topic_partition().topic() == topic).cloned().collect();
            of_topic.iter().try_for_each(|log| log.set_options(options))?;
            self.inner.options().topics.insert(topic.to_owned(), options.clone());
            of_topic
        };
        for log in &logs {
            // Once more: what is cleaned depends on whether its topic has settings of its own, too.
            self.inner.data_dir.note_change(log.topic_partition());
            if !options.cleanup_policy.compacts() {
                self.inner.passes.end(log.topic_partition(), || self.inner.pace.wake());
            }
        }
        Ok(())
    }

    /// Keeps a log from being cleaned, and where its policy compacts also from retention, until [`Store::resume_cleaning`] was
    /// called as often as this. A pass under way is told to end, and leaves the log as it was unless it had begun to swap its
    /// outputs in; returns when it has ended. A log that is deleted takes its pauses with it. [`CleanerStatus::paused`] shows
    /// which are in force.
    ///
    /// # Errors
    /// `NotFound` if there is no such log; `Closed` if the store was closed.
    ///
    /// [`CleanerStatus::paused`]: crate::CleanerStatus::paused
    pub fn pause_cleaning(&self, topic: &str, partition: u32) -> Result<()> {
        self.pause(topic, partition).map(drop)
    }

    /// As [`Store::pause_cleaning`], until what is returned is dropped: also where whoever holds it returns early, or panics.
    ///
    /// # Errors
    /// As [`Store::pause_cleaning`].
    pub fn hold_cleaning(&self, topic: &str, partition: u32) -> Result<CleaningPause> {
        let (name, number) = self.pause(topic, partition)?;
        Ok(CleaningPause::new(&self.inner, name, number))
    }

    fn pause(&self, topic: &str, partition: u32) -> Result<(TopicPartition, u64)> {
        let name = TopicPartition::new(topic, partition)?;
        self.inner.check_open("pause the cleaning of a log of")?;
        if !self.inner.data_dir.has_partition(&name) {
            let error = Error::new(ErrorKind::NotFound, "pause the cleaning of", "there is no such log");
            return Err(error.at(&self.inner.data_dir.partition_path(&name)));
        }
        let number = self.inner.passes.pause(&name, || self.inner.pace.wake());
        self.inner.data_dir.note_change(&name);
        Ok((name, number))
    }

    /// Takes back one [`Store::pause_cleaning`].
    ///
    /// # Errors
    /// `InvalidInput` for a log whose cleaning is not paused; `Closed` if the store was closed.
    pub fn resume_cleaning(&self, topic: &str, partition: u32) -> Result<()> {
        let name = TopicPartition::new(topic, partition)?;
        self.inner.check_open("resume the cleaning of a log of")?;
        if self.inner.passes.resume(&name, None)? {
            self.inner.data_dir.note_change(&name);
        }
        Ok(())
    }
}
