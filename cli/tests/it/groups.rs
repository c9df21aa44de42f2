//! `keeplog groups`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use keeplog::inspect::offsets::record::{GroupKey, GroupMember, GroupMetadata};
use keeplog::{Durability, Log, LogOptions, OffsetAndMetadata, OffsetOptions, OffsetStore, Record};
use keeplog_fixtures::{Set, dump_lines, unpack};
use serde_json::{Value, json};

use crate::harness::{Run, keeplog};

/// An offset store of one partition.
pub(crate) fn open(data: &Path) -> OffsetStore {
    OffsetStore::open(data, OffsetOptions::new().offsets_topic_num_partitions(1)).unwrap()
}

/// The bytes of a subscription to one topic.
fn subscription(topic: &str) -> Vec<u8> {
    [&[0, 0, 0, 0, 0, 1, 0, topic.len() as u8], topic.as_bytes(), &[0xFF; 4]].concat()
}

/// The bytes of an assignment of partition 0 of one topic.
fn assignment(topic: &str) -> Vec<u8> {
    [&[0, 0, 0, 0, 0, 1, 0, topic.len() as u8], topic.as_bytes(), &[0, 0, 0, 1, 0, 0, 0, 0], &[0xFF; 4]].concat()
}

/// Writes the record of a group of consumers with one member, which reads `topic`; or with none.
pub(crate) fn write_group(data: &Path, group: &str, topic: Option<&str>) {
    let (subscription, assignment) = (topic.map(subscription).unwrap_or_default(), topic.map(assignment).unwrap_or_default());
    let member = GroupMember {
        member_id: "m-1",
        client_id: "c",
        client_host: "/10.0.0.1",
        subscription: &subscription,
        assignment: &assignment,
        ..GroupMember::default()
    };
    let metadata = GroupMetadata {
        protocol_type: "consumer",
        generation: 3,
        protocol: topic.map(|_| "range"),
        leader: topic.map(|_| "m-1"),
        current_state_timestamp_ms: Some(1_700_000_000_000),
        members: topic.iter().map(|_| member).collect(),
    };
    let (mut key, mut value) = (Vec::new(), Vec::new());
    assert!(GroupKey::classic(group).encode(&mut key) && metadata.encode(&mut value));
    append(data, Record::new(key, value));
}

pub(crate) fn append(data: &Path, record: Record) {
    let log = Log::open(data.join("__consumer_offsets-0"), LogOptions::new()).unwrap();
    log.append(&[record], Durability::Buffered).unwrap();
    log.close().unwrap();
}

fn run(words: &[&str], dir: &Path) -> Run {
    keeplog(words.iter().map(AsRef::as_ref).chain([dir.as_os_str()]))
}

fn by_group(lines: Vec<Value>) -> BTreeMap<String, Value> {
    lines.into_iter().map(|line| (line["group"].as_str().unwrap().to_owned(), line)).collect()
}

#[test]
fn the_groups_that_a_broker_left_are_listed_with_those_that_only_committed() {
    let broker = unpack(Set::Broker);
    let listed = run(&["groups", "list", "--json"], broker);
    assert_eq!((listed.status, listed.stderr.as_str()), (0, ""));
    let listed = by_group(listed.json_lines());
    let committed = fs::read_to_string(broker.join("committed-offsets.tsv")).unwrap();
    let mut expected: Vec<&str> = committed.lines().skip(1).filter_map(|line| line.split('\t').next()).chain(["shared"]).collect();
    expected.sort_unstable();
    expected.dedup();
    assert_eq!(listed.keys().map(String::as_str).collect::<Vec<_>>(), expected);
    assert_eq!(
        listed["classic-one"],
        json!({"group": "classic-one", "type": "Classic", "state": "Empty", "protocol_type": "consumer", "members": 0, "offsets": 3})
    );
    assert_eq!([&listed["modern"]["type"], &listed["shared"]["type"], &listed["batch-0"]["type"]], ["Consumer", "Share", "Simple"]);

    let names = |words: &[&str]| {
        let lines = run(&[&["groups", "list", "--json"], words].concat(), broker).json_lines();
        lines.iter().map(|line| line["group"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&["--type", "classic,share"]), ["classic-one", "classic-two", "eos", "shared"]);
    assert_eq!(names(&["--type", "Consumer", "--state", "EMPTY"]), ["modern"]);
    assert_eq!(names(&["--pattern", "tool-?"]), ["tool-a", "tool-b"]);
    let none = run(&["groups", "list", "--state", "stable"], broker);
    assert_eq!((none.status, none.stdout.as_str()), (0, ""));
    assert!(none.stderr.contains("there is no group that is asked for"), "{}", none.stderr);
}

#[test]
fn the_lag_is_what_the_logs_beside_say() {
    let broker = unpack(Set::Broker);
    let lines = run(&["groups", "describe", "--json", "--group", "classic-one", "--group", "modern"], broker).json_lines();
    assert_eq!(lines.len(), 2);
    for line in &lines {
        let offsets = line["offsets"].as_array().unwrap();
        assert_eq!(offsets.len(), 3);
        for offset in offsets {
            let dump = dump_lines(broker.join(format!("orders-{}.jsonl", offset["partition"])));
            let end = dump.last().unwrap()["last"].as_u64().unwrap() + 1;
            assert_eq!((&offset["log_start_offset"], &offset["log_end_offset"]), (&json!(0), &json!(end)));
            assert_eq!(offset["lag"].as_u64().unwrap(), end - offset["offset"].as_u64().unwrap());
        }
    }
    // Of a partition directory whose data directory is known, the logs beside it count as well.
    let alone = run(&["groups", "describe", "--json", "--group", "modern"], &broker.join("__consumer_offsets-1")).json_lines();
    assert_eq!(alone, lines[1..]);
}

#[test]
fn e19_a_lag_counts_from_the_start_of_the_log_and_is_never_negative() {
    let scratch = tempfile::tempdir().unwrap();
    let data = scratch.path();
    let store = open(data);
    let log = store.store().log("orders", 0).unwrap();
    let records: Vec<Record> = (0..20).map(|i| Record::new(format!("k{i}"), "v")).collect();
    log.append(&records, Durability::Buffered).unwrap();
    let commit = |group: &str, offset| store.commit(group, &[("orders", 0, OffsetAndMetadata::new(offset))]).unwrap();
    commit("trimmed", 5);
    commit("inside", 15);
    commit("ahead", 25);
    store.commit("elsewhere", &[("gone", 0, OffsetAndMetadata::new(1)), ("../orders", 0, OffsetAndMetadata::new(1))]).unwrap_err();
    store.commit("elsewhere", &[("gone", 0, OffsetAndMetadata::new(1))]).unwrap();
    log.advance_start(10).unwrap();
    store.close().unwrap();
    let lag = |group: &str| run(&["groups", "describe", "--json", "--group", group], data).json_lines()[0]["offsets"][0]["lag"].clone();
    assert_eq!(["trimmed", "inside", "ahead"].map(lag), [10, 5, 0]);
    assert_eq!(lag("elsewhere"), Value::Null, "its log is not here");
    let text = run(&["groups", "describe", "--group", "elsewhere"], data).stdout;
    assert_eq!(text.lines().nth(2).unwrap().split_whitespace().collect::<Vec<_>>(), ["gone", "0", "1", "-", "-"]);

    let store = open(data);
    store.store().log("orders", 0).unwrap().advance_start(20).unwrap();
    store.close().unwrap();
    assert_eq!(["trimmed", "inside", "ahead"].map(lag), [0, 0, 0], "an empty log leaves nothing to read");
}

#[test]
fn the_end_of_a_log_is_found_whatever_its_index_says() {
    let scratch = tempfile::tempdir().unwrap();
    let data = scratch.path();
    let store = open(data);
    let log = store.store().log("orders", 0).unwrap();
    for i in 0..40 {
        log.append(&[Record::new(format!("k{i}"), vec![7; 1_000])], Durability::Buffered).unwrap();
    }
    store.commit("g", &[("orders", 0, OffsetAndMetadata::new(1))]).unwrap();
    store.close().unwrap();
    let end = || run(&["groups", "describe", "--json"], data).json_lines()[0]["offsets"][0]["log_end_offset"].clone();
    let (file, index) = (data.join("orders-0/00000000000000000000.log"), data.join("orders-0/00000000000000000000.index"));
    let (log, entries) = (fs::read(&file).unwrap(), fs::read(&index).unwrap());
    assert!(entries.len() >= 5 * 8, "{} bytes of index", entries.len());
    assert_eq!(end(), 40);
    // With the room that an active segment has, with positions inside of batches, behind the end, and without a file.
    let room = [&entries[..], &[0; 800]].concat();
    let inside: Vec<u8> = entries.chunks_exact(8).flat_map(|entry| [&entry[..7], &[entry[7] ^ 5]].concat()).collect();
    let behind = [&entries[..], &[0, 0, 0, 50, 0x7F, 0xFF, 0xFF, 0xFF]].concat();
    for changed in [room, inside, behind, vec![0xFF; 803], Vec::new()] {
        fs::write(&index, &changed).unwrap();
        assert_eq!(end(), 40, "{changed:?}");
    }
    fs::remove_file(&index).unwrap();
    assert_eq!(end(), 40);
    // What recovery would cut off does not count.
    let batch_bytes = 12 + usize::try_from(u32::from_be_bytes(*log[8..].first_chunk().unwrap())).unwrap();
    let tails: [&[u8]; 3] = [&log[..500], &log[..batch_bytes], &[0; 100]];
    let tails = tails.map(|tail| [&log[..], tail].concat());
    for torn in tails.iter().map(Vec::as_slice).chain([&log[..log.len() - 1]]) {
        fs::write(&file, torn).unwrap();
        for index_bytes in [&entries[..], &[]] {
            fs::write(&index, index_bytes).unwrap();
            assert_eq!(end(), if torn.len() < log.len() { 39 } else { 40 });
        }
    }
    fs::write(&file, b"").unwrap();
    assert_eq!(end(), 0);
}

#[test]
fn members_are_shown_with_what_they_have() {
    let scratch = tempfile::tempdir().unwrap();
    let store = open(scratch.path());
    store.commit("g", &[("t", 0, OffsetAndMetadata::new(7)), ("u", 0, OffsetAndMetadata::new(8))]).unwrap();
    store.close().unwrap();
    write_group(scratch.path(), "g", Some("t"));
    let line = run(&["groups", "describe", "--json"], scratch.path()).json_lines().remove(0);
    assert_eq!((&line["state"], &line["epoch"], &line["protocol"]), (&json!("Stable"), &json!(3), &json!("range")));
    assert_eq!(
        line["members"][0],
        json!({"member_id": "m-1", "instance_id": null, "client_id": "c", "host": "/10.0.0.1", "topics": ["t"],
               "assignment": [{"topic": "t", "partitions": [0]}]})
    );
    assert_eq!((&line["offsets"][0]["member_id"], &line["offsets"][1]["member_id"]), (&json!("m-1"), &Value::Null));
    let text = run(&["groups", "describe"], scratch.path()).stdout;
    assert!(
        text.starts_with("g: Classic, Stable, consumer (range), generation 3 since 2023-11-14 22:13:20 UTC, 1 member, 2 offsets\n"),
        "{text}"
    );
    assert!(text.contains("t(0)"), "{text}");
}

#[test]
fn a_group_that_cannot_be_read_is_told_and_the_others_are_shown() {
    let scratch = tempfile::tempdir().unwrap();
    let store = open(scratch.path());
    store.commit("sound", &[("t", 0, OffsetAndMetadata::new(7))]).unwrap();
    store.close().unwrap();
    append(scratch.path(), Record::new(vec![0, 2, 0, 1, b'g'], vec![0xFF, 0xFF]));
    append(scratch.path(), Record::new(vec![0, 2, 0, 9, b'g'], vec![0, 3]));
    let run = run(&["groups", "list", "--json"], scratch.path());
    assert_eq!(run.status, 1);
    for said in ["1 record of groups cannot be read", "offset 1 (type 2, group \"g\")", "1 record has a key of a group that cannot be read"]
    {
        assert!(run.stderr.contains(said), "{}", run.stderr);
    }
    let list = keeplog(["offsets".as_ref(), "list".as_ref(), scratch.path().as_os_str()]);
    assert_eq!((list.status, &*list.stderr), (0, ""), "what is committed does not depend on it");
    let states = by_group(run.json_lines());
    assert_eq!((&states["g"]["state"], &states["sound"]["state"]), (&json!("Unknown"), &json!("Empty")));
    keeplog(["groups".as_ref(), "delete".as_ref(), "--group".as_ref(), "g".as_ref(), scratch.path().as_os_str()])
        .assert_refused(&["could not delete group g: its record cannot be read"]);
}

#[test]
fn a_deleted_group_leaves_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let data = scratch.path();
    let store = open(data);
    for group in ["g", "h"] {
        store.commit(group, &[("t", 0, OffsetAndMetadata::new(7)), ("u", 0, OffsetAndMetadata::new(8))]).unwrap();
    }
    store.close().unwrap();
    write_group(data, "g", None);
    write_group(data, "busy", Some("t"));
    let before = run(&["groups", "describe", "--json"], data).stdout;
    for refused in [&["--group", "g", "--group", "nobody"], &["--group", "g", "--group", "busy"]] {
        let run = run(&[&["groups", "delete"], &refused[..]].concat(), data);
        run.assert_refused(&["could not delete group", "nothing was changed"]);
    }
    let dry = run(&["groups", "delete", "--dry-run", "--json", "--group", "g"], data);
    assert_eq!(dry.json_lines(), [json!({"group": "g", "offsets": 2, "records": 1, "dry_run": true})]);
    assert_eq!(run(&["groups", "describe", "--json"], data).stdout, before);

    let deleted = run(&["groups", "delete", "--json", "--group", "g"], data);
    assert_eq!(deleted.json_lines(), [json!({"group": "g", "offsets": 2, "records": 1, "dry_run": false})]);
    let left = by_group(run(&["groups", "list", "--json"], data).json_lines());
    assert_eq!(left.keys().collect::<Vec<_>>(), ["busy", "h"]);
    let store = open(data);
    assert_eq!((store.fetch_all("g").unwrap().len(), store.fetch_all("h").unwrap().len()), (0, 2));
}
