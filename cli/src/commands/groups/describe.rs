//! `keeplog groups describe`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::offsets::{Committed, Loaded, find, load};
use super::{Group, gather};
use crate::Status;
use crate::args;
use crate::door::check::{self, Inventory};
use crate::door::groups::{AssignedPartitions, GroupKind, GroupState, MemberDescription, Subscription};
use crate::door::{Error, Storage};
use crate::ends::{Ends, LogEnds};
use crate::failure::Failure;
use crate::output::{self, Out};
use crate::target::Target;

pub(super) fn run(args: &args::GroupsDescribe, storage: &dyn Storage) -> Result<Status, Failure> {
    let target = find(storage, &args.dir)?;
    let wanted = |name: &str| args.filter.has_name(name) && (args.groups.is_empty() || args.groups.iter().any(|group| group == name));
    let Loaded { folded, places, status, checkpoints, .. } = load(storage, &target, &wanted)?;
    places.warn(&target);
    let mut groups = gather(folded, &args.filter);
    let absent: Vec<&str> =
        args.groups.iter().map(String::as_str).filter(|asked| !groups.iter().any(|group| group.name == *asked)).collect();
    name_topics(storage, &target, &mut groups)?;
    let mut ends = Ends::new(storage, target.data_dir.as_deref(), &checkpoints);
    let mut out = Out::new();
    for (i, group) in groups.iter().enumerate() {
        let rows = rows(group, &mut ends)?;
        if args.json {
            out.json(&Line::of(group, &rows))?;
        } else {
            out.text(if i > 0 { "\n" } else { "" })?;
            out.text(&text(group, &rows))?;
        }
    }
    out.flush()?;
    if absent.is_empty() {
        return Ok(status);
    }
    let absent: Vec<String> = absent.into_iter().map(output::shown).collect();
    Err(Failure::new(format!("could not describe {}: there is no such group that is asked for", absent.join(", ")))
        .advise("keeplog groups list shows all"))
}

/// A partition that a group has committed, or that was given to a member.
struct Row<'a> {
    topic: &'a str,
    partition: i32,
    committed: Option<&'a Committed>,
    log: Option<LogEnds>,
    owner: Option<&'a MemberDescription>,
}

impl Row<'_> {
    fn lag(&self) -> Option<u64> {
        Some(self.log?.lag(self.committed?.offset))
    }
}

/// By topic and partition.
fn rows<'a>(group: &'a Group, ends: &mut Ends<'_>) -> Result<Vec<Row<'a>>, Error> {
    let mut found = BTreeMap::new();
    let row = |topic: &'a str, partition| Row { topic, partition, committed: None, log: None, owner: None };
    for committed in &group.offsets {
        let (topic, partition) = (&*committed.topic, committed.partition);
        found.entry((topic, partition)).or_insert_with(|| row(topic, partition)).committed = Some(committed);
    }
    // The tasks of streams are no partitions of a topic.
    let members = group.described.members.iter().filter(|_| group.described.kind != GroupKind::Streams);
    for member in members {
        for AssignedPartitions { topic, partitions } in member.assignment.iter().flatten() {
            for &partition in partitions {
                found.entry((topic, partition)).or_insert_with(|| row(topic, partition)).owner = Some(member);
            }
        }
    }
    let mut rows: Vec<Row<'a>> = found.into_values().collect();
    for row in &mut rows {
        row.log = ends.of(row.topic, row.partition)?;
    }
    Ok(rows)
}

/// Puts names where assignments have the ids of topics, as far as the directories of the topics tell.
fn name_topics(storage: &dyn Storage, target: &Target, groups: &mut [Group]) -> Result<(), Failure> {
    let has_ids = |group: &&mut Group| matches!(group.described.kind, GroupKind::Consumer | GroupKind::Share);
    let members = groups.iter_mut().filter(has_ids).flat_map(|group| &mut group.described.members);
    let mut assigned: Vec<&mut AssignedPartitions> = members.flat_map(|member| member.assignment.iter_mut().flatten()).collect();
    let Some(data_dir) = target.data_dir.as_ref().filter(|_| !assigned.is_empty()) else { return Ok(()) };
    let mut names = BTreeMap::new();
    for partition in Target::find(storage, data_dir)?.partitions {
        let inventory = Inventory::list(storage, &partition.path)?;
        let (_, id) = check::side_files(storage, &partition.path, &inventory)?;
        let topic = partition.name.rsplit_once('-').map(|(topic, _)| topic.to_owned());
        names.extend(id.zip(topic));
    }
    for AssignedPartitions { topic, .. } in &mut assigned {
        if let Some(name) = names.get(topic.as_str()) {
            topic.clone_from(name);
        }
    }
    Ok(())
}

/// A line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    group: &'a str,
    #[serde(rename = "type")]
    kind: GroupKind,
    state: GroupState,
    protocol_type: &'a str,
    protocol: Option<&'a str>,
    /// Generation of a classic group.
    epoch: Option<i32>,
    leader: Option<&'a str>,
    state_timestamp: Option<i64>,
    /// Null where it cannot be told.
    topics: Option<&'a [Box<str>]>,
    members: Vec<Member<'a>>,
    offsets: Vec<Offset<'a>>,
}

#[derive(Serialize)]
struct Member<'a> {
    member_id: &'a str,
    instance_id: Option<&'a str>,
    client_id: &'a str,
    host: &'a str,
    topics: Option<&'a [Box<str>]>,
    assignment: Option<&'a [AssignedPartitions]>,
}

#[derive(Serialize)]
struct Offset<'a> {
    topic: &'a str,
    partition: i32,
    offset: Option<u64>,
    log_start_offset: Option<u64>,
    log_end_offset: Option<u64>,
    lag: Option<u64>,
    leader_epoch: Option<i32>,
    metadata: Option<&'a str>,
    commit_timestamp: Option<i64>,
    expire_timestamp: Option<i64>,
    member_id: Option<&'a str>,
}

fn topics(subscription: &Subscription) -> Option<&[Box<str>]> {
    match subscription {
        Subscription::Topics(topics) => Some(topics),
        Subscription::Unknown => None,
    }
}

impl<'a> Line<'a> {
    fn of(group: &'a Group, rows: &[Row<'a>]) -> Self {
        let Group { name, described, .. } = group;
        let member = |member: &'a MemberDescription| Member {
            member_id: &member.member_id,
            instance_id: member.instance_id.as_deref(),
            client_id: &member.client_id,
            host: &member.client_host,
            topics: topics(&member.subscription),
            assignment: member.assignment.as_deref(),
        };
        let offset = |row: &Row<'a>| Offset {
            topic: row.topic,
            partition: row.partition,
            offset: row.committed.map(|committed| committed.offset),
            log_start_offset: row.log.map(|log| log.start),
            log_end_offset: row.log.map(|log| log.end),
            lag: row.lag(),
            leader_epoch: row.committed.and_then(|committed| committed.leader_epoch),
            metadata: row.committed.map(|committed| &*committed.metadata),
            commit_timestamp: row.committed.map(|committed| committed.commit_timestamp_ms),
            expire_timestamp: row.committed.and_then(|committed| committed.expire_timestamp_ms),
            member_id: row.owner.map(|member| &*member.member_id),
        };
        Self {
            group: name,
            kind: described.kind,
            state: described.state,
            protocol_type: &described.protocol_type,
            protocol: described.protocol.as_deref(),
            epoch: described.epoch,
            leader: described.leader.as_deref(),
            state_timestamp: described.current_state_timestamp_ms,
            topics: topics(&described.subscription),
            members: described.members.iter().map(member).collect(),
            offsets: rows.iter().map(offset).collect(),
        }
    }
}

fn text(group: &Group, rows: &[Row<'_>]) -> String {
    let mut text = headline(group);
    text.push('\n');
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    if !rows.is_empty() {
        let cells = rows.iter().map(|row| {
            let owner = |of: fn(&MemberDescription) -> &str| row.owner.map_or_else(|| "-".to_owned(), |owner| output::shown(of(owner)));
            vec![
                output::shown(row.topic),
                row.partition.to_string(),
                number(row.committed.map(|committed| committed.offset)),
                number(row.log.map(|log| log.end)),
                number(row.lag()),
                owner(|member| &member.member_id),
                owner(|member| &member.client_host),
                owner(|member| &member.client_id),
            ]
        });
        let headers = ["topic", ">partition", ">offset", ">log end", ">lag", "member", "host", "client"];
        // Nobody has anything in most groups of a broker that was stopped: then the last columns say nothing.
        let shown = if rows.iter().any(|row| row.owner.is_some()) { headers.len() } else { 5 };
        let cells = cells.map(|mut row: Vec<String>| {
            row.truncate(shown);
            row
        });
        text.push_str(&output::indent(&output::table(&headers[..shown], cells)));
    }
    if !group.described.members.is_empty() {
        text.push_str(&output::indent(&output::table(&["member", "instance", "host", "client", "reads", "has"], members(group))));
    }
    text
}

/// `billing: Classic, Stable, consumer (range), generation 7 since 2026-11-30 12:00:00 UTC, 2 members, 3 offsets`.
fn headline(group: &Group) -> String {
    let Group { name, described, offsets } = group;
    let mut text = format!("{}: {}, {}", output::shown(name), described.kind, described.state);
    if !described.protocol_type.is_empty() {
        text.push_str(&format!(", {}", output::shown(&described.protocol_type)));
    }
    if let Some(protocol) = &described.protocol {
        text.push_str(&format!(" ({})", output::shown(protocol)));
    }
    if let Some(epoch) = described.epoch {
        let what = if described.kind == GroupKind::Classic { "generation" } else { "epoch" };
        text.push_str(&format!(", {what} {epoch}"));
    }
    if let Some(ms) = described.current_state_timestamp_ms {
        text.push_str(&format!(" since {} UTC", output::time_to_seconds(ms)));
    }
    let members = output::counted(described.members.len() as u64, "member", "members");
    text.push_str(&format!(", {members}, {}", output::counted(offsets.len() as u64, "offset", "offsets")));
    text
}

fn members(group: &Group) -> impl Iterator<Item = Vec<String>> {
    group.described.members.iter().map(|member| {
        let reads =
            topics(&member.subscription).map_or_else(|| "?".to_owned(), |topics| listed(topics.iter().map(|topic| output::shown(topic))));
        let has = member.assignment.as_ref().map_or_else(
            || "?".to_owned(),
            |assigned| {
                listed(assigned.iter().map(|AssignedPartitions { topic, partitions }| {
                    let numbers: Vec<String> = partitions.iter().map(i32::to_string).collect();
                    format!("{}({})", output::shown(topic), numbers.join(","))
                }))
            },
        );
        let instance = member.instance_id.as_deref().map_or_else(|| "-".to_owned(), output::name);
        vec![output::shown(&member.member_id), instance, output::shown(&member.client_host), output::shown(&member.client_id), reads, has]
    })
}

fn listed(names: impl Iterator<Item = String>) -> String {
    let all = names.collect::<Vec<_>>().join(", ");
    if all.is_empty() { "-".to_owned() } else { all }
}
