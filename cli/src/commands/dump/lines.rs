//! The dump lines of the fixtures, field for field and in their order: what Kafka's own parser sees.

use std::fmt::Write as _;

use super::{Form, each_record};
use crate::door::check::DECODED_BYTES_MAX;
use crate::door::record::{DecodeError, Decoder, RecordRef};
use crate::door::scan::Entry;
use crate::failure::Failure;
use crate::output::{self, Out};

/// One JSON object per batch.
pub(crate) struct Lines {
    decoder: Decoder,
    line: String,
    records: String,
}

impl Lines {
    pub(crate) fn new() -> Self {
        Self { decoder: Decoder::new(DECODED_BYTES_MAX), line: String::new(), records: String::new() }
    }
}

impl Form for Lines {
    fn file(&mut self, _file: &str, _bytes: u64, _out: &mut Out) -> Result<(), Failure> {
        Ok(())
    }

    fn batch(&mut self, file: &str, entry: &Entry<'_>, is_valid: bool, out: &mut Out) -> Result<Option<DecodeError>, Failure> {
        let header = &entry.header;
        self.records.clear();
        let records = &mut self.records;
        let mut first = None;
        let problem = each_record(&mut self.decoder, entry.bytes, |record| {
            first.get_or_insert(record.offset);
            push_record(records, record);
        });
        // An old wrapper names its last offset only; its base is that of the first record in it.
        let base = if header.magic < 2 { first.unwrap_or(header.base_offset) } else { header.base_offset };
        self.line.clear();
        push_batch(&mut self.line, file, entry, base, is_valid);
        self.line.push_str(&self.records);
        self.line.push(']');
        if let Some(cause) = problem {
            let _ = write!(self.line, ",\"error\":{}", serde_json::Value::from(cause.to_string()));
        }
        self.line.push_str("}\n");
        out.text(&self.line)?;
        Ok(problem)
    }
}

/// All of a dump line up to the first record.
fn push_batch(line: &mut String, file: &str, entry: &Entry<'_>, base: u64, is_valid: bool) {
    let h = &entry.header;
    let file = serde_json::Value::from(file);
    let (pos, bytes, magic, last) = (entry.position, h.size, h.magic, h.last_offset);
    let count = if h.magic < 2 { "null".to_owned() } else { h.count.to_string() };
    let codec = h.codec().map_or("unknown", |codec| codec.name());
    let (ts_type, max_ts) = (h.timestamp_type().name(), h.max_timestamp);
    let horizon = h.delete_horizon_ms().map_or_else(|| "null".to_owned(), |ms| ms.to_string());
    let (pid, epoch, seq, leader_epoch) = (h.producer_id, h.producer_epoch, h.base_sequence, h.leader_epoch);
    let (txn, control, crc) = (h.is_transactional(), h.is_control(), h.crc);
    let _ = write!(
        line,
        "{{\"file\":{file},\"pos\":{pos},\"bytes\":{bytes},\"magic\":{magic},\"base\":{base},\"last\":{last},\"count\":{count},\"codec\":\"{codec}\",\
         \"ts_type\":\"{ts_type}\",\"max_ts\":{max_ts},\"horizon\":{horizon},\"pid\":{pid},\"epoch\":{epoch},\"seq\":{seq},\"leader_epoch\":{leader_epoch},\
         \"txn\":{txn},\"control\":{control},\"crc\":{crc},\"valid\":{is_valid},\"records\":["
    );
}

fn push_record(line: &mut String, record: &RecordRef<'_>) {
    if !line.is_empty() {
        line.push(',');
    }
    let _ = write!(line, "{{\"o\":{},\"t\":{},\"k\":", record.offset, record.timestamp);
    push_hex_or_null(line, record.key);
    line.push_str(",\"v\":");
    push_hex_or_null(line, record.value);
    if !record.headers.is_empty() {
        line.push_str(",\"h\":[");
        for (i, (key, value)) in record.headers.iter().enumerate() {
            line.push_str(if i == 0 { "[" } else { ",[" });
            push_hex_or_null(line, Some(key));
            line.push(',');
            push_hex_or_null(line, value);
            line.push(']');
        }
        line.push(']');
    }
    line.push('}');
}

fn push_hex_or_null(line: &mut String, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            line.push('"');
            output::push_hex(line, bytes);
            line.push('"');
        }
        None => line.push_str("null"),
    }
}
