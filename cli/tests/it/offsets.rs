//! `keeplog offsets`, and the decoded dump.

use std::fs;

use keeplog::{Durability, Log, LogOptions, OffsetAndMetadata, OffsetOptions, OffsetStore, Record};
use keeplog_fixtures::{Set, copy_dir, unpack};
use serde_json::Value;

use crate::harness::keeplog;

fn expected() -> String {
    fs::read_to_string(unpack(Set::Broker).join("committed-offsets.tsv")).unwrap()
}

#[test]
fn the_list_is_what_the_live_broker_answered() {
    let run = keeplog(["offsets".as_ref(), "list".as_ref(), "--tsv".as_ref(), unpack(Set::Broker).as_os_str()]);
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    assert_eq!(run.stdout, expected());
}

#[test]
fn all_forms_of_the_list_say_the_same() {
    let rows: Vec<Vec<String>> = expected().lines().skip(1).map(|line| line.split('\t').map(str::to_owned).collect()).collect();
    let json = keeplog(["offsets".as_ref(), "list".as_ref(), "--json".as_ref(), unpack(Set::Broker).as_os_str()]).json_lines();
    let text =
        |value: &Value| value.as_str().map_or_else(|| if value.is_null() { "-".to_owned() } else { value.to_string() }, str::to_owned);
    let columns = ["group", "topic", "partition", "offset", "leader_epoch", "metadata"];
    let listed: Vec<Vec<String>> = json.iter().map(|line| columns.iter().map(|column| text(&line[*column])).collect()).collect();
    assert_eq!(listed, rows);

    let table = keeplog(["offsets".as_ref(), "list".as_ref(), unpack(Set::Broker).as_os_str()]).stdout;
    assert_eq!(table.lines().count(), 1 + rows.len());
    assert!(table.starts_with("group"));
}

#[test]
fn one_group_is_found_in_its_partition() {
    let broker = unpack(Set::Broker);
    for group in ["batch-10", "classic-one"] {
        let expected: Vec<String> = expected().lines().filter(|line| line.split('\t').next() == Some(group)).map(str::to_owned).collect();
        let run = keeplog(["offsets".as_ref(), "get".as_ref(), "--json".as_ref(), broker.as_os_str(), group.as_ref()]);
        assert_eq!((run.status, run.json_lines().len()), (0, expected.len()), "{group}");
        assert!(run.json_lines().iter().all(|line| line["group"] == *group));
    }
    let nobody = keeplog(["offsets".as_ref(), "get".as_ref(), broker.as_os_str(), "nobody".as_ref()]);
    assert_eq!((nobody.status, nobody.stdout.as_str()), (0, "group nobody has committed nothing\n"));
    let nobody = keeplog(["offsets".as_ref(), "get".as_ref(), "--json".as_ref(), broker.as_os_str(), "nobody".as_ref()]);
    assert_eq!((nobody.status, nobody.stdout.as_str()), (0, ""));
}

#[test]
fn a_single_partition_lists_its_groups_only() {
    let partitions: Vec<String> = (0..4).map(|i| format!("__consumer_offsets-{i}")).collect();
    let count = |name: &str| {
        keeplog(["offsets".as_ref(), "list".as_ref(), "--json".as_ref(), unpack(Set::Broker).join(name).as_os_str()]).json_lines().len()
    };
    assert_eq!(partitions.iter().map(|name| count(name)).sum::<usize>(), expected().lines().count() - 1);
}

#[test]
fn other_logs_are_no_lists_of_offsets() {
    let scratch = tempfile::tempdir().unwrap();
    copy_dir(unpack(Set::Broker).join("orders-0"), scratch.path().join("orders-0"));
    keeplog(["offsets".as_ref(), "list".as_ref(), scratch.path().as_os_str()])
        .assert_refused(&["could not find a partition of __consumer_offsets"]);
    let orders = keeplog(["offsets".as_ref(), "list".as_ref(), scratch.path().join("orders-0").as_os_str()]);
    orders.assert_refused(&["none of its 1000 records is a commit", "what to do"]);
}

#[test]
fn an_empty_list_says_why() {
    let data = tempfile::tempdir().unwrap();
    let store = OffsetStore::open(data.path(), OffsetOptions::new().offsets_topic_num_partitions(1)).unwrap();
    let list = |said: &[&str]| {
        let run = keeplog(["offsets".as_ref(), "list".as_ref(), "--json".as_ref(), data.path().as_os_str()]);
        assert_eq!((run.status, run.stdout.as_str()), (0, ""), "{}", run.stderr);
        for text in said {
            assert!(run.stderr.contains(text), "{text:?} is not in {}", run.stderr);
        }
    };
    list(&["nothing is committed", "no record of a commit"]);
    store.commit("billing", &[("orders", 3, OffsetAndMetadata::new(1))]).unwrap();
    store.delete_group("billing").unwrap();
    store.close().unwrap();
    list(&["nothing is committed", "is deleted"]);
    // A type of record that no version knows yet.
    let log = Log::open(data.path().join("__consumer_offsets-0"), LogOptions::new()).unwrap();
    log.append(&[Record::new(vec![0x7f, 0x01, 1, 2, 3], "?")], Durability::Buffered).unwrap();
    log.close().unwrap();
    list(&["nothing is committed", "passed over 1 record of types"]);
}

#[test]
fn damage_is_told_and_the_rest_is_listed() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("__consumer_offsets-0");
    copy_dir(unpack(Set::Broker).join("__consumer_offsets-0"), &dir);
    let log = dir.join("00000000000000000000.log");
    let mut bytes = fs::read(&log).unwrap();
    bytes[4300] ^= 1;
    fs::write(&log, bytes).unwrap();
    let run = keeplog(["offsets".as_ref(), "list".as_ref(), "--tsv".as_ref(), dir.as_os_str()]);
    assert_eq!(run.status, 1);
    assert!(run.stderr.contains("at byte 4241 (offset 1)") && run.stderr.contains("missing from the answer"), "{}", run.stderr);
    assert!(run.stdout.lines().count() > 10);
}

/// No checksum covers it, and the order tells what counts.
#[test]
fn a_batch_with_a_wrong_offset_is_told_and_left_out() {
    let whole = unpack(Set::Broker).join("__consumer_offsets-0");
    // The second batch, which holds offset 1: where the first one was, and behind what its segment can hold.
    for (byte, said) in [(7, "offset 0 was there before"), (3, "its segment holds offsets 0 to")] {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("__consumer_offsets-0");
        copy_dir(&whole, &dir);
        let log = dir.join("00000000000000000000.log");
        let mut bytes = fs::read(&log).unwrap();
        bytes[4241 + byte] ^= 1;
        fs::write(&log, bytes).unwrap();
        let run = keeplog(["offsets".as_ref(), "list".as_ref(), "--tsv".as_ref(), dir.as_os_str()]);
        assert_eq!(run.status, 1, "{}", run.stderr);
        for said in [said, "at byte 4241", "missing from the answer"] {
            assert!(run.stderr.contains(said), "{}", run.stderr);
        }
        assert!(run.stdout.lines().count() > 10);
    }
}

#[test]
fn decoded_dumps_show_every_record_of_the_coordinators() {
    for (what, topic, partitions) in [("offsets", "__consumer_offsets", 4), ("transactions", "__transaction_state", 2)] {
        let run = keeplog(["dump".as_ref(), "--json".as_ref(), "--decode".as_ref(), what.as_ref(), unpack(Set::Broker).as_os_str()]);
        assert_eq!((run.status, run.stderr.as_str()), (0, ""));
        let lines = run.json_lines();
        assert!(lines.iter().all(|line| line["file"].as_str().unwrap().starts_with(topic)));
        let known = |line: &&Value| {
            line["control"].is_string() || line["key"]["name"].is_string() && (line["value"].is_null() || line["value"]["data"].is_object())
        };
        assert_eq!(lines.iter().filter(known).count(), lines.len());
        let kafka: usize = (0..partitions)
            .map(|i| fs::read_to_string(unpack(Set::Broker).join(format!("{topic}-{i}.kafka-dump.txt"))).unwrap())
            .map(|text| text.lines().filter(|line| line.starts_with("| offset:")).count())
            .sum();
        assert_eq!(lines.len(), kafka, "{what}");

        let text = keeplog(["dump".as_ref(), "--decode".as_ref(), what.as_ref(), unpack(Set::Broker).as_os_str()]);
        assert_eq!(text.stdout.lines().count(), lines.len() + partitions);
    }
}
