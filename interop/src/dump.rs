//! Batches and records in the terms of Kafka's dump, from its lines and from our own decoding.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use keeplog::inspect::record::{BatchHeader, DecodeError, Decoder, RecordRef};
use keeplog::inspect::scan::{EntryScanner, SCAN_BUFFER_BYTES, ScanCause};
use keeplog::inspect::storage::{OpenMode, RealStorage, Storage};
use serde::Deserialize;

const DECODED_BYTES_MAX: usize = 1 << 30;

/// One batch. The names are those of the dump lines.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Batch {
    pub(crate) file: String,
    pub(crate) pos: u64,
    pub(crate) bytes: u64,
    magic: u8,
    pub(crate) base: u64,
    pub(crate) last: u64,
    count: Option<i32>,
    pub(crate) codec: String,
    ts_type: String,
    max_ts: i64,
    horizon: Option<i64>,
    pid: i64,
    epoch: i16,
    seq: i32,
    leader_epoch: i32,
    txn: bool,
    control: bool,
    pub(crate) crc: u32,
    valid: bool,
    pub(crate) records: Vec<Record>,
}

/// One record; bytes in hex.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    o: u64,
    t: i64,
    k: Option<String>,
    v: Option<String>,
    #[serde(default)]
    h: Vec<(String, Option<String>)>,
}

/// Which places and sizes two batches need not have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exactness {
    /// None: every field must be the same.
    Full,
    /// Its position: something before it in its file has another size.
    Moved,
    /// Its position, size and checksum: its records were compressed anew.
    Reencoded,
}

/// The dump that Kafka made, one line a batch.
pub(crate) fn read(path: &Path) -> Result<Vec<Batch>> {
    let text = fs::read_to_string(path).with_context(|| format!("could not read {}", path.display()))?;
    parse(&text).with_context(|| format!("in {}", path.display()))
}

/// The lines of a dump.
pub(crate) fn parse(text: &str) -> Result<Vec<Batch>> {
    let line = |(i, line)| serde_json::from_str(line).with_context(|| format!("line {}", i + 1));
    text.lines().enumerate().map(line).collect()
}

/// Our own dump of all `.log` files in `dir`. As Kafka's, it ends with a whole batch where a file ends inside one.
pub(crate) fn directory(dir: &Path) -> Result<Vec<Batch>> {
    let storage = RealStorage::new();
    let mut decoder = Decoder::new(DECODED_BYTES_MAX);
    let mut batches = Vec::new();
    for name in names(dir, &["log"])? {
        let path = dir.join(&name);
        let file = storage.open(&path, OpenMode::Read)?;
        let mut scanner = EntryScanner::new(&*file, 0, file.len()?, SCAN_BUFFER_BYTES);
        while let Some(next) = scanner.next() {
            let entry = match next {
                Ok(entry) => entry,
                Err(end) if matches!(end.cause, ScanCause::Decode(DecodeError::Truncated { .. })) => break,
                Err(end) => bail!("{}: {end}", path.display()),
            };
            let batch = of_entry(&name, entry.position, &entry.header, entry.bytes, &mut decoder);
            batches.push(batch.with_context(|| format!("{} at byte {}", path.display(), entry.position))?);
        }
    }
    Ok(batches)
}

/// The names in `dir` that end in one of `extensions`, ascending.
pub(crate) fn names(dir: &Path, extensions: &[&str]) -> Result<Vec<String>> {
    let entries = fs::read_dir(dir).with_context(|| format!("could not list {}", dir.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name().into_string().ok().context("a name that is no UTF-8")?;
        if name.rsplit_once('.').is_some_and(|(_, extension)| extensions.contains(&extension)) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// In which fields two batches differ, in words.
pub(crate) fn differences(ours: &Batch, theirs: &Batch, exactness: Exactness) -> Vec<String> {
    let mut found = Vec::new();
    macro_rules! compare {
        ($($field:ident),*) => {
            $(if ours.$field != theirs.$field {
                found.push(format!("{} is {:?}, Kafka has {:?}", stringify!($field), ours.$field, theirs.$field));
            })*
        };
    }
    compare!(file, magic, base, last, count, codec, ts_type, max_ts, horizon, pid, epoch, seq, leader_epoch, txn, control, valid);
    if exactness == Exactness::Full {
        compare!(pos);
    }
    if exactness != Exactness::Reencoded {
        compare!(bytes, crc);
    }
    if ours.records != theirs.records {
        found.push(record_difference(&ours.records, &theirs.records));
    }
    found
}

/// All differences between two lists of batches; `exactness` says how exact each of ours must be.
pub(crate) fn compare(ours: &[Batch], theirs: &[Batch], mut exactness: impl FnMut(&Batch) -> Exactness) -> Vec<String> {
    let mut found = Vec::new();
    if ours.len() != theirs.len() {
        found.push(format!("{} batches, Kafka has {}", ours.len(), theirs.len()));
    }
    for (i, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        let exactness = exactness(ours);
        found.extend(differences(ours, theirs, exactness).into_iter().map(|d| format!("batch {i}, base {}: {d}", theirs.base)));
    }
    found
}

fn record_difference(ours: &[Record], theirs: &[Record]) -> String {
    let offsets = |records: &[Record]| records.iter().map(|r| r.o).collect::<Vec<_>>();
    if offsets(ours) != offsets(theirs) {
        return format!("records have offsets {:?}, in Kafka {:?}", offsets(ours), offsets(theirs));
    }
    let different = ours.iter().zip(theirs).find(|(ours, theirs)| ours != theirs);
    different.map_or_else(String::new, |(ours, theirs)| format!("record {} is {ours:?}, in Kafka {theirs:?}", ours.o))
}

fn of_entry(file: &str, position: u64, header: &BatchHeader, entry: &[u8], decoder: &mut Decoder) -> Result<Batch> {
    let base = decoder.base_offset(entry)?;
    let records = decoder.records(entry)?.map(|record| record.map(|r| of_record(&r))).collect::<Result<Vec<_>, _>>()?;
    Ok(Batch {
        file: file.to_owned(),
        pos: position,
        bytes: header.size.into(),
        magic: header.magic,
        base,
        last: header.last_offset,
        count: (header.magic == 2).then_some(header.count),
        codec: header.codec()?.name().to_owned(),
        ts_type: header.timestamp_type().name().to_owned(),
        max_ts: header.max_timestamp,
        horizon: header.delete_horizon_ms(),
        pid: header.producer_id,
        epoch: header.producer_epoch,
        seq: header.base_sequence,
        leader_epoch: header.leader_epoch,
        txn: header.is_transactional(),
        control: header.is_control(),
        crc: header.crc,
        valid: header.verify_crc(entry).is_ok(),
        records,
    })
}

fn of_record(record: &RecordRef<'_>) -> Record {
    Record {
        o: record.offset,
        t: record.timestamp,
        k: record.key.map(hex),
        v: record.value.map(hex),
        h: record.headers.iter().map(|(key, value)| (hex(key), value.map(hex))).collect(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a string never fails
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"file":"00000000000000000000.log","pos":99,"bytes":80,"magic":2,"base":7,"last":8,"count":1,"codec":"none","ts_type":"CreateTime","max_ts":5,"horizon":null,"pid":1,"epoch":0,"seq":3,"leader_epoch":0,"txn":false,"control":false,"crc":17,"valid":true,"records":[{"o":7,"t":5,"k":"6b","v":null,"h":[["68",null]]}]}"#;

    /// Every field of a line with another value.
    const CHANGES: [(&str, &str); 26] = [
        ("\"0000", "\"1000"),
        ("\"pos\":99", "\"pos\":98"),
        ("\"bytes\":80", "\"bytes\":81"),
        ("\"magic\":2", "\"magic\":1"),
        ("\"base\":7", "\"base\":6"),
        ("\"last\":8", "\"last\":9"),
        ("\"count\":1", "\"count\":null"),
        ("\"none\"", "\"lz4\""),
        ("CreateTime", "LogAppendTime"),
        ("\"max_ts\":5", "\"max_ts\":-1"),
        ("\"horizon\":null", "\"horizon\":0"),
        ("\"pid\":1", "\"pid\":-1"),
        ("\"epoch\":0", "\"epoch\":1"),
        ("\"seq\":3", "\"seq\":4"),
        ("\"leader_epoch\":0", "\"leader_epoch\":-1"),
        ("\"txn\":false", "\"txn\":true"),
        ("\"control\":false", "\"control\":true"),
        ("\"crc\":17", "\"crc\":18"),
        ("\"valid\":true", "\"valid\":false"),
        ("\"o\":7", "\"o\":8"),
        ("\"t\":5", "\"t\":6"),
        ("\"6b\"", "null"),
        ("\"v\":null", "\"v\":\"\""),
        ("[[\"68\",null]]", "[]"),
        ("[\"68\",null]", "[\"68\",\"\"]"),
        ("\"68\"", "\"69\""),
    ];

    fn batch(line: &str) -> Batch {
        parse(line).unwrap().remove(0)
    }

    #[test]
    fn no_difference_goes_unnoticed() {
        let ours = batch(LINE);
        assert!(differences(&ours, &ours, Exactness::Full).is_empty());
        for (from, to) in CHANGES {
            let changed = LINE.replacen(from, to, 1);
            assert_ne!(changed, LINE, "{from}");
            let theirs = batch(&changed);
            assert_eq!(differences(&ours, &theirs, Exactness::Full).len(), 1, "{from}");
            let moved = usize::from(!from.contains("pos"));
            assert_eq!(differences(&ours, &theirs, Exactness::Moved).len(), moved, "{from}");
            let reencoded = usize::from(!["pos", "\"bytes", "crc"].iter().any(|field| from.contains(field)));
            assert_eq!(differences(&ours, &theirs, Exactness::Reencoded).len(), reencoded, "{from}");
        }
    }

    #[test]
    fn a_missing_batch_and_an_unknown_field_are_noticed() {
        let one = [batch(LINE)];
        assert_eq!(compare(&one, &[], |_| Exactness::Full).len(), 1);
        assert_eq!(compare(&[], &one, |_| Exactness::Full).len(), 1);
        assert!(parse(&LINE.replace("\"pos\"", "\"position\"")).is_err());
    }
}
