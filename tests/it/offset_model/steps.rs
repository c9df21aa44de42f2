//! What is done to a store, drawn from a seed without a look at the store: so any part of a list of steps can be done again.

use keeplog::RequiredAcks;

use super::model::{Members, Place};

pub(super) const PARTITIONS: u32 = 2;
/// Two of them lie in one partition, three in the other.
pub(super) const GROUPS: [&str; 5] = ["g0", "g1", "g2", "g3", "g4"];
pub(super) const TOPICS: [&str; 2] = ["orders", "bills"];
/// Partitions of the topics: the last is far from the others.
pub(super) const TOPIC_PARTITIONS: [i32; 4] = [0, 1, 2, 70];
pub(super) const PRODUCERS: [i64; 3] = [7, 8, 9];
/// The shortest that offsets are kept.
pub(super) const RETENTION_MS: i64 = 4000;
/// Longer metadata than the settings ever allow.
pub(super) const TOO_LONG: usize = 61;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Commit(How, &'static str, Vec<Entry>),
    CommitInTransaction(i64, i16, &'static str, Vec<Entry>),
    End(i64, i16, bool),
    /// For the answer that is owed longest.
    Wait,
    Flush,
    /// What the background thread does for those who wait.
    FlushWhatWaits,
    DeleteOffsets(&'static str, Vec<(&'static str, i32)>),
    DeleteGroup(&'static str),
    DeleteTopic(&'static str),
    Expire,
    /// The clock goes on, or back.
    Clock(i64),
    /// As of an epoch so much above the last that was told, or whatever the epoch.
    Resign(u32, Option<i32>),
    Lead(u32, i32, LoadIt),
    LoadNext,
    Reload,
    /// Records as a broker writes them, in the log of this group; the store loads them.
    Broker(&'static str, Option<i64>, Vec<Foreign>),
    Clean(u32, Rolls),
    /// A round of background work of the store beneath.
    Housekeep,
    SaveSnapshots,
    Tamper(u32, Tampering),
    /// The log is deleted and made anew, and the process starts again.
    Anew(u32),
    Settings(Settings),
    /// What a start would find now, with snapshots and without.
    Look,
    Restart(Stop, Settings, Leads),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum How {
    Blocking,
    Each,
    Later,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LoadIt {
    AtOnce,
    Later,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rolls {
    Before,
    No,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Leads {
    All,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Stop {
    Close,
    /// The last handle is dropped.
    Drop,
    /// The process is killed.
    Kill,
}

/// What a group commits for a partition.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) topic: &'static str,
    pub(super) partition: i32,
    pub(super) offset: u64,
    pub(super) leader_epoch: Option<i32>,
    pub(super) metadata: usize,
    pub(super) topic_id: Option<u8>,
    /// It was committed elsewhere, so long ago.
    pub(super) age_ms: Option<i64>,
}

/// A record as a broker writes it.
#[derive(Clone, Debug)]
pub(super) enum Foreign {
    /// With the key of 0.8.2 if it is `old`; a negative offset is none.
    Commit {
        topic: &'static str,
        partition: i32,
        old: bool,
        offset: i64,
        age_ms: Option<i64>,
        expires_in_ms: Option<i64>,
    },
    /// Under both keys.
    Tombstone(&'static str, i32),
    Group(Option<Members>),
    /// Of a type of the future.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Tampering {
    Delete,
    /// One that was saved earlier takes its place.
    Older(usize),
    /// That of the other partition does.
    Foreign,
    Flip(usize),
    Cut(usize),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) acks: RequiredAcks,
    pub(super) metadata_max: usize,
    pub(super) retention_ms: i64,
    pub(super) snapshots: bool,
    pub(super) tombstones_stay_ms: i64,
}

struct Dice(keeplog_fixtures::Dice);

impl Dice {
    fn below(&mut self, sides: usize) -> usize {
        self.0.roll(sides as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn ms(&mut self) -> i64 {
        self.below(2 * RETENTION_MS as usize) as i64
    }
}

/// What a seed stands for.
pub(super) fn steps(seed: u64) -> (Settings, Vec<Step>) {
    let mut dice = Dice(keeplog_fixtures::Dice::new(seed.wrapping_mul(0x2545_F491_4F6C_DD1D)));
    let count = 20 + dice.below(100);
    (settings(&mut dice), (0..count).map(|_| step(&mut dice)).collect())
}

fn step(dice: &mut Dice) -> Step {
    let (group, partition) = (dice.of(&GROUPS), dice.below(PARTITIONS as usize) as u32);
    match dice.below(100) {
        0..22 => Step::Commit(dice.of(&[How::Blocking, How::Each, How::Later, How::Later]), group, entries(dice)),
        22..31 => Step::CommitInTransaction(producer(dice), epoch(dice), group, entries(dice)),
        31..38 => Step::End(producer(dice), epoch(dice), !dice.one_in(3)),
        38..40 => Step::Wait,
        40..42 => Step::Flush,
        42..43 => Step::FlushWhatWaits,
        43..46 => Step::DeleteOffsets(group, (0..1 + dice.below(3)).map(|_| (topic(dice), dice.of(&TOPIC_PARTITIONS))).collect()),
        46..49 => Step::DeleteGroup(group),
        49..51 => Step::DeleteTopic(topic(dice)),
        51..54 => Step::Expire,
        54..59 => Step::Clock(if dice.one_in(4) { -dice.ms() } else { dice.ms() }),
        59..62 => Step::Resign(partition, (!dice.one_in(4)).then(|| dice.below(3) as i32 - 1)),
        62..69 => Step::Lead(partition, dice.below(4) as i32, dice.of(&[LoadIt::AtOnce, LoadIt::AtOnce, LoadIt::Later])),
        69..71 => Step::LoadNext,
        71..72 => Step::Reload,
        72..78 => broker(dice, group),
        78..81 => Step::Clean(partition, dice.of(&[Rolls::Before, Rolls::Before, Rolls::No])),
        81..82 => Step::Housekeep,
        82..87 => Step::SaveSnapshots,
        87..90 => Step::Tamper(partition, tampering(dice)),
        90..92 => Step::Settings(settings(dice)),
        92..95 => Step::Look,
        95..96 => Step::Anew(partition),
        _ => {
            let stop = dice.of(&[Stop::Close, Stop::Drop, Stop::Kill, Stop::Kill]);
            Step::Restart(stop, settings(dice), dice.of(&[Leads::All, Leads::All, Leads::All, Leads::None]))
        }
    }
}

fn topic(dice: &mut Dice) -> &'static str {
    dice.of(&[TOPICS[0], TOPICS[0], TOPICS[1]])
}

fn producer(dice: &mut Dice) -> i64 {
    if dice.one_in(30) { -1 } else { dice.of(&PRODUCERS) }
}

fn epoch(dice: &mut Dice) -> i16 {
    dice.of(&[1, 1, 1, 1, 1, 1, 0, 2])
}

fn settings(dice: &mut Dice) -> Settings {
    Settings {
        acks: dice.of(&[RequiredAcks::Synced, RequiredAcks::Synced, RequiredAcks::Written, RequiredAcks::Queued]),
        metadata_max: dice.of(&[10, TOO_LONG - 1]),
        retention_ms: RETENTION_MS * dice.of(&[1, 2, 100]),
        snapshots: !dice.one_in(4),
        tombstones_stay_ms: dice.of(&[0, 1000, 1_000_000]),
    }
}

fn entries(dice: &mut Dice) -> Vec<Entry> {
    let count = dice.of(&[1, 1, 1, 2, 3, 8]);
    (0..if dice.one_in(40) { 0 } else { count }).map(|_| entry(dice)).collect()
}

/// Once in a while one that can't be committed.
fn entry(dice: &mut Dice) -> Entry {
    Entry {
        topic: if dice.one_in(120) { "a/b" } else { topic(dice) },
        partition: if dice.one_in(120) { -1 } else { dice.of(&TOPIC_PARTITIONS) },
        offset: match dice.below(120) {
            0 => u64::MAX - dice.below(3) as u64,
            1 => i64::MAX as u64,
            _ => dice.below(1000) as u64,
        },
        leader_epoch: match dice.below(120) {
            0 => Some(-1),
            1..20 => Some(dice.of(&[0, 5, i32::MAX])),
            _ => None,
        },
        metadata: dice.of(&[0, 0, 0, 1, 10, 11, TOO_LONG - 1, TOO_LONG]),
        topic_id: dice.one_in(8).then(|| dice.below(3) as u8),
        age_ms: dice.one_in(6).then(|| dice.ms()),
    }
}

fn broker(dice: &mut Dice, group: &'static str) -> Step {
    let producer = dice.one_in(3).then(|| dice.of(&PRODUCERS));
    let foreign = |dice: &mut Dice| {
        let (topic, partition): (&str, i32) = (topic(dice), dice.of(&TOPIC_PARTITIONS));
        match dice.below(if producer.is_some() { 4 } else { 10 }) {
            0..4 => Foreign::Commit {
                topic,
                partition,
                old: producer.is_none() && dice.one_in(3),
                offset: if dice.one_in(2) { -1 } else { dice.below(1000) as i64 },
                age_ms: (!dice.one_in(8)).then(|| dice.ms()),
                expires_in_ms: dice.one_in(4).then(|| dice.ms()),
            },
            4 => Foreign::Tombstone(topic, partition),
            5 => Foreign::Unknown,
            6 => Foreign::Group(None),
            7 | 8 => Foreign::Group(Some(Members::Reads(topic))),
            _ => Foreign::Group(Some(Members::Nobody(dice.of(&["consumer", "connect", ""]), (!dice.one_in(4)).then(|| dice.ms())))),
        }
    };
    Step::Broker(group, producer, (0..1 + dice.below(3)).map(|_| foreign(dice)).collect())
}

fn tampering(dice: &mut Dice) -> Tampering {
    match dice.below(5) {
        0 => Tampering::Delete,
        1 => Tampering::Older(dice.below(1 << 20)),
        2 => Tampering::Foreign,
        3 => Tampering::Flip(dice.below(1 << 20)),
        _ => Tampering::Cut(dice.below(1 << 20)),
    }
}

impl Entry {
    pub(super) fn place(&self, group: &'static str) -> Place {
        (group, self.topic, self.partition)
    }

    /// Whether all of its call is refused because of it.
    pub(super) fn is_wrong(&self) -> bool {
        self.topic.contains('/') || self.partition < 0 || self.offset > i64::MAX as u64 || self.leader_epoch == Some(-1)
    }
}
