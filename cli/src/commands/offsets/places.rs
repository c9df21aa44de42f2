//! Which partition of `__consumer_offsets` each group lies in, and what that says about how many there are.
//!
//! A broker looks for a group in one partition only, which the number of partitions tells. With a wrong number all seems well
//! and every change goes astray, so what is already there has to agree with it.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::door::{CONSUMER_OFFSETS, partition_for};
use crate::failure::Failure;
use crate::target::Target;
use crate::{complain, output};

/// Numbers of partitions that are tried, at most.
const COUNT_MAX: u32 = 10_000;
/// Numbers, ranges and names in a message, at most.
const NAMED_MAX: usize = 5;
/// Characters of the name of a group in a message.
const NAME_MAX: usize = 100;

/// How many partitions there are in all, if the names that are there go from 0 on without a gap.
pub(super) fn count_of(target: &Target) -> Option<NonZeroU32> {
    let numbers = target.numbers_of(CONSUMER_OFFSETS);
    let count = u32::try_from(numbers.len()).ok().and_then(NonZeroU32::new)?;
    (target.whole_dir && numbers.last().is_some_and(|last| last + 1 == count.get())).then_some(count)
}

/// As [`count_of`], or what the user says, if that can be.
pub(super) fn count_to_write(target: &Target, said: Option<u32>) -> Result<NonZeroU32, Failure> {
    let refuse = |what: &str| Failure::new(format!("could not change offsets in {}: {what}", shown_dir(target)));
    let Some(said) = said.and_then(NonZeroU32::new) else {
        return count_of(target).ok_or_else(|| {
            refuse(&format!("not all partitions of {CONSUMER_OFFSETS} are there"))
                .advise("say how many there are in all with --offsets-topic-num-partitions")
        });
    };
    match target.numbers_of(CONSUMER_OFFSETS).last() {
        Some(last) if *last >= said.get() => {
            Err(refuse(&format!("there is {CONSUMER_OFFSETS}-{last}, so there are more than {said} partitions"))
                .advise("say how many there are in all with --offsets-topic-num-partitions; nothing was changed"))
        }
        _ => Ok(said),
    }
}

fn shown_dir(target: &Target) -> String {
    target.data_dir.as_ref().map_or_else(String::new, |dir| dir.display().to_string())
}

/// `3, 5-9`, of ascending numbers, of which there may be very many.
pub(super) fn ranges(ranges: impl IntoIterator<Item = (u32, u32)>) -> String {
    let mut ranges = ranges.into_iter();
    let one = |(first, last): (u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    let mut text = ranges.by_ref().take(NAMED_MAX).map(one).collect::<Vec<_>>().join(", ");
    if ranges.next().is_some() {
        text.push_str(" and others");
    }
    text
}

/// The numbers below the last of `numbers` that are none of them: first and last of each range.
pub(super) fn gaps(numbers: &BTreeSet<u32>) -> impl Iterator<Item = (u32, u32)> {
    let mut next = 0;
    numbers.iter().filter_map(move |&number| {
        let from = std::mem::replace(&mut next, number + 1);
        (from < number).then(|| (from, number - 1))
    })
}

/// Names from a log, not too many of them and not too long.
pub(super) fn names<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let rest = names.len().saturating_sub(NAMED_MAX);
    let mut text = names.take(NAMED_MAX).map(|name| output::clipped(name, NAME_MAX)).collect::<Vec<_>>().join(", ");
    if rest > 0 {
        text.push_str(&format!(" and {} more", output::count(rest as u64)));
    }
    text
}

/// Where the groups lie that were met.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Ascending, once sealed.
    found: Vec<(Arc<str>, u32)>,
    /// The highest partition that is there, by name.
    last: Option<u32>,
}

impl Places {
    pub(super) fn of(target: &Target) -> Self {
        Self { found: Vec::new(), last: target.numbers_of(CONSUMER_OFFSETS).last().copied() }
    }

    pub(super) fn extend(&mut self, partition: u32, groups: impl Iterator<Item = Arc<str>>) {
        let mut groups: Vec<_> = groups.collect();
        groups.sort_unstable();
        groups.dedup();
        self.found.extend(groups.into_iter().map(|group| (group, partition)));
    }

    pub(super) fn seal(&mut self) {
        self.found.sort_unstable();
    }

    /// The partitions that anything of `group` is in.
    pub(super) fn of_group(&self, group: &str) -> Vec<u32> {
        let from = self.found.partition_point(|(name, _)| &**name < group);
        self.found[from..].iter().take_while(|(name, _)| &**name == group).map(|(_, partition)| *partition).collect()
    }

    /// Groups of which something is in more than one partition.
    pub(super) fn scattered(&self) -> Vec<&str> {
        let pairs = self.found.windows(2).filter(|pair| pair[0].0 == pair[1].0);
        let mut names: Vec<&str> = pairs.map(|pair| &*pair[0].0).collect();
        names.dedup();
        names
    }

    /// Those that do not lie where `count` partitions would have them.
    fn misplaced(&self, count: NonZeroU32) -> impl Iterator<Item = &(Arc<str>, u32)> {
        self.found.iter().filter(move |(group, partition)| partition_for(group, count) != *partition)
    }

    /// The numbers of partitions with which every group lies in its place, as far as they are tried.
    fn fitting(&self) -> Vec<u32> {
        // The place in the largest table is the hash itself.
        let mut hashes: Vec<(u32, u32)> =
            self.found.iter().map(|(group, partition)| (partition_for(group, NonZeroU32::MAX), *partition)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        let first = hashes.iter().map(|(_, partition)| partition.saturating_add(1)).max().unwrap_or(1);
        let fits = |count: &u32| hashes.iter().all(|(hash, partition)| hash % count == *partition);
        (first..=COUNT_MAX.max(first)).filter(fits).take(NAMED_MAX + 1).collect()
    }

    /// What does not agree with `count` partitions in all; and what to do.
    pub(super) fn contradiction(&self, count: NonZeroU32) -> Option<(String, String)> {
        let mut misplaced = self.misplaced(count);
        let (group, partition) = misplaced.next()?;
        let groups = output::counted(1 + misplaced.count() as u64, "group lies", "groups lie");
        let expected = partition_for(group, count);
        let what = format!(
            "of {count} partitions of {CONSUMER_OFFSETS}, {groups} in the wrong one; the first, {}, is in {partition} instead of {expected}",
            output::clipped(group, NAME_MAX)
        );
        let fitting = self.fitting();
        let numbers = ranges(fitting.iter().map(|&count| (count, count)));
        let advice = match (self.last, fitting.first()) {
            (_, None) => "no number of partitions fits all groups: keeplog groups list on a single partition says what is in it".to_owned(),
            (Some(last), Some(first)) if *first <= last => format!(
                "by where the groups lie there are {numbers} in all: if {CONSUMER_OFFSETS}-{last} is none of them, move it away, else say \
                 how many there are with --offsets-topic-num-partitions"
            ),
            _ => format!("say how many there are in all with --offsets-topic-num-partitions: by where the groups lie, {numbers}"),
        };
        Some((what, advice))
    }

    /// A command that only reads goes on.
    pub(crate) fn warn(&self, target: &Target) {
        if !target.whole_dir {
            return;
        }
        if let Some((what, advice)) = count_of(target).and_then(|count| self.contradiction(count)) {
            complain(&format!("{what}: is a partition missing, or one too many?\n  to change offsets: {advice}"));
        }
        let scattered = self.scattered();
        if !scattered.is_empty() {
            let groups = output::counted(scattered.len() as u64, "group lies", "groups lie");
            let names = names(scattered.into_iter());
            complain(&format!(
                "{groups} in several partitions of {CONSUMER_OFFSETS}, and what was committed may be told several times: {names}"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(groups: &[(&str, u32)], last: u32) -> Places {
        let mut places = Places { last: Some(last), ..Places::default() };
        for &(group, partition) in groups {
            places.extend(partition, [Arc::from(group), Arc::from(group)].into_iter());
        }
        places.seal();
        places
    }

    fn count(n: u32) -> NonZeroU32 {
        NonZeroU32::new(n).unwrap()
    }

    #[test]
    fn the_number_of_partitions_is_told_from_where_groups_lie() {
        let of_50 = places(&[("a", 47), ("foo", 24), ("test", 48), ("my-group", 12), ("group1", 40), ("console-consumer-12345", 6)], 48);
        assert_eq!(of_50.fitting(), [50]);
        assert_eq!(of_50.contradiction(count(50)), None);
        let (what, advice) = of_50.contradiction(count(49)).unwrap();
        assert!(what.contains("groups lie in the wrong one"), "{what}");
        assert!(advice.ends_with("by where the groups lie, 50"), "{advice}");
        assert!(places(&[("a", 47), ("foo", 0)], 49).contradiction(count(50)).unwrap().1.starts_with("no number"));
        assert!(places(&[("a", 7)], 9).fitting().contains(&10));
    }

    #[test]
    fn a_group_in_several_partitions_is_found_in_all() {
        let twice = places(&[("b", 1), ("a", 3), ("b", 0), ("b", 2)], 3);
        assert_eq!((twice.of_group("b"), twice.of_group("a"), twice.of_group("c")), (vec![0, 1, 2], vec![3], vec![]));
        assert_eq!(twice.scattered(), ["b"]);
    }

    #[test]
    fn what_is_absent_is_told_in_ranges() {
        let told = |numbers: &[u32]| ranges(gaps(&numbers.iter().copied().collect()));
        assert_eq!(told(&[0, 1, 2]), "");
        assert_eq!(told(&[1, 3, 4, 9]), "0, 2, 5-8");
        assert_eq!(told(&[2_147_483_647]), "0-2147483646");
        assert_eq!(told(&[1, 3, 5, 7, 9, 11, 13]), "0, 2, 4, 6, 8 and others");
    }
}
