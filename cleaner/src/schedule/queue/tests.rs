//! The queue against the plain rule over all logs.

use keeplog_fixtures::Dice;

use super::super::tests::{NOW_MS, log};
use super::super::{Candidate, LogFacts, choose};
use super::*;

/// Logs that change, with the number of passes each has waited, counted along.
struct World {
    logs: Vec<(LogFacts, Rules)>,
    waited: BTreeMap<usize, u32>,
    now_ms: i64,
}

impl World {
    fn new(dice: &mut Dice) -> Self {
        let rules = |dice: &mut Dice| Rules {
            min_cleanable_dirty_ratio: [0.0, 0.3, 0.5, 1.0][dice.roll(4) as usize],
            min_compaction_lag_ms: [0, 0, 50, 300][dice.roll(4) as usize],
            max_compaction_lag_ms: [i64::MAX, i64::MAX, 300, 800][dice.roll(4) as usize],
        };
        let logs = (0..1 + dice.roll(12)).map(|_| (log(&[(0, 0)], None, 0), rules(dice))).collect();
        Self { logs, waited: BTreeMap::new(), now_ms: NOW_MS }
    }

    fn dirtiness(&self, at: usize) -> Dirtiness {
        let (facts, rules) = &self.logs[at];
        Dirtiness::of(facts, rules, self.now_ms)
    }

    /// The rule, over all logs.
    fn choose(&mut self) -> Option<usize> {
        let waited = |at| self.waited.get(&at).copied().unwrap_or(0);
        let candidate = |at: usize| Candidate { dirtiness: self.dirtiness(at), rules: self.logs[at].1, passes_waited: waited(at) };
        let all: Vec<_> = (0..self.logs.len()).map(candidate).collect();
        let chosen = choose(&all);
        let others = all.iter().enumerate().filter(|(at, candidate)| Some(*at) != chosen && candidate.is_eligible());
        self.waited = others.map(|(at, candidate)| (at, candidate.passes_waited + 1)).collect();
        chosen
    }

    /// Changes a log in one of the ways in which logs change.
    fn change(&mut self, at: usize, dice: &mut Dice) {
        let now_ms = self.now_ms;
        let facts = &mut self.logs[at].0;
        let active = facts.segments.len() - 1;
        match dice.roll(8) {
            0..4 => {
                // The active segment is closed; now and then its records are from the future.
                let span = if dice.roll(5) == 0 { 900 } else { 300 };
                let stamp = now_ms - 300 + dice.roll(span) as i64;
                let closed = &mut facts.segments[active];
                closed.size_bytes = dice.roll(4) * 50;
                (closed.largest_timestamp_ms, closed.first_timestamp_ms) = (stamp, Some(stamp - dice.roll(100) as i64));
                closed.modified_ms = Some(now_ms);
                let base_offset = closed.base_offset + 10;
                facts.segments.push(log(&[(base_offset, 0)], None, 0).segments[0]);
                (facts.end_offset, facts.last_stable_offset) = (base_offset, base_offset);
            }
            4 => facts.last_stable_offset = dice.roll(facts.end_offset + 1),
            5 => facts.start_offset = facts.start_offset.max(dice.roll(facts.end_offset + 1)),
            6 => {
                facts.segments.truncate(1 + dice.roll(facts.segments.len() as u64) as usize);
                facts.end_offset = facts.segments[facts.segments.len() - 1].base_offset;
                facts.last_stable_offset = facts.end_offset;
                facts.start_offset = facts.start_offset.min(facts.end_offset);
            }
            _ => facts.checkpoint = Some(dice.roll(facts.end_offset + 20)),
        }
    }

    /// A pass over `at` leaves nothing dirty below its bound.
    fn clean(&mut self, at: usize) {
        let bound = self.dirtiness(at).first_uncleanable;
        self.logs[at].0.checkpoint = Some(bound);
    }
}

/// What is to be looked at is looked at; how many that were.
fn look(queue: &mut Queue<usize>, world: &World) -> usize {
    let due = queue.take(world.now_ms);
    for at in &due {
        let (facts, rules) = &world.logs[*at];
        queue.judge(at, &world.dirtiness(*at), rules, facts.holds_until_ms(rules, world.now_ms));
    }
    due.len()
}

#[test]
fn the_queue_chooses_what_the_rule_over_all_logs_chooses() {
    let (mut chosen, mut overtaken) = (0, 0);
    for seed in 0..400 {
        let mut dice = Dice::new(seed);
        let mut world = World::new(&mut dice);
        let mut queue = Queue::default();
        (0..world.logs.len()).for_each(|at| queue.note(at));
        for round in 0..200 {
            for _ in 0..dice.roll(4) {
                let at = dice.roll(world.logs.len() as u64) as usize;
                world.change(at, &mut dice);
                queue.note(at);
            }
            world.now_ms += match dice.roll(20) {
                0 => -400,
                1..8 => dice.roll(200) as i64,
                _ => 0,
            };
            look(&mut queue, &world);
            let dirtiest = (0..world.logs.len()).map(|at| world.dirtiness(at)).fold(0.0, |most, d| d.ratio().max(most));
            assert_eq!(queue.ratio_max(), dirtiest, "seed {seed}, round {round}");
            let expected = world.choose();
            assert_eq!(queue.choose(|_| true), expected, "seed {seed}, round {round}");
            let Some(at) = expected else { continue };
            chosen += 1;
            overtaken += usize::from(world.dirtiness(at).ratio() < dirtiest);
            // A pass may come to nothing.
            if dice.roll(4) > 0 {
                world.clean(at);
                queue.note(at);
            }
        }
    }
    assert!(chosen > 10_000 && overtaken > 1000, "{chosen} choices, {overtaken} of them not of the dirtiest");
}

#[test]
fn only_what_changed_is_looked_at() {
    let mut dice = Dice::new(1);
    let mut world = World::new(&mut dice);
    let rules = Rules { min_cleanable_dirty_ratio: 0.5, min_compaction_lag_ms: 0, max_compaction_lag_ms: i64::MAX };
    world.logs = vec![(log(&[(0, 0)], None, 0), rules); 10_000];
    let mut queue = Queue::default();
    (0..10_000).for_each(|at| queue.note(at));
    assert_eq!(look(&mut queue, &world), 10_000, "each once, to begin with");
    assert_eq!((queue.choose(|_| true), look(&mut queue, &world)), (None, 0));
    world.now_ms += 1_000_000_000;
    assert_eq!(look(&mut queue, &world), 0, "time changes nothing here");
    world.logs[77].0 = log(&[(0, 100), (10, 0)], None, 10);
    queue.note(77);
    assert_eq!((look(&mut queue, &world), queue.choose(|_| true)), (1, Some(77)));
    // With a lag it is looked at once more, when that is over.
    world.logs[77].1.min_compaction_lag_ms = 100;
    world.logs[77].0.segments[0].largest_timestamp_ms = world.now_ms;
    queue.note(77);
    assert_eq!((look(&mut queue, &world), queue.choose(|_| true)), (1, None));
    world.now_ms += 99;
    assert_eq!(look(&mut queue, &world), 0);
    world.now_ms += 1;
    assert_eq!((look(&mut queue, &world), queue.choose(|_| true)), (1, Some(77)));
}

#[test]
fn who_is_of_no_use_is_forgotten_until_he_is_noted_again() {
    let mut world = World::new(&mut Dice::new(2));
    let rules = Rules { min_cleanable_dirty_ratio: 0.0, min_compaction_lag_ms: 0, max_compaction_lag_ms: i64::MAX };
    world.logs = vec![(log(&[(0, 100), (10, 0)], None, 10), rules); 3];
    let mut queue = Queue::default();
    (0..3).for_each(|at| queue.note(at));
    look(&mut queue, &world);
    assert_eq!(queue.choose(|at| *at > 0), Some(1));
    queue.forget(&1);
    assert_eq!((queue.choose(|_| true), look(&mut queue, &world)), (Some(2), 0));
    queue.note(0);
    look(&mut queue, &world);
    assert_eq!(queue.choose(|_| true), Some(0));
}
