//! Checkpoint files: those of the data directory, and those in the partition directory.

use std::path::Path;

use keeplog_engine::checkpoint::{self, EpochEntry, LeaderEpochs, Loaded, OffsetMap};
use keeplog_engine::names::{DirectoryName, LEADER_EPOCHS, PARTITION_METADATA};
use keeplog_engine::storage::{OpenMode, Storage, read_full_at};
use keeplog_engine::{Error, TopicPartition};
use serde::Serialize;

use crate::codes;
use crate::finding::{Findings, Place};

const METADATA_BYTES_MAX: usize = 4096;
/// 16 bytes in base64 without padding.
const TOPIC_ID_CHARS: usize = 22;

/// The checkpoints of a data directory.
const FILES: [&str; 4] =
    ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint", "replication-offset-checkpoint"];

/// What the checkpoints of a data directory say.
#[derive(Debug, Default)]
pub struct Checkpoints {
    /// In the order of [`FILES`].
    maps: [OffsetMap; FILES.len()],
}

/// What they say about one partition.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Marks {
    /// Everything below is on stable storage.
    pub recovery_point: Option<u64>,
    /// What is below was deleted.
    pub log_start: Option<u64>,
    /// What is below was cleaned.
    pub first_dirty: Option<u64>,
    /// What is below was replicated.
    pub high_watermark: Option<u64>,
}

impl Checkpoints {
    /// Reads the checkpoints of `data_dir`, and reports those that are malformed.
    pub(crate) fn read(storage: &dyn Storage, data_dir: &Path, findings: &mut Findings) -> Result<Self, Error> {
        let mut all = Self::default();
        for (map, name) in all.maps.iter_mut().zip(FILES) {
            match checkpoint::read_offsets(storage, &data_dir.join(name))? {
                Loaded::Found(found) => *map = found,
                Loaded::Missing | Loaded::Empty => {}
                Loaded::Malformed(why) => findings.add(codes::CHECKPOINT_DAMAGED, Place::file(name), why.to_string()),
            }
        }
        Ok(all)
    }

    /// What they say about the partition whose directory has this name.
    pub fn of(&self, directory: &str) -> Marks {
        let Some(name) = DirectoryName::parse(directory) else { return Marks::default() };
        let find = |map: &OffsetMap| map.get(&name.topic_partition).copied();
        let [recovery_point, log_start, first_dirty, high_watermark] = [0, 1, 2, 3].map(|i| find(&self.maps[i]));
        Marks { recovery_point, log_start, first_dirty, high_watermark }
    }

    /// Partitions that have an entry.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = (&'static str, &TopicPartition)> {
        self.maps.iter().zip(FILES).flat_map(|(map, name)| map.keys().map(move |partition| (name, partition)))
    }
}

/// Holds what the checkpoints say against the end of the log.
pub(crate) fn check_marks(marks: Marks, end_offset: u64, findings: &mut Findings) {
    let all = [
        (codes::CHECKPOINT_AHEAD, FILES[0], "recovery point", marks.recovery_point),
        (codes::START_AHEAD, FILES[1], "log start offset", marks.log_start),
        (codes::CHECKPOINT_BEHIND, FILES[2], "first dirty offset", marks.first_dirty),
        (codes::CHECKPOINT_BEHIND, FILES[3], "high watermark", marks.high_watermark),
    ];
    for (code, file, what, mark) in all {
        if let Some(mark) = mark.filter(|mark| *mark > end_offset) {
            findings.add(code, Place::file(file).offset(mark), format!("the {what} is {mark}, the log ends at {end_offset}"));
        }
    }
}

/// Leader epochs of a partition; none if the file is malformed.
pub(crate) fn epochs(storage: &dyn Storage, dir: &Path, findings: &mut Findings) -> Result<Vec<EpochEntry>, Error> {
    Ok(match LeaderEpochs::read(storage, dir)? {
        Loaded::Found(epochs) => epochs.entries().to_vec(),
        Loaded::Missing | Loaded::Empty => Vec::new(),
        Loaded::Malformed(why) => {
            findings.add(codes::CHECKPOINT_DAMAGED, Place::file(LEADER_EPOCHS), why.to_string());
            Vec::new()
        }
    })
}

/// Holds the leader epochs against the end of the log.
pub(crate) fn check_epochs(epochs: &[EpochEntry], end_offset: u64, findings: &mut Findings) {
    if let Some(ahead) = epochs.last().filter(|epoch| epoch.start_offset > end_offset) {
        let message = format!("epoch {} starts at offset {}, the log ends at {end_offset}", ahead.epoch, ahead.start_offset);
        findings.add(codes::CHECKPOINT_BEHIND, Place::file(LEADER_EPOCHS).offset(ahead.start_offset), message);
    }
}

/// The topic id of a partition.
pub(crate) fn topic_id(storage: &dyn Storage, dir: &Path, findings: &mut Findings) -> Result<Option<String>, Error> {
    let path = dir.join(PARTITION_METADATA);
    let file = storage.open(&path, OpenMode::Read).map_err(|e| Error::io("open", &path, e))?;
    let mut bytes = vec![0; METADATA_BYTES_MAX];
    let got = read_full_at(&*file, &mut bytes, 0).map_err(|e| Error::io("read", &path, e))?;
    let id = std::str::from_utf8(&bytes[..got]).ok().and_then(parse_metadata);
    if id.is_none() {
        let message = "not the two lines \"version: 0\" and \"topic_id: \" with 22 characters";
        findings.add(codes::METADATA_DAMAGED, Place::file(PARTITION_METADATA), message);
    }
    Ok(id)
}

fn parse_metadata(text: &str) -> Option<String> {
    let mut lines = text.lines().map(|line| line.split_whitespace());
    let (mut version, mut id) = (lines.next()?, lines.next()?);
    let is_version = version.next() == Some("version:") && version.next()?.parse::<u16>().is_ok() && version.next().is_none();
    let found = (id.next() == Some("topic_id:")).then(|| id.next()).flatten()?;
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let is_id = found.len() == TOPIC_ID_CHARS && found.chars().all(legal) && found.chars().any(|c| c != 'A');
    (is_version && is_id && id.next().is_none() && lines.next().is_none()).then(|| found.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_ids_are_read_strictly() {
        assert_eq!(parse_metadata("version: 0\ntopic_id: kQMn_LuWRtuqO_52sxXhUQ"), Some("kQMn_LuWRtuqO_52sxXhUQ".to_owned()));
        for bad in [
            "",
            "version: 0",
            "version: -1\ntopic_id: kQMn_LuWRtuqO_52sxXhUQ",
            "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
            "version: 0\ntopic_id: x",
        ] {
            assert_eq!(parse_metadata(bad), None, "{bad}");
        }
    }
}
