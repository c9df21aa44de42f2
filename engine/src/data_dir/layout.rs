//! What lies in a data directory.

use super::*;

/// Files that belong in a data directory, beside the checkpoints. Each may also have a `.tmp` beside it, the leftover
/// of a replacement that was interrupted.
const KNOWN_FILES: [&str; 4] = [LOCK, CLEAN_MARK, "meta.properties", "bootstrap.checkpoint"];
/// Directories of a broker that are not partitions of its ordinary logs, though one is named like one.
const RESERVED: [&str; 2] = ["__cluster_metadata-0", "remote-log-index-cache"];

/// Something in a data directory that is neither a partition in use nor one of the directory's own files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: ForeignKind,
}

/// What a [`Foreign`] name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForeignKind {
    /// A partition that was removed: its files are on their way out. See [`DataDir::purge_removed`].
    Removed(TopicPartition),
    /// A copy of a partition that a broker was moving here.
    Future(TopicPartition),
    /// A partition that a broker set aside.
    Stray(TopicPartition),
    /// Another directory of a broker.
    Reserved,
    /// A directory whose name is not that of a partition. A broker refuses to start beside it.
    UnknownDirectory,
    /// A file that nobody knows. A broker ignores it.
    UnknownFile,
    /// A link or a device: not followed, whatever its name is.
    NotAFile,
}

/// The names in a data directory, sorted out.
pub(super) struct Layout {
    /// Partitions in use.
    pub(super) live: Vec<TopicPartition>,
    /// Partitions that a broker would open as logs, but that are not in use here: future and stray ones.
    pub(super) aside: Vec<TopicPartition>,
    pub(super) foreign: Vec<Foreign>,
}

impl Layout {
    pub(super) fn read(storage: &dyn Storage, dir: &Path) -> Result<Self> {
        let entries = storage.list(dir).map_err(|e| Error::io("list", dir, e))?;
        let mut layout = Self { live: Vec::new(), aside: Vec::new(), foreign: Vec::new() };
        for entry in entries {
            let kind = match entry.kind {
                EntryKind::File if is_known_file(&entry.name) => continue,
                EntryKind::File => ForeignKind::UnknownFile,
                EntryKind::Other => ForeignKind::NotAFile,
                EntryKind::Directory if is_reserved(&entry.name) => ForeignKind::Reserved,
                EntryKind::Directory => match DirectoryName::parse(&entry.name) {
                    None => ForeignKind::UnknownDirectory,
                    Some(DirectoryName { topic_partition, state: DirectoryState::Live }) => {
                        layout.live.push(topic_partition);
                        continue;
                    }
                    Some(DirectoryName { topic_partition, state: DirectoryState::Delete }) => ForeignKind::Removed(topic_partition),
                    Some(DirectoryName { topic_partition, state: DirectoryState::Future }) => {
                        layout.aside.push(topic_partition.clone());
                        ForeignKind::Future(topic_partition)
                    }
                    Some(DirectoryName { topic_partition, state: DirectoryState::Stray }) => {
                        layout.aside.push(topic_partition.clone());
                        ForeignKind::Stray(topic_partition)
                    }
                },
            };
            layout.foreign.push(Foreign { name: entry.name, kind });
        }
        layout.live.sort();
        Ok(layout)
    }

    /// Whether the checkpoints go on speaking of a partition.
    pub(super) fn keeps_offsets_of(&self, name: &TopicPartition) -> bool {
        self.live.binary_search(name).is_ok() || self.aside.contains(name)
    }
}

pub(super) fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

fn is_known_file(name: &str) -> bool {
    let name = name.strip_suffix(".tmp").unwrap_or(name);
    KNOWN_FILES.contains(&name) || Checkpoint::ALL.iter().any(|which| which.file_name() == name)
}
