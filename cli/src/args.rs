//! The command line as written. Nothing here looks at the world: each command turns its arguments into a plan.

mod offsets;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use self::offsets::{
    ExportFormat, GroupFilter, GroupStateArg, GroupTypeArg, Groups, GroupsDelete, GroupsDescribe, GroupsList, Offsets, OffsetsDelete,
    OffsetsExport, OffsetsGet, OffsetsImport, OffsetsList, OffsetsSet, Position, Scope, Selection, Write,
};
use crate::door::cleaner::CleanOptions;

/// Look into, check, mend and compact Kafka partition directories, with no broker running.
///
/// A DIR is either one partition directory (such as orders-0, with its .log files) or a data directory that holds
/// several (an entry of Kafka's log.dirs, or a Keeplog store).
#[derive(Debug, Parser)]
#[command(name = "keeplog", version, subcommand_required = true, arg_required_else_help = true, max_term_width = 110)]
#[command(after_long_help = "\
Examples:
  keeplog demo                                    see it work on a log of its own
  keeplog verify /var/lib/kafka/data              is anything wrong here?
  keeplog inspect /var/lib/kafka/data/orders-0    what is in this partition?
  keeplog dump --json orders-0 | jq .records[].k  every batch and record
  keeplog explain orders-0                        what would a pass do, and why?
  keeplog offsets list /var/lib/kafka/data        what is committed, by group
  keeplog groups describe /var/lib/kafka/data     who reads what, and how far behind

inspect, explain, dump, verify and the lists of offsets and groups only read, and take no lock. recover, compact and what changes \
offsets or groups write: stop the broker first, run them as its user, and work on a copy \
if you have no other.

Exit status:
  0  fine
  1  something is wrong with the data
  2  could not run (arguments, permissions, a directory that is not a log, a full disk)")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(Demo),
    Inspect(Inspect),
    Dump(Dump),
    Verify(Verify),
    Recover(Recover),
    Compact(Compact),
    Explain(Explain),
    #[command(subcommand)]
    Offsets(Offsets),
    #[command(subcommand)]
    Groups(Groups),
    #[command(subcommand)]
    Bench(Bench),
}

/// Show the main job on one screen: commit, compact, crash, recover, reload, compare.
///
/// Starts an offset store with 10 MiB segments in a fresh directory, commits offsets over 100,000 keys while the
/// background cleaner compacts closed segments, stops as a crash would, recovers, reloads the cache, and checks every
/// answer against what was acknowledged.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  keeplog demo                     2,000,000 offsets, in a temporary directory that is removed
  keeplog demo --records 200000    a shorter run
  keeplog demo --dir /tmp/kl       keep the directory, to look into with the other commands

Exit status 1 if any answer after the crash differs from what was acknowledged.")]
pub(crate) struct Demo {
    /// Offsets to commit.
    #[arg(long, value_name = "N", default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) records: u64,
    /// Directory to work in and to leave behind; must not exist, or be empty.
    #[arg(long, value_name = "D")]
    pub(crate) dir: Option<PathBuf>,
    /// Be the process that commits and is killed.
    #[arg(long, hide = true)]
    pub(crate) writer: bool,
    /// Print one JSON object instead of the screen.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show what a partition holds: segments, offsets, times, batches, codecs, indexes, checkpoints, producers.
///
/// Reads every batch, and draws each segment with its live and its dead share. A record is dead when a newer one has its
/// key, or when its transaction was aborted: what compacting everything would remove.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  keeplog inspect orders-0            one partition
  keeplog inspect /var/lib/kafka/data every partition of a data directory
  keeplog inspect --json orders-0     the same as JSON, one object per partition

Only reads. For a judgement of what it finds, run keeplog verify.")]
pub(crate) struct Inspect {
    /// Partition directory, or data directory that holds several.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Print JSON, one object per partition and line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print every batch and record.
///
/// With --json, one JSON object per batch: file, pos (byte position), bytes (whole batch), magic, base and last (offsets),
/// count, codec, ts_type, max_ts, horizon (delete horizon), pid, epoch, seq, leader_epoch, txn, control, crc, valid, and
/// records, each with o (offset), t (timestamp, ms), k and v (key and value, hex or null) and h (headers, if any).
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  keeplog dump orders-0                                    batches and records as text
  keeplog dump --json orders-0 > orders-0.jsonl            one JSON object per batch
  keeplog dump --decode offsets __consumer_offsets-7       commits and group metadata, decoded
  keeplog dump --decode transactions --json __transaction_state-3

For a data directory, the name of each file is preceded by that of its partition. Only reads. Where a segment can't be \
read on, the rest of it is left out, the reason goes to stderr and the exit status is 1.")]
pub(crate) struct Dump {
    /// Partition directory, or data directory that holds several.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Show the records of a coordinator's log as what they mean.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) decode: Option<Decode>,
    /// Print JSON, one object per batch and line (with --decode: per record).
    #[arg(long)]
    pub(crate) json: bool,
}

/// How to read keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Decode {
    /// As records of __consumer_offsets.
    Offsets,
    /// As records of __transaction_state.
    Transactions,
}

/// Check everything that can be checked.
///
/// Checksums, every record, offsets rising, counts, each index against its log, producer snapshots, checkpoint files, gaps
/// between segments, leftovers of interrupted work. Each finding names the file and the position and says what it means
/// and what to do.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  keeplog verify orders-0
  keeplog verify /var/lib/kafka/data && echo sound
  keeplog verify --json orders-0 | jq '.findings[] | select(.severity == \"damage\")'

Findings are damage (a file is not what was written: data is lost or would be read wrongly, or the file must be made \
anew), warning (unfinished or out of date, nothing is lost) or note (unusual but sound). The exit status is 1 only if there is damage. In JSON, findings about the data directory itself come first, \
as an object whose partition is null.

Only reads; keeplog recover mends. Of a log in use, the end may look torn while it is being written.")]
pub(crate) struct Verify {
    /// Partition directory, or data directory that holds several.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Print JSON, one object per partition and line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Open a log as after a crash, mend it, and close it cleanly.
///
/// Completes or undoes interrupted swaps, removes leftovers, reads every batch, cuts a torn tail, rebuilds indexes and
/// producer snapshots, and reports all it did. Damage that is no torn tail is reported, and its bytes are kept. The recovery point says
/// below which offset everything was known to be on the device: what is wrong there is always damage, and no whole batch
/// there is ever cut.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  keeplog recover --dry-run orders-0           what would it do?
  keeplog recover orders-0                     with the recovery point of its checkpoint file
  keeplog recover --recovery-point 0 orders-0  take nothing as known to be on the device
  keeplog recover --cut-damage orders-0        give up all behind the first damage above that
  keeplog recover --json /var/lib/kafka/data   every partition, one JSON object each

Whatever it cuts that may be more than a torn write is kept beside the log, in FILE.cut-POSITION, which neither Keeplog nor \
a broker reads. A directory that is not named like a partition (a copy, say) is taken by itself, without checkpoints.

Writes, and takes the lock of the data directory; --dry-run does neither. Exit status 1 if there was damage.")]
pub(crate) struct Recover {
    /// Partition directory, or data directory that holds several.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Offset below which everything is known to be synced, instead of the one in the checkpoint file.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub(crate) recovery_point: Option<u64>,
    /// Cut the log at the first damage above the recovery point and take all later segments out of it, as Kafka does.
    #[arg(long)]
    pub(crate) cut_damage: bool,
    /// Say what would be done, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON, one object per partition and line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Compact a log in place: keep the newest record of every key, as Kafka's cleaner would.
///
/// One pass over everything but the active segment. Tombstones, transactions and old formats are treated as Kafka treats
/// them; what goes and what stays is the same, record for record.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  keeplog compact --dry-run __consumer_offsets-7      what would it save?
  keeplog compact __consumer_offsets-7
  keeplog compact --delete-retention-ms 0 prices-0    let tombstones go at the next pass

A pass is repeated exactly by giving all that it depends on:
  keeplog compact --now 1760010000000 --from 0 --to 85 --map-slots 100000 --load-factor 0.9 \\
      --segment-bytes 8192 --index-interval-bytes 512 --index-bytes 16384 \\
      --delete-retention-ms 5000000 --merge sources --json prices-0

Give it only logs that are meant to be compacted: of every key but the newest record goes, and so does every record without \
a key. Of a data directory it takes those that are known to be (Kafka's own topics, and those that a cleaner has been at).

Writes, and takes the lock of the data directory; --dry-run does neither. Needs free space for the new segments beside the \
old ones. A log that was not closed in order is recovered first, which may cut off a torn tail. Where it would find damage, all \
records are left as they are, and the exit status is 1.")]
pub(crate) struct Compact {
    /// Partition directory, or data directory that holds several.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Say what a pass would do, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Of a data directory, compact every log, also those of which nothing says that they are compacted by policy.
    #[arg(long)]
    pub(crate) all: bool,
    /// Clock of the pass, ms since 1970 [default: the time now].
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) now: Option<i64>,
    /// First dirty offset [default: from the cleaner's checkpoint file].
    #[arg(long, value_name = "OFFSET", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub(crate) from: Option<u64>,
    /// First uncleanable offset: the pass stays below it [default: the active segment, or the first open transaction].
    #[arg(long, value_name = "OFFSET", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub(crate) to: Option<u64>,
    /// Slots of the key map: times the load factor, how many keys fit into one pass [default: what fits into 1 GiB].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) map_slots: Option<u64>,
    /// Share of the slots that may be filled, above 0 and at most 1.
    #[arg(long, value_name = "F", default_value_t = 0.9, value_parser = load_factor)]
    pub(crate) load_factor: f64,
    /// Size up to which small segments are merged [default: that of the largest, at least 10 MiB].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub(crate) segment_bytes: Option<u32>,
    /// Which sizes count for that: of what is kept, so that few and full segments are left, or of the sources, as Kafka does
    /// it.
    #[arg(long, value_enum, default_value_t = Merge::Kept)]
    pub(crate) merge: Merge,
    /// Bytes of log between two entries of an offset index [default: 4096].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=i64::from(i32::MAX)))]
    pub(crate) index_interval_bytes: Option<u32>,
    /// Largest size of an index file [default: 10 MiB].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(24..=i64::from(i32::MAX)))]
    pub(crate) index_bytes: Option<u32>,
    /// How long tombstones and transaction markers stay after the pass that first met them [default: one day].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) delete_retention_ms: Option<i64>,
    /// Threads that work on a log [default: one for each processor].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=CleanOptions::THREADS_MAX as i64))]
    pub(crate) threads: Option<u16>,
    /// Print JSON, one object per partition and line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Say what a pass of the cleaner would do and why, and which keys take the space.
///
/// Dirty ratio and section, what no pass goes beyond (an open transaction and its producer, compaction lag, the active
/// segment), whether a background cleaner would take the log now, how much a pass would drop, and the 20 keys with the most
/// bytes. No file of a data directory says what the settings of a topic are: give those that are not Kafka's defaults.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  keeplog explain __consumer_offsets-7                    why does it not get smaller?
  keeplog explain --min-cleanable-dirty-ratio 0.1 prices-0
  keeplog explain --json /var/lib/kafka/data | jq '.blocked_by[0]'

With --json: dirt (offsets and bytes of the clean, dirty and uncleanable sections, dirty_ratio, due), blocked_by (each with its \
kind: damage, policy, open-transaction, compaction-lag or active-segment; ascending by offset), pass (what a dry run counted), \
and keys (exact or not, and top: the heaviest keys, each with key, key_hex, records and bytes).

Reads the log twice: once as a pass would, newest first, and once for the keys. What a key takes is its share of the bytes of \
its batches. With more keys than fit into some 100 MiB the counts say how much they may have missed.

Only reads, and takes no lock. Exit status 1 if the log is damaged: then no pass touches it.")]
pub(crate) struct Explain {
    /// Partition directory, or data directory that holds several.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Clock of the pass, ms since 1970 [default: the time now].
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) now: Option<i64>,
    /// Share of dirty bytes above which a pass is due.
    #[arg(long, value_name = "F", default_value_t = 0.5, value_parser = share)]
    pub(crate) min_cleanable_dirty_ratio: f64,
    /// Segments with a younger record are left alone.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) min_compaction_lag_ms: i64,
    /// A pass is due, whatever the ratio, when a dirty segment is older [default: never].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) max_compaction_lag_ms: Option<i64>,
    /// How long tombstones and transaction markers stay after the pass that first met them [default: one day].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) delete_retention_ms: Option<i64>,
    /// Print JSON, one object per partition and line.
    #[arg(long)]
    pub(crate) json: bool,
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        Ok(_) => Err("must be 0 to 1".to_owned()),
        Err(e) => Err(e.to_string()),
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Merge {
    Kept,
    Sources,
}

fn load_factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value <= 1.0 => Ok(value),
        Ok(_) => Err("must be above 0 and at most 1".to_owned()),
        Err(e) => Err(e.to_string()),
    }
}

/// Measure what this machine does, on data made for it.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    Clean(BenchClean),
}

/// Make a log, run a pass of the cleaner over it, and show its figures.
///
/// Records of 25-byte keys, drawn evenly, and 100-byte values, 100 in a batch, in segments of 10 MiB. The clock stops when every
/// output is on stable storage and in its place. The log has just been written, so that it is in the page cache if it fits.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  keeplog bench clean                              256 MiB, 200,000 keys
  keeplog bench clean --mib 1024 --keys 800000 --threads 1
  TMPDIR=/mnt/disk keeplog bench clean --json      on another device

The log lies in a temporary directory, which is removed at the end.")]
pub(crate) struct BenchClean {
    /// Size of the log, MiB.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub(crate) mib: u64,
    /// Distinct keys that records are drawn from.
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub(crate) keys: u32,
    /// Threads that work on the log [default: one for each processor].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=CleanOptions::THREADS_MAX as i64))]
    pub(crate) threads: Option<u16>,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}
