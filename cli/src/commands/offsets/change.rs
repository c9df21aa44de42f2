//! `keeplog offsets set`, `delete` and `import`, and `keeplog groups delete`.
//!
//! Everything is planned and checked before anything is written, under the lock of the data directory. A dry run goes the
//! same way over a storage whose changes stay in memory.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::apply::{self, Work};
use super::file;
use super::plan::{Change, Planner, logs_of};
use super::source::{self, Loaded};
use crate::args::{self, Write};
use crate::door::offsets_record::OffsetKey;
use crate::door::record::Record;
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
    let named: Vec<String> = args.group.iter().cloned().collect();
    let wanted = file::read(&**storage, &args.file, args.format, &named)?;
    let groups: BTreeSet<String> = wanted.iter().map(|wanted| wanted.group.clone()).collect();
    if groups.is_empty() {
        complain(&format!("there is no offset to take in {}", output::name(&args.file.display().to_string())));
    }
    Site::enter(storage, &args.dir, &args.write, |site| site.change(&groups, |planner| planner.import(wanted)))
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
    dry_run: bool,
    json: bool,
}

impl Site {
    /// Takes the directory, does `work`, and gives the directory up, also after a failure: else it would look as after a
    /// crash.
    fn enter(
        storage: &Arc<dyn Storage>,
        dir: &Path,
        write: &Write,
        work: impl FnOnce(&Self) -> Result<Status, Failure>,
    ) -> Result<Status, Failure> {
        let site = Self::open(storage, dir, write)?;
        let result = work(&site);
        let closed = site.owned.close();
        let status = result?;
        closed?;
        Ok(status)
    }

    fn open(storage: &Arc<dyn Storage>, dir: &Path, write: &Write) -> Result<Self, Failure> {
        let storage: Arc<dyn Storage> = if write.dry_run { Arc::new(Shadow::new(Arc::clone(storage))) } else { Arc::clone(storage) };
        let all = Target::find(&*storage, dir)?;
        if !all.whole_dir {
            return Err(Failure::new(format!("could not change offsets in {}: it is a single partition", dir.display()))
                .advise("give the data directory around it: the number of partitions tells which one a group is in"));
        }
        let mut offsets = all.clone();
        offsets.retain_topic(CONSUMER_OFFSETS, dir)?;
        let count = write.offsets_topic_num_partitions.and_then(NonZeroU32::new).or_else(|| source::partition_count(&offsets));
        let Some(count) = count else {
            let what = format!("could not change offsets in {}: not all partitions of {CONSUMER_OFFSETS} are there", dir.display());
            return Err(Failure::new(what).advise("say how many there are in all with --offsets-topic-num-partitions"));
        };
        let mut owned = OwnedTarget::open(Arc::clone(&storage), dir)?;
        owned.retain_topic(CONSUMER_OFFSETS, dir)?;
        Ok(Self { storage, dir: dir.to_path_buf(), owned, all, offsets, count, dry_run: write.dry_run, json: write.json })
    }

    /// Where all of a group is.
    fn partition_of(&self, group: &str) -> Result<TopicPartition, Failure> {
        let number = partition_for(group, self.count);
        let name = TopicPartition::new(CONSUMER_OFFSETS, number)?;
        if self.offsets.partitions.iter().any(|partition| partition.number_in(CONSUMER_OFFSETS) == Some(number)) {
            return Ok(name);
        }
        let what = format!("could not change group {}: it is in {name}, which is not in {}", output::name(group), self.dir.display());
        Err(Failure::new(what).advise("give the data directory that holds it; nothing was changed"))
    }

    /// Reads the partitions of `groups`.
    fn load(&self, groups: &BTreeSet<String>) -> Result<Loaded, Failure> {
        let mut numbers = BTreeSet::new();
        for group in groups {
            numbers.insert(self.partition_of(group)?.partition());
        }
        let mut target = self.offsets.clone();
        target.partitions.retain(|partition| partition.number_in(CONSUMER_OFFSETS).is_some_and(|number| numbers.contains(&number)));
        let loaded = source::load(&*self.storage, &target, &|group| groups.contains(group))?;
        if loaded.is_damaged {
            let what = format!("could not change offsets in {}: what is committed cannot be read in whole", self.dir.display());
            return Err(Failure::damaged(what).advise("keeplog verify says what is damaged, keeplog recover mends what can be mended"));
        }
        Ok(loaded)
    }

    fn planner<'a>(&'a self, loaded: &'a Loaded) -> Planner<'a> {
        Planner {
            folded: &loaded.folded,
            ends: Ends::new(&*self.storage, Some(&self.dir), &loaded.checkpoints),
            logs: logs_of(&self.all),
            now_ms: self.storage.now_ms(),
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
        let status = apply::write(&self.storage, &self.dir, &self.owned, &work)?;
        self.print(&changes)?;
        Ok(status)
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
                let what = format!("could not delete group {}: there is no such group", output::name(group));
                return Err(Failure::new(what).advise("keeplog groups list shows all; nothing was changed"));
            }
            gone.push(Gone { group, offsets: places.len(), records: own.len(), dry_run: self.dry_run });
            let place = |(topic, partition)| loaded.folded.tombstones(&OffsetKey { group, topic, partition });
            let offsets = places.into_iter().filter_map(place).flatten();
            let records = offsets.chain(own.iter().cloned().map(Record::tombstone)).collect();
            work.entry(self.partition_of(group)?).or_default().insert(group.clone(), records);
        }
        let status = apply::write(&self.storage, &self.dir, &self.owned, &work)?;
        let mut out = Out::of_work();
        if self.json {
            gone.iter().try_for_each(|gone| out.json(gone))?;
        } else {
            let rows = gone.iter().map(|gone| vec![output::name(gone.group), gone.offsets.to_string(), gone.records.to_string()]);
            out.text(&output::table(&["group", ">offsets", ">own records"], rows))?;
            out.text(self.last_word())?;
        }
        out.flush()?;
        Ok(status)
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
                vec![output::name(&change.group), output::name(&change.topic), change.partition.to_string(), number(change.old), new]
            });
            out.text(&output::table(&["group", "topic", ">partition", ">old offset", ">new offset"], rows))?;
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
