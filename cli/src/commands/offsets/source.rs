//! The partitions of `__consumer_offsets` that a command reads, and what they say.

use std::collections::BTreeSet;
use std::path::Path;

use super::load::{Committed, Folded, Loader};
use super::places::{self, Places};
use crate::door::check::{self, Checkpoints, Severity};
use crate::door::replay::Replay;
use crate::door::{CONSUMER_OFFSETS, Storage};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::target::Target;
use crate::{Status, args, complain, glob, output};

/// What was found.
pub(crate) struct Loaded {
    pub(crate) folded: Folded,
    /// Records that it was told from.
    pub(crate) records: u64,
    pub(crate) status: Status,
    /// Directories of partitions in which something else than the record of a group could not be read.
    pub(super) damaged: BTreeSet<String>,
    pub(crate) places: Places,
    /// What the data directory says about its logs.
    pub(crate) checkpoints: Checkpoints,
}

/// The partitions of `__consumer_offsets` at `path`. A partition directory that was named may have any name.
pub(crate) fn find(storage: &dyn Storage, path: &Path) -> Result<Target, Failure> {
    let mut target = Target::find(storage, path)?;
    if target.whole_dir {
        target.retain_topic(CONSUMER_OFFSETS, path)?;
        let absent = places::ranges(places::gaps(&target.numbers_of(CONSUMER_OFFSETS)));
        if !absent.is_empty() {
            // A broker with several data directories spreads them.
            complain(&format!("{CONSUMER_OFFSETS} partitions {absent} are not here: what is in them is not shown"));
        }
    }
    Ok(target)
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
        Some(dir) => {
            let (checkpoints, findings) = check::data_dir(storage, dir)?;
            for finding in findings.iter().filter(|finding| finding.severity == Severity::Damage) {
                let file = finding.file.as_deref().map_or_else(|| dir.clone(), |file| dir.join(file));
                complain(&output::name(&format!("{}: {}; what it said of the logs is not known here", file.display(), finding.message)));
            }
            checkpoints
        }
        None => Checkpoints::default(),
    };
    let mut progress = Progress::new(storage, "loading", target.log_bytes(storage));
    let (mut folded, mut records, mut of_groups) = (Folded::default(), 0, Status::Fine);
    let (mut places, mut damaged) = (Places::of(target), BTreeSet::new());
    let status = target.each(|partition| {
        damaged.insert(partition.name.clone());
        let start = checkpoints.of(&partition.name).log_start.unwrap_or(0);
        let mut loader = Loader::new(storage, start, replay());
        let status = loader.partition(&partition.path, &mut progress)?;
        records += loader.records();
        of_groups = of_groups.max(loader.warn_of_groups(&partition.path));
        if let Some(number) = partition.number_in(CONSUMER_OFFSETS) {
            places.extend(number, loader.groups());
        }
        loader.finish(wanted, &mut folded);
        if status == Status::Fine {
            damaged.remove(&partition.name);
        }
        Ok(status)
    })?;
    places.seal();
    folded.committed.sort_unstable_by(|a, b| (&a.group, &a.topic, a.partition).cmp(&(&b.group, &b.topic, b.partition)));
    Ok(Loaded { folded, records, damaged, places, status: status.max(of_groups), checkpoints })
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

    /// Says which of the names that were given stand for nothing.
    pub(crate) fn warn_of_nothing(&self, committed: &[Committed]) {
        let (mut groups, mut topics): (BTreeSet<&str>, BTreeSet<&str>) =
            (self.groups.iter().map(String::as_str).collect(), self.topics.iter().map(String::as_str).collect());
        for committed in committed {
            groups.remove(&*committed.group);
            topics.remove(&*committed.topic);
        }
        for (what, names) in [("group", groups), ("topic", topics)].into_iter().filter(|(_, names)| !names.is_empty()) {
            complain(&format!("nothing is committed for {what} {}", places::names(names.into_iter())));
        }
    }

    /// Whether everything is.
    pub(crate) fn is_all(&self) -> bool {
        self.groups.is_empty() && self.topics.is_empty() && self.pattern.is_none()
    }
}
