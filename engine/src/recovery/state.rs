//! Producer state at an offset: the newest sound snapshot at or below it, and replay of the batches from there.

use std::sync::Arc;

use super::{RecoveryReport, leftovers};
use crate::config::LogOptions;
use crate::log::marker_of;
use crate::names::{FileKind, FileState, file_name};
use crate::producers::ProducerStates;
use crate::record::Decoder;
use crate::scan::{SCAN_BUFFER_BYTES, ScanCause, ScanError};
use crate::segment::{Place, Segment, write_file};
use crate::{Error, Result};

/// No snapshot of a real log comes near this.
const SNAPSHOT_BYTES_MAX: u64 = 1 << 30;

/// Numbers of the snapshot files, ascending.
pub(crate) fn list_snapshots(place: &Place) -> Result<Vec<u64>> {
    let files = leftovers::list(place)?;
    Ok(files.iter().filter(|f| f.kind == FileKind::Snapshot && f.state == FileState::Live).map(|f| f.number).collect())
}

/// The state at `offset`. Damaged snapshots are passed over.
pub(crate) fn producers_at(place: &Place, options: &LogOptions, segments: &[Arc<Segment>], offset: u64) -> Result<ProducerStates> {
    replay(place, options, segments, offset, u64::MAX, &[], &mut RecoveryReport::default())
}

/// The state at `offset`, from the newest sound snapshot that is not above `trusted`; on the way, a snapshot is saved
/// at each of `save_at` (ascending) that has none. Damaged snapshots are removed and reported.
pub(super) fn replay(
    place: &Place,
    options: &LogOptions,
    segments: &[Arc<Segment>],
    offset: u64,
    trusted: u64,
    save_at: &[u64],
    report: &mut RecoveryReport,
) -> Result<ProducerStates> {
    let (mut states, from) = newest_sound(place, offset.min(trusted), report)?;
    let mut decoder = Decoder::new(options.decompressed_bytes_max);
    let first = segments.partition_point(|s| s.base_offset() <= from).saturating_sub(1);
    for segment in segments.get(first..).unwrap_or_default() {
        if segment.base_offset() >= offset {
            break;
        }
        if save_at.contains(&segment.base_offset()) && segment.base_offset() >= from {
            save(place, segment.base_offset(), &states)?;
        }
        replay_segment(&mut states, segment, from, offset, &mut decoder)?;
    }
    Ok(states)
}

fn replay_segment(states: &mut ProducerStates, segment: &Segment, from: u64, to: u64, decoder: &mut Decoder) -> Result<()> {
    let file = segment.file()?;
    let start = if segment.base_offset() < from { segment.position_for(from)? } else { 0 };
    let mut scanner = segment.scan(&*file, u64::from(start), SCAN_BUFFER_BYTES);
    while let Some(entry) = scanner.next() {
        let entry = match entry {
            Ok(entry) => entry,
            // Damage is judged where segments are recovered; here it only ends what can be known of this segment.
            Err(ScanError { cause: ScanCause::Decode(_), .. }) => break,
            Err(failure) => return Err(failure.in_file("read the producers in", &segment.path())),
        };
        if entry.header.last_offset < from {
            continue;
        }
        if entry.header.base_offset >= to {
            break;
        }
        if entry.header.has_producer() {
            let marker = marker_of(&entry.header, entry.bytes, decoder).unwrap_or(None);
            states.apply(&entry.header, marker);
        }
    }
    Ok(())
}

fn newest_sound(place: &Place, offset: u64, report: &mut RecoveryReport) -> Result<(ProducerStates, u64)> {
    for number in list_snapshots(place)?.into_iter().rev().filter(|&n| n <= offset) {
        if let Some(states) = read_or_drop(place, number, report)? {
            return Ok((states, number));
        }
    }
    Ok((ProducerStates::default(), 0))
}

/// Removes and reports every damaged snapshot.
pub(super) fn drop_damaged(place: &Place, report: &mut RecoveryReport) -> Result<()> {
    for number in list_snapshots(place)? {
        read_or_drop(place, number, report)?;
    }
    Ok(())
}

/// The state of a snapshot; a damaged one is removed and reported.
fn read_or_drop(place: &Place, number: u64, report: &mut RecoveryReport) -> Result<Option<ProducerStates>> {
    let path = place.path(number, FileKind::Snapshot, FileState::Live);
    let decoded = place
        .read(&path, SNAPSHOT_BYTES_MAX)
        .and_then(|bytes| ProducerStates::decode(&bytes).map_err(|e| Error::corrupt("read", &path, 0, e.to_string()).caused_by(e)));
    match decoded {
        Ok(states) => Ok(Some(states)),
        Err(error) if error.is_corruption() => {
            let name = file_name(number, FileKind::Snapshot);
            report.notes.push(format!("{name} is damaged and was removed; an older one and the log take its place"));
            report.removed.push(name);
            place.remove(&path)?;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Saves a snapshot at `offset`, unless there is one.
pub(super) fn save(place: &Place, offset: u64, states: &ProducerStates) -> Result<()> {
    let path = place.path(offset, FileKind::Snapshot, FileState::Live);
    if place.exists(&path) { Ok(()) } else { replace(place, offset, states) }
}

/// Saves a snapshot at `offset` in the place of any that is there.
pub(super) fn replace(place: &Place, offset: u64, states: &ProducerStates) -> Result<()> {
    let path = place.path(offset, FileKind::Snapshot, FileState::Live);
    let file = write_file(place, &path, &states.encode())?;
    file.sync_data().map_err(|e| Error::io("sync", &path, e))
}
