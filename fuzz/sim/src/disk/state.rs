//! What of the disk is durable, and what is not yet.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use keeplog::inspect::storage::{File, read_full_at};

use super::fault::Faults;

#[derive(Debug)]
pub(super) struct State {
    pub(super) faults: Faults,
    /// What the running process finds under a path.
    paths: BTreeMap<PathBuf, usize>,
    pub(super) nodes: Vec<Node>,
    /// Of each directory, by node: the names of its last sync. Nothing for a file.
    pub(super) names: Vec<BTreeMap<String, usize>>,
    /// Changes of names that no sync has covered.
    pub(super) pending: Vec<Change>,
}

/// A file or a directory.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// `None` for a directory.
    pub(super) file: Option<Arc<dyn File>>,
    /// The bytes of its last sync.
    pub(super) durable: Vec<u8>,
    pub(super) unsynced: Vec<Unsynced>,
    pub(super) modified_ms: i64,
}

/// A change of a file that no sync has covered.
#[derive(Clone, Debug)]
pub(super) enum Unsynced {
    Bytes {
        position: u64,
        bytes: Vec<u8>,
    },
    Length(u64),
    /// Changes that a failed sync gave up: they will never be durable.
    GivenUp,
}

/// One atomic change: in a directory, a name stands for something else from now on, or for nothing.
#[derive(Clone, Debug)]
pub(super) struct Change(pub(super) Vec<(usize, String, Option<usize>)>);

impl Change {
    /// The directory that it is a change of.
    pub(super) fn dir(&self) -> usize {
        self.0[0].0
    }
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            faults: Faults::new(),
            paths: BTreeMap::from([(PathBuf::from("/"), 0)]),
            nodes: vec![Node::default()],
            names: vec![BTreeMap::new()],
            pending: Vec::new(),
        }
    }

    pub(super) fn node(&self, path: &Path) -> Option<usize> {
        self.paths.get(path).copied()
    }

    pub(super) fn note(&mut self, node: usize, change: Unsynced) {
        self.nodes[node].unsynced.push(change);
    }

    pub(super) fn add(&mut self, path: &Path, node: Node) -> usize {
        let at = self.nodes.len();
        self.nodes.push(node);
        self.names.push(BTreeMap::new());
        let (dir, name) = self.place(path);
        self.paths.insert(path.to_owned(), at);
        self.pending.push(Change(vec![(dir, name, Some(at))]));
        at
    }

    pub(super) fn remove(&mut self, path: &Path) {
        let (dir, name) = self.place(path);
        self.paths.remove(path);
        self.pending.push(Change(vec![(dir, name, None)]));
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) {
        let moved = self.paths[from];
        let ((from_dir, from_name), (to_dir, to_name)) = (self.place(from), self.place(to));
        self.pending.push(Change(vec![(from_dir, from_name, None), (to_dir, to_name, Some(moved))]));
        let below: Vec<_> =
            self.paths.range(from.to_owned()..).take_while(|(p, _)| p.starts_with(from)).map(|(p, n)| (p.clone(), *n)).collect();
        for (path, node) in below {
            self.paths.remove(&path);
            let path = if path == from { to.to_owned() } else { to.join(path.strip_prefix(from).unwrap()) };
            self.paths.insert(path, node);
        }
    }

    pub(super) fn sync_dir(&mut self, dir: usize) {
        let (synced, pending): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.pending).into_iter().partition(|change: &Change| change.0.iter().any(|entry| entry.0 == dir));
        self.pending = pending;
        for change in synced {
            apply(&change, &mut self.names);
        }
    }

    pub(super) fn sync_file(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.durable = if node.unsynced.iter().any(|change| matches!(change, Unsynced::GivenUp)) {
            node.replayed()
        } else {
            node.file.as_ref().map(read).unwrap_or_default()
        };
        node.unsynced.retain(|change| matches!(change, Unsynced::GivenUp));
    }

    /// After a failed sync: what it should have made durable stays readable, and is never written.
    pub(super) fn drop_dirty(&mut self, at: usize) {
        self.nodes[at].unsynced = vec![Unsynced::GivenUp];
    }

    pub(super) fn sync_all(&mut self) {
        for at in 0..self.nodes.len() {
            self.sync_dir(at);
            self.sync_file(at);
        }
    }

    /// Directory and name of a path; the directory is there.
    fn place(&self, path: &Path) -> (usize, String) {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (self.paths[path.parent().unwrap()], name)
    }
}

impl Node {
    /// The durable bytes with all that a sync would write.
    fn replayed(&self) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        self.unsynced.iter().for_each(|change| change.apply(&mut bytes));
        bytes
    }
}

impl Unsynced {
    pub(super) fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Self::GivenUp => {}
            Self::Length(len) => to.resize(*len as usize, 0),
            Self::Bytes { position, bytes } => put(to, *position as usize, bytes),
        }
    }
}

pub(super) fn put(to: &mut Vec<u8>, position: usize, bytes: &[u8]) {
    let end = position + bytes.len();
    if to.len() < end {
        to.resize(end, 0);
    }
    to[position..end].copy_from_slice(bytes);
}

/// Carries out `change` on the names of all directories.
pub(super) fn apply(change: &Change, names: &mut [BTreeMap<String, usize>]) {
    for (dir, name, node) in &change.0 {
        match node {
            Some(node) => names[*dir].insert(name.clone(), *node),
            None => names[*dir].remove(name),
        };
    }
}

pub(super) fn read(file: &Arc<dyn File>) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize];
    assert_eq!(read_full_at(&**file, &mut bytes, 0).unwrap(), bytes.len());
    bytes
}
