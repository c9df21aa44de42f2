//! What a change of offsets comes to: which places, from what, to what.

use std::collections::{BTreeMap, BTreeSet};

use super::file::Wanted;
use super::load::{Committed, Folded};
use crate::args::{Position, Scope};
use crate::complain;
use crate::door::groups::{GroupDescription, GroupKind, GroupState};
use crate::door::names::check_topic;
use crate::ends::{Ends, LogEnds};
use crate::failure::Failure;
use crate::output;
use crate::target::Target;

/// A committed offset that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) group: String,
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) old: Option<u64>,
    /// `None`: it is deleted.
    pub(super) new: Option<New>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct New {
    pub(super) offset: u64,
    pub(super) leader_epoch: Option<i32>,
    pub(super) metadata: String,
}

/// Everything that plans are made from.
pub(super) struct Planner<'a> {
    pub(super) folded: &'a Folded,
    pub(super) ends: Ends<'a>,
    /// Partitions whose logs are here, by topic.
    pub(super) logs: BTreeMap<String, BTreeSet<i32>>,
    pub(super) now_ms: i64,
    /// Members by the records of groups count for nothing.
    pub(super) members_are_gone: bool,
}

/// The partitions in a data directory, by topic.
pub(super) fn logs_of(target: &Target) -> BTreeMap<String, BTreeSet<i32>> {
    let mut logs: BTreeMap<String, BTreeSet<i32>> = BTreeMap::new();
    for partition in &target.partitions {
        let Some((topic, number)) = partition.name.rsplit_once('-') else { continue };
        let number = number.parse::<i32>().ok().filter(|_| partition.number_in(topic).is_some());
        logs.entry(topic.to_owned()).or_default().extend(number);
    }
    logs
}

impl Planner<'_> {
    /// Refuses a group that somebody is in, or may be.
    pub(super) fn check_empty(&self, group: &str, doing: &str) -> Result<(), Failure> {
        let Some(described) = self.folded.groups.get(group) else { return Ok(()) };
        let shown = output::shown(group);
        match described.state {
            GroupState::Empty => Ok(()),
            GroupState::Stable if self.members_are_gone => Ok(()),
            GroupState::Unknown => Err(Failure::new(format!("could not {doing} group {shown}: its record cannot be read"))
                .advise("keeplog dump --decode offsets shows it; nothing was changed")),
            _ => Err(has_members(described, group, doing)),
        }
    }

    /// Refuses a group whose offsets cannot be set.
    fn check_settable(&self, group: &str) -> Result<(), Failure> {
        if group.is_empty() {
            return Err(Failure::new("could not set offsets: the name of the group is empty").advise("name a group; nothing was changed"));
        }
        if self.folded.groups.get(group).is_some_and(|described| described.kind == GroupKind::Share) {
            let what = format!("could not set offsets of group {}: it is a share group, which does not commit here", output::shown(group));
            return Err(Failure::new(what).advise("kafka-share-groups.sh resets its offsets, with a broker; nothing was changed"));
        }
        self.check_empty(group, "set offsets of")
    }

    /// Whether anything is known of `group`.
    fn is_known(&self, group: &str) -> bool {
        self.folded.groups.contains_key(group) || !self.folded.places_of(group).is_empty()
    }

    /// Says of which of `scopes` there is nothing among `places`.
    fn warn_of_nothing(group: &str, scopes: &[Scope], has: impl Fn(&str, Option<i32>) -> bool) {
        for Scope { topic, partitions } in scopes {
            let numbers = partitions.iter().map(|number| Some(*number));
            let absent = numbers.chain(partitions.is_empty().then_some(None)).filter(|number| !has(topic, *number));
            for number in absent {
                let place = number.map_or_else(|| topic.clone(), |number| format!("{topic} partition {number}"));
                complain(&format!("group {} has committed nothing in {}", output::shown(group), output::name(&place)));
            }
        }
    }

    /// What `group` has committed.
    fn committed<'b>(&'b self, group: &'b str) -> impl Iterator<Item = &'b Committed> {
        self.folded.committed.iter().filter(move |committed| &*committed.group == group)
    }

    fn committed_at(&self, group: &str, topic: &str, partition: i32) -> Option<u64> {
        let at = self.folded.committed.binary_search_by(|c| (&*c.group, &*c.topic, c.partition).cmp(&(group, topic, partition))).ok()?;
        Some(self.folded.committed[at].offset)
    }

    /// The places that are meant for `group`, ascending. Without numbers, a topic stands for what the group has committed
    /// and, if `with_logs`, for the logs that are here.
    fn places(&self, group: &str, scopes: &[Scope], all_topics: bool, with_logs: bool) -> BTreeSet<(String, i32)> {
        let place = |committed: &Committed| (committed.topic.to_string(), committed.partition);
        if all_topics {
            return self.committed(group).map(place).collect();
        }
        let mut places = BTreeSet::new();
        for Scope { topic, partitions } in scopes {
            if partitions.is_empty() {
                places.extend(self.committed(group).filter(|committed| *committed.topic == **topic).map(place));
                let logs = self.logs.get(topic).filter(|_| with_logs);
                places.extend(logs.into_iter().flatten().map(|partition| (topic.clone(), *partition)));
            }
            places.extend(partitions.iter().map(|partition| (topic.clone(), *partition)));
        }
        places
    }

    /// Sets what is meant to where `position` says.
    pub(super) fn set(&mut self, group: &str, scopes: &[Scope], all_topics: bool, position: &Position) -> Result<Vec<Change>, Failure> {
        self.check_settable(group)?;
        let places = self.places(group, scopes, all_topics, true);
        if places.is_empty() {
            let what =
                format!("could not set offsets of group {}: it has committed nothing there, and no such log is here", output::shown(group));
            return Err(Failure::new(what).advise("name partitions, as in --topic orders:0,1; nothing was changed"));
        }
        for Scope { topic, .. } in scopes.iter().filter(|scope| !places.iter().any(|(topic, _)| *topic == scope.topic)) {
            complain(&format!("group {} has committed nothing in {topic}, and no log of it is here: it is left out", output::shown(group)));
        }
        let change = |(topic, partition): (String, i32)| {
            let old = self.committed_at(group, &topic, partition);
            let offset = self.resolve(group, &topic, partition, old, position)?;
            Ok(Change { group: group.to_owned(), topic, partition, old, new: Some(New { offset, ..New::default() }) })
        };
        places.into_iter().map(change).collect()
    }

    fn resolve(&mut self, group: &str, topic: &str, partition: i32, old: Option<u64>, position: &Position) -> Result<u64, Failure> {
        let place = format!("{} partition {partition} of group {}", output::shown(topic), output::shown(group));
        let no_log = || {
            Failure::new(format!("could not set offsets: the log of {place} is not here, and where it starts and ends not known"))
                .advise("give the offset with --to-offset; nothing was changed")
        };
        let Position { to_offset, to_earliest, to_latest, to_current: _, shift_by, to_datetime, by_duration, from_file: _ } = position;
        let ends = self.ends.of(topic, partition)?;
        if *to_earliest {
            return Ok(ends.ok_or_else(no_log)?.start);
        }
        if *to_latest {
            return Ok(ends.ok_or_else(no_log)?.end);
        }
        if let Some(time_ms) = to_datetime.or(by_duration.map(|ms| self.now_ms.saturating_sub(ms))) {
            return self.ends.at_time(topic, partition, time_ms)?.ok_or_else(no_log);
        }
        let offset = match (to_offset, shift_by, old) {
            (Some(offset), ..) => i128::from(*offset),
            (None, Some(by), Some(old)) => i128::from(old) + i128::from(*by),
            (None, Some(_), None) => {
                return Err(Failure::new(format!("could not set offsets: {place} has nothing committed to shift"))
                    .advise("leave it out, or say where to with another option; nothing was changed"));
            }
            (None, None, Some(old)) => i128::from(old),
            (None, None, None) => return Ok(ends.ok_or_else(no_log)?.end),
        };
        self.clamped(&place, topic, partition, offset)
    }

    /// `offset`, brought into the log if that is here, and among those that there can be.
    fn clamped(&mut self, place: &str, topic: &str, partition: i32, offset: i128) -> Result<u64, Failure> {
        let ends = self.ends.of(topic, partition)?;
        let possible = u64::try_from(offset.clamp(0, i64::MAX.into())).unwrap_or(0);
        let clamped = ends.map_or(possible, |ends| ends.clamp(possible));
        match ends {
            _ if i128::from(clamped) == offset => {}
            None => complain(&format!("{place}: {offset} is not an offset: {clamped} is taken")),
            Some(LogEnds { start, end }) => {
                complain(&format!("{place}: {offset} is not in the log, which goes from {start} to {end}: {clamped} is taken"));
            }
        }
        Ok(clamped)
    }

    /// Sets what a file says.
    pub(super) fn import(&mut self, wanted: Vec<Wanted>) -> Result<Vec<Change>, Failure> {
        let groups: BTreeSet<&str> = wanted.iter().map(|wanted| &*wanted.group).collect();
        groups.into_iter().try_for_each(|group| self.check_settable(group))?;
        let change = |Wanted { line, group, topic, partition, offset, leader_epoch, metadata }| {
            let place = format!("{} partition {partition} of group {}", output::shown(&topic), output::shown(&group));
            let old = self.committed_at(&group, &topic, partition);
            // What is there already may have any name.
            if old.is_none() && check_topic(&topic).is_err() {
                let what = format!("could not take offsets: line {line}: \"{}\" is not the name of a topic", output::shown(&topic));
                return Err(Failure::new(what).advise("correct the line or leave it out; nothing was changed"));
            }
            let taken = self.clamped(&place, &topic, partition, offset.into())?;
            // The epoch belongs to the offset that was exported.
            let leader_epoch = leader_epoch.filter(|_| taken == offset);
            Ok(Change { group, topic, partition, old, new: Some(New { offset: taken, leader_epoch, metadata }) })
        };
        wanted.into_iter().map(change).collect()
    }

    /// Deletes what is meant, as far as anything is committed there.
    pub(super) fn delete(&self, group: &str, scopes: &[Scope], all_topics: bool) -> Result<Vec<Change>, Failure> {
        if !self.is_known(group) {
            let what = format!("could not delete offsets of group {}: there is no such group", output::shown(group));
            return Err(Failure::new(what).advise("keeplog groups list shows all; nothing was changed"));
        }
        let is_gone = |described: &&GroupDescription| self.members_are_gone && described.state == GroupState::Stable;
        let described = self.folded.groups.get(group).filter(|described| !is_gone(described));
        let places = self.places(group, scopes, all_topics, false);
        let mut changes = Vec::new();
        for (topic, partition) in places {
            if let Some(described) = described.filter(|described| described.subscription.may_read(&topic)) {
                return Err(match described.state {
                    GroupState::Unknown => return self.check_empty(group, "delete offsets of").map(|()| Vec::new()),
                    _ => has_members(described, group, &format!("delete offsets of topic {} of", output::shown(&topic))),
                });
            }
            if let Some(old) = self.committed_at(group, &topic, partition) {
                changes.push(Change { group: group.to_owned(), topic, partition, old: Some(old), new: None });
            }
        }
        if changes.is_empty() {
            complain(&format!("group {} has committed nothing there", output::shown(group)));
        } else {
            let has = |topic: &str, number: Option<i32>| {
                changes.iter().any(|change| change.topic == topic && number.is_none_or(|number| change.partition == number))
            };
            Self::warn_of_nothing(group, scopes, has);
        }
        Ok(changes)
    }
}

fn has_members(described: &GroupDescription, group: &str, doing: &str) -> Failure {
    let members = output::counted(described.members.len() as u64, "member", "members");
    Failure::new(format!("could not {doing} group {}: it has {members}, by its record", output::shown(group))).advise(
        "stop its consumers while a broker runs, and wait until they are out of the group (keeplog groups describe shows them); if no \
         broker runs any more that they could be in, give --members-are-gone; nothing was changed",
    )
}
