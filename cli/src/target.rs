//! What a DIR argument stands for: one partition directory, or a data directory that holds several.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::door::names::{DirectoryName, DirectoryState, FileKind, FileName, LEADER_EPOCHS, PARTITION_METADATA};
use crate::door::storage::{Entry, EntryKind};
use crate::door::{Error, Storage};
use crate::failure::Failure;
use crate::output;
use crate::{Status, complain};

/// Names in a data directory that Kafka's loader passes over.
const NO_PARTITIONS: [&str; 1] = ["remote-log-index-cache"];
/// Subdirectories named in advice, at most.
const SUGGESTED_MAX: usize = 5;

/// One partition directory.
#[derive(Clone, Debug)]
pub(crate) struct Partition {
    /// Name of the directory, `orders-0`.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

impl Partition {
    /// Its number, if it is a live partition of `topic`.
    pub(crate) fn number_in(&self, topic: &str) -> Option<u32> {
        number_in(&self.name, topic)
    }
}

fn number_in(directory: &str, topic: &str) -> Option<u32> {
    let name = DirectoryName::parse(directory).filter(|name| name.state == DirectoryState::Live)?;
    (name.topic_partition.topic() == topic).then(|| name.topic_partition.partition())
}

/// The partition directories that a command is to work on.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The data directory around them, with checkpoint files and lock, if there is one.
    pub(crate) data_dir: Option<PathBuf>,
    /// Whether `data_dir` was named, so that everything in it is meant.
    pub(crate) whole_dir: bool,
    /// Ascending by name.
    pub(crate) partitions: Vec<Partition>,
    /// Names in the data directory that look like partitions and can't be followed.
    pub(crate) links: Vec<String>,
    /// Directories there that are named like partitions and have nothing of one in them.
    pub(crate) empty: Vec<Partition>,
    /// Files that are named so.
    pub(crate) files: Vec<String>,
}

impl Target {
    /// Looks at `path`.
    pub(crate) fn find(storage: &dyn Storage, path: &Path) -> Result<Self, Failure> {
        let meta = storage.metadata(path).map_err(|e| {
            let advice = "give a partition directory (it holds .log files) or the data directory around it";
            if e.kind() == std::io::ErrorKind::NotFound {
                Failure::new(format!("could not open {}", path.display())).caused_by(&e).advise(advice)
            } else {
                Error::io("look at", path, e).into()
            }
        })?;
        if meta.kind != EntryKind::Directory {
            let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            return Err(Failure::new(format!("could not open {}: it is not a directory", path.display()))
                .advise(format!("give the partition directory: keeplog COMMAND {}", parent.display())));
        }
        let entries = storage.list(path).map_err(|e| Error::io("list", path, e))?;
        // One that has lost its segments is a partition still, if its name says so.
        let is_named = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| DirectoryName::parse(name).is_some());
        if is_partition(&entries) || (is_named && entries.iter().any(is_of_partition)) {
            Self::partition(storage, path)
        } else {
            Self::data_dir(storage, path, &entries)
        }
    }

    fn partition(storage: &dyn Storage, path: &Path) -> Result<Self, Failure> {
        let path = storage.canonicalize(path).map_err(|e| Error::io("find", path, e))?;
        let name = path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
        let data_dir = path.parent().filter(|parent| is_data_dir(storage, parent)).map(Path::to_path_buf);
        Ok(Self {
            data_dir,
            whole_dir: false,
            partitions: vec![Partition { name, path }],
            links: Vec::new(),
            empty: Vec::new(),
            files: Vec::new(),
        })
    }

    /// What is in a data directory, and names of some directories in it that are logs under other names.
    fn scan(storage: &dyn Storage, path: &Path, entries: &[Entry]) -> (Self, Vec<String>) {
        let data_dir = Some(path.to_path_buf());
        let mut found = Self { data_dir, whole_dir: true, partitions: Vec::new(), links: Vec::new(), empty: Vec::new(), files: Vec::new() };
        let mut other_logs = Vec::new();
        for entry in entries.iter().filter(|entry| !NO_PARTITIONS.contains(&entry.name.as_str())) {
            let inside = path.join(&entry.name);
            match entry.kind {
                EntryKind::File if DirectoryName::parse(&entry.name).is_some() => found.files.push(entry.name.clone()),
                EntryKind::File => {}
                EntryKind::Other if DirectoryName::parse(&entry.name).is_some() => found.links.push(entry.name.clone()),
                EntryKind::Other => {}
                EntryKind::Directory if DirectoryName::parse(&entry.name).is_some() && may_be_partition(storage, &inside) => {
                    found.partitions.push(Partition { name: entry.name.clone(), path: inside });
                }
                EntryKind::Directory => {
                    if DirectoryName::parse(&entry.name).is_some() {
                        found.empty.push(Partition { name: entry.name.clone(), path: inside.clone() });
                    }
                    if other_logs.len() < SUGGESTED_MAX && storage.list(&inside).is_ok_and(|inner| is_partition(&inner)) {
                        other_logs.push(entry.name.clone());
                    }
                }
            }
        }
        (found, other_logs)
    }

    /// As [`Target::find`], of a data directory that may have no partition in use yet.
    pub(crate) fn find_to_fill(storage: &dyn Storage, path: &Path) -> Result<Self, Failure> {
        let entries = storage.list(path).map_err(|e| Error::io("list", path, e))?;
        Ok(Self::scan(storage, path, &entries).0)
    }

    /// Takes empty directories for partitions, which they are to a broker.
    pub(crate) fn take_empty(&mut self) {
        self.partitions.append(&mut self.empty);
        self.partitions.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    }

    fn data_dir(storage: &dyn Storage, path: &Path, entries: &[Entry]) -> Result<Self, Failure> {
        let (found, other_logs) = Self::scan(storage, path, entries);
        if !found.partitions.is_empty() {
            return Ok(found);
        }
        let shown = path.display();
        Err(if entries.is_empty() {
            Failure::new(format!("could not open {shown}: the directory is empty")).advise("check the path")
        } else if let Some(link) = found.links.first() {
            Failure::new(format!(
                "could not open {shown}: it holds only links to partitions ({}), which are not followed",
                output::name(link)
            ))
            .advise("give the directory that the link points to")
        } else if let (Some(empty), true) = (found.empty.first(), other_logs.is_empty()) {
            let what = "it is not a log: its directories that are named like partitions hold none";
            Failure::new(format!("could not open {shown}: {what} ({})", output::name(&empty.name))).advise("check the path")
        } else if other_logs.is_empty() {
            Failure::new(format!("could not open {shown}: it is not a log: it holds no .log file and no directory named like a partition"))
                .advise("give a partition directory (it holds .log files) or the data directory around it")
        } else {
            let names: Vec<String> = other_logs.iter().map(|name| output::name(name)).collect();
            Failure::new(format!("could not open {shown}: it holds logs, but none in a directory named like a partition (orders-0)"))
                .advise(format!("give one of them: {}", names.join(", ")))
        })
    }

    /// The numbers of the partitions of `topic` that are there by name, whatever lies under the name.
    pub(crate) fn numbers_of(&self, topic: &str) -> BTreeSet<u32> {
        let directories = self.partitions.iter().chain(&self.empty).map(|partition| &partition.name);
        directories.chain(&self.links).chain(&self.files).filter_map(|name| number_in(name, topic)).collect()
    }

    /// Leaves only the live partitions of `topic`; a failure if there is none. `path` is what the user gave.
    pub(crate) fn retain_topic(&mut self, topic: &str, path: &Path) -> Result<(), Failure> {
        self.partitions.retain(|partition| partition.number_in(topic).is_some());
        self.links.retain(|link| number_in(link, topic).is_some());
        self.empty.retain(|partition| partition.number_in(topic).is_some());
        self.files.retain(|name| number_in(name, topic).is_some());
        if self.partitions.is_empty() {
            return Err(Failure::new(format!("could not find a partition of {topic} in {}", path.display()))
                .advise(format!("give the data directory that holds {topic}-0 and so on, or one of these directories")));
        }
        Ok(())
    }

    /// Bytes in all `.log` files, for progress.
    pub(crate) fn log_bytes(&self, storage: &dyn Storage) -> u64 {
        self.partitions.iter().map(|partition| log_bytes(storage, partition)).sum()
    }

    /// Runs `work` on each partition. One that fails is complained about and the others go on; the failure then counts.
    pub(crate) fn each(&self, mut work: impl FnMut(&Partition) -> Result<Status, Failure>) -> Result<Status, Failure> {
        for link in &self.links {
            complain(&format!("left out {}: links in a data directory are not followed", output::name(link)));
        }
        let mut worst = Status::Fine;
        let mut failed = Vec::new();
        for partition in &self.partitions {
            match work(partition) {
                Ok(status) => worst = worst.max(status),
                Err(failure) if failure.is_corruption() => {
                    complain(&failure.to_string());
                    worst = Status::Damage;
                }
                Err(failure) if failure.is_broken_pipe() || self.partitions.len() == 1 => return Err(failure),
                Err(failure) => {
                    complain(&failure.to_string());
                    failed.push(output::name(&partition.name));
                }
            }
        }
        if failed.is_empty() {
            return Ok(worst);
        }
        Err(Failure::new(format!("could not work on {} of {} partitions: {}", failed.len(), self.partitions.len(), failed.join(", ")))
            .advise("see the messages above; the other partitions were done"))
    }
}

/// Bytes in the `.log` files of `partition`, as far as they can be told.
pub(crate) fn log_bytes(storage: &dyn Storage, partition: &Partition) -> u64 {
    let names = storage.list(&partition.path).unwrap_or_default();
    let of_file = |name: &str| storage.metadata(&partition.path.join(name)).map_or(0, |meta| meta.len);
    names.iter().filter(|entry| is_segment(entry)).map(|entry| of_file(&entry.name)).sum()
}

/// Whether `entry` is the data file of a segment, in the sense of Kafka's loader: whatever ends in `.log`.
pub(crate) fn is_segment(entry: &Entry) -> bool {
    entry.name.ends_with(".log")
}

/// Whether a directory with these names is a partition's: it holds a file of a segment, in any state.
fn is_partition(entries: &[Entry]) -> bool {
    let of_segment =
        |entry: &Entry| entry.kind != EntryKind::Directory && FileName::parse(&entry.name).is_some_and(|file| file.kind == FileKind::Log);
    entries.iter().any(of_segment)
}

/// Whether a directory that is named like a partition has anything of one in it: many other things are named so, such as
/// `python-3`. One that can't be read may be.
fn may_be_partition(storage: &dyn Storage, dir: &Path) -> bool {
    storage.list(dir).map_or(true, |entries| entries.iter().any(is_of_partition))
}

/// Whether a file of this name lies in partition directories only.
fn is_of_partition(entry: &Entry) -> bool {
    FileName::parse(&entry.name).is_some() || [LEADER_EPOCHS, PARTITION_METADATA].contains(&entry.name.as_str())
}

/// Whether `dir` is a data directory beyond doubt: it has one of the files that only those have.
pub(crate) fn is_data_dir(storage: &dyn Storage, dir: &Path) -> bool {
    const MARKS: [&str; 4] =
        ["recovery-point-offset-checkpoint", "cleaner-offset-checkpoint", "log-start-offset-checkpoint", "meta.properties"];
    storage.list(dir).is_ok_and(|entries| entries.iter().any(|entry| MARKS.contains(&entry.name.as_str())))
}
