//! The partitions of `__consumer_offsets` that a command reads, and what they say.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::Path;

use super::load::{Folded, Loader};
use crate::door::check::{self, Checkpoints};
use crate::door::replay::Replay;
use crate::door::{CONSUMER_OFFSETS, Storage};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::target::Target;
use crate::{Status, args, complain, glob};

/// What was found.
pub(crate) struct Loaded {
    pub(crate) folded: Folded,
    /// Records that it was told from.
    pub(crate) records: u64,
    pub(crate) status: Status,
    /// Something else than the record of a group could not be read.
    pub(crate) is_damaged: bool,
    /// What the data directory says about its logs.
    pub(crate) checkpoints: Checkpoints,
}

/// The partitions of `__consumer_offsets` at `path`. A partition directory that was named may have any name.
pub(crate) fn find(storage: &dyn Storage, path: &Path) -> Result<Target, Failure> {
    let mut target = Target::find(storage, path)?;
    if target.whole_dir {
        target.retain_topic(CONSUMER_OFFSETS, path)?;
        let numbers = numbers(&target);
        let absent: Vec<String> =
            (0..numbers.last().copied().unwrap_or(0)).filter(|n| !numbers.contains(n)).map(|n| n.to_string()).collect();
        if !absent.is_empty() {
            // A broker with several data directories spreads them.
            complain(&format!("{CONSUMER_OFFSETS} partitions {} are not here: what is in them is not shown", absent.join(", ")));
        }
    }
    Ok(target)
}

/// How many partitions there are in all, if all are there.
pub(crate) fn partition_count(target: &Target) -> Option<NonZeroU32> {
    let numbers = numbers(target);
    let count = u32::try_from(numbers.len()).ok().and_then(NonZeroU32::new)?;
    (target.whole_dir && numbers.last().is_some_and(|last| last + 1 == count.get())).then_some(count)
}

fn numbers(target: &Target) -> BTreeSet<u32> {
    target.partitions.iter().filter_map(|partition| partition.number_in(CONSUMER_OFFSETS)).collect()
}

/// Reads the partitions; of what they say, the groups that are `wanted`.
pub(crate) fn load(storage: &dyn Storage, target: &Target, wanted: &dyn Fn(&str) -> bool) -> Result<Loaded, Failure> {
    load_by(storage, target, wanted, Replay::new)
}

/// As [`load`], without the records of the groups themselves: who is in them does not matter, nor whether that can be read.
pub(crate) fn load_commits(storage: &dyn Storage, target: &Target, wanted: &dyn Fn(&str) -> bool) -> Result<Loaded, Failure> {
    load_by(storage, target, wanted, Replay::of_commits)
}

fn load_by(storage: &dyn Storage, target: &Target, wanted: &dyn Fn(&str) -> bool, replay: fn() -> Replay) -> Result<Loaded, Failure> {
    let checkpoints = match &target.data_dir {
        Some(dir) => check::data_dir(storage, dir)?.0,
        None => Checkpoints::default(),
    };
    let mut progress = Progress::new(storage, "loading", target.log_bytes(storage));
    let (mut folded, mut records, mut of_groups) = (Folded::default(), 0, Status::Fine);
    let status = target.each(|partition| {
        let start = checkpoints.of(&partition.name).log_start.unwrap_or(0);
        let mut loader = Loader::new(storage, start, replay());
        let status = loader.partition(&partition.path, &mut progress)?;
        records += loader.records();
        of_groups = of_groups.max(loader.warn_of_groups(&partition.path));
        loader.finish(wanted, &mut folded);
        Ok(status)
    })?;
    folded.committed.sort_unstable_by(|a, b| (&a.group, &a.topic, a.partition).cmp(&(&b.group, &b.topic, b.partition)));
    Ok(Loaded { folded, records, is_damaged: status == Status::Damage, status: status.max(of_groups), checkpoints })
}

impl args::Selection {
    /// Whether anything of this group is asked for.
    pub(crate) fn has_group(&self, group: &str) -> bool {
        let named = self.groups.is_empty() || self.groups.iter().any(|name| name == group);
        named && self.pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, group))
    }

    pub(crate) fn has_topic(&self, topic: &str) -> bool {
        self.topics.is_empty() || self.topics.iter().any(|name| name == topic)
    }

    /// Whether everything is.
    pub(crate) fn is_all(&self) -> bool {
        self.groups.is_empty() && self.topics.is_empty() && self.pattern.is_none()
    }
}
