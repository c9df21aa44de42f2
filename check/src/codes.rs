//! The kinds of findings: the name of each in output, how bad it is, what it means and what to do.

use crate::finding::Severity::{Damage, Note, Warning};
use crate::finding::{Code, Severity};

const fn code(name: &'static str, severity: Severity, advice: &'static str) -> Code {
    Code { name, severity, advice }
}

pub(crate) const CHECKSUM: Code = code(
    "checksum",
    Damage,
    "The bytes of this batch changed after they were written. Restore the segment from a replica or a backup; keeplog recover cuts it \
     off only at the end of the log, above the recovery point; with --cut-damage elsewhere too, with all that follows.",
);
pub(crate) const NOT_A_BATCH: Code = code(
    "not-a-batch",
    Damage,
    "Nothing behind this position can be read in order. At the end of the log this is what a crash leaves, and keeplog recover cuts it \
     off; anywhere else restore the segment from a replica or a backup.",
);
pub(crate) const TORN_TAIL: Code = code(
    "torn-tail",
    Damage,
    "The last write did not reach the device whole, as happens in a crash. keeplog recover cuts it off; a write that was acknowledged \
     as synced cannot be in it unless the device lied.",
);
pub(crate) const ZERO_TAIL: Code = code(
    "zero-tail",
    Damage,
    "Space that was preallocated, or lengthened in a crash, and never written. keeplog recover cuts it off; nothing is lost by that.",
);
pub(crate) const SEALED_CUT: Code = code(
    "sealed-segment-cut",
    Damage,
    "A segment that was complete has lost its end, and the records in it: restore it from a replica or a backup. keeplog recover takes \
     out what is left of the last batch if it lies above the recovery point; later segments stay.",
);
pub(crate) const RECORDS: Code = code(
    "records",
    Damage,
    "The checksum is right but the records inside can't be decoded: a faulty writer, or damage before the checksum was made. Consumers \
     will stop here.",
);
pub(crate) const OFFSETS_NOT_RISING: Code = code(
    "offsets-not-rising",
    Damage,
    "Offsets must only ever rise. Reads by offset will find one of the two and miss the other; keeplog recover cuts a repeated tail off \
     the active segment.",
);
pub(crate) const OFFSET_OUTSIDE_SEGMENT: Code = code(
    "offset-outside-segment",
    Damage,
    "The batch does not belong into the segment that it is in. Reads by offset will miss it; check whether files were renamed or copied \
     between directories.",
);
pub(crate) const MAX_TIMESTAMP: Code = code(
    "max-timestamp",
    Warning,
    "Searching by time and time retention use this header field and will be off. Nothing to mend by hand; compaction rewrites it where \
     it rewrites the batch.",
);
pub(crate) const SEGMENT_TOO_LARGE: Code = code(
    "segment-too-large",
    Damage,
    "Positions in a segment have 31 bits; nothing behind 2 GiB can be found. No writer makes such a file: restore it from a replica or \
     a backup.",
);
pub(crate) const SEGMENT_MISSING: Code = code(
    "segment-missing",
    Damage,
    "The data file of a segment is gone while other files of it are still there. Restore it from a replica or a backup; nothing else \
     will bring its records back.",
);
pub(crate) const SEGMENTS_OVERLAP: Code = code(
    "segments-overlap",
    Damage,
    "Two segments hold the same offsets. Look for a leftover of an interrupted swap, or a file that was copied here; keeplog recover \
     mends the former.",
);
pub(crate) const GAP: Code = code(
    "gap",
    Note,
    "No segment holds these offsets. Normal after compaction and truncation; if the log was never compacted, a segment is missing.",
);
pub(crate) const INDEX_DAMAGED: Code = code(
    "index-damaged",
    Damage,
    "Reads through this index can miss records. It holds nothing that the log does not: keeplog recover rebuilds it.",
);
pub(crate) const INDEX_AHEAD: Code = code(
    "index-ahead",
    Damage,
    "The index speaks of data that the log does not have; a broker would continue with offsets that were used before. The end of the \
     log is gone, or it was cut without its index. keeplog recover rebuilds it.",
);
pub(crate) const INDEX_NOT_CUT: Code = code(
    "index-not-cut",
    Damage,
    "A sealed segment's index must end with its last entry; empty ones behind it would be taken for real. keeplog recover \
     --recovery-point 0 rebuilds it.",
);
pub(crate) const INDEX_PREALLOCATED: Code = code(
    "index-preallocated",
    Note,
    "The active segment's index still has its preallocated length: the log is in use, or was not closed. It is cut to size at the next \
     close.",
);
pub(crate) const INDEX_MISSING: Code = code(
    "index-missing",
    Warning,
    "Kafka rebuilds a missing offset index by scanning the segment, and takes a missing time index for an empty one. keeplog recover \
     rebuilds both.",
);
pub(crate) const TIME_INDEX_UNCLOSED: Code = code(
    "timeindex-unclosed",
    Warning,
    "The segment looks older than it is: it can expire early, and searches by time can miss its end. keeplog recover --recovery-point 0 \
     rebuilds the index.",
);
pub(crate) const TXN_INDEX_INCOMPLETE: Code = code(
    "txnindex-incomplete",
    Damage,
    "Readers of committed data would be given records of an aborted transaction. keeplog recover rebuilds the index.",
);
pub(crate) const SNAPSHOT_DAMAGED: Code = code(
    "snapshot-damaged",
    Damage,
    "It can't be used: producer state will be rebuilt from an older snapshot and the log, which takes longer. keeplog recover replaces \
     it.",
);
pub(crate) const SNAPSHOT_AHEAD: Code = code(
    "snapshot-ahead",
    Damage,
    "The log once reached this offset and now ends below it: records at its end are gone, unless it was truncated on purpose.",
);
pub(crate) const SNAPSHOT_STRAY: Code = code("snapshot-stray", Note, "It belongs to no segment; a broker removes it at its next start.");
pub(crate) const SNAPSHOT_MISSING: Code = code(
    "snapshot-missing",
    Warning,
    "After a clean stop a broker takes this for \"no producers\" and forgets their sequences. keeplog recover writes snapshots.",
);
pub(crate) const CHECKPOINT_DAMAGED: Code = code(
    "checkpoint-damaged",
    Damage,
    "A broker refuses this file, or the whole directory with it. Without a recovery point or a first dirty offset more is scanned and \
     nothing is lost; keeplog recover writes the file anew.",
);
pub(crate) const CHECKPOINT_AHEAD: Code = code(
    "checkpoint-ahead",
    Damage,
    "Everything below this offset was known to be on the device, and the log ends before it: synced records are gone. Restore the log \
     from a replica or a backup.",
);
pub(crate) const START_AHEAD: Code = code(
    "log-start-ahead",
    Damage,
    "A broker would delete every segment and start anew at this offset. If the end of the log was lost, restore it; if the checkpoint \
     is wrong, remove its line.",
);
pub(crate) const CHECKPOINT_BEHIND: Code = code(
    "checkpoint-beyond-end",
    Warning,
    "The entry is from before the log was cut. It is lowered when the log is next opened; nothing is lost by it.",
);
pub(crate) const LEFTOVER_CLEANED: Code = code(
    "leftover-cleaned",
    Warning,
    "A clean was interrupted before it was complete; the old segments still count. keeplog recover removes it.",
);
pub(crate) const LEFTOVER_SWAP: Code = code(
    "leftover-swap",
    Warning,
    "A clean was interrupted while it replaced segments. keeplog recover completes or undoes it; until then do not remove files by \
     hand.",
);
pub(crate) const SWAP_DAMAGED: Code = code(
    "swap-damaged",
    Damage,
    "The output of an interrupted clean is damaged, so keeplog recover does not touch it. If the segments that it was to replace are all \
     there (no gap is reported), move its .swap files away and recover; if not, restore them first.",
);
pub(crate) const ORPHAN_INDEX: Code =
    code("orphan-index", Warning, "An index without the log that it belongs to. keeplog recover removes it.");
pub(crate) const NOT_A_FILE: Code =
    code("not-a-file", Damage, "Links and devices are not followed: what it leads to is not part of this directory. Put that itself here.");
pub(crate) const BAD_NAME: Code = code("bad-name", Damage, "A broker aborts at a .log file whose name it can't parse. Move it away.");
pub(crate) const CUT_BYTES: Code = code(
    "cut-bytes",
    Note,
    "Recovery took these bytes out of the log and kept them. Neither Keeplog nor a broker reads them; remove the file when you need \
     them no more.",
);
pub(crate) const UNKNOWN_FILE: Code = code("unknown-file", Note, "Not a file of a log; brokers and Keeplog leave it alone.");
pub(crate) const PARTITION_MISSING: Code = code(
    "partition-missing",
    Warning,
    "A partition with checkpoint entries is gone from this directory. Normal after a deletion or a move that was not checkpointed yet; \
     else restore it.",
);
pub(crate) const FOREIGN_DIRECTORY: Code = code(
    "foreign-directory",
    Warning,
    "A broker refuses to start with a directory here whose name is not TOPIC-PARTITION. Move it away before a broker uses this data \
     directory.",
);
pub(crate) const NO_SEGMENT: Code =
    code("no-segment", Note, "The directory holds no segment: a new partition, or one whose files are gone. A broker starts it anew.");
pub(crate) const LEFTOVER_DELETED: Code =
    code("leftover-deleted", Warning, "A file that was already replaced or expired, not yet removed. keeplog recover removes it.");
pub(crate) const LEFTOVER_TMP: Code =
    code("leftover-tmp", Note, "An atomic write was interrupted. It is never read, and overwritten by the next one.");
pub(crate) const METADATA_DAMAGED: Code = code(
    "metadata-damaged",
    Damage,
    "The topic id can't be read, so a broker does not take the partition for its own. The id is that of every other partition of the \
     topic: copy their file.",
);
