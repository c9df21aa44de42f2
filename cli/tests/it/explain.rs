//! `keeplog explain`: what it says is what a pass then does, and what is in the log.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use keeplog::inspect::record::{BatchSpec, BatchWriter};
use keeplog::{Durability, Log, LogOptions, OffsetAndMetadata, OffsetOptions, OffsetStore, Record, TransactionEnd, TxnResult};
use keeplog_fixtures::{Set, cases, copy_dir, json, unpack};
use serde_json::Value;

use crate::harness::{in_parallel, keeplog};

const NOW_MS: i64 = 1_760_000_000_000;

fn copy_of(partition: &Path) -> (tempfile::TempDir, PathBuf) {
    let data = tempfile::tempdir().unwrap();
    let dir = data.path().join("t-0");
    copy_dir(partition, &dir);
    (data, dir)
}

fn explain(dir: &Path, more: &[&str]) -> Value {
    let run = keeplog(["explain", "--json", dir.to_str().unwrap()].into_iter().chain(more.iter().copied()));
    assert_eq!(run.status, 0, "{}", run.stderr);
    run.json_lines().remove(0)
}

/// Every record by a plain reading: batches with their bytes, and the keys (hex) of their records.
struct Replay {
    records: u64,
    bytes: u64,
    /// Records and, of keys that have their batches to themselves, bytes.
    keys: BTreeMap<String, u64>,
}

fn replay(dir: &Path) -> Replay {
    let mut found = Replay { records: 0, bytes: 0, keys: BTreeMap::new() };
    let run = keeplog(["dump".as_ref(), "--json".as_ref(), dir.as_os_str()]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    for batch in run.json_lines() {
        found.bytes += batch["bytes"].as_u64().unwrap();
        for record in batch["records"].as_array().unwrap() {
            found.records += 1;
            if let (Some(key), Some(false)) = (record["k"].as_str(), batch["control"].as_bool()) {
                *found.keys.entry(key.to_owned()).or_default() += 1;
            }
        }
    }
    found
}

/// What is said of a log must be what a plain reading counts, and what a pass does.
fn assert_told_as_it_is(dir: &Path, label: &str, retention_ms: &str) {
    let state = |dir: &Path| {
        let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        files.map(|path| (fs::read(&path).unwrap(), path)).collect::<BTreeMap<_, _>>()
    };
    let was = state(dir);
    let now = NOW_MS.to_string();
    let told = explain(dir, &["--now", &now, "--delete-retention-ms", retention_ms]);
    assert!(state(dir) == was, "{label}: a file was changed");

    let before = replay(dir);
    let keys = &told["keys"];
    let sum = |field: &str| ["keyed", "keyless", "others"].iter().map(|part| keys[part][field].as_u64().unwrap()).sum::<u64>();
    assert_eq!((sum("records"), sum("bytes")), (before.records, before.bytes), "{label}");
    assert_eq!((&keys["exact"], &keys["distinct"]), (&true.into(), &before.keys.len().into()), "{label}");
    let top = keys["top"].as_array().unwrap();
    assert_eq!(top.len(), before.keys.len().min(20), "{label}");
    assert!(top.is_sorted_by_key(|key| std::cmp::Reverse(key["bytes"].as_u64())), "{label}");
    for key in top {
        assert_eq!(key["records"].as_u64(), before.keys.get(key["key_hex"].as_str().unwrap()).copied(), "{label}: {key}");
    }

    let dir_text = dir.to_str().unwrap();
    let run = keeplog(["compact", "--json", "--now", &now, "--delete-retention-ms", retention_ms, dir_text]);
    assert_eq!(run.status, 0, "{label}: {}", run.stderr);
    let did = run.json_lines().remove(0);
    let after = replay(dir);
    let pass = &told["pass"];
    if pass.is_null() {
        assert_eq!((did["segments_before"].as_u64(), after.bytes), (Some(0), before.bytes), "{label}");
        return;
    }
    assert_eq!(pass["records_dropped"].as_u64(), Some(before.records - after.records), "{label}: {pass}");
    assert_eq!(pass["bytes_dropped"].as_u64(), Some(before.bytes - after.bytes), "{label}: {pass}");
    for (of_pass, of_compact) in [
        ("new_dirty", "new_dirty"),
        ("bytes_read", "bytes_read"),
        ("bytes_kept", "bytes_kept"),
        ("bytes_written", "bytes_written"),
        ("records_kept", "records_kept"),
        ("map_size", "map_size"),
    ] {
        assert_eq!(pass[of_pass], did[of_compact], "{label} {of_pass}");
    }
    assert_eq!(told["dirt"]["first_uncleanable"], did["first_uncleanable"], "{label}");
}

#[test]
fn of_the_fixtures_it_says_what_a_pass_does() {
    in_parallel(cases(Set::Cleaned).into_iter().chain(cases(Set::Legacy)).collect(), |case_dir: PathBuf| {
        let (_data, dir) = copy_of(&case_dir.join("before1"));
        let retention_ms = json(case_dir.join("case.json"))["delete.retention.ms"].to_string();
        assert_told_as_it_is(&dir, &case_dir.display().to_string(), &retention_ms);
    });
}

/// A few hundred records of a few keys, some of them in transactions, of which one may stay open.
fn random_log(dir: &Path, seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let log = Log::open(dir, LogOptions::new().segment_bytes(4096)).unwrap();
    let mut writer = BatchWriter::new();
    for sequence in 0..60 {
        let records: Vec<(String, Option<String>)> =
            (0..=below(8)).map(|_| (format!("key-{}", below(30)), (below(5) > 0).then(|| "v".repeat(below(200) as usize)))).collect();
        if below(3) > 0 {
            let records: Vec<Record> = records
                .into_iter()
                .map(|(key, value)| value.map_or_else(|| Record::tombstone(key.clone()), |value| Record::new(key.clone(), value)))
                .collect();
            log.append(&records, Durability::Buffered).unwrap();
            continue;
        }
        let spec = BatchSpec { producer_id: sequence, producer_epoch: 0, base_sequence: 0, transactional: true, ..BatchSpec::default() };
        writer.begin(spec);
        for (i, (key, value)) in records.iter().enumerate() {
            writer.push(i as u64, NOW_MS - 1000, Some(key.as_bytes()), value.as_deref().map(str::as_bytes), &[]).unwrap();
        }
        let mut batch = Vec::new();
        writer.finish(&mut batch).unwrap();
        log.append_batch(batch, Durability::Buffered).unwrap();
        if sequence < 40 || below(4) > 0 {
            let result = if below(2) == 0 { TxnResult::Aborted } else { TxnResult::Committed };
            let end = TransactionEnd { producer_id: sequence, producer_epoch: 0, result, coordinator_epoch: 0 };
            log.end_transaction(&end, Durability::Buffered).unwrap();
        }
    }
    log.close().unwrap();
}

#[test]
fn of_random_logs_it_says_what_a_pass_does() {
    in_parallel((0..24).collect(), |seed| {
        let data = tempfile::tempdir().unwrap();
        let dir = data.path().join("t-0");
        random_log(&dir, seed);
        assert_told_as_it_is(&dir, &format!("seed {seed}"), if seed % 2 == 0 { "0" } else { "86400000" });
    });
}

#[test]
fn what_blocks_a_pass_is_named() {
    let data = tempfile::tempdir().unwrap();
    let dir = data.path().join("t-0");
    let log = Log::open(&dir, LogOptions::new()).unwrap();
    log.append(&[Record::new("a", "1"), Record::new("a", "2")], Durability::Buffered).unwrap();
    log.roll().unwrap();
    let spec = BatchSpec { producer_id: 4711, producer_epoch: 2, base_sequence: 0, transactional: true, ..BatchSpec::default() };
    let mut writer = BatchWriter::new();
    writer.begin(spec);
    writer.push(0, NOW_MS - 60_000, Some(b"b"), Some(b"1"), &[]).unwrap();
    let mut batch = Vec::new();
    writer.finish(&mut batch).unwrap();
    log.append_batch(batch, Durability::Buffered).unwrap();
    log.close().unwrap();

    let now = NOW_MS.to_string();
    let told = explain(&dir, &["--now", &now]);
    let kinds: Vec<_> = told["blocked_by"].as_array().unwrap().iter().map(|blocker| blocker["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["policy", "open-transaction", "active-segment"]);
    let transaction = &told["blocked_by"][1];
    for (field, value) in [("offset", 2), ("producer_id", 4711), ("producer_epoch", 2), ("since_ms", NOW_MS - 60_000)] {
        assert_eq!(transaction[field], value, "{field}");
    }
    let text = keeplog(["explain", "--now", &now, dir.to_str().unwrap()]);
    for said in
        ["a transaction of producer 4711 (epoch 2) is open, begun 2025-10-09 08:52:20 UTC (60 s ago)", "drops     1 of 2 records", "\"a\""]
    {
        assert!(text.stdout.contains(said), "{said:?} is not in {}", text.stdout);
    }
    assert!(!data.path().join(".lock").exists() || fs::metadata(data.path().join(".lock")).unwrap().len() == 0);

    let lag = explain(&dir, &["--min-compaction-lag-ms", "1000"]);
    assert_eq!((&lag["blocked_by"][1]["kind"], &lag["dirt"]["due"]), (&"compaction-lag".into(), &"nothing-cleanable".into()));
    let compacted = keeplog(["compact", dir.to_str().unwrap()]);
    assert_eq!(compacted.status, 0, "{}", compacted.stderr);
    let told = explain(&dir, &[]);
    assert_eq!((&told["known_compacted"], &told["dirt"]["checkpoint"]), (&true.into(), &2.into()));
    assert_eq!((&told["pass"], &told["dirt"]["due"]), (&Value::Null, &"clean".into()));
}

#[test]
fn a_damaged_log_is_said_to_be_and_its_keys_are_counted_as_far_as_they_can_be_read() {
    let (_data, dir) = copy_of(&unpack(Set::Recovery).join("17-sealed-bit-below-recovery-point/before"));
    let run = keeplog(["explain".as_ref(), "--json".as_ref(), dir.as_os_str()]);
    assert_eq!(run.status, 1, "{}", run.stderr);
    let told = run.json_lines().remove(0);
    assert_eq!((&told["blocked_by"][0]["kind"], &told["dirt"], &told["pass"]), (&"damage".into(), &Value::Null, &Value::Null));
    assert!(told["keys"]["unread_bytes"].as_u64() > Some(0) && told["keys"]["keyed"]["records"].as_u64() > Some(0), "{told}");
    assert!(run.stderr.contains("could not be read"), "{}", run.stderr);
}

#[test]
fn keys_of_commits_are_shown_as_group_topic_and_partition() {
    let data = tempfile::tempdir().unwrap();
    let store = OffsetStore::open(data.path(), OffsetOptions::new()).unwrap();
    for i in 0..30 {
        store.commit("billing", &[("orders", 3, OffsetAndMetadata::new(i))]).unwrap();
    }
    store.close().unwrap();
    let run = keeplog(["explain".as_ref(), data.path().as_os_str()]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(run.stdout.contains("30  billing/orders/3"), "{}", run.stdout);
    let told: Vec<Value> = keeplog(["explain".as_ref(), "--json".as_ref(), data.path().as_os_str()]).json_lines();
    assert!(told.iter().any(|partition| partition["keys"]["top"][0]["key"] == "billing/orders/3"), "{told:?}");
}
