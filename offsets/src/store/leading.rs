//! Which partitions the store serves, and how they come to be loaded.

use keeplog_engine::sync::Arc;
use keeplog_engine::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use keeplog_engine::{Error, ErrorKind, Log, Result};

use crate::load::size_bytes;
use crate::replay::Replay;

/// What a partition is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartitionState {
    /// It is led elsewhere: nothing of it is held or answered here.
    NotLed,
    /// It is being loaded, or waits for that.
    #[non_exhaustive]
    Loading {
        /// Bytes of its log read so far.
        bytes_read: u64,
        /// Bytes of its log.
        bytes: u64,
    },
    /// It is served.
    Active,
    /// Its load failed; nothing of it is served until it is led with a newer epoch, or reloaded.
    #[non_exhaustive]
    Failed {
        /// Why.
        why: String,
    },
}

/// What [`lead`](crate::OffsetStore::lead) did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lead {
    /// A load was begun.
    Loads,
    /// It is led already; the epoch is noted.
    Led,
    /// The epoch is not newer than the one that is known.
    Stale,
}

/// What is known of the leader of a partition.
#[derive(Debug, Default)]
pub(super) struct Leading {
    /// The last epoch that was told.
    pub(super) epoch: Option<i32>,
    /// Counts loads and resignations: a load that ends in another life than it began in says nothing.
    pub(super) life: u64,
}

/// What a partition has to answer from.
pub(super) enum Served {
    NotLed,
    Loading(Arc<LoadProgress>),
    Loaded(Box<Shown>),
    /// The load failed: there is nothing to serve.
    Failed {
        kind: ErrorKind,
        why: String,
    },
}

/// What a log comes to, as far as it is shown.
pub(super) struct Shown {
    pub(super) replay: Replay,
    /// Where the log started when it was loaded.
    pub(super) start_offset: u64,
    /// One past the last offset that is shown.
    pub(super) end_offset: u64,
    /// Not all below that is: somebody else has written to the log, and it is to be loaded anew.
    pub(super) has_gaps: bool,
    /// Of the log, when it was loaded.
    pub(super) truncations: usize,
    /// In which life of the partition it was loaded.
    pub(super) life: u64,
}

/// How far a load has come.
#[derive(Debug)]
pub(crate) struct LoadProgress {
    has_begun: AtomicBool,
    bytes_read: AtomicU64,
    bytes: u64,
    life: u64,
}

impl LoadProgress {
    /// Of a load of `log` in life `life` of its partition.
    pub(super) fn of(log: &Log, life: u64) -> Arc<Self> {
        Arc::new(Self { has_begun: AtomicBool::new(false), bytes_read: AtomicU64::new(0), bytes: size_bytes(log), life })
    }

    /// Whether the caller is the one to do it.
    pub(super) fn begin(&self) -> bool {
        !self.has_begun.swap(true, Ordering::Relaxed)
    }

    pub(super) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn life(&self) -> u64 {
        self.life
    }

    fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }
}

impl Served {
    pub(super) fn loaded(&self, log: &Log) -> Result<&Replay> {
        let refuse = |kind, detail: String| Err(Error::new(kind, "serve committed offsets from", detail).at(log.path()));
        match self {
            Self::Loaded(shown) => Ok(&shown.replay),
            Self::NotLed => refuse(ErrorKind::NotLeader, "the partition is not led here: ask its leader, or lead it".into()),
            Self::Loading(progress) => {
                let (read, all) = (progress.bytes_read(), progress.bytes());
                refuse(ErrorKind::Loading, format!("they are being loaded ({read} of {all} bytes read): ask again"))
            }
            Self::Failed { kind, why } => refuse(*kind, format!("loading them failed, and an old answer could be wrong: {why}")),
        }
    }

    pub(super) fn state(&self) -> PartitionState {
        match self {
            Self::NotLed => PartitionState::NotLed,
            Self::Loading(progress) => PartitionState::Loading { bytes_read: progress.bytes_read(), bytes: progress.bytes() },
            Self::Loaded(_) => PartitionState::Active,
            Self::Failed { why, .. } => PartitionState::Failed { why: why.clone() },
        }
    }
}
