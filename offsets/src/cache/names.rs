//! Names as small numbers: each distinct name is kept once, for as long as something counts on it.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};

/// The number of a name. Reused once the name is gone.
pub(super) type NameId = u32;

/// Names with something kept beside each.
///
/// Numbers are found by a seeded hash and always settled by comparing the whole name. The last name asked for is
/// tried first: records of one group come in runs.
pub(super) struct Names<T> {
    slots: Vec<Slot<T>>,
    free: Vec<NameId>,
    /// The name lies beside its number, one step nearer than through its slot.
    by_name: HashTable<(Arc<str>, NameId)>,
    hasher: DefaultHashBuilder,
    last: Option<NameId>,
}

struct Slot<T> {
    name: Arc<str>,
    uses: usize,
    data: T,
}

impl<T: Default> Names<T> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), by_name: HashTable::new(), hasher: DefaultHashBuilder::default(), last: None }
    }

    /// Names in use.
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_name.iter().map(|(name, _)| name)
    }

    pub(super) fn name(&self, id: NameId) -> &Arc<str> {
        &self.slots[id as usize].name
    }

    pub(super) fn data(&self, id: NameId) -> &T {
        &self.slots[id as usize].data
    }

    pub(super) fn data_mut(&mut self, id: NameId) -> &mut T {
        &mut self.slots[id as usize].data
    }

    pub(super) fn find(&self, name: &str) -> Option<NameId> {
        if let Some(last) = self.last
            && **self.name(last) == *name
        {
            return Some(last);
        }
        self.by_name.find(self.hasher.hash_one(name), |(held, _)| **held == *name).map(|&(_, id)| id)
    }

    /// The number of `name`, which the caller goes on to [`Names::retain`].
    pub(super) fn intern(&mut self, name: &str) -> NameId {
        let id = self.find(name).unwrap_or_else(|| self.insert(name));
        self.last = Some(id);
        id
    }

    /// Counts one more use.
    pub(super) fn retain(&mut self, id: NameId) {
        self.slots[id as usize].uses += 1;
    }

    /// Counts one use less; after the last the name is forgotten.
    pub(super) fn release(&mut self, id: NameId) {
        let slot = &mut self.slots[id as usize];
        slot.uses -= 1;
        if slot.uses > 0 {
            return;
        }
        let hash = self.hasher.hash_one(&*slot.name);
        if let Ok(entry) = self.by_name.find_entry(hash, |&(_, other)| other == id) {
            entry.remove();
        }
        slot.name = Arc::default();
        self.free.push(id);
        self.last = None;
    }

    fn insert(&mut self, name: &str) -> NameId {
        let name: Arc<str> = name.into();
        let slot = Slot { name: Arc::clone(&name), uses: 0, data: T::default() };
        let id = if let Some(id) = self.free.pop() {
            self.slots[id as usize] = slot;
            id
        } else {
            // invariant: 2^32 names would not fit in memory.
            let id = NameId::try_from(self.slots.len()).expect("fewer than 2^32 names");
            self.slots.push(slot);
            id
        };
        let hasher = &self.hasher;
        self.by_name.insert_unique(hasher.hash_one(&*name), (name, id), |(name, _)| hasher.hash_one(&**name));
        id
    }
}
