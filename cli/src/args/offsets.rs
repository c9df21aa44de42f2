//! Arguments of the commands about committed offsets and groups.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::door::names::check_topic;

/// Show and change committed offsets, in the partitions of __consumer_offsets.
#[derive(Debug, Subcommand)]
pub(crate) enum Offsets {
    List(OffsetsList),
    Get(OffsetsGet),
    Export(OffsetsExport),
    Set(OffsetsSet),
    Delete(OffsetsDelete),
    Import(OffsetsImport),
}

/// Which groups and topics are meant; all, if nothing is said.
#[derive(Debug, Default, Args)]
pub(crate) struct Selection {
    /// Only this group; may be given several times.
    #[arg(long = "group", value_name = "GROUP")]
    pub(crate) groups: Vec<String>,
    /// Only groups whose name matches: * stands for any characters, ? for one.
    #[arg(long, value_name = "GLOB")]
    pub(crate) pattern: Option<String>,
    /// Only this topic; may be given several times.
    #[arg(long = "topic", value_name = "TOPIC")]
    pub(crate) topics: Vec<String>,
}

/// List what every group has committed.
///
/// Loads the logs as a broker's coordinator does: the newest commit of each group and partition counts, transactional
/// commits once their transaction committed, and deleted ones are gone.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  keeplog offsets list /var/lib/kafka/data            a table
  keeplog offsets list --group billing --topic orders /var/lib/kafka/data
  keeplog offsets list --pattern 'console-*' /var/lib/kafka/data
  keeplog offsets list --tsv /var/lib/kafka/data      tab-separated, without the times
  keeplog offsets list --json __consumer_offsets-7    one JSON object per committed offset

With --tsv, a field with control characters has them, and its backslashes, escaped (\\t, \\n, \\\\). Only reads.")]
pub(crate) struct OffsetsList {
    /// A partition of __consumer_offsets, or the data directory that holds them.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) only: Selection,
    /// Print tab-separated columns under a header line.
    #[arg(long, conflicts_with = "json")]
    pub(crate) tsv: bool,
    /// Print JSON, one object per committed offset and line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show what one group has committed.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  keeplog offsets get /var/lib/kafka/data billing
  keeplog offsets get --json __consumer_offsets-7 billing

Only reads. A group that has committed nothing gives an empty answer, which is no error.")]
pub(crate) struct OffsetsGet {
    /// A partition of __consumer_offsets, or the data directory that holds them.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Group id.
    #[arg(value_name = "GROUP")]
    pub(crate) group: String,
    /// Print tab-separated columns under a header line.
    #[arg(long, conflicts_with = "json")]
    pub(crate) tsv: bool,
    /// Print JSON, one object per committed offset and line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print committed offsets in a form that can be read back.
///
/// As CSV, what Kafka's kafka-consumer-groups.sh writes with --export and reads with --from-file: no header, and the columns
/// topic,partition,offset for one --group, group,topic,partition,offset otherwise.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  keeplog offsets export /var/lib/kafka/data > all.csv
  keeplog offsets export --group billing /var/lib/kafka/data > billing.csv
  keeplog offsets export --format json /var/lib/kafka/data > all.jsonl   with metadata and leader epochs

keeplog offsets import reads both forms back. Only reads.")]
pub(crate) struct OffsetsExport {
    /// A partition of __consumer_offsets, or the data directory that holds them.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) only: Selection,
    /// Form of the output.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = ExportFormat::Csv)]
    pub(crate) format: ExportFormat,
}

/// How offsets are written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// Kafka's CSV.
    Csv,
    /// One JSON object per committed offset and line.
    Json,
}

/// What all commands take that change offsets or groups.
#[derive(Debug, Args)]
pub(crate) struct Write {
    /// Say what would be done, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Partitions that __consumer_offsets has in all, if not all of them are in DIR: tells which one a group is in.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub(crate) offsets_topic_num_partitions: Option<u32>,
    /// Take the members that the record of a group has for gone: no broker runs any more that they could be in.
    #[arg(long)]
    pub(crate) members_are_gone: bool,
    /// Print JSON, one object per offset and line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Set the committed offsets of groups, as kafka-consumer-groups.sh --reset-offsets does, with no broker running.
///
/// A new offset is brought into what the log of its partition holds, where that log is in DIR, with a word about it. All offsets
/// of a group are written in one batch, as far as they fit. A group with members is refused: they would commit over it.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  keeplog offsets set --dry-run --group billing --topic orders --to-earliest DIR
  keeplog offsets set --group billing --topic orders:0,2 --to-offset 4200 DIR
  keeplog offsets set --group billing --all-topics --shift-by -100 DIR
  keeplog offsets set --group billing --topic orders --to-datetime 2026-11-30T12:00:00.000 DIR
  keeplog offsets set --group billing --topic orders --by-duration PT6H DIR
  keeplog offsets set --group billing --from-file billing.csv DIR

A time is UTC unless it ends with Z or an offset such as +02:00. Writes, and takes the lock of the data directory: stop the \
broker first. Other replicas of the partition learn of it only if this broker becomes their leader.")]
pub(crate) struct OffsetsSet {
    /// The data directory that holds __consumer_offsets.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Group id; may be given several times.
    #[arg(long = "group", value_name = "GROUP", required = true)]
    pub(crate) groups: Vec<String>,
    /// Topic, or some partitions of it; may be given several times. Without numbers: those whose logs are in DIR, and those
    /// that the group has committed.
    #[arg(long = "topic", value_name = "TOPIC[:0,1]", conflicts_with = "all_topics", value_parser = scope)]
    pub(crate) topics: Vec<Scope>,
    /// Every topic that the group has committed.
    #[arg(long)]
    pub(crate) all_topics: bool,
    #[command(flatten)]
    pub(crate) position: Position,
    #[command(flatten)]
    pub(crate) write: Write,
}

/// Where to set offsets to.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Position {
    /// This offset.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub(crate) to_offset: Option<u64>,
    /// The start of the log.
    #[arg(long)]
    pub(crate) to_earliest: bool,
    /// The end of the log.
    #[arg(long)]
    pub(crate) to_latest: bool,
    /// What is committed, brought into what the log holds; the end of the log, if nothing is.
    #[arg(long)]
    pub(crate) to_current: bool,
    /// Further by N, or back by -N.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) shift_by: Option<i64>,
    /// The first record of this time or later: YYYY-MM-DDTHH:mm:SS.sss, UTC, or with Z or +hh:mm.
    #[arg(long, value_name = "TIME", value_parser = crate::when::parse_datetime)]
    pub(crate) to_datetime: Option<i64>,
    /// The first record that is no older: PnDTnHnMnS.
    #[arg(long, value_name = "DURATION", value_parser = crate::when::parse_duration)]
    pub(crate) by_duration: Option<i64>,
    /// What this file says, in the form of an export as CSV; - is standard input.
    #[arg(long, value_name = "CSV", conflicts_with_all = ["topics", "all_topics"])]
    pub(crate) from_file: Option<PathBuf>,
}

/// A topic, or some partitions of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scope {
    pub(crate) topic: String,
    /// None: all of them.
    pub(crate) partitions: Vec<i32>,
}

fn scope(text: &str) -> Result<Scope, String> {
    let (topic, numbers) = text.split_once(':').map_or((text, None), |(topic, numbers)| (topic, Some(numbers)));
    check_topic(topic).map_err(|e| e.to_string())?;
    let number = |text: &str| match text.parse() {
        Ok(number) if number >= 0 => Ok(number),
        _ => Err(format!("{text:?} is no partition; give numbers with commas, as in {topic}:0,1")),
    };
    let partitions = numbers.map_or(Ok(Vec::new()), |numbers| numbers.split(',').map(number).collect::<Result<_, _>>())?;
    Ok(Scope { topic: topic.to_owned(), partitions })
}

/// Delete committed offsets of a group.
///
/// Of a group of consumers with members, topics that a member reads are refused; of any other group with members, all are.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  keeplog offsets delete --dry-run --group billing --topic orders DIR
  keeplog offsets delete --group billing --topic orders:3 --topic returns DIR
  keeplog offsets delete --group billing --all-topics DIR     the group itself stays: see keeplog groups delete

Writes, and takes the lock of the data directory: stop the broker first.")]
pub(crate) struct OffsetsDelete {
    /// The data directory that holds __consumer_offsets.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Group id; may be given several times.
    #[arg(long = "group", value_name = "GROUP", required = true)]
    pub(crate) groups: Vec<String>,
    /// Topic, or some partitions of it; may be given several times.
    #[arg(long = "topic", value_name = "TOPIC[:0,1]", conflicts_with = "all_topics", required_unless_present = "all_topics", value_parser = scope)]
    pub(crate) topics: Vec<Scope>,
    /// Every topic that the group has committed.
    #[arg(long)]
    pub(crate) all_topics: bool,
    #[command(flatten)]
    pub(crate) write: Write,
}

/// Set committed offsets to what a file says, of any number of groups.
///
/// Reads what keeplog offsets export writes: CSV (group,topic,partition,offset, or topic,partition,offset with one --group), or
/// JSON, which brings metadata and leader epochs along. Offsets are taken as keeplog offsets set takes them.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  keeplog offsets import --dry-run DIR all.csv
  keeplog offsets import DIR all.jsonl
  keeplog offsets export OLD | keeplog offsets import NEW -
  keeplog offsets import --group billing DIR billing.csv
  mkdir NEW && keeplog offsets import --offsets-topic-num-partitions 50 NEW all.csv

In a directory without partitions of __consumer_offsets they are made, if their number is told. What is committed counts as \
committed now: times of an export are not taken. Nothing is changed unless every line can be taken. Writes, and takes the lock of the data directory: stop the broker first.")]
pub(crate) struct OffsetsImport {
    /// The data directory that holds __consumer_offsets.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// File with an export; - is standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The group of a file without a column for it.
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<String>,
    /// Form of the file [default: JSON if it begins with a brace and a quote].
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<ExportFormat>,
    #[command(flatten)]
    pub(crate) write: Write,
}

/// Show and delete consumer groups, in the partitions of __consumer_offsets.
#[derive(Debug, Subcommand)]
pub(crate) enum Groups {
    List(GroupsList),
    Describe(GroupsDescribe),
    Delete(GroupsDelete),
}

/// Which groups are meant; all, if nothing is said.
#[derive(Debug, Default, Args)]
pub(crate) struct GroupFilter {
    /// Only groups whose name matches: * stands for any characters, ? for one.
    #[arg(long, value_name = "GLOB")]
    pub(crate) pattern: Option<String>,
    /// Only groups in this state; several with commas.
    #[arg(long = "state", value_enum, value_name = "STATE", value_delimiter = ',', ignore_case = true)]
    pub(crate) states: Vec<GroupStateArg>,
    /// Only groups of this type; several with commas.
    #[arg(long = "type", value_enum, value_name = "TYPE", value_delimiter = ',', ignore_case = true)]
    pub(crate) types: Vec<GroupTypeArg>,
}

/// Whether anybody is in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupStateArg {
    /// Without members.
    Empty,
    /// With members.
    Stable,
    /// Its record cannot be read.
    Unknown,
}

/// What a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupTypeArg {
    /// It only ever committed.
    Simple,
    /// Its members assign among themselves: consumers, Connect workers.
    Classic,
    /// Consumers of the protocol of Kafka 4 (KIP-848).
    Consumer,
    /// Share consumers.
    Share,
    /// Kafka Streams (KIP-1071).
    Streams,
}

/// List the groups: those with members or records of their own, and those that have only committed.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  keeplog groups list /var/lib/kafka/data
  keeplog groups list --state empty --type classic,consumer /var/lib/kafka/data
  keeplog groups list --json /var/lib/kafka/data | jq -r .group

A state is what the log says: of a broker that was stopped, or killed, the members it had last. Only reads.")]
pub(crate) struct GroupsList {
    /// A partition of __consumer_offsets, or the data directory that holds them.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) filter: GroupFilter,
    /// Print JSON, one object per group and line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show groups: what they have committed, how far behind the log that is, and who is in them.
///
/// The lag of a partition is the end of its log less what is committed, counted from the start of the log if that is above what is
/// committed, and never negative. It is told where the log of the partition is in the same data directory, else shown as -.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  keeplog groups describe /var/lib/kafka/data
  keeplog groups describe --group billing /var/lib/kafka/data
  keeplog groups describe --json --state stable /var/lib/kafka/data

Only reads. A broker that runs shows its own end of the log; here it is the last batch that is whole in the files.")]
pub(crate) struct GroupsDescribe {
    /// A partition of __consumer_offsets, or the data directory that holds them.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Only this group; may be given several times.
    #[arg(long = "group", value_name = "GROUP")]
    pub(crate) groups: Vec<String>,
    #[command(flatten)]
    pub(crate) filter: GroupFilter,
    /// Print JSON, one object per group and line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Delete groups: all they have committed, and their own records.
///
/// A group with members is refused.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  keeplog groups delete --dry-run --group billing DIR
  keeplog groups delete --group billing --group reports DIR

Records of types that this version does not know stay. Writes, and takes the lock of the data directory: stop the broker first.")]
pub(crate) struct GroupsDelete {
    /// The data directory that holds __consumer_offsets.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Group id; may be given several times.
    #[arg(long = "group", value_name = "GROUP", required = true)]
    pub(crate) groups: Vec<String>,
    #[command(flatten)]
    pub(crate) write: Write,
}
