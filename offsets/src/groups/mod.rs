//! The groups of one partition of `__consumer_offsets`, from their own records: who is in them, what they read.
//!
//! Kept is the newest value of every record, as bytes, and nothing is read before somebody asks: a load passes by at the
//! speed of copying, and a value that cannot be read is no reason to stop it. Such a value counts as a group that is to
//! be left alone. A tombstone of what was never seen is nothing (a cleaner may have taken what it was for).
//!
//! A group that only ever committed has no records, and so is not known here.

mod describe;
mod modern;

use std::collections::BTreeMap;

use hashbrown::HashMap;
use hashbrown::hash_map::EntryRef;

pub use self::describe::{AssignedPartitions, GroupDescription, GroupKind, GroupProblem, GroupState, MemberDescription};
use self::modern::Modern;
use crate::expiry::{CONSUMER, GroupExpiry, Subscription};
use crate::record::{DecodeError, GROUP_METADATA_KEY, GroupKey, GroupMetadata, check_value, subscribed_topics};

/// The groups that have records, by name.
#[derive(Debug, Default)]
pub struct Groups {
    groups: HashMap<Box<str>, Group>,
    /// Bytes that names, keys and values take.
    held_bytes: usize,
    unreadable_keys: u64,
}

/// What the log says about one group.
#[derive(Debug, Default)]
struct Group {
    /// The one record that a classic group has.
    classic: Option<Stored>,
    /// Those of all other groups.
    modern: Option<Box<Records>>,
}

type Records = BTreeMap<Part, Stored>;

/// The key of a record, but for the group's name.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    key_type: i16,
    rest: Box<[u8]>,
}

/// The newest value.
#[derive(Debug)]
struct Stored {
    /// Of its record.
    offset: u64,
    value: Box<[u8]>,
}

/// What the bookkeeping of one record in a tree takes, about.
const RECORD_BYTES: usize = size_of::<Part>() + size_of::<Stored>();

/// A table that has room for this many times its groups is made smaller.
const SPARSE: usize = 8;

impl Groups {
    /// Of an empty log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in the record at `offset`, which must be above all earlier ones; `None` for a tombstone. Commits and types that
    /// are not known are passed over, and values are not looked at.
    ///
    /// # Errors
    /// If the key cannot be read. Nothing has changed then, and the load can go on: the record is counted.
    pub fn record(&mut self, offset: u64, key: &[u8], value: Option<&[u8]>) -> Result<(), DecodeError> {
        match GroupKey::decode(key) {
            Ok(None) => {}
            Ok(Some(key)) => self.take(offset, &key, value),
            Err(error) => {
                self.unreadable_keys += 1;
                return Err(error);
            }
        }
        Ok(())
    }

    fn take(&mut self, offset: u64, key: &GroupKey<'_>, value: Option<&[u8]>) {
        let Some(value) = value else { return self.remove(key) };
        let group = match self.groups.entry_ref(key.group) {
            EntryRef::Occupied(entry) => entry.into_mut(),
            EntryRef::Vacant(entry) => entry.insert_with_key(key.group.into(), Group::default()),
        };
        self.held_bytes += value.len() + if group.is_empty() { key.group.len() } else { 0 };
        let stored = Stored { offset, value: value.into() };
        let replaced = if key.key_type == GROUP_METADATA_KEY && key.rest.is_empty() {
            group.classic.replace(stored)
        } else {
            let part = Part { key_type: key.key_type, rest: key.rest.into() };
            let replaced = group.modern.get_or_insert_default().insert(part, stored);
            self.held_bytes += if replaced.is_none() { RECORD_BYTES + key.rest.len() } else { 0 };
            replaced
        };
        self.held_bytes -= replaced.map_or(0, |stored| stored.value.len());
    }

    fn remove(&mut self, key: &GroupKey<'_>) {
        let Some(group) = self.groups.get_mut(key.group) else { return };
        if key.key_type == GROUP_METADATA_KEY && key.rest.is_empty() {
            self.held_bytes -= group.classic.take().map_or(0, |stored| stored.value.len());
        } else if let Some(records) = &mut group.modern {
            let part = Part { key_type: key.key_type, rest: key.rest.into() };
            let freed = |stored: Stored| RECORD_BYTES + part.rest.len() + stored.value.len();
            self.held_bytes -= records.remove(&part).map_or(0, freed);
            if records.is_empty() {
                group.modern = None;
            }
        }
        if group.is_empty() {
            self.groups.remove(key.group);
            self.held_bytes -= key.group.len();
            // What a wave of short-lived groups took is given back, a constant amount of work for each that goes.
            if self.groups.len() < self.groups.capacity() / SPARSE {
                self.groups.shrink_to(self.groups.len() * 2);
            }
        }
    }

    /// The records of a group: offset, key and value of each.
    pub(crate) fn records_of(&self, group: &str) -> impl Iterator<Item = (u64, Vec<u8>, &[u8])> {
        let held = self.groups.get_key_value(group);
        let of = move |key_type, rest: &[u8], stored: &'_ Stored| {
            let mut key = Vec::new();
            // invariant: it was read from a key of this form.
            assert!(
                GroupKey { key_type, group: held.map_or("", |(name, _)| name), rest }.encode(&mut key),
                "a name that was read can be written"
            );
            (stored.offset, key)
        };
        held.into_iter().flat_map(move |(_, group)| {
            let classic = group.classic.iter().map(move |stored| (of(GROUP_METADATA_KEY, &[], stored), &*stored.value));
            let modern = group.records().map(move |(part, stored)| (of(part.key_type, &part.rest, stored), &*stored.value));
            classic.chain(modern).map(|((offset, key), value)| (offset, key, value))
        })
    }

    /// Has met so many keys before that could not be read.
    pub(crate) fn resume(&mut self, unreadable_keys: u64) {
        self.unreadable_keys += unreadable_keys;
    }

    /// Groups with records of their own.
    #[must_use]
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Their names, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.groups.keys().map(|name| &**name)
    }

    /// Whether `group` has records of its own.
    #[must_use]
    pub fn contains(&self, group: &str) -> bool {
        self.groups.contains_key(group)
    }

    /// What kind of group it is: `Simple` of one that has no records.
    #[must_use]
    pub fn kind(&self, group: &str) -> GroupKind {
        self.groups.get(group).map_or(GroupKind::Simple, Group::kind)
    }

    /// Whether anybody is in the group: `Empty` of one that has no records, which nobody can be in.
    #[must_use]
    pub fn state(&self, group: &str) -> GroupState {
        self.groups.get(group).map_or(GroupState::Empty, Group::state)
    }

    /// All there is to say about the group; `None` if it has no records.
    #[must_use]
    pub fn describe(&self, group: &str) -> Option<GroupDescription> {
        self.groups.get(group).map(Group::describe)
    }

    /// What the expiry of its offsets has to know: that it is a simple group, if it has no records.
    #[must_use]
    pub fn expiry_view(&self, group: &str) -> GroupExpiry {
        self.groups.get(group).map_or_else(GroupExpiry::simple, Group::expiry)
    }

    /// The keys of all records of the group, as they are in the log: written with no value they take it away, in this order
    /// for readers that want members to leave before their group goes.
    #[must_use]
    pub fn tombstones_of(&self, group: &str) -> Vec<Vec<u8>> {
        let Some(held) = self.groups.get(group) else { return Vec::new() };
        let mut parts: Vec<(i16, &[u8])> = held.classic.iter().map(|_| (GROUP_METADATA_KEY, &[][..])).collect();
        parts.extend(held.records().map(|(part, _)| (part.key_type, &*part.rest)));
        parts.sort_by_key(|(key_type, _)| (modern::is_head(*key_type), -key_type));
        let encode = |(key_type, rest)| {
            let mut key = Vec::new();
            // invariant: it was read from a key of this form.
            assert!(GroupKey { key_type, group, rest }.encode(&mut key), "a name that was read can be written");
            key
        };
        parts.into_iter().map(encode).collect()
    }

    /// Records whose values cannot be read. Reads them all, and keeps nothing of what it reads.
    pub fn problems(&self) -> impl Iterator<Item = GroupProblem<'_>> {
        self.groups.iter().flat_map(|(name, group)| group.problems(name))
    }

    /// Records whose keys could not be read, which are not kept.
    #[must_use]
    pub fn unreadable_keys(&self) -> u64 {
        self.unreadable_keys
    }

    /// Memory that it takes, but for what the allocator adds.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.groups.allocation_size() + self.held_bytes
    }
}

impl Group {
    fn is_empty(&self) -> bool {
        self.classic.is_none() && self.modern.is_none()
    }

    fn records(&self) -> impl Iterator<Item = (&Part, &Stored)> {
        self.modern.iter().flat_map(|records| records.iter())
    }

    /// The kind that its newest record is of: a group may go from one protocol to another, and what is left of the
    /// earlier one waits for its tombstone to be cleaned.
    fn kind(&self) -> GroupKind {
        let classic = self.classic.iter().map(|stored| (stored.offset, GroupKind::Classic));
        let modern = self.records().filter_map(|(part, stored)| Some((stored.offset, modern::kind_of(part.key_type)?)));
        match classic.chain(modern).max() {
            Some((_, GroupKind::Classic)) if self.classic().is_some_and(|group| is_simple(&group)) => GroupKind::Simple,
            Some((_, kind)) => kind,
            None => GroupKind::Simple,
        }
    }

    /// The value of its record, if it has one that can be read.
    fn classic(&self) -> Option<GroupMetadata<'_>> {
        self.classic.as_ref().and_then(|stored| GroupMetadata::decode(&stored.value).ok())
    }

    fn modern(&self, kind: GroupKind) -> Modern<'_> {
        Modern { kind, records: self.modern.as_deref() }
    }

    fn state(&self) -> GroupState {
        match self.kind() {
            GroupKind::Simple | GroupKind::Classic => match self.classic() {
                None => GroupState::Unknown,
                Some(group) => GroupState::of(group.members.len()),
            },
            kind => GroupState::of(self.modern(kind).member_count()),
        }
    }

    fn expiry(&self) -> GroupExpiry {
        match self.kind() {
            GroupKind::Simple | GroupKind::Classic => match self.classic() {
                None => GroupExpiry::never(),
                Some(group) if group.members.is_empty() => {
                    GroupExpiry::classic_empty(group.protocol_type, group.current_state_timestamp_ms)
                }
                Some(group) => GroupExpiry::classic_stable(group.protocol_type, subscription_of(&group)),
            },
            GroupKind::Share => GroupExpiry::never(),
            kind => match self.modern(kind) {
                modern if modern.member_count() == 0 => GroupExpiry::modern_empty(),
                modern => GroupExpiry::modern_with_members(modern.subscription()),
            },
        }
    }

    fn problems<'a>(&'a self, group: &'a str) -> impl Iterator<Item = GroupProblem<'a>> {
        let classic = self.classic.iter().filter_map(move |stored| {
            let cause = GroupMetadata::check(&stored.value).err()?;
            Some(GroupProblem { group, offset: stored.offset, key_type: GROUP_METADATA_KEY, cause })
        });
        let modern = self.records().filter_map(move |(part, stored)| {
            let cause = check_value(part.key_type, &stored.value).err()?;
            Some(GroupProblem { group, offset: stored.offset, key_type: part.key_type, cause })
        });
        classic.chain(modern)
    }
}

/// Whether the record of a group says no more than that it is one.
fn is_simple(group: &GroupMetadata<'_>) -> bool {
    group.protocol_type.is_empty() && group.members.is_empty()
}

/// What the members of a classic group read: that is known of consumers only, once they have agreed on a protocol.
fn subscription_of(group: &GroupMetadata<'_>) -> Subscription {
    if group.protocol_type != CONSUMER || group.protocol.is_none() {
        return Subscription::Unknown;
    }
    let mut topics = Vec::new();
    for member in &group.members {
        match subscribed_topics(member.subscription) {
            Ok(more) => topics.extend(more),
            Err(_) => return Subscription::Unknown,
        }
    }
    Subscription::of(topics)
}

#[cfg(test)]
mod tests;
