//! Writes the seed corpora into `corpus/` anew, from what a real Kafka wrote (`../fixtures`) and, for the targets
//! that take choices instead of bytes of a format, from a fixed series of numbers.
//!
//! `cargo run --manifest-path fuzz/Cargo.toml --example seeds`
#![allow(clippy::disallowed_methods, reason = "a tool: files are read and written directly")]

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use keeplog_engine::names::{FileKind, FileName};
use keeplog_engine::record::{BatchHeader, Codec, Decoder, HEADER_V2_BYTES};
use keeplog_fixtures::{Set, cases, unpack};

const ENTRY_BYTES_MAX: usize = 1500;
const LOG_BYTES_MAX: usize = 3000;
/// Entries kept of an index.
const INDEX_ENTRIES_MAX: usize = 24;

fn main() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let _ = fs::remove_dir_all(&corpus);
    let mut seeds = Seeds { corpus, known: HashSet::new() };
    let logs = partition_directories();
    entries(&mut seeds, &logs);
    for dir in &logs {
        files(&mut seeds, dir);
    }
    checkpoints(&mut seeds, &logs);
    names(&mut seeds);
    offset_records(&mut seeds, &logs);
    choices(&mut seeds);
}

struct Seeds {
    corpus: PathBuf,
    /// One seed of a kind is enough.
    known: HashSet<String>,
}

impl Seeds {
    /// Adds a seed, unless one of that name is there.
    fn add(&mut self, target: &str, kind: &str, bytes: &[u8]) {
        if self.known.insert(format!("{target}/{kind}")) {
            fs::create_dir_all(self.corpus.join(target)).unwrap();
            fs::write(self.corpus.join(target).join(kind), bytes).unwrap();
        }
    }
}

/// Every directory of the fixtures that holds segments, in a fixed order.
fn partition_directories() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = [Set::Broker, Set::Legacy, Set::Killed].map(|set| unpack(set).to_path_buf()).into();
    open.extend(cases(Set::Cleaned).into_iter().take(8));
    while let Some(dir) = open.pop() {
        let all: Vec<PathBuf> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()).collect();
        if all.iter().any(|path| numbered(path).is_some_and(|name| name.kind == FileKind::Log)) {
            found.push(dir);
        }
        open.extend(all.into_iter().filter(|path| path.is_dir()));
    }
    found.sort();
    found
}

fn numbered(path: &Path) -> Option<FileName> {
    FileName::parse(path.file_name()?.to_str()?)
}

fn sorted_files(dir: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).filter(|path| path.is_file()).collect();
    all.sort();
    all
}

/// Each whole entry of the logs in `dir`.
fn each_entry(dir: &Path, mut visit: impl FnMut(&BatchHeader, &[u8])) {
    for path in sorted_files(dir).iter().filter(|path| numbered(path).is_some_and(|name| name.kind == FileKind::Log)) {
        let bytes = fs::read(path).unwrap();
        let mut rest = &bytes[..];
        while let Ok(header) = BatchHeader::parse(rest)
            && header.size as usize <= rest.len()
        {
            let (entry, after) = rest.split_at(header.size as usize);
            visit(&header, entry);
            rest = after;
        }
    }
}

/// One entry of each kind: format, codec, what its attributes say, one record or many.
fn entries(seeds: &mut Seeds, logs: &[PathBuf]) {
    for dir in logs {
        each_entry(dir, |header, entry| {
            if entry.len() > ENTRY_BYTES_MAX {
                return;
            }
            let codec = header.codec().unwrap();
            let count = ["none", "one", "some"][header.count.clamp(0, 2) as usize];
            let kind = format!("v{}-{}-{:02x}-{count}", header.magic, codec.name(), header.attributes.0);
            seeds.add(if header.magic == 2 { "batch_v2" } else { "legacy" }, &kind, entry);
            if codec == Codec::None {
                return;
            }
            let frame = if header.magic == 2 { &entry[HEADER_V2_BYTES..] } else { &entry[26 + 8 * usize::from(header.magic)..] };
            let legacy = if header.magic == 2 { 0 } else { 0x08 | header.magic << 4 };
            seeds.add("codec", &format!("v{}-{}", header.magic, codec.name()), &[&[(codec.bits() - 1) | legacy], frame].concat());
        });
    }
    for codec in 0..4_u8 {
        let text = b"what goes out comes back, what goes out comes back. ".repeat(4);
        seeds.add("codec", &format!("back-{codec}"), &[&[0x80 | codec], &text[..]].concat());
    }
}

/// Segments, indexes and snapshots.
fn files(seeds: &mut Seeds, dir: &Path) {
    let of_log = dir.file_name().unwrap().to_string_lossy().into_owned();
    for path in sorted_files(dir) {
        let Some(name) = numbered(&path) else { continue };
        let mut bytes = fs::read(&path).unwrap();
        if bytes.is_empty() {
            continue;
        }
        let log = fs::read(dir.join(FileName::live(name.number, FileKind::Log).to_string())).unwrap_or_default();
        match name.kind {
            FileKind::Log => {
                bytes.truncate(LOG_BYTES_MAX);
                seeds.add("scan", &of_log, &[&[3, 0], &bytes[..]].concat());
            }
            FileKind::OffsetIndex => index(seeds, "offset_index", &of_log, 8, &bytes, name.number, log.len()),
            FileKind::TimeIndex => index(seeds, "time_index", &of_log, 12, &bytes, name.number, log.len()),
            FileKind::TxnIndex => index(seeds, "txn_index", &of_log, 34, &bytes, name.number, log.len()),
            FileKind::Snapshot => seeds.add("snapshot", &format!("{}-producers", (bytes.len() - 10) / 46), &bytes),
        }
    }
}

/// A sound index of its segment, at most a few entries, with the numbers before it that the targets read.
fn index(seeds: &mut Seeds, target: &str, of_log: &str, entry_bytes: usize, bytes: &[u8], base: u64, log_bytes: usize) {
    let entries = (bytes.len() / entry_bytes).min(INDEX_ENTRIES_MAX);
    let span: u32 = 1 << 30;
    let mut seed = base.to_le_bytes().to_vec();
    seed.extend_from_slice(&span.to_le_bytes());
    seed.extend_from_slice(&(log_bytes as u32).to_le_bytes());
    seed.extend_from_slice(&(base + 100).to_le_bytes());
    seed.extend_from_slice(&bytes[..entries * entry_bytes]);
    if seeds.known.iter().filter(|known| known.starts_with(target)).count() < 8 {
        seeds.add(target, &format!("{of_log}-{entries}"), &seed);
    }
}

fn checkpoints(seeds: &mut Seeds, logs: &[PathBuf]) {
    for path in sorted_files(unpack(Set::Broker)) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.ends_with("-checkpoint") {
            seeds.add("checkpoint", &name, &fs::read(path).unwrap());
        }
    }
    for dir in logs {
        let path = dir.join("leader-epoch-checkpoint");
        if path.is_file() {
            let text = fs::read(path).unwrap();
            seeds.add("checkpoint", &format!("epochs-{}", text.len()), &text);
        }
    }
    seeds.add("checkpoint", "epochs-many", b"0\n4\n0 0\n1 17\n5 23\n6 1000000000000\n");
}

fn names(seeds: &mut Seeds) {
    let id = "0123456789abcdef0123456789abcdef";
    let all = [
        "orders-0".to_owned(),
        "__consumer_offsets-49".to_owned(),
        format!("a.b-c-3.{id}-delete"),
        format!("a-3.{id}-future"),
        format!("a-3.{id}-stray"),
        "00000000000000000042.log".to_owned(),
        "00000000000000000042.index.cleaned".to_owned(),
        "00000000000000000042.timeindex.swap".to_owned(),
        "09223372036854775807.txnindex.deleted".to_owned(),
        "00000000000000000042.snapshot".to_owned(),
        "../etc-0".to_owned(),
        "x".repeat(249) + "-2147483647",
    ];
    for (i, name) in all.iter().enumerate() {
        seeds.add("names", &format!("{i:02}"), name.as_bytes());
    }
}

/// One record of each key type and value version.
fn offset_records(seeds: &mut Seeds, logs: &[PathBuf]) {
    let mut decoder = Decoder::new(1 << 20);
    for dir in logs {
        let name = dir.file_name().unwrap().to_string_lossy();
        let topic = match name.rsplit_once('-') {
            Some(("__consumer_offsets", _)) => 0,
            Some(("__transaction_state", _)) => 1,
            _ => continue,
        };
        each_entry(dir, |header, entry| {
            if header.is_control() {
                return;
            }
            for record in decoder.records(entry).unwrap() {
                let record = record.unwrap();
                let (Some(key), value) = (record.key, record.value) else { continue };
                if key.len() > 255 || value.is_some_and(|value| value.len() > 600) {
                    continue;
                }
                let version = value.map_or(-1, |value| i16::from_be_bytes([value[0], value[1]]));
                let kind = format!("{topic}-key{}-value{version}", i16::from_be_bytes([key[0], key[1]]));
                let flags = topic | if value.is_some() { 2 } else { 0 };
                seeds.add("offset_records", &kind, &[&[flags, key.len() as u8], key, value.unwrap_or_default()].concat());
            }
        });
    }
}

/// Targets that read choices: any bytes do.
fn choices(seeds: &mut Seeds) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    for i in 0..12 {
        let bytes: Vec<u8> = (0..40 + 30 * i).map(|_| next()).collect();
        seeds.add("round_trip", &format!("{i:02}"), &bytes);
    }
    for i in 0..40 {
        let bytes: Vec<u8> = (0..96).map(|_| next()).collect();
        seeds.add("directory", &format!("{i:02}"), &bytes);
    }
}
