//! Defects that a test can switch on, to show that the simulator (`fuzz/sim`) finds them. Without the feature `planted`
//! [`is_planted`] is always false, and nothing of this is left in a build.

/// A defect in the engine or in what lies above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// An append is acknowledged as synced before it is.
    AcknowledgeBeforeSync,
    /// A sync that fails is taken for done.
    SwallowSyncError,
    /// The recovery point moves to the end of the log before that is synced.
    RecoveryPointBeforeSync,
    /// A failed append does not stop the log, and the next one comes behind what it left.
    GoOnAfterFailedAppend,
    /// The segments that were closed since the last sync are not synced with the next.
    ForgetSealedSegments,
    /// The sources of a swap go before its outputs have their `.swap` names.
    SourcesBeforeOutputs,
    /// A `.cleaned` file is taken for a finished output.
    BelieveCleaned,
    /// A `.swap` file is thrown away.
    ForgetSwap,
    /// Recovery begins at the active segment, wherever the recovery point is.
    RecoverLastSegmentOnly,
    /// The bytes behind the last sound batch stay in the file.
    KeepTornTail,
    /// Checksums are not looked at in recovery.
    SkipChecksums,
    /// The clean mark is written whatever was not closed in order.
    MarkUnclean,
    /// The clean mark stays until the directory is closed again.
    KeepCleanMark,
    /// A truncation leaves the recovery point where it was.
    KeepRecoveryPointOnTruncate,
    /// A truncation leaves the cleaner's offset where it was.
    KeepCleanerOffsetOnTruncate,
    /// Snapshots of producers above the end of the log are believed.
    KeepSnapshotsOnTruncate,
    /// A raised start offset is not saved.
    ForgetStart,
    /// Sequence numbers of producers are not looked at.
    SkipSequences,
    /// Readers of committed records get aborted ones, too.
    ShowAborted,
    /// Readers of committed records read to the end.
    ShowOpen,
    /// The cleaner goes up to the end of the sealed segments, whatever transaction is open.
    CleanOpenTransactions,
    /// The cleaner drops tombstones in the pass that first meets them, with what is older still in place.
    DropTombstonesEarly,
    /// The cleaner tells keys apart by eight bits of their hash.
    HashEightBits,
    /// The cache shows a commit before it is synced.
    ShowCommitBeforeSync,
    /// A load passes over tombstones.
    LoadSkipsTombstones,
    /// A deletion of committed offsets is not written.
    ForgetDeletion,
    /// A commit that is answered later is answered at once.
    AnswerBeforeSync,
    /// What was shown as soon as it was written is never synced.
    ForgetWritten,
    /// Nobody is woken to sync what waits for it.
    ForgetToWake,
    /// A closing offset store leaves those who wait for an answer without.
    ForgetFlushAtClose,
    /// A commit in a transaction is shown before that ends.
    ShowBeforeMarker,
    /// The end of a transaction brings back what a later commit has replaced.
    MarkerBeatsLater,
    /// A load forgets what waits for the end of its transaction.
    LoadForgetsPending,
    /// An expiry does not look for what has come since it looked first.
    ExpireUnseen,
    /// A load counts though its partition was resigned meanwhile.
    KeepEarlierLoad,
    /// Those who wait for an answer are not told that their partition was resigned.
    ResignUntold,
    /// A snapshot of committed offsets is believed, whatever log it was made of.
    BelieveSnapshot,
    /// The checksums of a snapshot of committed offsets are not looked at.
    SkipSnapshotChecksums,
    /// A snapshot of committed offsets leaves out what waits for the end of its transaction.
    SnapshotForgetsPending,
    /// A snapshot of committed offsets says that it has all that is written, whether it was shown or not.
    SnapshotSaysTooMuch,
    /// A snapshot of committed offsets is put in place before what it was made of is synced.
    SnapshotBeforeSync,
}

#[cfg(feature = "planted")]
mod switch {
    use std::cell::Cell;

    use super::Defect;

    thread_local! {
        static PLANTED: Cell<Option<Defect>> = const { Cell::new(None) };
    }

    /// Switches a defect on in this thread, or all off.
    pub fn plant(defect: Option<Defect>) {
        PLANTED.set(defect);
    }

    /// Whether `defect` is switched on.
    pub fn is_planted(defect: Defect) -> bool {
        PLANTED.get() == Some(defect)
    }
}

#[cfg(not(feature = "planted"))]
mod switch {
    /// Whether `defect` is switched on: no.
    #[inline(always)]
    pub const fn is_planted(_: super::Defect) -> bool {
        false
    }
}

pub use switch::*;
