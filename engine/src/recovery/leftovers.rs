//! Files that interrupted work left behind: forgotten, or brought to their end.
//!
//! A `.swap` is a finished output, valid only if its number is below every `.cleaned` number: outputs are renamed
//! in descending order, so a `.cleaned` beside or below it means that the renaming was interrupted and the sources are all there.

use std::collections::BTreeSet;

use super::RecoveryReport;
use crate::names::{self, FileKind, FileName, FileState};
use crate::planted::{Defect, is_planted};
use crate::scan::{EntryScanner, SCAN_BUFFER_BYTES};
use crate::segment::{Place, SEGMENT_FILES};
use crate::storage::{Entry, EntryKind, OpenMode};
use crate::{Error, ErrorKind, Result};

/// The files of the log's directory whose names mean something, ascending.
pub(crate) fn list(place: &Place) -> Result<Vec<FileName>> {
    Ok(files(&entries(place)?))
}

fn entries(place: &Place) -> Result<Vec<Entry>> {
    place.storage.list(&place.dir).map_err(|e| Error::io("list", &place.dir, e))
}

fn files(entries: &[Entry]) -> Vec<FileName> {
    entries.iter().filter(|e| e.kind == EntryKind::File).filter_map(|e| names::parse_file_name(&e.name)).collect()
}

/// Refuses a log with a segment that is no ordinary file. Links are not followed, and without it the log would end
/// early, or have a hole: its offsets would be given again, and its name to another file.
fn refuse_strangers(place: &Place, entries: &[Entry]) -> Result<()> {
    for entry in entries.iter().filter(|e| e.kind != EntryKind::File) {
        let is_segment = |f: &FileName| f.kind == FileKind::Log && matches!(f.state, FileState::Live | FileState::Swap);
        if names::parse_file_name(&entry.name).as_ref().is_some_and(is_segment) {
            let what = if entry.kind == EntryKind::Directory { "a directory" } else { "a link or a device, which is not followed" };
            let detail = format!("it has the name of a segment, but is {what}: put the file itself in its place, or move it away");
            return Err(Error::corrupt("open the log", &place.dir.join(&entry.name), 0, detail));
        }
    }
    Ok(())
}

/// What has the name of a working file, and is none: nobody's to remove, as it is nothing that was made here.
fn strangers(entries: &[Entry]) -> impl Iterator<Item = (&str, &'static str)> {
    let is_working = |name: &str| names::parse_file_name(name).is_some_and(|file| file.state != FileState::Live);
    let what = |kind| if kind == EntryKind::Directory { "a directory" } else { "a link or a device" };
    entries.iter().filter(move |e| e.kind != EntryKind::File && is_working(&e.name)).map(move |e| (&*e.name, what(e.kind)))
}

/// Removes every `.cleaned` file.
pub(crate) fn purge_cleaned(place: &Place) -> Result<()> {
    purge(place, |state| state == FileState::Cleaned)
}

/// The same, and files of replaced segments that could not be removed when their last reader let go of them. Those that
/// are still read are held open.
///
/// # Errors
/// `AlreadyExists` where something else has the name of a working file: a swap would stop half way at it.
pub(crate) fn purge_leftovers(place: &Place) -> Result<()> {
    if let Some((name, what)) = strangers(&entries(place)?).next() {
        let detail = format!("{what} has the name of a working file of the cleaner: move it away");
        return Err(Error::new(ErrorKind::AlreadyExists, "replace segments beside", detail).at(&place.dir.join(name)));
    }
    purge(place, |state| matches!(state, FileState::Cleaned | FileState::Deleted))
}

fn purge(place: &Place, goes: impl Fn(FileState) -> bool) -> Result<()> {
    let mut any = false;
    for file in list(place)?.iter().filter(|f| goes(f.state)) {
        place.remove(&place.path(file.number, file.kind, file.state))?;
        any = true;
    }
    if any { place.sync_dir() } else { Ok(()) }
}

/// Removes leftovers and completes interrupted swaps.
pub(super) fn tidy(place: &Place, report: &mut RecoveryReport) -> Result<()> {
    if is_planted(Defect::BelieveCleaned) {
        for file in list(place)?.iter().filter(|file| file.state == FileState::Cleaned) {
            place.rename_state(file.number, file.kind, FileState::Cleaned, FileState::Swap)?;
        }
    }
    let entries = entries(place)?;
    refuse_strangers(place, &entries)?;
    for (name, what) in strangers(&entries) {
        report.notes.push(format!(
            "{name} is {what} with the name of a working file: it was left alone, and nothing is cleaned until it is moved away"
        ));
    }
    let files = files(&entries);
    let in_state = |state| files.iter().filter(move |f| f.state == state);
    for file in in_state(FileState::Deleted) {
        remove(place, file, report)?;
    }
    let unfinished = in_state(FileState::Cleaned).map(|f| f.number).min().unwrap_or(u64::MAX);
    let unfinished = if is_planted(Defect::ForgetSwap) { 0 } else { unfinished };
    let undone: Vec<_> = in_state(FileState::Swap).filter(|f| f.number >= unfinished).collect();
    for file in &undone {
        remove(place, file, report)?;
    }
    if !undone.is_empty() {
        // The `.cleaned` that tells that they are unfinished must not go before them.
        place.sync_dir()?;
    }
    for file in in_state(FileState::Cleaned) {
        remove(place, file, report)?;
    }
    let swaps: Vec<_> = in_state(FileState::Swap).filter(|f| f.number < unfinished).copied().collect();
    if !swaps.is_empty() {
        complete_swaps(place, &files, &swaps, report)?;
    }
    if files.iter().any(|f| f.state != FileState::Live) {
        place.sync_dir()?;
    }
    Ok(())
}

fn remove(place: &Place, file: &FileName, report: &mut RecoveryReport) -> Result<()> {
    report.removed.push(file.to_string());
    place.remove(&place.path(file.number, file.kind, file.state))
}

fn complete_swaps(place: &Place, files: &[FileName], swaps: &[FileName], report: &mut RecoveryReport) -> Result<()> {
    let logs: BTreeSet<u64> = swaps.iter().filter(|f| f.kind == FileKind::Log).map(|f| f.number).collect();
    if let Some(&low) = logs.first() {
        let mut high = low;
        for &base in &logs {
            high = high.max(swap_end(place, base)?);
        }
        // The sources: whatever their numbers say lies in the range that the outputs cover.
        for file in files.iter().filter(|f| f.state == FileState::Live && (low..high).contains(&f.number)) {
            remove(place, file, report)?;
        }
        // An old index of the same base would not belong to the new log, even where the range is empty.
        for &base in &logs {
            if has(files, base, FileKind::TxnIndex, FileState::Live) && !has(swaps, base, FileKind::TxnIndex, FileState::Swap) {
                // It may be the output's own, renamed before its log was: without the offset index, all are built anew.
                place.remove(&place.path(base, FileKind::OffsetIndex, FileState::Swap))?;
            }
            for kind in &SEGMENT_FILES[1..] {
                place.remove(&place.path(base, *kind, FileState::Live))?;
            }
        }
        // A source must not outlive the `.swap` that says that it is one.
        place.sync_dir()?;
    }
    for (i, file) in swaps.iter().enumerate() {
        if i > 0 && swaps[i - 1].number < file.number {
            // A finished output must not lie in the range of those that are not: it would be taken for a source.
            place.sync_dir()?;
        }
        let path = place.path(file.number, file.kind, FileState::Swap);
        if place.exists(&path) {
            place.rename_state(file.number, file.kind, FileState::Swap, FileState::Live)?;
        }
    }
    report.swaps_completed.extend(logs);
    Ok(())
}

fn has(files: &[FileName], number: u64, kind: FileKind, state: FileState) -> bool {
    files.contains(&FileName { number, kind, state })
}

/// One past the last offset of a finished output; its base if it is empty.
fn swap_end(place: &Place, base: u64) -> Result<u64> {
    let op = "complete the interrupted replacement by";
    let path = place.path(base, FileKind::Log, FileState::Swap);
    let file = place.storage.open(&path, OpenMode::Read).map_err(|e| Error::io(op, &path, e))?;
    let len = file.len().map_err(|e| Error::io(op, &path, e))?;
    let mut scanner = EntryScanner::new(&*file, 0, len, SCAN_BUFFER_BYTES);
    let mut end = base;
    while let Some(entry) = scanner.next() {
        // It was synced before it got this name: damage here is no torn write, and its sources must not go.
        let entry = entry.map_err(|e| e.in_file(op, &path))?;
        entry.header.verify_crc(entry.bytes).map_err(|e| Error::corrupt(op, &path, entry.position, e.to_string()).caused_by(e))?;
        end = entry.header.next_offset();
    }
    Ok(end)
}
