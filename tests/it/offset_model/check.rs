//! Whether a store answers what it must, whichever way it is asked.

use std::collections::BTreeSet;

use keeplog::{CommittedOffset, ErrorKind, OffsetAndMetadata, OffsetStore, PartitionState};

use super::model::State;
use super::run::partition_of;
use super::steps::{GROUPS, TOPIC_PARTITIONS, TOPICS};

pub(super) type Told<T> = Result<T, String>;

/// What was told must be what is right.
#[allow(clippy::needless_pass_by_value)] // nobody has another use for them
pub(super) fn same<T: PartialEq + std::fmt::Debug>(what: &str, told: keeplog::Result<T>, right: Result<T, ErrorKind>) -> Told<()> {
    let kind = told.as_ref().map_err(keeplog::Error::kind);
    if kind == right.as_ref().map_err(|kind| *kind) { Ok(()) } else { Err(format!("{what}: {told:?}; {right:?} would be right")) }
}

/// Asks `store` everything: partitions answer from their state, or refuse with a kind.
pub(super) fn check(store: &OffsetStore, partitions: &[Result<&State, ErrorKind>]) -> Told<()> {
    for group in GROUPS {
        check_group(store, group, partitions[partition_of(group)])?;
    }
    let mut led = Vec::new();
    let mut loading = None;
    for (number, answers) in partitions.iter().enumerate() {
        let state = store.partition_state(number as u32).map_err(|error| format!("{error:?}"))?;
        let is_right = match answers {
            Ok(shown) => {
                led.push(*shown);
                state == PartitionState::Active
            }
            Err(ErrorKind::NotLeader) => state == PartitionState::NotLed,
            Err(kind) => {
                loading = Some(*kind);
                matches!(state, PartitionState::Loading { .. })
            }
        };
        if !is_right {
            return Err(format!("partition {number} is {state:?}, {answers:?} would be right"));
        }
    }
    let mut all: Vec<_> = led.iter().flat_map(|state| state.committed()).collect();
    all.sort_by_key(|(place, _)| *place);
    let right: Vec<_> = all.iter().map(|((group, topic, p), committed)| listed(group, topic, *p, committed)).collect();
    let told = store.list().map(|all| all.iter().map(|o| listed(&o.group, &o.topic, o.partition, &o.committed)).collect());
    same("list", told, loading.map_or(Ok(right), Err))?;
    let groups: BTreeSet<_> = led.iter().flat_map(|state| state.committing()).map(str::to_owned).collect();
    let told = store.groups().map(|groups| groups.iter().map(ToString::to_string).collect());
    same("groups", told, loading.map_or(Ok(groups), Err))?;
    let counters = store.counters();
    let known = |state: &&State| state.committing().into_iter().chain(state.groups.keys().copied()).collect::<BTreeSet<_>>().len();
    let right = (all.len() as u64, led.iter().map(known).sum::<usize>() as u64, led.len() as u64);
    same("counters", Ok((counters.num_offsets, counters.num_groups, counters.active_partitions)), Ok(right))
}

fn check_group(store: &OffsetStore, group: &'static str, answers: Result<&State, ErrorKind>) -> Told<()> {
    let of_group = |state: &State| {
        let of_it = state.committed().filter(|((of, ..), _)| *of == group);
        of_it.map(|((_, topic, partition), committed)| listed(group, topic, partition, committed)).collect::<Vec<_>>()
    };
    let told = store.fetch_all(group).map(|all| all.iter().map(|o| listed(group, &o.topic, o.partition, &o.committed)).collect());
    same("fetch all", told, answers.map(of_group))?;
    let places: Vec<_> = TOPICS.iter().flat_map(|topic| TOPIC_PARTITIONS.map(|partition| (*topic, partition))).collect();
    let fetched = |state: &State, (topic, partition)| state.get((group, topic, partition)).cloned().map(OffsetAndMetadata::from);
    let right = answers.map(|state| places.iter().map(|place| fetched(state, *place)).collect::<Vec<_>>());
    same("fetch", store.fetch(group, &places), right.clone())?;
    for (at, place) in places.iter().enumerate().take(2) {
        same("fetch one", store.fetch(group, &[*place]), right.clone().map(|all| vec![all[at].clone()]))?;
    }
    let stable = |state: &State| {
        let waits = |(topic, partition)| state.waits((group, topic, partition));
        places.iter().map(|place| (!waits(*place)).then(|| fetched(state, *place))).collect::<Vec<_>>()
    };
    let told = store.fetch_stable(group, &places).map(|all| all.into_iter().map(Result::ok).collect());
    same("fetch stable", told, answers.map(stable))
}

type Listed = (String, String, i32, CommittedOffset);

fn listed(group: &str, topic: &str, partition: i32, committed: &CommittedOffset) -> Listed {
    (group.to_owned(), topic.to_owned(), partition, committed.clone())
}
