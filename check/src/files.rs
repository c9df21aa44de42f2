//! The names in a partition directory: what belongs to a segment, what is left over, what is foreign.

use std::collections::BTreeMap;
use std::path::Path;

use keeplog_engine::Error;
use keeplog_engine::names::{self, FileKind, FileName, FileState};
use keeplog_engine::scan::{EntryScanner, SCAN_BUFFER_BYTES};
use keeplog_engine::storage::{EntryKind, OpenMode, Storage};

use crate::codes;
use crate::finding::{Findings, Place};
use crate::indexes::IndexFiles;

/// One segment as its names give it.
#[derive(Clone, Debug)]
pub struct SegmentFiles {
    /// Its first possible offset.
    pub base: u64,
    /// Name of the `.log` file.
    pub log: String,
    /// Its size.
    pub bytes: u64,
    pub(crate) indexes: IndexFiles,
}

impl SegmentFiles {
    /// Names of those of its indexes that are there.
    pub fn index_names(&self) -> impl Iterator<Item = &str> {
        let IndexFiles { offset, time, txn, .. } = &self.indexes;
        [offset, time, txn].into_iter().flatten().map(String::as_str)
    }
}

/// What a partition directory holds.
#[derive(Debug, Default)]
pub struct Inventory {
    /// Ascending by base offset.
    pub segments: Vec<SegmentFiles>,
    /// Index files without a `.log`: number and name, ascending.
    pub orphans: Vec<(u64, String)>,
    /// Numbers of segments whose log is there under the name of one that is being removed.
    pub(crate) retired: Vec<u64>,
    /// Producer snapshots: offset and name, ascending.
    pub snapshots: Vec<(u64, String)>,
    /// Whether the file with the topic id is there.
    pub has_metadata: bool,
}

impl Inventory {
    /// Lists `dir` for somebody who does not judge.
    ///
    /// # Errors
    /// Those of the storage.
    pub fn list(storage: &dyn Storage, dir: &Path) -> Result<Self, Error> {
        Self::read(storage, dir, &mut Findings::default())
    }

    /// Lists `dir` and reports names that should not be there.
    pub(crate) fn read(storage: &dyn Storage, dir: &Path, findings: &mut Findings) -> Result<Self, Error> {
        let mut inventory = Self::default();
        let mut indexes: BTreeMap<u64, IndexFiles> = BTreeMap::new();
        for entry in storage.list(dir).map_err(|e| Error::io("list", dir, e))? {
            let name = entry.name.as_str();
            let file = FileName::parse(name);
            if entry.kind != EntryKind::File {
                report_other(name, entry.kind, file.is_some() || name.ends_with(".log"), findings);
                continue;
            }
            match file {
                Some(FileName { number, kind: FileKind::Log, state: FileState::Live }) => {
                    let path = dir.join(name);
                    let bytes = storage.metadata(&path).map_err(|e| Error::io("read the size of", &path, e))?.len;
                    inventory.segments.push(SegmentFiles { base: number, log: entry.name, bytes, indexes: IndexFiles::default() });
                }
                Some(FileName { number, kind: FileKind::Snapshot, state: FileState::Live }) => {
                    inventory.snapshots.push((number, entry.name));
                }
                Some(FileName { number, kind, state: FileState::Live }) => {
                    let files = indexes.entry(number).or_default();
                    let place = match kind {
                        FileKind::OffsetIndex => &mut files.offset,
                        FileKind::TimeIndex => &mut files.time,
                        _ => &mut files.txn,
                    };
                    *place = Some(entry.name);
                }
                Some(leftover) => {
                    report_leftover(name, leftover, findings);
                    if leftover.kind == FileKind::Log && leftover.state == FileState::Deleted {
                        inventory.retired.push(leftover.number);
                    }
                    if leftover.kind == FileKind::TxnIndex && leftover.state == FileState::Deleted {
                        indexes.entry(leftover.number).or_default().txn_retired = true;
                    }
                    if leftover.kind == FileKind::Log && leftover.state == FileState::Swap {
                        check_output(storage, &dir.join(name), name, findings)?;
                    }
                }
                None if name == names::PARTITION_METADATA => inventory.has_metadata = true,
                None if name == names::LEADER_EPOCHS || name.ends_with(names::DERIVED_SUFFIX) => {}
                None => report_foreign(name, findings),
            }
        }
        for segment in &mut inventory.segments {
            segment.indexes = indexes.remove(&segment.base).unwrap_or_default();
        }
        for (number, files) in indexes {
            inventory.orphans.extend([files.offset, files.time, files.txn].into_iter().flatten().map(|name| (number, name)));
        }
        Ok(inventory)
    }
}

fn report_other(name: &str, kind: EntryKind, is_ours: bool, findings: &mut Findings) {
    if is_ours {
        let what = if kind == EntryKind::Directory { "a directory has the name of a file of the log" } else { "it is a link or a device" };
        findings.add(codes::NOT_A_FILE, Place::file(name), what);
    } else {
        findings.add(codes::UNKNOWN_FILE, Place::file(name), "not a file of the log");
    }
}

fn report_leftover(name: &str, file: FileName, findings: &mut Findings) {
    let place = Place::file(name).offset(file.number);
    match file.state {
        FileState::Cleaned => findings.add(codes::LEFTOVER_CLEANED, place, "output of a clean that was not completed"),
        FileState::Swap => findings.add(codes::LEFTOVER_SWAP, place, "output of a clean, on its way to replace old segments"),
        FileState::Deleted => findings.add(codes::LEFTOVER_DELETED, place, "replaced or expired, its removal is pending"),
        FileState::Live => {}
    }
}

/// A finished output was synced before it got its name: recovery believes it only if all of it is sound.
fn check_output(storage: &dyn Storage, path: &Path, name: &str, findings: &mut Findings) -> Result<(), Error> {
    let file = storage.open(path, OpenMode::Read).map_err(|e| Error::io("open", path, e))?;
    let len = file.len().map_err(|e| Error::io("read the size of", path, e))?;
    let mut scanner = EntryScanner::new(&*file, 0, len, SCAN_BUFFER_BYTES);
    while let Some(next) = scanner.next() {
        let problem = match next {
            Ok(entry) => entry.header.verify_crc(entry.bytes).err().map(|e| (entry.position, e.to_string())),
            Err(e) => Some((e.position, e.to_string())),
        };
        if let Some((position, problem)) = problem {
            findings.add(codes::SWAP_DAMAGED, Place::file(name).at(position), problem);
            break;
        }
    }
    Ok(())
}

fn report_foreign(name: &str, findings: &mut Findings) {
    let place = Place::file(name);
    if name.ends_with(".log") {
        findings.add(codes::BAD_NAME, place, "its name does not start with 20 digits");
    } else if name.split_once(".cut-").is_some_and(|(file, _)| FileName::parse(file).is_some()) {
        findings.add(codes::CUT_BYTES, place, "what recovery cut off");
    } else if name.ends_with(".tmp") {
        findings.add(codes::LEFTOVER_TMP, place, "an unfinished write of a checkpoint file");
    } else if [".cleaned", ".swap", ".deleted"].iter().any(|suffix| name.ends_with(suffix)) {
        findings.add(codes::LEFTOVER_DELETED, place, "a leftover with a name that does not start with 20 digits");
    } else {
        findings.add(codes::UNKNOWN_FILE, place, "not a file of the log");
    }
}
