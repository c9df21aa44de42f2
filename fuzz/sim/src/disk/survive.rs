//! What is left when the power goes.

use std::collections::BTreeMap;
use std::path::Path;

use keeplog::inspect::storage::{OpenMode, Storage};

use super::Disk;
use super::state::{Node, State, Unsynced, apply, put, read};
use crate::dice::Choose;

/// What a power failure leaves of that which was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Survival {
    /// Everything.
    Everything,
    /// Nothing.
    Nothing,
    /// Of the names of each directory the changes up to some moment, as a journal keeps them; of each file the writes up to
    /// some moment, the last of them torn.
    InOrder,
    /// Any change of a name without any other; of each file any sectors of any writes, and any of the lengths that it had,
    /// what is missing being zeros or junk.
    AnyOrder,
    /// Changes of names one by one if they are few, else up to some moment; each file's writes, or none, or half of the last.
    /// Few enough to try them all.
    Each,
}

/// So many changes of names are tried in every combination; of more, each directory's as its journal has them.
const NAMES_FREE_MAX: usize = 4;
/// A disk writes this many bytes at once or not at all.
const SECTOR_BYTES: usize = 512;
/// The first bytes of a batch are under no checksum: with junk in them alone, a batch at the very end of a log is
/// believed, by Keeplog as by Kafka. The disk has zeros there.
const UNCHECKED_BYTES: usize = 21;

impl Disk {
    /// The disk when the power comes back, after it went just now: a new one, all that is on it durable.
    #[must_use]
    pub fn after_power_failure(&self, survival: Survival, choices: &mut dyn Choose) -> Self {
        let state = self.state();
        let names = surviving_names(&state, survival, choices);
        let image = Self::new(self.live.now_ms());
        copy(&state, &names, 0, Path::new("/"), &image, &mut |node| contents(node, survival, choices));
        let mut new = image.state();
        new.sync_all();
        new.faults.set(super::Fault::None);
        new.faults.omitted = state.faults.omitted;
        drop(new);
        image
    }
}

fn surviving_names(state: &State, survival: Survival, choices: &mut dyn Choose) -> Vec<BTreeMap<String, usize>> {
    let mut names = state.names.clone();
    let mut journal_ends = BTreeMap::new();
    let in_order = match survival {
        Survival::Each => state.pending.len() > NAMES_FREE_MAX,
        other => other == Survival::InOrder,
    };
    for change in &state.pending {
        let dir = change.dir();
        let survives = match survival {
            Survival::Everything => true,
            Survival::Nothing => false,
            _ if in_order => {
                let of_dir = state.pending.iter().filter(|c| c.dir() == dir).count() as u64;
                let (seen, end) = journal_ends.entry(dir).or_insert_with(|| (0, choices.choose(of_dir + 1)));
                *seen += 1;
                *seen <= *end
            }
            Survival::InOrder | Survival::AnyOrder | Survival::Each => choices.choose(2) == 0,
        };
        if survives {
            apply(change, &mut names);
        }
    }
    names
}

/// What is left of a file.
fn contents(node: &Node, survival: Survival, choices: &mut dyn Choose) -> Vec<u8> {
    // What a failed sync gave up is gone with the power, however much else stays.
    let changes: Vec<_> = node.unsynced.iter().filter(|change| !matches!(change, Unsynced::GivenUp)).collect();
    let gave_up = changes.len() < node.unsynced.len();
    if changes.is_empty() && !gave_up {
        return node.durable.clone();
    }
    let upto = |count: usize| {
        let mut bytes = node.durable.clone();
        changes[..count].iter().for_each(|change| change.apply(&mut bytes));
        bytes
    };
    match survival {
        Survival::Everything if gave_up => upto(changes.len()),
        Survival::Everything => node.file.as_ref().map(read).unwrap_or_default(),
        Survival::Nothing => node.durable.clone(),
        Survival::InOrder => {
            let whole = choices.choose(changes.len() as u64 + 1) as usize;
            let mut bytes = upto(whole);
            if let Some(Unsynced::Bytes { position, bytes: torn }) = changes.get(whole) {
                let kept = choices.choose(torn.len() as u64 + 1) as usize;
                put(&mut bytes, *position as usize, &torn[..kept]);
            }
            bytes
        }
        Survival::AnyOrder => match choices.choose(4) {
            0 => upto(changes.len()),
            1 => node.durable.clone(),
            _ => any_sectors(node, &changes, choices),
        },
        Survival::Each => match choices.choose(3) {
            0 => upto(changes.len()),
            1 => node.durable.clone(),
            _ => {
                let mut bytes = upto(changes.len().saturating_sub(1));
                if let Some(Unsynced::Bytes { position, bytes: torn }) = changes.last() {
                    put(&mut bytes, *position as usize, &torn[..torn.len() / 2]);
                }
                bytes
            }
        },
    }
}

/// Sectors of the writes without each other, and a length of its own.
fn any_sectors(node: &Node, changes: &[&Unsynced], choices: &mut dyn Choose) -> Vec<u8> {
    let mut lengths = vec![node.durable.len()];
    let mut whole = node.durable.clone();
    for change in changes {
        change.apply(&mut whole);
        lengths.push(whole.len());
    }
    let length = lengths[choices.choose(lengths.len() as u64) as usize];
    let junk = choices.choose(2) == 0;
    let mut bytes = node.durable.clone();
    bytes.truncate(length);
    // Room that was never written shows what lay there before.
    bytes.resize_with(length, || if junk { choices.choose(256) as u8 } else { 0 });
    for change in changes {
        let Unsynced::Bytes { position, bytes: written } = change else { continue };
        let (mut from, start) = (0, *position as usize);
        while from < written.len() {
            let to = written.len().min(from + SECTOR_BYTES - (start + from) % SECTOR_BYTES);
            let end = (start + to).min(length);
            if start + from < end {
                let place = &mut bytes[start + from..end];
                if choices.choose(2) == 0 {
                    place.copy_from_slice(&written[from..end - start]);
                } else if from == 0 && to < UNCHECKED_BYTES {
                    place.fill(0);
                }
            }
            from = to;
        }
    }
    bytes
}

fn copy(state: &State, names: &[BTreeMap<String, usize>], at: usize, path: &Path, to: &Disk, contents: &mut dyn FnMut(&Node) -> Vec<u8>) {
    for (name, &child) in &names[at] {
        let path = path.join(name);
        let node = &state.nodes[child];
        if node.file.is_none() {
            to.create_dir(&path).unwrap();
            copy(state, names, child, &path, to, contents);
            continue;
        }
        let file = to.open(&path, OpenMode::CreateNew).unwrap();
        let bytes = contents(node);
        if !bytes.is_empty() {
            file.write_at(&bytes, 0).unwrap();
        }
        to.set_modified(&path, node.modified_ms).unwrap();
    }
}
