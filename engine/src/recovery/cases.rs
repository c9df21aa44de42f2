//! The table of recovery: what was found where, and what is done about it.
//!
//! Every case has a row, and exactly one: the test walks all combinations. "Last" is the segment with the
//! highest base offset, "sealed" any other; "above" means that the damaged batch lies at or above the recovery
//! point, so that it was never known to be on stable storage.
//!
//! | # | segment | zone  | what is broken                | `Strict` | `TruncateTail`       | `Salvage`            |
//! |---|---------|-------|-------------------------------|----------|----------------------|----------------------|
//! | 1 | last    | above | anything but an unknown magic | refuse   | cut the tail         | cut the tail         |
//! | 2 | last    | below | the file ends inside a batch  | refuse   | cut the tail, damage | cut the tail, damage |
//! | 3 | last    | below | anything else                 | refuse   | keep, read only      | keep, read only      |
//! | 4 | last    | above | unknown magic                 | refuse   | keep, read only      | cut the tail, damage |
//! | 5 | sealed  | above | anything                      | refuse   | keep, go on          | cut, drop the later  |
//! | 6 | sealed  | below | anything                      | refuse   | keep, go on          | keep, go on          |
//!
//! Row 4 is no torn write: the checksum does not cover the magic, so it is a flipped bit or a format newer than
//! this version, and neither may be thrown away. Kafka's rows 1 to 4 all cut, its row 5 drops the later segments
//! and its row 6 looks at nothing.

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
    /// The file ends inside it, or goes on with what is no header (zeros of preallocated space, noise).
    Torn(DecodeError),
    /// Its checksum does not match.
    Checksum(DecodeError),
    /// Its format is unknown.
    UnknownMagic(DecodeError),
    /// Its control record can't be read.
    Malformed(DecodeError),
    /// Its offsets do not rise above those before it.
    OffsetsGoBack { base_offset: u64, after: u64 },
    /// Its offsets lie outside what this file may hold.
    OffsetOutside { last_offset: u64, limit: u64 },
}

impl Broken {
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
            Self::OffsetsGoBack { base_offset, after } => {
                format!("offset {base_offset} was there before: the batch before it ends at {after}")
            }
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
    /// The same, and it counts as damage: data that was safe once is gone.
    CutTailAndReport,
    /// The bytes stay, the log ends before them and takes no appends.
    KeepReadOnly,
    /// The bytes stay and what follows is used.
    KeepAndGoOn,
    /// The segment is cut at the damage and all later ones are removed.
    CutAndDropLater,
}

/// The table.
pub(crate) fn decide(location: Location, zone: Zone, broken: &Broken, mode: RecoveryMode) -> Action {
    use Location::{Last, Sealed};
    use Zone::{AboveRecoveryPoint as Above, BelowRecoveryPoint as Below};
    match (mode, location, zone, broken) {
        (RecoveryMode::Strict, ..) => Action::Refuse,
        (RecoveryMode::TruncateTail, Last, Above, Broken::UnknownMagic(_)) => Action::KeepReadOnly,
        (RecoveryMode::Salvage, Last, Above, Broken::UnknownMagic(_)) => Action::CutTailAndReport,
        (_, Last, Above, _) => Action::CutTail,
        (_, Last, Below, Broken::Torn(_)) => Action::CutTailAndReport,
        (_, Last, Below, _) => Action::KeepReadOnly,
        (RecoveryMode::Salvage, Sealed, Above, _) => Action::CutAndDropLater,
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
            Broken::OffsetsGoBack { base_offset: 1, after: 2 },
            Broken::OffsetOutside { last_offset: 1, limit: 1 },
        ];
        for location in [Location::Last, Location::Sealed] {
            for zone in [Zone::AboveRecoveryPoint, Zone::BelowRecoveryPoint] {
                for broken in &all {
                    let last = location == Location::Last;
                    let above = zone == Zone::AboveRecoveryPoint;
                    let magic = matches!(broken, Broken::UnknownMagic(_));
                    let torn = matches!(broken, Broken::Torn(_));
                    let rows = [
                        (last && above && !magic, [Action::CutTail, Action::CutTail]),
                        (last && !above && torn, [Action::CutTailAndReport, Action::CutTailAndReport]),
                        (last && !above && !torn, [Action::KeepReadOnly, Action::KeepReadOnly]),
                        (last && above && magic, [Action::KeepReadOnly, Action::CutTailAndReport]),
                        (!last && above, [Action::KeepAndGoOn, Action::CutAndDropLater]),
                        (!last && !above, [Action::KeepAndGoOn, Action::KeepAndGoOn]),
                    ];
                    let matching: Vec<_> = rows.iter().filter(|r| r.0).collect();
                    assert_eq!(matching.len(), 1, "{location:?} {zone:?} {broken:?}");
                    let [truncate, salvage] = matching[0].1;
                    assert_eq!(decide(location, zone, broken, RecoveryMode::TruncateTail), truncate);
                    assert_eq!(decide(location, zone, broken, RecoveryMode::Salvage), salvage);
                    assert_eq!(decide(location, zone, broken, RecoveryMode::Strict), Action::Refuse);
                }
            }
        }
    }
}
