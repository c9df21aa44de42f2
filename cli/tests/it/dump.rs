//! `keeplog dump`.

use std::fs;
use std::path::Path;

use keeplog_fixtures::{Set, cases, unpack};

use crate::harness::keeplog;

/// Compares a dump of `dir` with the lines of Kafka's parser, character for character.
#[track_caller]
fn assert_dump_equals(dir: &Path, expected: &Path) {
    let run = keeplog(["dump".as_ref(), "--json".as_ref(), dir.as_os_str()]);
    assert_eq!((run.status, run.stderr.as_str()), (0, ""), "{}", dir.display());
    let expected = fs::read_to_string(expected).unwrap();
    for (number, (ours, theirs)) in run.stdout.lines().zip(expected.lines()).enumerate() {
        assert_eq!(ours, theirs, "{} line {}", dir.display(), number + 1);
    }
    assert_eq!(run.stdout.lines().count(), expected.lines().count(), "{}", dir.display());
}

/// Each directory of a set that has a dump beside it.
fn dumped(root: &Path) -> Vec<(std::path::PathBuf, std::path::PathBuf)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root).unwrap() {
        let dir = entry.unwrap().path();
        let dump = root.join(format!("{}.jsonl", dir.file_name().unwrap().to_str().unwrap()));
        if dir.is_dir() && dump.is_file() {
            found.push((dir, dump));
        }
    }
    assert!(!found.is_empty());
    found
}

#[test]
fn the_partitions_of_a_broker_dump_as_kafka_reads_them() {
    for (dir, expected) in dumped(unpack(Set::Broker)) {
        assert_dump_equals(&dir, &expected);
    }
}

#[test]
fn logs_before_and_after_cleaning_dump_as_kafka_reads_them() {
    for case in cases(Set::Cleaned) {
        for (dir, expected) in dumped(&case) {
            assert_dump_equals(&dir, &expected);
        }
    }
}

#[test]
fn old_formats_dump_as_kafka_reads_them() {
    for case in cases(Set::Legacy) {
        for (dir, expected) in dumped(&case) {
            assert_dump_equals(&dir, &expected);
        }
    }
}
