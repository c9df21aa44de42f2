//! `keeplog verify`: what Kafka wrote is sound, and every kind of damage is found and named.

use std::fs;
use std::path::Path;

use keeplog_fixtures::{Set, cases, copy_dir, unpack};
use serde_json::Value;

use crate::harness::{Run, keeplog};

fn verify(dir: &Path) -> Run {
    keeplog(["verify".as_ref(), "--json".as_ref(), dir.as_os_str()])
}

/// Severity and code of all findings, in order, each once.
fn codes(run: &Run) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut found: Vec<_> = run.json_lines().iter().flat_map(|report| report["findings"].as_array().unwrap().clone()).collect();
    for finding in &found {
        assert!(!text(&finding["message"]).is_empty() && !text(&finding["advice"]).is_empty());
    }
    let mut codes: Vec<_> = found.drain(..).map(|finding| (text(&finding["severity"]), text(&finding["code"]))).collect();
    codes.dedup();
    codes
}

#[test]
fn everything_that_a_broker_left_is_sound() {
    let run = verify(unpack(Set::Broker));
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    let reports = run.json_lines();
    assert_eq!(reports.len(), 16);
    assert!(reports.iter().all(|report| report["findings"] == Value::Array(Vec::new())), "{}", run.stdout);
}

#[test]
fn logs_before_and_after_cleaning_are_sound() {
    let expected = ["gap", "index-preallocated", "leftover-deleted", "snapshot-stray"];
    for case in cases(Set::Cleaned).into_iter().chain(cases(Set::Legacy)) {
        for round in ["before1", "after1", "before2", "after2", "before3", "after3"] {
            let dir = case.join(round);
            if dir.is_dir() {
                let run = verify(&dir);
                assert_eq!(run.status, 0, "{}: {}", dir.display(), run.stdout);
                let unexpected: Vec<_> = codes(&run).into_iter().filter(|(_, code)| !expected.contains(&code.as_str())).collect();
                assert_eq!(unexpected, [], "{}", dir.display());
            }
        }
    }
}

#[test]
fn a_log_of_a_killed_broker_is_sound() {
    let run = verify(&unpack(Set::Killed).join("before"));
    assert_eq!(run.status, 0);
    assert_eq!(codes(&run), [("note".to_owned(), "index-preallocated".to_owned())]);
}

#[test]
fn each_damaged_directory_is_found_out() {
    let expected: &[(&str, i32, &[&str])] = &[
        ("01-untouched", 0, &[]),
        ("02-active-cut-in-batch", 1, &["torn-tail"]),
        ("03-active-cut-in-header", 1, &["torn-tail"]),
        ("04-active-cut-to-nothing", 1, &["index-ahead", "snapshot-ahead"]),
        ("05-active-last-batch-bit", 1, &["checksum"]),
        ("06-active-middle-bit", 1, &["checksum"]),
        ("07-active-garbage-tail", 1, &["not-a-batch"]),
        ("08-active-zero-tail", 1, &["zero-tail"]),
        ("09-active-length-negative", 1, &["not-a-batch"]),
        ("10-active-length-huge", 1, &["torn-tail"]),
        ("11-active-magic-9", 1, &["not-a-batch"]),
        ("12-active-batch-twice", 1, &["offsets-not-rising"]),
        ("13-active-older-batch-again", 1, &["offsets-not-rising"]),
        ("14-sealed-bit", 1, &["checksum"]),
        ("15-sealed-cut", 1, &["sealed-segment-cut"]),
        ("16-sealed-missing", 1, &["segment-missing", "snapshot-stray"]),
        ("17-sealed-bit-below-recovery-point", 1, &["checksum"]),
        ("18-sealed-cut-below-recovery-point", 1, &["sealed-segment-cut"]),
        ("19-index-missing", 0, &["index-missing"]),
        ("20-timeindex-missing", 0, &["index-missing"]),
        ("21-all-indexes-missing", 1, &["index-missing", "txnindex-incomplete"]),
        ("22-index-garbage", 1, &["index-damaged"]),
        ("23-index-not-multiple-of-8", 1, &["index-damaged"]),
        ("24-timeindex-garbage", 1, &["index-damaged"]),
        ("25-index-without-log", 0, &["orphan-index"]),
        ("26-cleaned-left", 0, &["leftover-cleaned"]),
        ("27-deleted-left", 0, &["leftover-deleted"]),
        ("28-swap-left-with-sources", 0, &["leftover-swap"]),
        ("29-swap-left-sources-gone", 0, &["leftover-swap", "snapshot-stray"]),
        ("30-swap-and-cleaned", 0, &["leftover-cleaned", "leftover-swap"]),
        ("31-txnindex-garbage", 1, &["index-damaged"]),
        ("32-snapshot-garbage", 1, &["snapshot-damaged"]),
        ("33-snapshot-missing", 0, &["snapshot-missing"]),
        ("34-recovery-point-past-end", 0, &[]),
    ];
    assert_eq!(expected.len(), cases(Set::Recovery).len());
    for (case, status, codes_expected) in expected {
        let run = verify(&unpack(Set::Recovery).join(case).join("before"));
        let mut found: Vec<String> = codes(&run).into_iter().map(|(_, code)| code).collect();
        found.sort();
        found.dedup();
        assert_eq!(
            (run.status, found),
            (*status, codes_expected.iter().map(|code| (*code).to_owned()).collect()),
            "{case}: {}",
            run.stdout
        );
    }
}

#[test]
fn a_finding_says_where_it_is() {
    let run = verify(&unpack(Set::Recovery).join("06-active-middle-bit/before"));
    let finding = &run.json_lines()[0]["findings"][0];
    let expected =
        serde_json::json!({"severity": "damage", "code": "checksum", "file": "00000000000000000296.log", "position": 2941, "offset": 334});
    for field in ["severity", "code", "file", "position", "offset"] {
        assert_eq!(finding[field], expected[field], "{field}");
    }

    let text = keeplog(["verify".as_ref(), unpack(Set::Recovery).join("06-active-middle-bit/before").as_os_str()]);
    assert_eq!(text.status, 1);
    assert!(
        text.stdout.contains("DAMAGED, 1 finding") && text.stdout.contains("00000000000000000296.log at byte 2941 (offset 334)"),
        "{}",
        text.stdout
    );
}

/// The data directory of a broker with one partition, to be damaged.
fn small_data_dir() -> tempfile::TempDir {
    let scratch = tempfile::tempdir().unwrap();
    copy_dir(unpack(Set::Broker).join("txn-0"), scratch.path().join("txn-0"));
    fs::write(scratch.path().join("recovery-point-offset-checkpoint"), "0\n1\ntxn 0 510\n").unwrap();
    scratch
}

#[test]
fn checkpoints_are_held_against_the_log() {
    let data = small_data_dir();
    let check = |name: &str, content: &str, status: i32, code: &str| {
        let path = data.path().join(name);
        let before = fs::read(&path).ok();
        fs::write(&path, content).unwrap();
        let run = verify(data.path());
        assert_eq!(
            (run.status, codes(&run).first().map(|(_, code)| code.as_str())),
            (status, Some(code)),
            "{name} {content:?}: {}",
            run.stdout
        );
        match before {
            Some(content) => fs::write(&path, content).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
    };
    assert_eq!(verify(data.path()).status, 0);
    check("recovery-point-offset-checkpoint", "0\n1\ntxn 0 511\n", 1, "checkpoint-ahead");
    check("recovery-point-offset-checkpoint", "0\n2\ntxn 0 510\n", 1, "checkpoint-damaged");
    check("log-start-offset-checkpoint", "0\n1\ntxn 0 600\n", 1, "log-start-ahead");
    check("cleaner-offset-checkpoint", "0\n1\ntxn 0 600\n", 0, "checkpoint-beyond-end");
    check("cleaner-offset-checkpoint", "\u{0}\u{0}", 1, "checkpoint-damaged");
    check("cleaner-offset-checkpoint", "0\n1\ngone 0 600\n", 0, "partition-missing");
    check("cleaner-offset-checkpoint.tmp", "", 0, "leftover-tmp");
    check("txn-0/leader-epoch-checkpoint", "0\n1\n5 900\n", 0, "checkpoint-beyond-end");
    check("txn-0/leader-epoch-checkpoint", "0\n1\n5\n", 1, "checkpoint-damaged");
    check("txn-0/partition.metadata", "version: 0\ntopic_id: ?", 1, "metadata-damaged");
    check("txn-0/readme", "", 0, "unknown-file");
    check("txn-0/x.log", "", 1, "bad-name");

    // What somebody has made of the records is known to be none of the log's own files, and nothing to report.
    fs::write(data.path().join("txn-0/offsets.keeplog-snapshot"), "anything").unwrap();
    assert_eq!(codes(&verify(data.path())), []);
    fs::create_dir(data.path().join("lost+found")).unwrap();
    assert_eq!(codes(&verify(data.path())), [("warning".to_owned(), "foreign-directory".to_owned())]);
}

#[test]
fn every_cut_and_flipped_byte_of_a_log_is_damage() {
    let data = small_data_dir();
    let log = data.path().join("txn-0/00000000000000000000.log");
    let whole = fs::read(&log).unwrap();
    // Base offset and leader epoch are outside the checksum; the rest of the header and all records are inside.
    let (step, unprotected) = (13, 16);
    let starts: Vec<usize> = [0, 91, 167, 258, 349].to_vec();
    for at in (0..349).step_by(step) {
        let start = *starts.iter().filter(|start| **start <= at).max().unwrap();
        if at - start < unprotected {
            continue;
        }
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(&log, &bytes).unwrap();
        assert_eq!(verify(data.path()).status, 1, "byte {at}");
    }
    for cut in [0, 1, 60, 90, 842] {
        fs::write(&log, &whole[..cut]).unwrap();
        assert_eq!(verify(data.path()).status, 1, "cut to {cut}");
    }
}

#[test]
fn reading_commands_write_nothing() {
    let data = small_data_dir();
    let before = listing(data.path());
    for command in ["verify", "inspect", "dump"] {
        assert_eq!(keeplog([command.as_ref(), data.path().as_os_str()]).status, 0);
    }
    assert_eq!(listing(data.path()), before);
}

fn listing(dir: &Path) -> Vec<(std::path::PathBuf, u64, std::time::SystemTime)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let meta = entry.metadata().unwrap();
        found.push((entry.path(), meta.len(), meta.modified().unwrap()));
        if meta.is_dir() {
            found.extend(listing(&entry.path()));
        }
    }
    found.sort();
    found
}

/// A partition whose files are all gone has lost what its recovery point vouches for.
#[test]
fn a_log_without_files_and_with_a_recovery_point_is_damaged() {
    let data = tempfile::tempdir().unwrap();
    let dir = data.path().join("t-0");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("leader-epoch-checkpoint"), "0\n0\n").unwrap();
    fs::write(data.path().join("recovery-point-offset-checkpoint"), "0\n1\nt 0 1000\n").unwrap();
    let run = keeplog(["verify".as_ref(), data.path().as_os_str()]);
    assert!(run.status == 1 && run.stdout.contains("checkpoint-ahead"), "{}{}", run.stdout, run.stderr);
}

#[test]
fn a_damaged_output_and_a_time_index_that_lies_are_found() {
    let data = tempfile::tempdir().unwrap();
    let dir = data.path().join("t-0");
    copy_dir(unpack(Set::Recovery).join("01-untouched/before"), &dir);
    let mut output = fs::read(dir.join("00000000000000000000.log")).unwrap();
    output[1900] ^= 4;
    fs::write(dir.join("00000000000000000000.log.swap"), &output).unwrap();
    let run = keeplog(["verify".as_ref(), dir.as_os_str()]);
    assert!(run.status == 1 && run.stdout.contains("swap-damaged"), "{}{}", run.stdout, run.stderr);
    assert_eq!(keeplog(["recover".as_ref(), dir.as_os_str()]).status, 1);
    fs::remove_file(dir.join("00000000000000000000.log.swap")).unwrap();
    assert_eq!(keeplog(["recover".as_ref(), dir.as_os_str()]).status, 0, "without it, all is there");

    let path = dir.join("00000000000000000091.timeindex");
    let mut index = fs::read(&path).unwrap();
    let last = index.len() - 12;
    index[last + 2] ^= 2; // a time far ahead
    fs::write(&path, &index).unwrap();
    let run = keeplog(["verify".as_ref(), dir.as_os_str()]);
    assert!(run.status == 1 && run.stdout.contains("the newest batch up to there"), "{}{}", run.stdout, run.stderr);
}
