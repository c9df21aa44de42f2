//! Producer snapshots: whether they can be used, and whether they fit the log.

use std::path::Path;

use keeplog_engine::Error;
use keeplog_engine::room;
use keeplog_engine::snapshot;
use keeplog_engine::storage::{OpenMode, Storage, read_full_at};

use crate::codes;
use crate::files::Inventory;
use crate::finding::{Findings, Place};

/// More than any broker's producers need.
const SNAPSHOT_BYTES_MAX: u64 = 1 << 30;

/// What the scan of the log has shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogFacts {
    /// Offset after the last batch, if the log could be read to its end.
    pub(crate) end_offset: Option<u64>,
    pub(crate) has_producers: bool,
}

/// Checks the snapshots of a partition.
pub(crate) fn check(storage: &dyn Storage, dir: &Path, inventory: &Inventory, log: LogFacts, findings: &mut Findings) -> Result<(), Error> {
    let last_base = inventory.segments.last().map_or(0, |segment| segment.base);
    for (i, (number, name)) in inventory.snapshots.iter().enumerate() {
        let place = Place::file(name).offset(*number);
        check_contents(storage, &dir.join(name), *number, place, findings)?;
        // Kafka keeps the newest, which a clean stop leaves at the end of the log, and those at the start of a segment.
        let is_newest = i + 1 == inventory.snapshots.len() && *number >= last_base;
        let is_wanted = is_newest || inventory.segments.iter().any(|segment| segment.base == *number);
        if let Some(end) = log.end_offset.filter(|end| number > end) {
            findings.add(codes::SNAPSHOT_AHEAD, place, format!("it holds the producers up to offset {number}, the log ends at {end}"));
        } else if !is_wanted {
            findings.add(codes::SNAPSHOT_STRAY, place, "no segment starts at its offset");
        }
    }
    if inventory.snapshots.is_empty() && log.has_producers {
        findings.add(codes::SNAPSHOT_MISSING, Place::default(), "the log has batches of producers, but there is no snapshot of them");
    }
    Ok(())
}

fn check_contents(storage: &dyn Storage, path: &Path, number: u64, place: Place<'_>, findings: &mut Findings) -> Result<(), Error> {
    let io = |e| Error::io("read", path, e);
    let file = storage.open(path, OpenMode::Read).map_err(|e| Error::io("open", path, e))?;
    let len = file.len().map_err(io)?;
    if len > SNAPSHOT_BYTES_MAX {
        findings.add(codes::SNAPSHOT_DAMAGED, place, format!("it has {len} bytes, more than a snapshot can have"));
        return Ok(());
    }
    let mut bytes = room::zeroed(len as usize).map_err(io)?;
    let got = read_full_at(&*file, &mut bytes, 0).map_err(io)?;
    match snapshot::parse(&bytes[..got]) {
        Err(why) => findings.add(codes::SNAPSHOT_DAMAGED, place, why.to_string()),
        Ok(producers) => {
            let beyond = |offset: Option<u64>| offset.is_some_and(|offset| offset >= number);
            if let Some(producer) = producers.iter().find(|p| beyond(p.last_data_offset) || beyond(p.open_txn_first_offset)) {
                let message = format!("producer {} has an offset at or above {number}, where the snapshot ends", producer.id);
                findings.add(codes::SNAPSHOT_DAMAGED, place, message);
            }
        }
    }
    Ok(())
}
