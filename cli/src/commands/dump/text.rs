//! Batches and records as text, for reading.

use std::fmt::Write as _;

use super::{Form, control_name, each_record};
use crate::door::check::DECODED_BYTES_MAX;
use crate::door::record::{DecodeError, Decoder, RecordRef};
use crate::door::scan::Entry;
use crate::failure::Failure;
use crate::output::{self, Out};

/// Characters of a key or a value that are shown.
const DATA_SHOWN: usize = 60;

/// A line per batch and per record.
pub(crate) struct Text {
    decoder: Decoder,
    text: String,
}

impl Text {
    pub(crate) fn new() -> Self {
        Self { decoder: Decoder::new(DECODED_BYTES_MAX), text: String::new() }
    }
}

impl Form for Text {
    fn file(&mut self, file: &str, bytes: u64, out: &mut Out) -> Result<(), Failure> {
        out.line(&format!("{}, {}", output::name(file), output::bytes(bytes)))
    }

    fn batch(&mut self, _file: &str, entry: &Entry<'_>, is_valid: bool, out: &mut Out) -> Result<Option<DecodeError>, Failure> {
        self.text.clear();
        let text = &mut self.text;
        push_batch_text(text, entry, is_valid);
        let problem = each_record(&mut self.decoder, entry.bytes, |record| push_record_text(text, record, entry.header.is_control()));
        if let Some(cause) = problem {
            let _ = writeln!(text, "    DAMAGED from here: {cause}");
        }
        out.text(&self.text)?;
        Ok(problem)
    }
}

/// `@0  offsets 0..=4, 277 B, v2, 3 records, zstd, CreateTime to 2026-.., producer 6/0 seq 12, transactional`.
fn push_batch_text(text: &mut String, entry: &Entry<'_>, is_valid: bool) {
    let h = &entry.header;
    let _ = write!(
        text,
        "  @{}  offsets {}..={}, {}, v{}",
        entry.position,
        h.base_offset,
        h.last_offset,
        output::bytes(u64::from(h.size)),
        h.magic
    );
    if h.magic >= 2 {
        let _ = write!(text, ", {}", output::counted(u64::from(h.count.unsigned_abs()), "record", "records"));
    }
    let _ = write!(text, ", {}", h.codec().map_or("unknown codec", |codec| codec.name()));
    if h.magic > 0 {
        let _ = write!(text, ", {} to {}", h.timestamp_type().name(), output::time(h.max_timestamp));
    }
    if let Some(ms) = h.delete_horizon_ms() {
        let _ = write!(text, ", delete horizon {}", output::time(ms));
    }
    if h.has_producer() {
        let _ = write!(text, ", producer {} epoch {}", h.producer_id, h.producer_epoch);
        if h.base_sequence >= 0 {
            let _ = write!(text, " sequence {}..={}", h.base_sequence, h.last_sequence());
        }
    }
    if h.magic >= 2 && h.leader_epoch >= 0 {
        let _ = write!(text, ", leader epoch {}", h.leader_epoch);
    }
    for (set, word) in [(h.is_transactional(), "transactional"), (h.is_control(), "control"), (!is_valid, "CHECKSUM WRONG")] {
        if set {
            let _ = write!(text, ", {word}");
        }
    }
    text.push('\n');
}

fn push_record_text(text: &mut String, record: &RecordRef<'_>, control: bool) {
    if control {
        let _ = writeln!(text, "    {}  {}  {}", record.offset, output::time(record.timestamp), control_name(record));
        return;
    }
    let shown = |bytes: Option<&[u8]>| bytes.map_or_else(|| "null".to_owned(), |bytes| output::data(bytes, DATA_SHOWN));
    let _ = write!(text, "    {}  {}  {} = {}", record.offset, output::time(record.timestamp), shown(record.key), shown(record.value));
    for (key, value) in record.headers.iter() {
        let _ = write!(text, "  [{}: {}]", output::data(key, DATA_SHOWN), shown(value));
    }
    text.push('\n');
}
