//! `keeplog inspect`.

use std::collections::HashSet;

use keeplog_fixtures::{Set, cases, dump_lines, unpack};
use serde_json::Value;

use crate::harness::keeplog;

fn inspect(dir: &std::path::Path) -> Value {
    let run = keeplog(["inspect".as_ref(), "--json".as_ref(), dir.as_os_str()]);
    assert_eq!((run.status, run.stderr.as_str()), (0, ""), "{}", dir.display());
    run.json_lines().remove(0)
}

#[test]
fn the_sums_are_those_of_the_dump() {
    for name in ["codecs-0", "txn-0", "__consumer_offsets-1"] {
        let report = inspect(&unpack(Set::Broker).join(name));
        let batches = dump_lines(unpack(Set::Broker).join(format!("{name}.jsonl")));
        assert_eq!(report["batches"], batches.len());
        let records = batches.iter().map(|batch| batch["records"].as_array().unwrap().len()).sum::<usize>();
        assert_eq!(report["records"], records);
        assert_eq!(report["bytes"], batches.iter().map(|batch| batch["bytes"].as_u64().unwrap()).sum::<u64>());
        assert_eq!(report["end_offset"], batches.last().unwrap()["last"].as_u64().unwrap() + 1);
        assert_eq!(report["control_batches"], batches.iter().filter(|batch| batch["control"] == true).count());
        let largest =
            batches.iter().flat_map(|batch| batch["records"].as_array().unwrap()).map(|record| record["t"].as_i64().unwrap()).max();
        let segments = report["segments"].as_array().unwrap();
        assert_eq!(segments.iter().map(|segment| segment["max_timestamp"].as_i64().unwrap()).max(), largest);
        assert_eq!(report["checkpoints"]["recovery_point"], report["end_offset"]);
        assert_eq!(report["topic_id"].as_str().unwrap().len(), 22);
    }
}

#[test]
fn the_newest_record_of_each_key_is_live() {
    // Without transactions and keyless records the rule is short.
    for case in cases(Set::Cleaned).into_iter().filter(|case| case.to_str().unwrap().ends_with(['0', '8'])) {
        let batches = dump_lines(case.join("before1.jsonl"));
        if batches.iter().any(|batch| batch["txn"] == true) {
            continue;
        }
        let records: Vec<&Value> = batches.iter().flat_map(|batch| batch["records"].as_array().unwrap()).collect();
        let keys: HashSet<&str> = records.iter().filter_map(|record| record["k"].as_str()).collect();
        let keyless = records.iter().filter(|record| record["k"].is_null()).count();
        let report = inspect(&case.join("before1"));
        assert_eq!((&report["keys"], &report["live_records"]), (&keys.len().into(), &(keys.len() + keyless).into()), "{}", case.display());
    }
}

#[test]
fn producers_and_their_open_transactions_are_shown() {
    let report = inspect(&unpack(Set::Broker).join("txn-0"));
    let producers = report["producers"].as_array().unwrap();
    assert_eq!(producers.iter().map(|producer| producer["id"].as_i64().unwrap()).collect::<Vec<_>>(), [5, 6, 7]);
    assert!(producers.iter().all(|producer| producer["open_txn_first_offset"].is_null()));
    assert_eq!((&producers[0]["last_sequence"], &producers[0]["last_offset"]), (&149.into(), &502.into()));
    assert_eq!(report["aborted_records"], 90);

    let open = inspect(&unpack(Set::Recovery).join("01-untouched/before"));
    let first = open["producers"].as_array().unwrap().iter().filter_map(|producer| producer["open_txn_first_offset"].as_u64()).min();
    assert_eq!(first, Some(340), "the last stable offset that Kafka gave");
}

#[test]
fn damage_is_reported_beside_what_could_be_read() {
    let run = keeplog(["inspect".as_ref(), "--json".as_ref(), unpack(Set::Recovery).join("15-sealed-cut/before").as_os_str()]);
    assert_eq!(run.status, 1);
    assert!(run.stderr.contains("00000000000000000091.log at byte 8031") && run.stderr.contains("keeplog verify"), "{}", run.stderr);
    let report = run.json_lines().remove(0);
    assert!(report["segments"][1]["damage"].is_string());
    assert_eq!(report["end_offset"], 383);
}

#[test]
fn the_picture_is_ascii_where_the_locale_is() {
    let dir = unpack(Set::Cleaned).join("007/before2");
    let ascii = keeplog(["inspect".as_ref(), dir.as_os_str()]).stdout;
    assert!(ascii.is_ascii() && ascii.contains("###"), "{ascii}");
    let output = crate::harness::command(["inspect".as_ref(), dir.as_os_str()]).env("LC_ALL", "C.UTF-8").output().unwrap();
    assert!(crate::harness::finish(output).stdout.contains("██"));
}
