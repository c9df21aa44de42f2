//! `keeplog offsets`: what consumer groups have committed, read from the logs as they lie there, and changed.

mod apply;
mod change;
mod export;
mod file;
mod fill;
mod load;
mod places;
mod plan;
mod source;

use std::sync::Arc;

use serde::Serialize;

pub(super) use self::change::delete_groups;
pub(super) use self::load::{Committed, Folded};
pub(super) use self::source::{Loaded, find, load};
use crate::args::{self, Offsets};
use crate::door::{CONSUMER_OFFSETS, Escaped, Storage, offsets_record, partition_for};
use crate::failure::Failure;
use crate::output::{self, Out};
use crate::target::Target;
use crate::{Status, complain};

const HEADER: &str = "group\ttopic\tpartition\toffset\tleader_epoch\tmetadata";

pub(crate) fn run(command: Offsets, storage: &Arc<dyn Storage>) -> Result<Status, Failure> {
    match command {
        Offsets::List(args) => list(&args, &**storage),
        Offsets::Get(args) => get(&args, &**storage),
        Offsets::Export(args) => export::run(&args, &**storage),
        Offsets::Set(args) => change::set(&args, storage),
        Offsets::Delete(args) => change::delete(&args, storage),
        Offsets::Import(args) => change::import(&args, storage),
    }
}

fn list(args: &args::OffsetsList, storage: &dyn Storage) -> Result<Status, Failure> {
    let target = find(storage, &args.dir)?;
    let Loaded { mut folded, places, records, status, .. } = source::load_commits(storage, &target, &|group| args.only.has_group(group))?;
    places.warn(&target);
    args.only.warn_of_nothing(&folded.committed);
    folded.committed.retain(|committed| args.only.has_topic(&committed.topic));
    if folded.committed.is_empty() {
        let dir = output::name(&args.dir.display().to_string());
        let why = match records {
            0 => "there is no record of a commit or a group",
            _ if args.only.is_all() => "what was is deleted, or its transaction is open",
            _ => "not by the groups that are asked for, in these topics",
        };
        complain(&format!("nothing is committed in {dir}: {why}"));
    }
    print(&folded.committed, Form::of(args.tsv, args.json))?;
    Ok(status)
}

fn get(args: &args::OffsetsGet, storage: &dyn Storage) -> Result<Status, Failure> {
    let target = find(storage, &args.dir)?;
    let Loaded { folded, places, status, .. } = load_one(storage, &target, &args.group)?;
    places.warn(&target);
    let form = Form::of(args.tsv, args.json);
    if folded.committed.is_empty() && form == Form::Table {
        let group = output::shown(&args.group);
        let text = if target.whole_dir {
            format!("group {group} has committed nothing")
        } else {
            format!("group {group} has committed nothing in this partition; all of a group is in one, which the data directory tells")
        };
        Out::new().line(&text)?;
        return Ok(status);
    }
    print(&folded.committed, form)?;
    Ok(status)
}

/// All of a group is in one partition. If all partitions are there, their number tells which; unless the groups in it say
/// otherwise.
fn load_one(storage: &dyn Storage, target: &Target, group: &str) -> Result<Loaded, Failure> {
    let is_wanted = |name: &str| name == group;
    if let Some(count) = places::count_of(target) {
        let wanted = partition_for(group, count);
        let mut narrow = target.clone();
        narrow.partitions.retain(|partition| partition.number_in(CONSUMER_OFFSETS) == Some(wanted));
        let loaded = source::load_commits(storage, &narrow, &is_wanted)?;
        if !loaded.places.of_group(group).is_empty() && loaded.places.contradiction(count).is_none() {
            return Ok(loaded);
        }
    }
    source::load_commits(storage, target, &is_wanted)
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
    topic_id: Option<offsets_record::Value>,
}

impl<'a> Line<'a> {
    fn of(c: &'a Committed) -> Self {
        Self {
            group: &c.group,
            topic: &c.topic,
            partition: c.partition,
            offset: c.offset,
            leader_epoch: c.leader_epoch,
            metadata: &c.metadata,
            commit_timestamp: c.commit_timestamp_ms,
            expire_timestamp: c.expire_timestamp_ms,
            topic_id: c.topic_id.map(offsets_record::Value::Uuid),
        }
    }
}

fn print(committed: &[Committed], form: Form) -> Result<(), Failure> {
    let mut out = Out::new();
    let epoch = |committed: &Committed| committed.leader_epoch.map_or_else(|| "-".to_owned(), |epoch| epoch.to_string());
    match form {
        Form::Json => {
            for c in committed {
                out.json(&Line::of(c))?;
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
                    output::shown(&c.group),
                    output::shown(&c.topic),
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
