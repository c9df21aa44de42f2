//! `keeplog offsets`: what consumer groups have committed, read from the logs as they lie there.

mod load;

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::Path;

use serde::Serialize;

use self::load::{Committed, Loader};
use crate::args::{self, Offsets};
use crate::door::check::{self, Checkpoints};
use crate::door::{CONSUMER_OFFSETS, Escaped, Storage, partition_for};
use crate::failure::Failure;
use crate::output::{self, Out};
use crate::progress::Progress;
use crate::target::Target;
use crate::{Status, complain};

const HEADER: &str = "group\ttopic\tpartition\toffset\tleader_epoch\tmetadata";

pub(crate) fn run(command: Offsets, storage: &dyn Storage) -> Result<Status, Failure> {
    match command {
        Offsets::List(args) => list(&args, storage),
        Offsets::Get(args) => get(&args, storage),
    }
}

fn list(args: &args::OffsetsList, storage: &dyn Storage) -> Result<Status, Failure> {
    let target = find(storage, &args.dir)?;
    let Loaded { committed, records, status } = load(storage, &target, None)?;
    if committed.is_empty() {
        let dir = output::name(&args.dir.display().to_string());
        let why =
            if records == 0 { "there is no record of a commit or a group" } else { "what was is deleted, or its transaction is open" };
        complain(&format!("nothing is committed in {dir}: {why}"));
    }
    print(&committed, Form::of(args.tsv, args.json))?;
    Ok(status)
}

fn get(args: &args::OffsetsGet, storage: &dyn Storage) -> Result<Status, Failure> {
    let mut target = find(storage, &args.dir)?;
    // All of a group is in one partition. If all partitions are there, their number tells which.
    let numbers: Vec<u32> = target.partitions.iter().filter_map(|partition| partition.number_in(CONSUMER_OFFSETS)).collect();
    let complete = target.whole_dir && numbers.iter().max().is_some_and(|last| *last as usize + 1 == numbers.len());
    if let Some(count) = NonZeroU32::new(numbers.len() as u32).filter(|_| complete) {
        let wanted = partition_for(&args.group, count);
        target.partitions.retain(|partition| partition.number_in(CONSUMER_OFFSETS) == Some(wanted));
    }
    let Loaded { committed, status, .. } = load(storage, &target, Some(&args.group))?;
    let form = Form::of(args.tsv, args.json);
    if committed.is_empty() && form == Form::Table {
        let group = output::name(&args.group);
        let text = if target.whole_dir {
            format!("group {group} has committed nothing")
        } else {
            format!("group {group} has committed nothing in this partition; all of a group is in one, which the data directory tells")
        };
        Out::new().line(&text)?;
        return Ok(status);
    }
    print(&committed, form)?;
    Ok(status)
}

/// The partitions of `__consumer_offsets` at `path`. A partition directory that was named may have any name.
fn find(storage: &dyn Storage, path: &Path) -> Result<Target, Failure> {
    let mut target = Target::find(storage, path)?;
    if target.whole_dir {
        target.retain_topic(CONSUMER_OFFSETS, path)?;
        let numbers: BTreeSet<u32> = target.partitions.iter().filter_map(|partition| partition.number_in(CONSUMER_OFFSETS)).collect();
        let absent: Vec<String> =
            (0..numbers.last().copied().unwrap_or(0)).filter(|n| !numbers.contains(n)).map(|n| n.to_string()).collect();
        if !absent.is_empty() {
            // A broker with several data directories spreads them.
            complain(&format!("{CONSUMER_OFFSETS} partitions {} are not here: what is in them is not shown", absent.join(", ")));
        }
    }
    Ok(target)
}

/// What was found.
struct Loaded {
    committed: Vec<Committed>,
    /// Records that it was told from.
    records: u64,
    status: Status,
}

fn load(storage: &dyn Storage, target: &Target, group: Option<&str>) -> Result<Loaded, Failure> {
    let checkpoints = match &target.data_dir {
        Some(dir) => check::data_dir(storage, dir)?.0,
        None => Checkpoints::default(),
    };
    let mut progress = Progress::new(storage, "loading", target.log_bytes(storage));
    let (mut committed, mut records) = (Vec::new(), 0);
    let status = target.each(|partition| {
        let start = checkpoints.of(&partition.name).log_start.unwrap_or(0);
        let mut loader = Loader::new(storage, start);
        let status = loader.partition(&partition.path, &mut progress)?;
        records += loader.records();
        committed.extend(loader.finish(group));
        Ok(status)
    })?;
    committed.sort_unstable_by(|a, b| (&a.group, &a.topic, a.partition).cmp(&(&b.group, &b.topic, b.partition)));
    Ok(Loaded { committed, records, status })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Table,
    Tsv,
    Json,
}

impl Form {
    fn of(tsv: bool, json: bool) -> Self {
        match (tsv, json) {
            (true, _) => Self::Tsv,
            (_, true) => Self::Json,
            _ => Self::Table,
        }
    }
}

/// A line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    group: &'a str,
    topic: &'a str,
    partition: i32,
    offset: u64,
    leader_epoch: Option<i32>,
    metadata: &'a str,
    commit_timestamp: i64,
    expire_timestamp: Option<i64>,
}

fn print(committed: &[Committed], form: Form) -> Result<(), Failure> {
    let mut out = Out::new();
    let epoch = |committed: &Committed| committed.leader_epoch.map_or_else(|| "-".to_owned(), |epoch| epoch.to_string());
    match form {
        Form::Json => {
            for c in committed {
                out.json(&Line {
                    group: &c.group,
                    topic: &c.topic,
                    partition: c.partition,
                    offset: c.offset,
                    leader_epoch: c.leader_epoch,
                    metadata: &c.metadata,
                    commit_timestamp: c.commit_timestamp_ms,
                    expire_timestamp: c.expire_timestamp_ms,
                })?;
            }
        }
        Form::Tsv => {
            out.line(HEADER)?;
            for c in committed {
                let (group, topic, metadata) = (Escaped(&c.group), Escaped(&c.topic), Escaped(&c.metadata));
                out.line(&format!("{group}\t{topic}\t{}\t{}\t{}\t{metadata}", c.partition, c.offset, epoch(c)))?;
            }
        }
        Form::Table => {
            let rows = committed.iter().map(|c| {
                let metadata = output::clipped(&c.metadata, 60);
                let when = output::time_to_seconds(c.commit_timestamp_ms);
                vec![
                    output::name(&c.group),
                    output::name(&c.topic),
                    c.partition.to_string(),
                    c.offset.to_string(),
                    epoch(c),
                    when,
                    metadata,
                ]
            });
            out.text(&output::table(&["group", "topic", ">partition", ">offset", ">epoch", "committed (UTC)", "metadata"], rows))?;
        }
    }
    out.flush()
}
