//! `keeplog offsets set`, `delete` and `import`, and `keeplog groups delete`.
//!
//! Everything is planned and checked before anything is written, under the lock of the data directory. A dry run goes the
//! same way over a storage whose changes stay in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::apply::{self, Outcome, Work};
use super::file;
use super::fill::{self, Purpose};
use super::places;
use super::plan::{Change, Planner, logs_of};
use super::source::{self, Loaded};
use crate::args::{self, Write};
use crate::door::offsets_record::OffsetKey;
use crate::door::record::Record;
use crate::door::storage::EntryKind;
use crate::door::{CONSUMER_OFFSETS, Storage, TopicPartition, partition_for};
use crate::ends::Ends;
use crate::failure::Failure;
use crate::output::{self, Out};
use crate::owned::OwnedTarget;
use crate::shadow::Shadow;
use crate::target::Target;
use crate::{Status, complain};

pub(super) fn set(args: &args::OffsetsSet, storage: &Arc<dyn Storage>) -> Result<Status, Failure> {
    let groups: BTreeSet<String> = args.groups.iter().cloned().collect();
    let file = match &args.position.from_file {
        Some(path) => Some(file::read(&**storage, path, Some(args::ExportFormat::Csv), &args.groups)?),
        None if args.topics.is_empty() && !args.all_topics => {
            return Err(Failure::new("could not set offsets: nothing says of which topics").advise("give --topic or --all-topics"));
        }
        None => None,
    };
    Site::enter(storage, &args.dir, &args.write, |site| {
        site.change(&groups, |planner| match file {
            Some(wanted) => planner.import(wanted),
            None => {
                let each = groups.iter().map(|group| planner.set(group, &args.topics, args.all_topics, &args.position));
                Ok(each.collect::<Result<Vec<_>, _>>()?.concat())
            }
        })
    })
}

pub(super) fn delete(args: &args::OffsetsDelete, storage: &Arc<dyn Storage>) -> Result<Status, Failure> {
    let groups: BTreeSet<String> = args.groups.iter().cloned().collect();
    Site::enter(storage, &args.dir, &args.write, |site| {
        site.change(&groups, |planner| {
            let each = groups.iter().map(|group| planner.delete(group, &args.topics, args.all_topics));
            Ok(each.collect::<Result<Vec<_>, _>>()?.concat())
        })
    })
}

pub(super) fn import(args: &args::OffsetsImport, storage: &Arc<dyn Storage>) -> Result<Status, Failure> {
    let kind = |path: &Path| storage.metadata(path).ok().map(|meta| meta.kind);
    if (kind(&args.dir), kind(&args.file)) == (Some(EntryKind::File), Some(EntryKind::Directory)) {
        let (dir, file) = (args.dir.display(), args.file.display());
        return Err(Failure::new(format!("could not take offsets from {file}: it is a directory, and {dir} a file"))
            .advise(format!("give the directory first: keeplog offsets import {file} {dir}")));
    }
    let named: Vec<String> = args.group.iter().cloned().collect();
    let wanted = file::read(&**storage, &args.file, args.format, &named)?;
    let groups: BTreeSet<String> = wanted.iter().map(|wanted| wanted.group.clone()).collect();
    if groups.is_empty() {
        complain(&format!("there is no offset to take in {}", output::name(&args.file.display().to_string())));
    }
    let site = Site::open(storage, &args.dir, &args.write, Purpose::Import)?;
    site.finish(|site| site.change(&groups, |planner| planner.import(wanted)))
}

pub(crate) fn delete_groups(args: &args::GroupsDelete, storage: &Arc<dyn Storage>) -> Result<Status, Failure> {
    let groups: BTreeSet<String> = args.groups.iter().cloned().collect();
    Site::enter(storage, &args.dir, &args.write, |site| site.delete_groups(&groups))
}

/// A data directory that is going to change.
struct Site {
    /// In a dry run, one whose changes are not kept.
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    owned: OwnedTarget,
    /// All partitions in it.
    all: Target,
    /// Those of `__consumer_offsets`.
    offsets: Target,
    count: NonZeroU32,
    /// Directories of partitions that were made for this.
    made: Vec<PathBuf>,
    purpose: Purpose,
    dry_run: bool,
    json: bool,
    members_are_gone: bool,
}

impl Site {
    fn enter(
        storage: &Arc<dyn Storage>,
        dir: &Path,
        write: &Write,
        work: impl FnOnce(&Self) -> Result<Status, Failure>,
    ) -> Result<Status, Failure> {
        Self::open(storage, dir, write, Purpose::Change)?.finish(work)
    }

    /// Does `work`, and gives the directory up, also after a failure: else it would look as after a crash.
    fn finish(self, work: impl FnOnce(&Self) -> Result<Status, Failure>) -> Result<Status, Failure> {
        let result = work(&self);
        let closed = self.owned.close();
        if result.is_err() {
            // Those that have something in them by now stay.
            self.made.iter().for_each(|path| drop(self.storage.remove_dir(path)));
        }
        let status = result?;
        closed?;
        Ok(status)
    }

    /// Takes the directory.
    fn open(storage: &Arc<dyn Storage>, dir: &Path, write: &Write, purpose: Purpose) -> Result<Self, Failure> {
        let storage: Arc<dyn Storage> = if write.dry_run { Arc::new(Shadow::new(Arc::clone(storage))) } else { Arc::clone(storage) };
        let (mut all, mut made) = (fill::find(&*storage, dir, purpose)?, Vec::new());
        if !all.whole_dir {
            return Err(Failure::new(format!("could not change offsets in {}: it is a single partition", dir.display()))
                .advise("give the data directory around it: the number of partitions tells which one a group is in"));
        }
        if purpose == Purpose::Import && all.numbers_of(CONSUMER_OFFSETS).is_empty() {
            made = fill::make_partitions(&*storage, dir, &mut all, write.offsets_topic_num_partitions)?;
        }
        let mut offsets = all.clone();
        offsets.take_empty();
        offsets.retain_topic(CONSUMER_OFFSETS, dir)?;
        let count = places::count_to_write(&offsets, write.offsets_topic_num_partitions)?;
        let owned = OwnedTarget::of(Arc::clone(&storage), dir, offsets.clone())?;
        let dir = dir.to_path_buf();
        let Write { dry_run, json, members_are_gone, .. } = *write;
        Ok(Self { storage, dir, owned, all, offsets, count, made, purpose, dry_run, json, members_are_gone })
    }

    /// Where all of a group is.
    fn partition_of(&self, group: &str) -> Result<TopicPartition, Failure> {
        let number = partition_for(group, self.count);
        let name = TopicPartition::new(CONSUMER_OFFSETS, number)?;
        if self.offsets.partitions.iter().any(|partition| partition.number_in(CONSUMER_OFFSETS) == Some(number)) {
            return Ok(name);
        }
        let what = format!("could not change group {}: it is in {name}, which is not in {}", output::shown(group), self.dir.display());
        Err(Failure::new(what).advise("give the data directory that holds it; nothing was changed"))
    }

    /// Reads what `groups` have committed; and all else, which must agree with the number of partitions.
    fn load(&self, groups: &BTreeSet<String>) -> Result<Loaded, Failure> {
        let loaded = source::load(&*self.storage, &self.offsets, &|group| groups.contains(group))?;
        if let Some((what, advice)) = loaded.places.contradiction(self.count) {
            let what = format!("could not change offsets in {}: {what}", self.dir.display());
            return Err(Failure::new(what).advise(format!("{advice}; nothing was changed")));
        }
        for group in groups {
            if loaded.damaged.contains(&self.partition_of(group)?.directory_name()) {
                let what = format!("could not change offsets in {}: what is committed cannot be read in whole", self.dir.display());
                return Err(Failure::damaged(what).advise("keeplog verify says what is damaged, keeplog recover mends what can be mended"));
            }
        }
        Ok(loaded)
    }

    fn planner<'a>(&'a self, loaded: &'a Loaded) -> Planner<'a> {
        Planner {
            folded: &loaded.folded,
            ends: Ends::new(&*self.storage, Some(&self.dir), &loaded.checkpoints),
            logs: logs_of(&self.all),
            now_ms: self.storage.now_ms(),
            members_are_gone: self.members_are_gone,
        }
    }

    /// Carries out what `plan` comes to, and prints it.
    fn change(
        &self,
        groups: &BTreeSet<String>,
        plan: impl FnOnce(&mut Planner<'_>) -> Result<Vec<Change>, Failure>,
    ) -> Result<Status, Failure> {
        let loaded = self.load(groups)?;
        let mut planner = self.planner(&loaded);
        let changes = plan(&mut planner)?;
        let mut work = Work::new();
        for change in &changes {
            let of_group = work.entry(self.partition_of(&change.group)?).or_default();
            of_group.entry(change.group.clone()).or_default().extend(change.records(&loaded.folded, planner.now_ms)?);
        }
        let written = self.write(&work);
        let changes: Vec<Change> = changes.into_iter().filter(|change| written.done.contains(&change.group)).collect();
        self.print(&changes)?;
        written.result
    }

    /// Takes away all that `groups` have committed, and their own records.
    fn delete_groups(&self, groups: &BTreeSet<String>) -> Result<Status, Failure> {
        let loaded = self.load(groups)?;
        let planner = self.planner(&loaded);
        let (mut work, mut gone) = (Work::new(), Vec::new());
        for group in groups {
            planner.check_empty(group, "delete")?;
            let places = loaded.folded.places_of(group);
            let own = loaded.folded.tombstones.get(group).map_or(&[][..], Vec::as_slice);
            if places.is_empty() && own.is_empty() {
                let what = format!("could not delete group {}: there is no such group", output::shown(group));
                return Err(Failure::new(what).advise("keeplog groups list shows all; nothing was changed"));
            }
            gone.push(Gone { group, offsets: places.len(), records: own.len(), dry_run: self.dry_run });
            let place = |(topic, partition)| loaded.folded.tombstones(&OffsetKey { group, topic, partition });
            let offsets = places.into_iter().filter_map(place).flatten();
            let records = offsets.chain(own.iter().cloned().map(Record::tombstone)).collect();
            work.entry(self.partition_of(group)?).or_default().insert(group.clone(), records);
        }
        let written = self.write(&work);
        gone.retain(|gone| written.done.contains(gone.group));
        let mut out = Out::of_work();
        if self.json {
            gone.iter().try_for_each(|gone| out.json(gone))?;
        } else if !gone.is_empty() {
            let rows = gone.iter().map(|gone| vec![output::shown(gone.group), gone.offsets.to_string(), gone.records.to_string()]);
            out.text(&output::table(&["group", ">offsets", ">own records"], rows))?;
            out.text(self.last_word())?;
        }
        out.flush()?;
        written.result
    }

    /// Writes `work`, and after a failure says what is done of it and what is not.
    fn write(&self, work: &Work) -> Outcome {
        let outcome = apply::write(&self.storage, &self.dir, &self.owned, work);
        let Outcome { done, unsure, has_begun, .. } = &outcome;
        let groups = work.values().flat_map(BTreeMap::keys).map(String::as_str);
        let left: BTreeSet<&str> = groups.filter(|group| !done.contains(*group) && !unsure.contains(*group)).collect();
        let sets = [
            ("done", done.iter().map(String::as_str).collect()),
            ("written, and not known to be on stable storage", unsure.iter().map(String::as_str).collect()),
            (if *has_begun { "not done, or not in whole" } else { "nothing was changed" }, left),
        ];
        if sets[1..].iter().any(|(_, groups)| !groups.is_empty()) {
            let told = sets.iter().filter(|(_, groups)| !groups.is_empty()).map(|(what, groups)| {
                let count = output::counted(groups.len() as u64, "group", "groups");
                format!("{what}: {count} ({})", places::names(groups.iter().copied()))
            });
            complain(&told.collect::<Vec<_>>().join("; "));
        }
        outcome
    }

    fn print(&self, changes: &[Change]) -> Result<(), Failure> {
        let mut out = Out::of_work();
        let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        if self.json {
            for change in changes {
                out.json(&Line::of(change, self.dry_run))?;
            }
        } else if !changes.is_empty() {
            let rows = changes.iter().map(|change| {
                let new = change.new.as_ref().map_or_else(|| "deleted".to_owned(), |new| new.offset.to_string());
                vec![output::shown(&change.group), output::shown(&change.topic), change.partition.to_string(), number(change.old), new]
            });
            out.text(&output::table(&["group", "topic", ">partition", ">old offset", ">new offset"], rows))?;
            if self.purpose == Purpose::Import {
                let groups = changes.iter().map(|change| &change.group).collect::<BTreeSet<_>>().len();
                let offsets = output::counted(changes.len() as u64, "offset", "offsets");
                out.line(&format!("{offsets} of {}", output::counted(groups as u64, "group", "groups")))?;
            }
            out.text(self.last_word())?;
        }
        out.flush()
    }

    fn last_word(&self) -> &'static str {
        if self.dry_run { "Nothing was changed: this is what would be.\n" } else { "" }
    }
}

/// A line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    group: &'a str,
    topic: &'a str,
    partition: i32,
    old_offset: Option<u64>,
    /// Null: deleted.
    new_offset: Option<u64>,
    dry_run: bool,
}

impl<'a> Line<'a> {
    fn of(change: &'a Change, dry_run: bool) -> Self {
        Self {
            group: &change.group,
            topic: &change.topic,
            partition: change.partition,
            old_offset: change.old,
            new_offset: change.new.as_ref().map(|new| new.offset),
            dry_run,
        }
    }
}

/// A line about a group that goes.
#[derive(Serialize)]
struct Gone<'a> {
    group: &'a str,
    offsets: usize,
    /// Its own records.
    records: usize,
    dry_run: bool,
}
