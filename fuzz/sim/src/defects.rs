//! Defects that are planted, one at a time, to show that the simulator finds them.
//!
//! Those of syncs are planted in the disk, which leaves the sync out; the others in the engine
//! ([`keeplog_engine::planted`]).

use std::sync::atomic::{AtomicU64, Ordering};

use keeplog_engine::planted::{Defect, plant};

use crate::disk::{Call, Operation};
use crate::life::{Failure, run};
use crate::{crowd, random};

/// Lives at most until a defect is found.
pub const LIVES_MAX: u64 = 4000;

/// A defect.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    /// What is wrong.
    pub name: &'static str,
    how: How,
}

#[derive(Clone, Copy, Debug)]
enum How {
    Engine(Defect),
    /// These syncs are left out.
    Omit(fn(&Call<'_>) -> bool),
}

/// How a defect was found.
#[derive(Debug)]
pub struct Found {
    /// Lives until then.
    pub lives: u64,
    /// Seed of the life that failed.
    pub seed: u64,
    /// How it failed.
    pub failure: Failure,
}

const fn engine(name: &'static str, defect: Defect) -> Planted {
    Planted { name, how: How::Engine(defect) }
}

const fn omits(name: &'static str, calls: fn(&Call<'_>) -> bool) -> Planted {
    Planted { name, how: How::Omit(calls) }
}

fn is_sync_of(call: &Call<'_>, ending: &str) -> bool {
    call.operation == Operation::Sync && call.path.to_str().is_some_and(|path| path.ends_with(ending))
}

fn is_sync_of_data_dir(call: &Call<'_>) -> bool {
    call.operation == Operation::SyncDir && call.path.ends_with("data")
}

fn is_sync_of_partition(call: &Call<'_>) -> bool {
    call.operation == Operation::SyncDir && call.path.components().count() == 3
}

/// Every planted defect.
pub static ALL: &[Planted] = &[
    omits("logs are never synced", |call| is_sync_of(call, ".log")),
    omits("outputs of the cleaner are not synced before they take the place of others", |call| {
        call.operation == Operation::Sync && call.path.to_str().is_some_and(|path| path.ends_with(".cleaned"))
    }),
    omits("checkpoints are not synced before they are renamed", |call| is_sync_of(call, "-checkpoint.tmp")),
    omits("the data directory is never synced", is_sync_of_data_dir),
    omits("the directories of logs are never synced", is_sync_of_partition),
    engine("an append is acknowledged before its sync", Defect::AcknowledgeBeforeSync),
    engine("a sync that fails is taken for done", Defect::SwallowSyncError),
    engine("the recovery point is saved before the data is synced", Defect::RecoveryPointBeforeSync),
    engine("a failed append does not stop the log", Defect::GoOnAfterFailedAppend),
    engine("segments closed since the last sync are not synced", Defect::ForgetSealedSegments),
    engine("the sources of a swap go before its outputs are complete", Defect::SourcesBeforeOutputs),
    engine("a .cleaned file is believed", Defect::BelieveCleaned),
    engine("a .swap file is thrown away", Defect::ForgetSwap),
    engine("recovery reads the last segment only", Defect::RecoverLastSegmentOnly),
    engine("a torn tail stays in the file", Defect::KeepTornTail),
    engine("recovery does not look at checksums", Defect::SkipChecksums),
    engine("the clean mark is written whatever happened", Defect::MarkUnclean),
    engine("the clean mark outlives the opening", Defect::KeepCleanMark),
    engine("a truncation leaves the recovery point above the end", Defect::KeepRecoveryPointOnTruncate),
    engine("a truncation leaves the cleaner's offset above the end", Defect::KeepCleanerOffsetOnTruncate),
    engine("snapshots above the end are believed", Defect::KeepSnapshotsOnTruncate),
    engine("a raised start is not saved", Defect::ForgetStart),
    engine("sequence numbers are not looked at", Defect::SkipSequences),
    engine("aborted records are shown", Defect::ShowAborted),
    engine("records of open transactions are shown", Defect::ShowOpen),
    engine("the cleaner goes over open transactions", Defect::CleanOpenTransactions),
    engine("the cleaner drops tombstones at once", Defect::DropTombstonesEarly),
    engine("the cleaner tells keys apart by eight bits", Defect::HashEightBits),
    engine("a commit is shown before it is synced", Defect::ShowCommitBeforeSync),
    engine("a load passes over tombstones", Defect::LoadSkipsTombstones),
    engine("a deletion of offsets is not written", Defect::ForgetDeletion),
    engine("a commit is answered before it is synced", Defect::AnswerBeforeSync),
    engine("what was shown when it was written is never synced", Defect::ForgetWritten),
    engine("nobody is woken to sync what waits", Defect::ForgetToWake),
    engine("a closing store forgets those who wait", Defect::ForgetFlushAtClose),
    engine("a commit in a transaction is shown before its end", Defect::ShowBeforeMarker),
    engine("the end of a transaction brings back what a later commit replaced", Defect::MarkerBeatsLater),
    engine("a load forgets what waits for the end of its transaction", Defect::LoadForgetsPending),
    engine("an expiry does not look again before it removes", Defect::ExpireUnseen),
    engine("a load of an earlier life counts", Defect::KeepEarlierLoad),
    engine("those who wait are not told of a resignation", Defect::ResignUntold),
    engine("a snapshot is believed whatever log it was made of", Defect::BelieveSnapshot),
    engine("the checksums of a snapshot are not looked at", Defect::SkipSnapshotChecksums),
    engine("a snapshot leaves out what waits for the end of its transaction", Defect::SnapshotForgetsPending),
    engine("a snapshot says that it has what is not shown yet", Defect::SnapshotSaysTooMuch),
    engine("a snapshot takes its place before its log is synced", Defect::SnapshotBeforeSync),
];

/// Looks for a defect with lives from `from` on.
#[must_use]
pub fn find(planted: &Planted, from: u64) -> Option<Found> {
    let (defect, omission) = match planted.how {
        How::Engine(defect) => (Some(defect), None),
        How::Omit(calls) => (None, Some(calls)),
    };
    let (found, lives) = (crowd::Findings::default(), AtomicU64::new(0));
    crowd::each(LIVES_MAX, |number| {
        lives.fetch_add(1, Ordering::Relaxed);
        let life = random::life(from + number, true);
        plant(defect);
        let outcome = run(&life, omission, false);
        plant(None);
        // What fails without the defect as well does not show it.
        outcome.is_err_and(|failure| run(&life, None, false).map(|_| found.add(from + number, failure)).is_ok())
    });
    let (seed, failure) = found.sorted().into_iter().next()?;
    Some(Found { lives: lives.into_inner(), seed, failure })
}
