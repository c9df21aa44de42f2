//! `keeplog offsets export`, `set`, `delete` and `import`.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use keeplog::{Durability, OffsetAndMetadata, Record};
use keeplog_fixtures::{Set, copy_dir, unpack};
use serde_json::{Value, json};

use crate::groups::{append, open, write_group};
use crate::harness::{Run, command, finish, keeplog};

fn offsets(words: &[&str], dir: &Path) -> Run {
    keeplog(["offsets".as_ref()].into_iter().chain(words.iter().map(AsRef::as_ref)).chain([dir.as_os_str()]))
}

/// A store with the log of orders-0, ten records from offset 10 to below 20 a second apart from 10 s on; and what the
/// group g has committed.
fn data() -> tempfile::TempDir {
    let scratch = tempfile::tempdir().unwrap();
    let store = open(scratch.path());
    let log = store.store().log("orders", 0).unwrap();
    for i in 0..20 {
        log.append(&[Record::new(format!("k{i}"), "v").timestamp_ms(1_000 * i)], Durability::Buffered).unwrap();
        if i == 14 {
            log.roll().unwrap();
        }
    }
    log.advance_start(10).unwrap();
    store.commit("g", &[("orders", 0, OffsetAndMetadata::new(15)), ("gone", 3, OffsetAndMetadata::new(5))]).unwrap();
    store.close().unwrap();
    scratch
}

/// What is committed, by group, topic and partition.
fn committed(dir: &Path) -> BTreeMap<(String, String, i64), u64> {
    let text = |line: &Value, name: &str| line[name].as_str().unwrap().to_owned();
    let lines = offsets(&["list", "--json"], dir).json_lines();
    let place = |line: &Value| (text(line, "group"), text(line, "topic"), line["partition"].as_i64().unwrap());
    lines.iter().map(|line| (place(line), line["offset"].as_u64().unwrap())).collect()
}

fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.display().to_string(), fs::read(&path).unwrap());
        }
    }
    found
}

#[test]
fn the_list_is_of_what_is_asked_for() {
    let broker = unpack(Set::Broker);
    let rows = |words: &[&str]| {
        let run = offsets(&[&["list", "--json"], words].concat(), broker);
        assert_eq!(run.status, 0);
        run.json_lines().iter().map(|line| format!("{} {}", line["group"].as_str().unwrap(), line["partition"])).collect::<Vec<_>>()
    };
    assert_eq!(rows(&["--group", "tool-a", "--group", "eos"]), ["eos 0", "eos 1", "eos 2", "tool-a 0", "tool-a 1", "tool-a 2"]);
    assert_eq!(rows(&["--pattern", "classic-*"]).len(), 6);
    assert_eq!(rows(&["--topic", "orders"]).len(), rows(&[]).len());
    let none = offsets(&["list", "--json", "--topic", "nothing"], broker);
    assert_eq!((none.status, none.stdout.as_str()), (0, ""));
    assert!(none.stderr.contains("not by the groups that are asked for"), "{}", none.stderr);
}

#[test]
fn an_export_has_kafkas_columns_and_goes_back_in() {
    let broker = unpack(Set::Broker);
    let expected = fs::read_to_string(broker.join("committed-offsets.tsv")).unwrap();
    let rows: Vec<Vec<&str>> = expected.lines().skip(1).map(|line| line.split('\t').collect()).collect();
    let exported = offsets(&["export"], broker);
    assert_eq!((exported.status, exported.stderr.as_str()), (0, ""));
    assert_eq!(exported.stdout, rows.iter().map(|row| format!("{}\n", row[..4].join(","))).collect::<String>());
    let one = offsets(&["export", "--group", "tool-b"], broker).stdout;
    let of_one = rows.iter().filter(|row| row[0] == "tool-b").map(|row| format!("{}\n", row[1..4].join(","))).collect::<String>();
    assert_eq!(one, of_one);

    for (format, name) in [("csv", "all.csv"), ("json", "all.jsonl")] {
        let scratch = tempfile::tempdir().unwrap();
        open(&scratch.path().join("data")).close().unwrap();
        let file = scratch.path().join(name);
        fs::write(&file, offsets(&["export", "--format", format], broker).stdout).unwrap();
        let run = keeplog(["offsets".as_ref(), "import".as_ref(), scratch.path().join("data").as_os_str(), file.as_os_str()]);
        assert_eq!((run.status, run.stderr.as_str()), (0, ""), "{format}");
        let columns = if format == "csv" { 4 } else { 6 };
        let listed = offsets(&["list", "--tsv"], &scratch.path().join("data")).stdout;
        let listed: Vec<Vec<&str>> = listed.lines().skip(1).map(|line| line.split('\t').take(columns).collect()).collect();
        assert_eq!(listed, rows.iter().map(|row| row[..columns].to_vec()).collect::<Vec<_>>(), "{format}");
    }
}

#[test]
fn offsets_go_where_they_are_told() {
    for (words, expected) in [
        (&["--topic", "orders", "--to-offset", "12"][..], [5, 12]),
        (&["--topic", "orders:0", "--to-offset", "3"], [5, 10]),
        (&["--topic", "orders", "--to-offset", "30"], [5, 20]),
        (&["--topic", "orders", "--to-earliest"], [5, 10]),
        (&["--topic", "orders", "--to-latest"], [5, 20]),
        (&["--topic", "orders", "--shift-by", "-2"], [5, 13]),
        (&["--topic", "orders", "--shift-by", "9223372036854775807"], [5, 20]),
        (&["--all-topics", "--shift-by", "1"], [6, 16]),
        (&["--all-topics", "--to-current"], [5, 15]),
        (&["--topic", "orders", "--to-datetime", "1970-01-01T00:00:12.500"], [5, 13]),
        (&["--topic", "orders", "--to-datetime", "1970-01-01T02:00:17+02:00"], [5, 17]),
        (&["--topic", "orders", "--to-datetime", "1970-01-01T00:00:01"], [5, 10]),
        (&["--topic", "orders", "--to-datetime", "1970-01-01T00:00:20"], [5, 20]),
        (&["--topic", "orders", "--by-duration", "PT1H"], [5, 20]),
        (&["--topic", "orders", "--by-duration", "P40000D"], [5, 10]),
        (&["--topic", "gone:3", "--to-offset", "99"], [99, 15]),
    ] {
        let scratch = data();
        let before = files(scratch.path());
        let dry = offsets(&[&["set", "--dry-run", "--json", "--group", "g"], words].concat(), scratch.path());
        assert_eq!(dry.status, 0, "{words:?}: {}", dry.stderr);
        assert!(files(scratch.path()) == before, "{words:?}: a dry run has changed something");
        let run = offsets(&[&["set", "--json", "--group", "g"], words].concat(), scratch.path());
        assert_eq!((run.status, run.stderr.as_str()), (0, dry.stderr.as_str()), "{words:?}");
        assert_eq!(run.stdout.replace("\"dry_run\":false", "\"dry_run\":true"), dry.stdout, "{words:?}: it was foretold");
        assert_eq!(committed(scratch.path()).into_values().collect::<Vec<_>>(), expected, "{words:?}");
        let is_clamped = ["3", "30", "9223372036854775807"].contains(words.last().unwrap());
        assert_eq!(run.stderr.contains("is not in the log, which goes from 10 to 20"), is_clamped, "{words:?}: {}", run.stderr);
        assert!(scratch.path().join(".kafka_cleanshutdown").exists(), "closed in order");
    }
}

#[test]
fn a_group_nobody_knows_gets_offsets_for_every_partition_of_a_topic() {
    let scratch = data();
    let run = offsets(&["set", "--group", "new", "--topic", "orders", "--to-latest"], scratch.path());
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert_eq!(run.stdout.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>(), ["new", "orders", "0", "-", "20"]);
    assert_eq!(committed(scratch.path())[&("new".to_owned(), "orders".to_owned(), 0)], 20);
}

#[test]
fn what_cannot_be_set_is_refused_as_a_whole() {
    let scratch = data();
    write_group(scratch.path(), "busy", Some("orders"));
    open(scratch.path()).close().unwrap();
    let before = committed(scratch.path());
    for (words, said) in [
        (&["--group", "g", "--group", "busy", "--topic", "orders", "--to-offset", "1"][..], "group busy: it has 1 member"),
        (&["--group", "g", "--topic", "orders:0", "--topic", "gone", "--to-earliest"], "the log of gone partition 3"),
        (&["--group", "g", "--topic", "nothing", "--to-offset", "1"], "it has committed nothing there"),
        (&["--group", "g", "--topic", "orders:0,1", "--shift-by", "1"], "orders partition 1 of group g has nothing committed to shift"),
        (&["--group", "g", "--to-offset", "1"], "nothing says of which topics"),
        (&["--group", "g", "--topic", "orders", "--to-offset", "1", "--offsets-topic-num-partitions", "7"], "in the wrong one"),
    ] {
        offsets(&[&["set"], words].concat(), scratch.path()).assert_refused(&["could not", said, "what to do"]);
        assert_eq!(committed(scratch.path()), before, "{words:?}");
        assert!(scratch.path().join(".kafka_cleanshutdown").exists(), "{words:?}: closed in order");
    }
    let partition = scratch.path().join("__consumer_offsets-0");
    offsets(&["set", "--group", "g", "--topic", "orders", "--to-offset", "1"], &partition).assert_refused(&["it is a single partition"]);
}

#[test]
fn a_directory_that_is_in_use_is_left_alone() {
    let scratch = data();
    let store = open(scratch.path());
    for words in [&["set", "--group", "g", "--topic", "orders", "--to-offset", "12"][..], &["delete", "--group", "g", "--all-topics"]] {
        offsets(words, scratch.path()).assert_refused(&[".lock", "stop the process that uses this directory"]);
    }
    assert_eq!(offsets(&["set", "--dry-run", "--group", "g", "--topic", "orders", "--to-offset", "12"], scratch.path()).status, 0);
    assert_eq!(store.fetch("g", &[("orders", 0)]).unwrap(), [Some(OffsetAndMetadata::new(15))]);
}

#[test]
fn some_partitions_of_a_broker_are_enough_if_their_number_is_told() {
    let scratch = tempfile::tempdir().unwrap();
    // All of eos is in partition 1 of 4.
    copy_dir(unpack(Set::Broker).join("__consumer_offsets-1"), scratch.path().join("__consumer_offsets-1"));
    let words = ["set", "--group", "eos", "--topic", "orders", "--to-offset", "4"];
    offsets(&words, scratch.path())
        .assert_refused(&["not all partitions of __consumer_offsets are there", "--offsets-topic-num-partitions"]);
    let run = offsets(&[&words[..], &["--offsets-topic-num-partitions", "4"]].concat(), scratch.path());
    assert_eq!(run.status, 0, "{}", run.stderr);
    let of_group = committed(scratch.path()).into_iter().filter(|((group, ..), _)| group == "eos").map(|(_, offset)| offset);
    assert_eq!(of_group.collect::<Vec<_>>(), [4, 4, 4]);
}

#[test]
fn a_file_sets_offsets_and_brings_them_into_the_log() {
    let scratch = data();
    let mut child = command(["offsets", "set", "--json", "--group", "g", "--from-file", "-"])
        .arg(scratch.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"orders,0,3\nother,1,7\n").unwrap();
    let run = finish(child.wait_with_output().unwrap());
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(run.stderr.contains("orders partition 0 of group g: 3 is not in the log"), "{}", run.stderr);
    let line = |topic: &str, partition: i32, old: Option<u64>, new: u64| json!({"group": "g", "topic": topic, "partition": partition, "old_offset": old, "new_offset": new, "dry_run": false});
    assert_eq!(run.json_lines(), [line("orders", 0, Some(15), 10), line("other", 1, None, 7)]);
    assert_eq!(committed(scratch.path()).into_values().collect::<Vec<_>>(), [5, 10, 7]);

    let bad = scratch.path().join("bad.csv");
    fs::write(&bad, "g,orders,0,12\ng,orders,0,13\n").unwrap();
    keeplog(["offsets".as_ref(), "import".as_ref(), scratch.path().as_os_str(), bad.as_os_str()])
        .assert_refused(&["bad.csv: line 2: an earlier line is about the same", "nothing was changed"]);
    fs::write(&bad, "g,../orders,0,12\n").unwrap();
    keeplog(["offsets".as_ref(), "import".as_ref(), scratch.path().as_os_str(), bad.as_os_str()]).assert_refused(&["../orders"]);
}

#[test]
fn what_an_old_broker_committed_is_deleted_under_its_own_key_too() {
    for words in [&["offsets", "delete", "--group", "old", "--all-topics"][..], &["groups", "delete", "--group", "old"]] {
        let scratch = tempfile::tempdir().unwrap();
        open(scratch.path()).close().unwrap();
        let key = b"\0\0\0\x03old\0\x01t\0\0\0\x03";
        let value = [&[0, 0], &42i64.to_be_bytes()[..], &[0, 0], &1_000i64.to_be_bytes()].concat();
        append(scratch.path(), Record::new(key.to_vec(), value));
        assert_eq!(committed(scratch.path()).into_values().collect::<Vec<_>>(), [42]);
        let run = keeplog(words.iter().map(AsRef::as_ref).chain([scratch.path().as_os_str()]));
        assert_eq!(run.status, 0, "{}", run.stderr);
        assert!(committed(scratch.path()).is_empty());
        let dump = keeplog(["dump".as_ref(), "--decode".as_ref(), "offsets".as_ref(), "--json".as_ref(), scratch.path().as_os_str()]);
        let lines = dump.json_lines();
        let shown: Vec<_> = lines.iter().map(|line| (line["key"]["type"].as_i64().unwrap(), line["value"].is_null())).collect();
        assert_eq!(shown, [(0, false), (0, true), (1, true)]);
    }
}

#[test]
fn deleted_offsets_are_gone_unless_a_member_reads_them() {
    let scratch = data();
    write_group(scratch.path(), "g", Some("orders"));
    open(scratch.path()).close().unwrap();
    offsets(&["delete", "--group", "g", "--all-topics"], scratch.path())
        .assert_refused(&["could not delete offsets of topic orders of group g: it has 1 member"]);
    let run = offsets(&["delete", "--json", "--group", "g", "--topic", "gone:3,4"], scratch.path());
    assert_eq!(
        run.json_lines(),
        [json!({"group": "g", "topic": "gone", "partition": 3, "old_offset": 5, "new_offset": null, "dry_run": false})]
    );
    assert_eq!(committed(scratch.path()).into_keys().map(|(_, topic, _)| topic).collect::<Vec<_>>(), ["orders"]);

    write_group(scratch.path(), "g", None);
    let dry = offsets(&["delete", "--dry-run", "--group", "g", "--all-topics"], scratch.path());
    assert!(dry.stdout.contains("deleted") && dry.stdout.ends_with("Nothing was changed: this is what would be.\n"), "{}", dry.stdout);
    assert_eq!(committed(scratch.path()).len(), 1);
    assert_eq!(offsets(&["delete", "--group", "g", "--all-topics"], scratch.path()).status, 0);
    assert!(committed(scratch.path()).is_empty());
    let again = offsets(&["delete", "--group", "g", "--topic", "orders"], scratch.path());
    assert_eq!((again.status, again.stdout.as_str()), (0, ""));
    assert!(again.stderr.contains("group g has committed nothing there"), "{}", again.stderr);
}
