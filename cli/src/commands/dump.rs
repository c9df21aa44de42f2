//! `keeplog dump`: every batch and record, as JSON lines or as text.

mod decoded;
mod lines;
mod text;

use std::path::Path;

use crate::args;
use crate::door::offsets_record::InternalTopic;
use crate::door::record::{ControlType, DecodeError, Decoder, RecordRef};
use crate::door::scan::{Entry, EntryScanner, SCAN_BUFFER_BYTES};
use crate::door::storage::{EntryKind, OpenMode};
use crate::door::{CONSUMER_OFFSETS, Error, Storage, TRANSACTION_STATE};
use crate::failure::{self, Failure};
use crate::output::{self, Out};
use crate::progress::Progress;
use crate::target::{self, Partition, Target};
use crate::{Status, complain};

/// Prints batches in one of the forms of this command.
pub(crate) trait Form {
    /// `file` is about to be read; `bytes` long.
    fn file(&mut self, file: &str, bytes: u64, out: &mut Out) -> Result<(), Failure>;
    /// One batch of it, and whether its checksum is right. An error of the records comes back after what could be shown was
    /// shown.
    fn batch(&mut self, file: &str, entry: &Entry<'_>, is_valid: bool, out: &mut Out) -> Result<Option<DecodeError>, Failure>;
}

pub(crate) fn run(args: &args::Dump, storage: &dyn Storage) -> Result<Status, Failure> {
    let mut target = Target::find(storage, &args.dir)?;
    if let Some(decode) = args.decode.filter(|_| target.whole_dir) {
        // Other topics' records would only look like nonsense. A directory that was named is taken at its word.
        let topic = if decode == args::Decode::Offsets { CONSUMER_OFFSETS } else { TRANSACTION_STATE };
        target.retain_topic(topic, &args.dir)?;
    }
    let mut form: Box<dyn Form> = match (args.decode, args.json) {
        (None, true) => Box::new(lines::Lines::new()),
        (None, false) => Box::new(text::Text::new()),
        (Some(args::Decode::Offsets), json) => Box::new(decoded::Decoded::new(InternalTopic::ConsumerOffsets, json)),
        (Some(args::Decode::Transactions), json) => Box::new(decoded::Decoded::new(InternalTopic::TransactionState, json)),
    };
    let mut out = Out::new();
    let mut progress = Progress::beside_output(storage, "dumping", target.log_bytes(storage));
    let status = target.each(|partition| dump_partition(storage, partition, target.whole_dir, &mut *form, &mut out, &mut progress))?;
    out.flush()?;
    Ok(status)
}

fn dump_partition(
    storage: &dyn Storage,
    partition: &Partition,
    with_name: bool,
    form: &mut dyn Form,
    out: &mut Out,
    progress: &mut Progress<'_>,
) -> Result<Status, Failure> {
    let entries = storage.list(&partition.path).map_err(|e| Error::io("list", &partition.path, e))?;
    let mut worst = Status::Fine;
    for entry in entries.iter().filter(|entry| target::is_segment(entry)) {
        let path = partition.path.join(&entry.name);
        if entry.kind != EntryKind::File {
            complain(&format!("left out {}: it is no ordinary file, and links are not followed", output::name(&path.to_string_lossy())));
            worst = Status::Damage;
            continue;
        }
        let shown = if with_name { format!("{}/{}", partition.name, entry.name) } else { entry.name.clone() };
        worst = worst.max(dump_file(storage, &path, &shown, form, out, progress)?);
    }
    Ok(worst)
}

fn dump_file(
    storage: &dyn Storage,
    path: &Path,
    shown: &str,
    form: &mut dyn Form,
    out: &mut Out,
    progress: &mut Progress<'_>,
) -> Result<Status, Failure> {
    let file = storage.open(path, OpenMode::Read).map_err(|e| Error::io("open", path, e))?;
    let len = file.len().map_err(|e| Error::io("read the size of", path, e))?;
    form.file(shown, len, out)?;
    let mut scanner = EntryScanner::new(&*file, 0, len, SCAN_BUFFER_BYTES);
    let mut status = Status::Fine;
    while let Some(next) = scanner.next() {
        match next {
            Ok(entry) => {
                progress.add(u64::from(entry.header.size));
                let checked = entry.header.verify_crc(entry.bytes);
                if let Err(cause) = checked {
                    let error = Error::corrupt("trust the batch in", path, entry.position, cause.to_string());
                    complain(&failure::one_line(&error.offset_at(entry.header.base_offset)));
                    status = Status::Damage;
                }
                if let Some(cause) = form.batch(shown, &entry, checked.is_ok(), out)? {
                    let error = Error::corrupt("decode the records of the batch in", path, entry.position, cause.to_string());
                    complain(&failure::one_line(&error.offset_at(entry.header.base_offset)));
                    status = Status::Damage;
                }
            }
            Err(end) => {
                let left = len - end.position;
                progress.add(left);
                out.flush()?;
                complain(&format!("{}; {left} bytes left out", failure::one_line(&end.in_file("read on in", path))));
                status = Status::Damage;
            }
        }
    }
    Ok(status)
}

/// Hands the records of `entry` to `show`, up to the first that can't be decoded.
pub(crate) fn each_record(decoder: &mut Decoder, entry: &[u8], mut show: impl FnMut(&RecordRef<'_>)) -> Option<DecodeError> {
    let records = match decoder.records(entry) {
        Ok(records) => records,
        Err(cause) => return Some(cause),
    };
    for record in records {
        match record {
            Ok(record) => show(&record),
            Err(cause) => return Some(cause),
        }
    }
    None
}

/// What a record of a control batch says, `ABORT`.
pub(crate) fn control_name(record: &RecordRef<'_>) -> String {
    match record.key.map(ControlType::of_key) {
        Some(Ok(kind)) => format!("{kind:?}").to_uppercase(),
        _ => "UNREADABLE".to_owned(),
    }
}
