//! `keeplog recover`: Kafka's outcome, except where Keeplog means to do better.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use keeplog::inspect::DataDir;
use keeplog::inspect::storage::RealStorage;
use keeplog_fixtures::{Set, cases, copy_dir, dump_lines, json, unpack};
use serde_json::Value;

use crate::harness::{Run, keeplog};

/// Cases where Kafka's outcome is not ours; see the README of the fixtures.
const OURS: [&str; 9] = ["11-", "12-", "13-", "14-", "15-", "16-", "17-", "18-", "31-"];

struct Scratch {
    data: tempfile::TempDir,
}

impl Scratch {
    fn of(case: &Path) -> Self {
        let data = tempfile::tempdir().unwrap();
        copy_dir(case.join("before"), data.path().join("t-0"));
        Self { data }
    }

    fn dir(&self) -> PathBuf {
        self.data.path().join("t-0")
    }

    fn recover(&self, more: &[&str]) -> (Run, Value) {
        let dir = self.dir();
        let run = keeplog(["recover", "--json"].into_iter().chain(more.iter().copied()).chain([dir.to_str().unwrap()]));
        assert_eq!(run.stderr, "");
        let report = run.json_lines().remove(0);
        (run, report)
    }

    fn dump(&self) -> Vec<Value> {
        keeplog(["dump".as_ref(), "--json".as_ref(), self.dir().as_os_str()]).json_lines()
    }
}

fn case(name: &str) -> PathBuf {
    unpack(Set::Recovery).join(name)
}

fn recovered(name: &str) -> (Scratch, i32, Value) {
    let point = json(case(name).join("kafka.json"))["recovery_point"].to_string();
    let scratch = Scratch::of(&case(name));
    let (run, report) = scratch.recover(&["--recovery-point", &point]);
    (scratch, run.status, report)
}

#[test]
fn damaged_directories_end_as_kafka_ends_them() {
    for case in cases(Set::Recovery) {
        let name = case.file_name().unwrap().to_str().unwrap();
        if OURS.iter().any(|ours| name.starts_with(ours)) {
            continue;
        }
        let kafka = json(case.join("kafka.json"));
        let (scratch, status, report) = recovered(name);
        // The tail goes as with Kafka, and that sound batches went with it is said.
        // So is a recovery point that lies behind the end: what it vouches for is gone.
        assert_eq!(status, i32::from(name.starts_with("06-") || name.starts_with("34-")), "{name}: {report}");
        for field in ["log_start_offset", "log_end_offset", "segments"] {
            assert_eq!(report[field], kafka[field], "{name} {field}");
        }
        assert_eq!(scratch.dump(), dump_lines(case.join("after.jsonl")), "{name}");
        assert_eq!(keeplog(["verify".as_ref(), scratch.dir().as_os_str()]).status, 0, "{name}");
        // A second time there is nothing left to do.
        let (_, again) = scratch.recover(&[]);
        assert_eq!(
            (&again["cut_bytes"], &again["removed"], &again["rebuilt"]),
            (&0.into(), &Value::Array(vec![]), &Value::Array(vec![])),
            "{name}"
        );
    }
}

#[test]
fn what_is_cut_is_counted() {
    let (_, _, report) = recovered("07-active-garbage-tail");
    assert_eq!((&report["cut_bytes"], &report["cuts"][0]["position"]), (&100.into(), &5981.into()));
    let (_, _, report) = recovered("02-active-cut-in-batch");
    assert_eq!(report["cut_bytes"], 241);
}

#[test]
fn offsets_that_were_there_before_are_cut_off() {
    for name in ["12-active-batch-twice", "13-active-older-batch-again"] {
        let (scratch, status, report) = recovered(name);
        assert_eq!(
            (status, &report["log_end_offset"], &report["segments"][3]["bytes"]),
            (0, &383.into(), &5981.into()),
            "{name}: {report}"
        );
        assert!(report["cut_bytes"].as_u64().unwrap() > 0);
        assert_eq!(scratch.dump(), dump_lines(case("01-untouched").join("after.jsonl")));
    }
}

#[test]
fn damage_that_is_no_torn_tail_is_reported_and_kept() {
    let kept: &[(&str, u64)] = &[
        ("11-active-magic-9", 379),
        ("14-sealed-bit", 383),
        ("16-sealed-missing", 383),
        ("17-sealed-bit-below-recovery-point", 383),
        ("18-sealed-cut-below-recovery-point", 383),
    ];
    for (name, end_offset) in kept {
        let size = |dir: &Path| -> u64 {
            let logs = fs::read_dir(dir).unwrap().map(Result::unwrap).filter(|e| e.path().extension().is_some_and(|x| x == "log"));
            logs.map(|e| e.metadata().unwrap().len()).sum()
        };
        let (scratch, status, report) = recovered(name);
        assert_eq!((status, &report["log_end_offset"], &report["cut_bytes"]), (1, &(*end_offset).into(), &0.into()), "{name}: {report}");
        assert_eq!(report["damage"].as_array().unwrap().len(), 1, "{name}: {report}");
        assert_eq!(size(&scratch.dir()), size(&case(name).join("before")), "{name}");
    }
}

#[test]
fn an_index_that_keeps_kafka_from_opening_is_rebuilt() {
    let (scratch, status, report) = recovered("31-txnindex-garbage");
    assert_eq!((status, &report["log_end_offset"]), (0, &383.into()), "{report}");
    assert_eq!(report["rebuilt"][0]["segment"], 91);
    assert_eq!(keeplog(["verify".as_ref(), scratch.dir().as_os_str()]).status, 0);
}

#[test]
fn told_to_cut_it_cuts_where_kafka_does() {
    for name in ["14-sealed-bit", "15-sealed-cut"] {
        let scratch = Scratch::of(&case(name));
        let (run, report) = scratch.recover(&["--cut-damage"]);
        let kafka = json(case(name).join("kafka.json"));
        assert_eq!(
            (run.status, &report["log_end_offset"], &report["segments"]),
            (1, &kafka["log_end_offset"], &kafka["segments"]),
            "{name}"
        );
        assert_eq!(scratch.dump(), dump_lines(case(name).join("after.jsonl")), "{name}");
    }
}

#[test]
fn the_text_says_what_was_done() {
    let scratch = Scratch::of(&case("28-swap-left-with-sources"));
    let run = keeplog(["recover".as_ref(), scratch.dir().as_os_str()]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(run.stdout.starts_with("t-0: recovered, offsets 0..383, 3 segments"), "{}", run.stdout);
    assert!(run.stdout.contains("completed the interrupted replacement by segment 0"), "{}", run.stdout);
}

#[test]
fn every_partition_of_a_data_directory_is_recovered_and_the_directory_closed_cleanly() {
    let data = tempfile::tempdir().unwrap();
    copy_dir(unpack(Set::Broker), data.path().join("broker"));
    let dir = data.path().join("broker");
    fs::remove_file(dir.join(".kafka_cleanshutdown")).ok();
    let run = keeplog(["recover".as_ref(), "--json".as_ref(), dir.as_os_str()]);
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    assert_eq!(run.json_lines().len(), 16);
    assert!(dir.join(".kafka_cleanshutdown").is_file());
    let verified = keeplog(["verify".as_ref(), "--json".as_ref(), dir.as_os_str()]);
    assert_eq!(verified.status, 0);
    assert!(verified.json_lines().iter().all(|report| report["findings"].as_array().unwrap().is_empty()), "{}", verified.stdout);
}

#[test]
fn a_directory_that_is_in_use_is_left_alone() {
    let scratch = Scratch::of(&case("02-active-cut-in-batch"));
    let owner = DataDir::open(Arc::new(RealStorage::new()), scratch.data.path()).unwrap();
    keeplog(["recover".as_ref(), scratch.dir().as_os_str()]).assert_refused(&[".lock", "another process"]);
    assert_eq!(keeplog(["verify".as_ref(), scratch.dir().as_os_str()]).status, 1, "reading needs no lock");
    drop(owner);
    assert_eq!(scratch.recover(&[]).0.status, 0);
}

#[test]
fn a_copy_of_any_name_is_taken_by_itself() {
    let data = tempfile::tempdir().unwrap();
    let copy = data.path().join("backup of orders");
    copy_dir(case("02-active-cut-in-batch").join("before"), &copy);
    fs::write(data.path().join("recovery-point-offset-checkpoint"), "not one").unwrap();
    let run = keeplog(["recover".as_ref(), "--json".as_ref(), copy.as_os_str()]);
    assert_eq!((run.status, run.json_lines()[0]["log_end_offset"].as_u64()), (0, Some(379)), "{}", run.stderr);
    assert_eq!(keeplog(["verify".as_ref(), copy.as_os_str()]).status, 0);
    assert_eq!(keeplog(["compact".as_ref(), copy.as_os_str()]).status, 0);
    let mut around: Vec<_> = fs::read_dir(data.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    around.sort();
    assert_eq!(around, [".lock", "backup of orders", "recovery-point-offset-checkpoint"], "nothing was made beside it");
    assert_eq!(fs::read(data.path().join("recovery-point-offset-checkpoint")).unwrap(), b"not one");

    let set_aside = data.path().join("t-0.0123456789abcdef0123456789abcdef-stray");
    fs::rename(&copy, &set_aside).unwrap();
    keeplog(["recover".as_ref(), set_aside.as_os_str()]).assert_refused(&["set it aside", "copy"]);
}

#[test]
fn a_dry_run_says_the_same_and_changes_nothing() {
    for name in ["06-active-middle-bit", "15-sealed-cut", "16-sealed-missing"] {
        let scratch = Scratch::of(&case(name));
        let (tried, mut would) = scratch.recover(&["--dry-run"]);
        assert_eq!(fs::read_dir(scratch.data.path()).unwrap().count(), 1, "not even a lock");
        let names = |dir: &Path| fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name()).collect::<std::collections::BTreeSet<_>>();
        let before = case(name).join("before");
        assert_eq!(names(&scratch.dir()), names(&before), "{name}");
        for file in names(&before) {
            assert_eq!(fs::read(scratch.dir().join(&file)).unwrap(), fs::read(before.join(&file)).unwrap(), "{name} {file:?}");
        }
        let (done, mut did) = scratch.recover(&[]);
        assert_eq!((tried.status, would["dry_run"].take(), did["dry_run"].take()), (done.status, true.into(), false.into()));
        (would["seconds"], did["seconds"]) = (0.into(), 0.into());
        assert_eq!(would, did, "{name}");
    }
}

#[test]
fn what_is_cut_and_may_be_more_than_a_torn_write_is_kept() {
    let (scratch, status, report) = recovered("06-active-middle-bit");
    assert_eq!(status, 1);
    let (file, kept) = (report["cuts"][0]["file"].as_str().unwrap(), report["cuts"][0]["kept_in"].as_str().unwrap());
    let original = fs::read(case("06-active-middle-bit").join("before").join(file)).unwrap();
    let position = report["cuts"][0]["position"].as_u64().unwrap() as usize;
    assert_eq!(fs::read(scratch.dir().join(kept)).unwrap(), original[position..]);
    let verified = keeplog(["verify".as_ref(), scratch.dir().as_os_str()]);
    assert!(verified.status == 0 && verified.stdout.contains("cut-bytes"), "{}", verified.stdout);
}

fn damaged(change: impl Fn(&Path)) -> (Scratch, i32, Value) {
    let scratch = Scratch::of(&case("01-untouched"));
    change(&scratch.dir());
    let (run, report) = scratch.recover(&["--recovery-point", "383"]);
    (scratch, run.status, report)
}

/// What was safe once and is gone must not be called recovered.
#[test]
fn losses_are_told() {
    let cut_between_batches =
        |dir: &Path| fs::File::options().write(true).open(dir.join("00000000000000000091.log")).unwrap().set_len(4489).unwrap();
    let (_, status, report) = damaged(cut_between_batches);
    assert_eq!((status, &report["damage"][0]["offset"]), (1, &148.into()), "{report}");

    let emptied = |dir: &Path| fs::write(dir.join("00000000000000000296.log"), b"").unwrap();
    let (_, status, report) = damaged(emptied);
    assert_eq!((status, &report["lost"]), (1, &serde_json::json!([296, 383])), "{report}");

    let all_logs_gone = |dir: &Path| {
        for base in [0, 91, 197, 296] {
            fs::remove_file(dir.join(format!("{base:020}.log"))).unwrap();
        }
    };
    let (scratch, status, report) = damaged(all_logs_gone);
    assert_eq!((status, &report["lost"], &report["log_end_offset"]), (1, &serde_json::json!([0, 383]), &383.into()), "{report}");
    assert_eq!(keeplog(["verify".as_ref(), scratch.dir().as_os_str()]).status, 0, "its offsets are not given again");

    let scratch = Scratch::of(&case("01-untouched"));
    fs::write(scratch.data.path().join("log-start-offset-checkpoint"), "0\n1\nt 0 9000\n").unwrap();
    let (run, report) = scratch.recover(&[]);
    assert_eq!((run.status, &report["ended_below_start"]), (1, &383.into()), "{report}");
    let compact = keeplog(["compact".as_ref(), scratch.dir().as_os_str()]);
    assert!(compact.status <= 1, "{}", compact.stderr);
}

/// A batch with the right checksum is no torn write, wherever its offsets come from.
#[test]
fn sound_batches_out_of_place_are_kept_and_reported() {
    let renamed = |dir: &Path| {
        for base in [0, 91, 197] {
            fs::remove_file(dir.join(format!("{base:020}.log"))).unwrap();
        }
        fs::rename(dir.join(format!("{:020}.log", 296)), dir.join(format!("{:020}.log", 1000))).unwrap();
    };
    let scratch = Scratch::of(&case("01-untouched"));
    renamed(&scratch.dir());
    let whole = fs::read(scratch.dir().join(format!("{:020}.log", 1000))).unwrap();
    let (run, report) = scratch.recover(&[]);
    // Four logs are gone, of which the indexes tell; and there is the one in the wrong place.
    let damaged: Vec<_> = report["damage"].as_array().unwrap().iter().map(|damage| damage["offset"].as_u64().unwrap()).collect();
    assert_eq!((run.status, damaged), (1, vec![0, 91, 197, 296, 1000]), "{report}");
    assert_eq!(fs::read(scratch.dir().join(report["cuts"][0]["kept_in"].as_str().unwrap())).unwrap(), whole);
    // A batch that was there already: nothing is lost, and its copy is kept all the same.
    let (scratch, status, report) = recovered("12-active-batch-twice");
    let kept = report["cuts"][0]["kept_in"].as_str().unwrap();
    assert_eq!((status, fs::read(scratch.dir().join(kept)).unwrap().len() as u64), (0, report["cut_bytes"].as_u64().unwrap()));
}

#[test]
fn a_brokers_own_metadata_is_left_out() {
    let scratch = Scratch::of(&case("01-untouched"));
    let metadata = scratch.data.path().join("__cluster_metadata-0");
    copy_dir(case("01-untouched").join("before"), &metadata);
    let run = keeplog(["recover".as_ref(), "--json".as_ref(), scratch.data.path().as_os_str()]);
    assert_eq!((run.status, run.json_lines().len()), (0, 1), "{}", run.stderr);
    assert!(run.stderr.contains("left out __cluster_metadata-0"), "{}", run.stderr);
    assert_eq!(keeplog(["recover".as_ref(), metadata.as_os_str()]).status, 0, "named, it is worked on");
}

#[test]
fn what_recovery_does_not_mend_is_told() {
    for (name, bytes, code) in [("partition.metadata", &b"rubbish"[..], "metadata-damaged"), ("99999999999999999999.log", b"", "bad-name")]
    {
        let scratch = Scratch::of(&case("01-untouched"));
        fs::write(scratch.dir().join(name), bytes).unwrap();
        let (run, report) = scratch.recover(&[]);
        assert_eq!((run.status, &report["not_mended"][0]["code"]), (1, &code.into()), "{report}");
        assert_eq!(fs::read(scratch.dir().join(name)).unwrap(), bytes);
    }
}

/// Losses that the recovery point, or a clean close, vouched against.
#[test]
fn what_was_safe_once_and_is_gone_is_no_success() {
    let lost = |point: Option<u64>, is_marked: bool, harm: &dyn Fn(&Path)| {
        let scratch = Scratch::of(&case("01-untouched"));
        if is_marked {
            fs::write(scratch.data.path().join(".kafka_cleanshutdown"), "").unwrap();
        }
        harm(&scratch.dir());
        let point = point.map(|point| point.to_string());
        let (run, report) = scratch.recover(&point.iter().flat_map(|point| ["--recovery-point", point]).collect::<Vec<_>>());
        (run.status, report)
    };
    let flip = |file: &'static str, at: usize| {
        move |dir: &Path| {
            let mut bytes = fs::read(dir.join(file)).unwrap();
            bytes[at] ^= 1;
            fs::write(dir.join(file), bytes).unwrap();
        }
    };
    let cut = |file: &'static str, len: u64| {
        move |dir: &Path| fs::File::options().write(true).open(dir.join(file)).unwrap().set_len(len).unwrap()
    };
    const SEALED: &str = "00000000000000000197.log";
    const ACTIVE: &str = "00000000000000000296.log";
    // The base offset of the first batch is covered by no checksum: what follows shows that it is wrong.
    for point in [297, 330, 383] {
        let (status, report) = lost(Some(point), false, &flip(ACTIVE, 0));
        assert_eq!((status, &report["cut_bytes"], &report["damage"][0]["position"]), (1, &0.into(), &0.into()), "{point}: {report}");
    }
    let (status, report) = lost(Some(100), false, &flip(ACTIVE, 0));
    assert_eq!((status, &report["cut_bytes"], &report["log_end_offset"]), (1, &5981.into(), &296.into()), "{report}");
    // A whole segment, of which the recovery point vouched for a part.
    for (point, expected) in [(198, 1), (250, 1), (296, 1), (197, 0)] {
        let (status, report) = lost(Some(point), false, &cut(SEALED, 0));
        assert_eq!(status, expected, "{point}: {report}");
    }
    // Of a log that was closed in order everything was safe, whatever the checkpoint says.
    for (is_marked, expected) in [(true, 1), (false, 0)] {
        let (status, report) = lost(None, is_marked, &cut(ACTIVE, 5000));
        assert_eq!((status, &report["closed_in_order"]), (expected, &is_marked.into()), "{report}");
        assert!(report["cut_bytes"].as_u64() > Some(0), "{report}");
    }
}

#[test]
fn a_missing_first_segment_is_a_loss_unless_it_was_on_its_way_out() {
    const FIRST: &str = "00000000000000000000.log";
    let without_first = |also: &dyn Fn(&Scratch)| {
        let scratch = Scratch::of(&case("01-untouched"));
        fs::rename(scratch.dir().join(FIRST), scratch.data.path().join("elsewhere")).unwrap();
        also(&scratch);
        let verified = keeplog(["verify".as_ref(), "--json".as_ref(), scratch.dir().as_os_str()]);
        let (run, report) = scratch.recover(&[]);
        (verified, run.status, report)
    };
    let (verified, status, report) = without_first(&|_| {});
    assert_eq!((verified.status, status), (1, 1), "{report}");
    assert!(verified.stdout.contains("segment-missing"), "{}", verified.stdout);
    assert_eq!((&report["damage"][0]["file"], &report["damage"][0]["offset"]), (&FIRST.into(), &0.into()), "{report}");
    let (verified, status, report) =
        without_first(&|scratch| fs::write(scratch.data.path().join("log-start-offset-checkpoint"), "0\n1\nt 0 91\n").unwrap());
    assert_eq!((verified.status, status, &report["damage"]), (0, 0, &Value::Array(vec![])), "{report}");
    let (verified, status, report) = without_first(&|scratch| fs::write(scratch.dir().join(format!("{FIRST}.deleted")), "").unwrap());
    assert_eq!((verified.status, status, &report["damage"]), (0, 0, &Value::Array(vec![])), "{report}");
}

#[test]
fn a_transaction_index_that_was_made_anew_is_listed() {
    let scratch = Scratch::of(&case("01-untouched"));
    for name in ["00000000000000000197.txnindex", "00000000000000000296.txnindex"] {
        let path = scratch.dir().join(name);
        let before = fs::read(&path).unwrap();
        if before.is_empty() {
            continue;
        }
        for harm in [None, Some(&before[..before.len() - 34])] {
            match harm {
                None => fs::remove_file(&path).unwrap(),
                Some(rest) => fs::write(&path, rest).unwrap(),
            }
            let (run, report) = scratch.recover(&[]);
            let notes: Vec<_> = report["notes"].as_array().unwrap().iter().filter(|note| note.as_str().unwrap().contains(name)).collect();
            assert_eq!((run.status, notes.len()), (0, 1), "{name}: {report}");
            assert!(fs::read(&path).unwrap() == before, "{name}");
        }
    }
    let (_, again) = scratch.recover(&[]);
    assert_eq!(again["notes"], Value::Array(vec![]));
}
