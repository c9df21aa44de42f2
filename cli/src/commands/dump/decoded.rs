//! The records of a coordinator's log, shown as what they mean.

use std::fmt::Write as _;

use serde::Serialize;

use super::{Form, control_name, each_record};
use crate::door::check::DECODED_BYTES_MAX;
use crate::door::offsets_record::{DecodedKey, DecodedRecord, DecodedValue, InternalTopic, Struct, Value};
use crate::door::record::{DecodeError, Decoder};
use crate::door::scan::Entry;
use crate::failure::Failure;
use crate::output::{self, Out};

/// One line per record.
pub(crate) struct Decoded {
    topic: InternalTopic,
    json: bool,
    decoder: Decoder,
    text: String,
}

/// A record in JSON. Keys and values: `type` and `name` of the record type, `data` with Kafka's field names.
#[derive(Serialize)]
struct Line<'a> {
    file: &'a str,
    o: u64,
    t: i64,
    /// Producer of a transaction that the record is part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    txn_pid: Option<i64>,
    /// What a control record says.
    #[serde(skip_serializing_if = "Option::is_none")]
    control: Option<String>,
    #[serde(flatten)]
    record: Option<DecodedRecord>,
}

impl Decoded {
    pub(crate) fn new(topic: InternalTopic, json: bool) -> Self {
        Self { topic, json, decoder: Decoder::new(DECODED_BYTES_MAX), text: String::new() }
    }
}

impl Form for Decoded {
    fn file(&mut self, file: &str, bytes: u64, out: &mut Out) -> Result<(), Failure> {
        if self.json { Ok(()) } else { out.line(&format!("{}, {}", output::name(file), output::bytes(bytes))) }
    }

    fn batch(&mut self, file: &str, entry: &Entry<'_>, _is_valid: bool, out: &mut Out) -> Result<Option<DecodeError>, Failure> {
        let Self { topic, json, decoder, text } = self;
        let header = entry.header;
        let txn_pid = header.is_transactional().then_some(header.producer_id);
        text.clear();
        let mut failed = None;
        let problem = each_record(decoder, entry.bytes, |record| {
            let control = header.is_control().then(|| control_name(record));
            let decoded = control.is_none().then(|| DecodedRecord::decode(*topic, record.key, record.value));
            let line = Line { file, o: record.offset, t: record.timestamp, txn_pid, control, record: decoded };
            if !*json {
                push_text(text, &line);
            } else if let Ok(line) = serde_json::to_string(&line) {
                text.push_str(&line);
                text.push('\n');
            } else {
                failed = Some(record.offset);
            }
        });
        out.text(text)?;
        match failed {
            Some(offset) => Err(Failure::new(format!("could not write the record at offset {offset} as JSON"))),
            None => Ok(problem),
        }
    }
}

fn push_text(text: &mut String, line: &Line<'_>) {
    let _ = write!(text, "  {}  {}  ", line.o, output::time(line.t));
    match (&line.control, &line.record) {
        (Some(control), _) => text.push_str(control),
        (None, Some(record)) => push_record(text, record),
        (None, None) => {}
    }
    if let Some(pid) = line.txn_pid {
        let _ = write!(text, "  [transaction of producer {pid}]");
    }
    text.push('\n');
}

/// `OffsetCommit group="g" topic="t" partition=0: offset=7 metadata=""`.
fn push_record(text: &mut String, record: &DecodedRecord) {
    match record.key() {
        None => text.push_str("no key"),
        Some(DecodedKey::Known { schema, data, .. }) => {
            text.push_str(schema.name());
            push_fields(text, data);
        }
        Some(DecodedKey::Raw { bytes, reason, .. }) => {
            let _ = write!(text, "key {} ({reason})", output::data(bytes, 60));
        }
        Some(_) => text.push_str("a key of a new kind"),
    }
    text.push(':');
    match record.value() {
        None => text.push_str(" deleted"),
        Some(DecodedValue::Known(value)) => push_fields(text, value.data()),
        Some(DecodedValue::Raw { bytes, reason, .. }) => {
            let _ = write!(text, " value {}", output::data(bytes, 60));
            if let Some(reason) = reason {
                let _ = write!(text, " ({reason})");
            }
        }
        Some(_) => text.push_str(" a value of a new kind"),
    }
}

fn push_fields(text: &mut String, data: &Struct) {
    for (name, value) in data.fields() {
        let _ = write!(text, " {name}=");
        push_value(text, value);
    }
}

fn push_value(text: &mut String, value: &Value) {
    match value {
        Value::Text(value) => text.push_str(&output::data(value.as_bytes(), 200)),
        Value::List(values) => {
            text.push('[');
            for (i, value) in values.iter().enumerate() {
                text.push_str(if i == 0 { "" } else { ", " });
                push_value(text, value);
            }
            text.push(']');
        }
        Value::Struct(value) => {
            text.push('{');
            push_fields(text, value);
            text.push_str(" }");
        }
        Value::Embedded(value) => {
            text.push('{');
            push_fields(text, value.data());
            text.push_str(" }");
        }
        // Numbers, ids and bytes look the same in both forms.
        other => text.push_str(&serde_json::to_string(other).unwrap_or_default().replace('"', "")),
    }
}
