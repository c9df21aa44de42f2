//! `keeplog groups`: the consumer groups, who is in them, and how far behind they are.

mod describe;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::offsets::{Committed, Folded, Loaded, delete_groups, find, load};
use crate::args::{self, GroupFilter, GroupStateArg, GroupTypeArg, Groups};
use crate::door::Storage;
use crate::door::groups::{GroupDescription, GroupKind, GroupState};
use crate::failure::Failure;
use crate::output::{self, Out};
use crate::{Status, complain, glob};

pub(crate) fn run(command: Groups, storage: &Arc<dyn Storage>) -> Result<Status, Failure> {
    match command {
        Groups::List(args) => list(&args, &**storage),
        Groups::Describe(args) => describe::run(&args, &**storage),
        Groups::Delete(args) => delete_groups(&args, storage),
    }
}

/// A group, with all that is known about it.
struct Group {
    name: String,
    described: GroupDescription,
    /// By topic and partition.
    offsets: Vec<Committed>,
}

/// All groups that were found and that `filter` lets through, by name.
fn gather(mut folded: Folded, filter: &GroupFilter) -> Vec<Group> {
    let mut offsets: BTreeMap<String, Vec<Committed>> = folded.groups.keys().map(|name| (name.clone(), Vec::new())).collect();
    for committed in folded.committed {
        if let Some(of_group) = offsets.get_mut(&*committed.group) {
            of_group.push(committed);
        } else {
            offsets.insert(committed.group.to_string(), vec![committed]);
        }
    }
    let group = |(name, offsets): (String, _)| {
        let described = folded.groups.remove(&name).unwrap_or_else(GroupDescription::simple);
        Group { name, described, offsets }
    };
    offsets.into_iter().map(group).filter(|group| filter.lets_through(&group.described)).collect()
}

impl GroupFilter {
    fn has_name(&self, name: &str) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, name))
    }

    fn lets_through(&self, group: &GroupDescription) -> bool {
        let in_state = self.states.is_empty() || self.states.iter().any(|state| state.is(group.state));
        in_state && (self.types.is_empty() || self.types.iter().any(|kind| kind.is(group.kind)))
    }

    fn is_all(&self) -> bool {
        self.pattern.is_none() && self.states.is_empty() && self.types.is_empty()
    }
}

impl GroupStateArg {
    fn is(self, state: GroupState) -> bool {
        match self {
            Self::Empty => state == GroupState::Empty,
            Self::Stable => state == GroupState::Stable,
            Self::Unknown => state == GroupState::Unknown,
        }
    }
}

impl GroupTypeArg {
    fn is(self, kind: GroupKind) -> bool {
        match self {
            Self::Simple => kind == GroupKind::Simple,
            Self::Classic => kind == GroupKind::Classic,
            Self::Consumer => kind == GroupKind::Consumer,
            Self::Share => kind == GroupKind::Share,
            Self::Streams => kind == GroupKind::Streams,
        }
    }
}

/// A line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    group: &'a str,
    #[serde(rename = "type")]
    kind: GroupKind,
    state: GroupState,
    protocol_type: &'a str,
    members: usize,
    offsets: usize,
}

fn list(args: &args::GroupsList, storage: &dyn Storage) -> Result<Status, Failure> {
    let target = find(storage, &args.dir)?;
    let Loaded { folded, places, status, .. } = load(storage, &target, &|name| args.filter.has_name(name))?;
    places.warn(&target);
    let groups = gather(folded, &args.filter);
    if groups.is_empty() {
        let which = if args.filter.is_all() { "" } else { " that is asked for" };
        complain(&format!("there is no group{which} in {}", output::name(&args.dir.display().to_string())));
    }
    let mut out = Out::new();
    if args.json {
        for Group { name, described: group, offsets } in &groups {
            out.json(&Line {
                group: name,
                kind: group.kind,
                state: group.state,
                protocol_type: &group.protocol_type,
                members: group.members.len(),
                offsets: offsets.len(),
            })?;
        }
    } else if !groups.is_empty() {
        let rows = groups.iter().map(|Group { name, described: group, offsets }| {
            let protocol = if group.protocol_type.is_empty() { "-".to_owned() } else { output::shown(&group.protocol_type) };
            let (members, offsets) = (group.members.len().to_string(), offsets.len().to_string());
            vec![output::shown(name), group.kind.to_string(), group.state.to_string(), protocol, members, offsets]
        });
        out.text(&output::table(&["group", "type", "state", "protocol", ">members", ">offsets"], rows))?;
    }
    out.flush()?;
    Ok(status)
}
