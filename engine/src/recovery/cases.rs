//! The table of recovery: what was found where, and what is done about it.
//!
//! Every case has a row, and exactly one: the test walks all combinations. "Last" is the segment with the
//! highest base offset, "sealed" any other; "above" means that the damaged batch lies at or above the recovery
//! point, so that it was never known to be on stable storage. Of what is broken, "the end" has no sound batch behind
//! it in its file. "Torn" is a write that did not get through: the file ends in it, or its checksum is wrong; "a repeat"
//! a batch with offsets that were all there before.
//!
//! | # | segment | zone  | what is broken                | `Strict` | `TruncateTail`       | `Salvage`            |
//! |---|---------|-------|-------------------------------|----------|----------------------|----------------------|
//! | 1 | last    | above | the end: torn, or a repeat    | refuse   | cut the tail         | cut the tail         |
//! | 2 | last    | above | all else but an unknown magic | refuse   | cut the tail, damage | cut the tail, damage |
//! | 3 | last    | below | the end, inside a batch       | refuse   | cut the tail, damage | cut the tail, damage |
//! | 4 | last    | below | anything else                 | refuse   | keep, read only      | keep, read only      |
//! | 5 | last    | above | unknown magic                 | refuse   | keep, read only      | cut the tail, damage |
//! | 6 | sealed  | above | the end, inside a batch       | refuse   | cut the tail, damage | cut, drop the later  |
//! | 7 | sealed  | above | anything else                 | refuse   | keep, go on          | cut, drop the later  |
//! | 8 | sealed  | below | anything                      | refuse   | keep, go on          | keep, go on          |
//!
//! Row 2 cuts what could be read, since an offset must not be given twice; so it is reported. Row 5 is no torn write:
//! the checksum does not cover the magic, so it is a flipped bit or a format newer than this version, and neither may
//! be thrown away. Row 6 is what a machine leaves that stopped between a write to a segment and the sync after the
//! next one began: nothing there can be read, and left in place it would stop every reader and the cleaner for ever.
//! Kafka's rows 1 to 5 all cut, its rows 6 and 7 drop the later segments and its row 8 looks at nothing.

use crate::config::RecoveryMode;
use crate::record::DecodeError;

/// Where the damaged segment is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    Last,
    Sealed,
}

/// Whether the damaged batch was known to be on stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zone {
    AboveRecoveryPoint,
    BelowRecoveryPoint,
}

/// What is wrong with the first batch that can't be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The file ends inside it, or goes on with what is no header (zeros of preallocated space, noise). The table says
    /// "inside a batch".
    Torn(DecodeError),
    /// Its checksum does not match.
    Checksum(DecodeError),
    /// Its format is unknown.
    UnknownMagic(DecodeError),
    /// Its control record can't be read.
    Malformed(DecodeError),
    /// Its offsets do not rise above those before it, which end at `after`.
    OffsetsGoBack { base_offset: u64, last_offset: u64, after: u64 },
    /// Its offsets lie behind those of the batch that follows it, which fits what is before it: after `after` comes `next`.
    OffsetsJump { base_offset: u64, after: u64, next: u64 },
    /// Its offsets lie below the segment's own.
    BelowBase { last_offset: u64, base: u64 },
    /// Its offsets lie outside what this file may hold.
    OffsetOutside { last_offset: u64, limit: u64 },
}

impl Broken {
    /// Whether this may be all that a write left which did not get through, or was done twice.
    fn is_no_loss(&self) -> bool {
        match self {
            Self::Torn(_) | Self::Checksum(_) => true,
            Self::OffsetsGoBack { last_offset, after, .. } => last_offset <= after,
            Self::UnknownMagic(_) | Self::Malformed(_) | Self::OffsetsJump { .. } | Self::BelowBase { .. } | Self::OffsetOutside { .. } => {
                false
            }
        }
    }

    /// Whether its bytes are a sound batch, in the wrong place.
    pub(crate) fn is_whole(&self) -> bool {
        !matches!(self, Self::Torn(_) | Self::Checksum(_))
    }

    /// The kind of a decoding failure of an entry; an unknown magic needs a closer look.
    pub(crate) fn of(cause: DecodeError) -> Self {
        match cause {
            DecodeError::Checksum { .. } => Self::Checksum(cause),
            _ => Self::Torn(cause),
        }
    }

    /// In words, for reports.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Torn(cause) | Self::Checksum(cause) | Self::UnknownMagic(cause) | Self::Malformed(cause) => cause.to_string(),
            Self::OffsetsGoBack { base_offset, after, .. } => {
                format!("offset {base_offset} was there before: the batch before it ends at {after}")
            }
            Self::OffsetsJump { base_offset, after, next } => {
                format!("offset {base_offset} can't be right: the batch before it ends at {after}, the one behind it begins at {next}")
            }
            Self::BelowBase { last_offset, base } => format!("offset {last_offset} does not belong into this file, which begins at {base}"),
            Self::OffsetOutside { last_offset, limit } => {
                format!("offset {last_offset} does not belong into this file, which ends below {limit}")
            }
        }
    }
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing is changed and the log does not open.
    Refuse,
    /// The segment is cut at the damage.
    CutTail,
    /// The same, and it counts as damage: more may be gone than a write that did not get through.
    CutTailAndReport,
    /// The bytes stay, the log ends before them and takes no appends.
    KeepReadOnly,
    /// The bytes stay and what follows is used.
    KeepAndGoOn,
    /// The segment is cut at the damage and all later ones are taken out of the log.
    CutAndDropLater,
}

/// The table.
///
/// `is_end`: no sound batch stands behind it in its file.
pub(crate) fn decide(location: Location, zone: Zone, broken: &Broken, is_end: bool, mode: RecoveryMode) -> Action {
    use Location::{Last, Sealed};
    use Zone::{AboveRecoveryPoint as Above, BelowRecoveryPoint as Below};
    match (mode, location, zone, broken) {
        (RecoveryMode::Strict, ..) => Action::Refuse,
        (RecoveryMode::TruncateTail, Last, Above, Broken::UnknownMagic(_)) => Action::KeepReadOnly,
        (RecoveryMode::Salvage, Last, Above, Broken::UnknownMagic(_)) => Action::CutTailAndReport,
        (_, Last, Above, _) if is_end && broken.is_no_loss() => Action::CutTail,
        (_, Last, Above, _) => Action::CutTailAndReport,
        (_, Last, Below, Broken::Torn(_)) if is_end => Action::CutTailAndReport,
        (_, Last, Below, _) => Action::KeepReadOnly,
        (RecoveryMode::Salvage, Sealed, Above, _) => Action::CutAndDropLater,
        (_, Sealed, Above, Broken::Torn(_)) if is_end => Action::CutTailAndReport,
        (_, Sealed, _, _) => Action::KeepAndGoOn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of the table above, read one by one: every combination must match exactly one.
    #[test]
    fn every_combination_has_exactly_one_row() {
        let cause = DecodeError::Magic(9);
        let all = [
            Broken::Torn(cause),
            Broken::Checksum(cause),
            Broken::UnknownMagic(cause),
            Broken::Malformed(cause),
            Broken::OffsetsGoBack { base_offset: 1, last_offset: 1, after: 2 },
            Broken::OffsetsGoBack { base_offset: 1, last_offset: 3, after: 2 },
            Broken::OffsetsJump { base_offset: 9, after: 1, next: 2 },
            Broken::BelowBase { last_offset: 1, base: 2 },
            Broken::OffsetOutside { last_offset: 1, limit: 1 },
        ];
        let cut_and_report = [Action::CutTailAndReport, Action::CutTailAndReport];
        for (location, zone) in
            [Location::Last, Location::Sealed].into_iter().flat_map(|l| [(l, Zone::AboveRecoveryPoint), (l, Zone::BelowRecoveryPoint)])
        {
            for (broken, end) in all.iter().flat_map(|broken| [(broken, true), (broken, false)]) {
                let last = location == Location::Last;
                let above = zone == Zone::AboveRecoveryPoint;
                let magic = matches!(broken, Broken::UnknownMagic(_));
                let torn = matches!(broken, Broken::Torn(_));
                let no_loss = matches!(broken, Broken::Torn(_) | Broken::Checksum(_) | Broken::OffsetsGoBack { last_offset: 1, .. });
                let rows = [
                    (last && above && end && no_loss, [Action::CutTail, Action::CutTail]),
                    (last && above && !magic && !(end && no_loss), cut_and_report),
                    (last && !above && torn && end, cut_and_report),
                    (last && !above && !(torn && end), [Action::KeepReadOnly, Action::KeepReadOnly]),
                    (last && above && magic, [Action::KeepReadOnly, Action::CutTailAndReport]),
                    (!last && above && torn && end, [Action::CutTailAndReport, Action::CutAndDropLater]),
                    (!last && above && !(torn && end), [Action::KeepAndGoOn, Action::CutAndDropLater]),
                    (!last && !above, [Action::KeepAndGoOn, Action::KeepAndGoOn]),
                ];
                let matching: Vec<_> = rows.iter().filter(|r| r.0).collect();
                assert_eq!(matching.len(), 1, "{location:?} {zone:?} {broken:?}");
                let [truncate, salvage] = matching[0].1;
                let decide = |mode| decide(location, zone, broken, end, mode);
                assert_eq!(decide(RecoveryMode::TruncateTail), truncate);
                assert_eq!(decide(RecoveryMode::Salvage), salvage);
                assert_eq!(decide(RecoveryMode::Strict), Action::Refuse);
            }
        }
    }
}
