//! The partitions that a command is going to write to: their data directory, locked, with its checkpoints.

use std::path::Path;
use std::sync::Arc;

use crate::door::names::{DirectoryName, DirectoryState};
use crate::door::{DataDir, Error, Storage, TopicPartition};
use crate::failure::Failure;
use crate::target::Target;
use crate::{Status, complain, output};

/// A broker's log of its cluster's metadata: named like a partition, and none of a data directory's logs.
const CLUSTER_METADATA: &str = "__cluster_metadata-0";

/// One partition to write to.
#[derive(Clone, Debug)]
pub(crate) struct OwnedPartition {
    /// Name of its directory.
    pub(crate) name: String,
    pub(crate) topic_partition: TopicPartition,
    /// Bytes in its `.log` files.
    pub(crate) log_bytes: u64,
}

/// Partitions of a data directory that this process owns.
pub(crate) struct OwnedTarget {
    pub(crate) data_dir: Arc<DataDir>,
    target: Target,
    storage: Arc<dyn Storage>,
}

impl OwnedTarget {
    /// Takes the data directory of `path`: the directory itself, or the one above it if `path` is a partition. Of one that
    /// is not named like a partition, only this one is taken.
    pub(crate) fn open(storage: Arc<dyn Storage>, path: &Path) -> Result<Self, Failure> {
        let target = Target::find(&*storage, path)?;
        Self::of(storage, path, target)
    }

    /// As [`OwnedTarget::open`], of the partitions that were found at `path`.
    pub(crate) fn of(storage: Arc<dyn Storage>, path: &Path, target: Target) -> Result<Self, Failure> {
        let above = target.partitions.first().and_then(|partition| partition.path.parent()).map(Path::to_path_buf);
        let dir = if target.whole_dir { target.data_dir.clone() } else { above };
        let dir = dir.ok_or_else(|| Failure::new(format!("could not open {}: there is no directory above it", path.display())))?;
        let named = target.whole_dir || live_name(&target.partitions[0].name)?.is_some();
        let opened = if named {
            DataDir::open(Arc::clone(&storage), &dir)
        } else {
            DataDir::open_alone(Arc::clone(&storage), &target.partitions[0].path)
        };
        let data_dir = Arc::new(opened?);
        for warning in data_dir.warnings() {
            complain(&format!("{}: {}", output::name(&warning.path.display().to_string()), warning.detail));
        }
        Ok(Self { data_dir, target, storage })
    }

    /// Whether a data directory was named, and not one of its partitions.
    pub(crate) fn is_whole_dir(&self) -> bool {
        self.target.whole_dir
    }

    /// Runs `work` on each live partition, as [`Target::each`] does.
    pub(crate) fn each(&self, mut work: impl FnMut(&OwnedPartition) -> Result<Status, Failure>) -> Result<Status, Failure> {
        self.target.each(|partition| {
            let topic_partition = match live_name(&partition.name) {
                Ok(None) if self.target.whole_dir => {
                    complain(&format!("left out {}: a broker's own metadata; name it to work on it", partition.name));
                    return Ok(Status::Fine);
                }
                Ok(Some(name)) => name,
                // Then it is the only one.
                Ok(None) => self.data_dir.partitions().swap_remove(0),
                Err(_) => {
                    complain(&format!("left out {}: it is no partition in use", output::name(&partition.name)));
                    return Ok(Status::Fine);
                }
            };
            let log_bytes = crate::target::log_bytes(&*self.storage, partition);
            work(&OwnedPartition { name: output::name(&partition.name), topic_partition, log_bytes })
        })
    }

    /// Forgets that a partition may have been closed in order, so that it is recovered when it is opened.
    pub(crate) fn distrust(&self, partition: &OwnedPartition) -> Result<(), Error> {
        self.data_dir.opened(&partition.topic_partition)?;
        self.data_dir.closed_unclean(&partition.topic_partition);
        Ok(())
    }

    /// Writes the checkpoints and gives up the directory.
    pub(crate) fn close(self) -> Result<(), Failure> {
        self.data_dir.close()?;
        Ok(())
    }
}

/// The partition of a directory that is in use, by its name; `None` if it is not named like a partition.
fn live_name(name: &str) -> Result<Option<TopicPartition>, Failure> {
    match DirectoryName::parse(name) {
        _ if name == CLUSTER_METADATA => Ok(None),
        Some(DirectoryName { topic_partition, state: DirectoryState::Live }) => Ok(Some(topic_partition)),
        None => Ok(None),
        Some(_) => Err(Failure::new(format!("could not open {name} for writing: a broker set it aside, or is about to remove it"))
            .advise("work on a copy, in a directory of another name")),
    }
}
