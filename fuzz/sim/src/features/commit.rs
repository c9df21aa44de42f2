use keeplog::OffsetAndMetadata;
use keeplog::inspect::storage::Storage;

use super::Feature;
use super::offsets::{acknowledge, ask, check, group, partition_of, refusal, refused, topic};
use crate::dice::Dice;
use crate::model::{Place, What};
use crate::world::{Stop, World};

/// A group commits a few offsets at once.
pub(super) struct Commit;

/// What a group commits.
pub(super) struct Draft {
    pub(super) group: &'static str,
    /// Where the group lies.
    pub(super) partition: usize,
    pub(super) commits: Vec<(&'static str, i32, OffsetAndMetadata)>,
    /// Whether each of them is refused, as its metadata is too long.
    pub(super) is_refused: Vec<bool>,
    /// What is written of it.
    written: Vec<(Place, u64, i64)>,
}

impl Draft {
    pub(super) fn new(world: &World, dice: &mut Dice) -> Self {
        let (group, topic, offset) = (group(dice), topic(dice), dice.roll(1_000_000));
        let (now_ms, limit) = (world.disk.now_ms(), world.offsets.options().offset_metadata_max_bytes);
        // Some were committed elsewhere, a while ago.
        let timestamp_ms = dice.one_in(6).then(|| now_ms - dice.roll(2 * World::RETENTION_MS) as i64);
        let mut draft =
            Self { group, partition: partition_of(world, group), commits: Vec::new(), is_refused: Vec::new(), written: Vec::new() };
        for _ in 0..=dice.roll(3) {
            let (partition, metadata) = (dice.roll(4) as i32, "m".repeat(dice.roll(300) as usize));
            draft.is_refused.push(metadata.len() > limit);
            if metadata.len() <= limit {
                draft.written.push(((group.to_owned(), topic.to_owned(), partition), offset, timestamp_ms.unwrap_or(now_ms)));
            }
            let mut committed = OffsetAndMetadata::new(offset).metadata(metadata);
            committed.commit_timestamp_ms = timestamp_ms;
            draft.commits.push((topic, partition, committed));
        }
        draft
    }

    pub(super) fn describe(&self) -> String {
        let partitions: Vec<_> = self.commits.iter().map(|(_, partition, _)| partition).collect();
        let (topic, _, committed) = &self.commits[0];
        let at = committed.commit_timestamp_ms.map_or(String::new(), |ms| format!(" of {ms}"));
        let refused = self.is_refused.iter().filter(|refused| **refused).count();
        format!("{}{at} of {} for {topic} {partitions:?}, {refused} of them too long", committed.offset, self.group)
    }

    /// Whether anything of it is refused.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused.contains(&true)
    }

    /// Tells the oracle of it. `None` if nothing is to be written.
    pub(super) fn ask(&self, world: &World, producer: Option<i64>) -> Option<usize> {
        (!self.written.is_empty()).then(|| ask(world, self.partition, What::Commits(producer, self.written.clone())))
    }
}

impl Feature for Commit {
    fn name(&self) -> &'static str {
        "commit"
    }

    fn weight(&self) -> u64 {
        9
    }

    fn goes_with_a_pass(&self) -> bool {
        true
    }

    fn step(&self, world: &mut World, dice: &mut Dice) -> Result<(), Stop> {
        let draft = Draft::new(world, dice);
        world.note(|| format!("commit {}", draft.describe()));
        let work = || world.offsets.commit_each(draft.group, &draft.commits);
        if let Some(kind) = refusal(world, draft.partition) {
            return refused(kind, work);
        }
        let is_written = draft.ask(world, None).is_some();
        let told: Vec<_> = work()?.iter().map(Result::is_err).collect();
        if told != draft.is_refused {
            return Err(Stop::Wrong(format!("refused were {told:?}, {:?} would be right", draft.is_refused)));
        }
        if is_written {
            acknowledge(world, draft.partition);
        }
        check(world)
    }
}
