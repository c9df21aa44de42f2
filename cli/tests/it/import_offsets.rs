//! `keeplog offsets import` into new directories, and what commands about offsets and groups say of odd names and places.

use std::fs;
use std::path::Path;

use keeplog::Record;
use keeplog::inspect::offsets::record::{OffsetKey, OffsetValue};
use keeplog_fixtures::{Set, unpack};

use crate::groups::{append, open, write_group};
use crate::harness::{Run, keeplog};

fn run(words: &[&str], paths: &[&Path]) -> Run {
    keeplog(words.iter().map(AsRef::as_ref).chain(paths.iter().map(|path| path.as_os_str())))
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

#[test]
fn an_import_makes_the_partitions_of_an_empty_directory() {
    let broker = unpack(Set::Broker);
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("all.csv");
    let exported = run(&["offsets", "export"], &[broker]).stdout;
    fs::write(&file, &exported).unwrap();
    let new = scratch.path().join("new");
    fs::create_dir(&new).unwrap();
    run(&["offsets", "import"], &[&new, &file]).assert_refused(&["holds no partition", "--offsets-topic-num-partitions"]);
    assert!(names(&new).is_empty());
    let words = ["offsets", "import", "--offsets-topic-num-partitions", "4"];
    let dry = run(&[&words[..], &["--dry-run"]].concat(), &[&new, &file]);
    assert_eq!((dry.status, names(&new).len()), (0, 0), "{}", dry.stderr);
    let done = run(&words, &[&new, &file]);
    assert_eq!((done.status, done.stderr.as_str()), (0, ""));
    let groups = run(&["groups", "list", "--json"], &[&new]).stdout.lines().count();
    assert_eq!(done.stdout.lines().last().unwrap(), format!("{} offsets of {groups} groups", exported.lines().count()));
    assert_eq!(names(&new).iter().filter(|name| name.starts_with("__consumer_offsets-")).count(), 4);
    assert_eq!(run(&["offsets", "export"], &[&new]).stdout, exported);
}

#[test]
fn empty_directories_of_partitions_can_be_imported_into() {
    let scratch = tempfile::tempdir().unwrap();
    let new = scratch.path().join("new");
    let file = scratch.path().join("all.csv");
    fs::write(&file, "g,orders,0,7\n").unwrap();
    (0..3).for_each(|i| fs::create_dir_all(new.join(format!("__consumer_offsets-{i}"))).unwrap());
    run(&["offsets", "list"], &[&new]).assert_refused(&["directories that are named like partitions hold none"]);
    let done = run(&["offsets", "import"], &[&new, &file]);
    assert_eq!(done.status, 0, "{}", done.stderr);
    assert_eq!(run(&["offsets", "export"], &[&new]).stdout, "g,orders,0,7\n");
}

#[test]
fn an_import_that_is_refused_leaves_no_partitions_behind() {
    let scratch = tempfile::tempdir().unwrap();
    let new = scratch.path().join("new");
    fs::create_dir(&new).unwrap();
    let file = scratch.path().join("bad.csv");
    fs::write(&file, "g,orders,0,7\ng,a/b,0,7\n").unwrap();
    run(&["offsets", "import", "--offsets-topic-num-partitions", "4"], &[&new, &file]).assert_refused(&["line 2: \"a/b\" is not the name"]);
    assert!(!names(&new).iter().any(|name| name.starts_with("__consumer")), "{:?}", names(&new));
    run(&["offsets", "import"], &[&file, &new]).assert_refused(&["give the directory first"]);
}

#[test]
fn names_that_look_like_something_else_come_back() {
    let scratch = tempfile::tempdir().unwrap();
    let (old, new, file) = (scratch.path().join("old"), scratch.path().join("new"), scratch.path().join("all"));
    let groups = ["{g", "{\"g\"", "\u{feff}g", "a,b", "x\ny"];
    let store = open(&old);
    for group in groups {
        store.commit(group, &[("orders", 0, keeplog::OffsetAndMetadata::new(3))]).unwrap();
    }
    store.close().unwrap();
    for format in ["csv", "json"] {
        for group in groups {
            let exported = run(&["offsets", "export", "--format", format, "--group", group, "--group", "nobody"], &[&old]);
            assert!(exported.stderr.contains("nothing is committed for group nobody"), "{}", exported.stderr);
            fs::write(&file, &exported.stdout).unwrap();
            fs::create_dir(&new).unwrap();
            let done = run(&["offsets", "import", "--offsets-topic-num-partitions", "1"], &[&new, &file]);
            assert_eq!(done.status, 0, "{group:?}: {}", done.stderr);
            let listed = run(&["offsets", "list", "--json"], &[&new]).json_lines();
            assert_eq!(listed.iter().map(|line| line["group"].as_str().unwrap()).collect::<Vec<_>>(), [group]);
            fs::remove_dir_all(&new).unwrap();
        }
    }
}

/// A commit of group g at `offset` in a place that no broker of today would take.
fn commit_oddly(data: &Path, topic: &str, partition: i32) {
    let topic_bytes = [&i16::try_from(topic.len()).unwrap().to_be_bytes()[..], topic.as_bytes()].concat();
    let key = [&b"\0\x01\0\x01g"[..], &topic_bytes, &partition.to_be_bytes()].concat();
    let value = [&[0, 0], &42i64.to_be_bytes()[..], &[0, 0], &1_000i64.to_be_bytes()].concat();
    append(data, Record::new(key, value));
}

#[test]
fn places_with_odd_names_can_be_set_and_deleted() {
    let scratch = tempfile::tempdir().unwrap();
    open(scratch.path()).close().unwrap();
    let long = "t".repeat(1_000);
    for (topic, partition) in [("", 0), (&*long, 1), ("two words", 2), ("orders", -1)] {
        commit_oddly(scratch.path(), topic, partition);
    }
    let set = run(&["offsets", "set", "--group", "g", "--all-topics", "--to-offset", "7"], &[scratch.path()]);
    assert_eq!(set.status, 0, "{}", set.stderr);
    assert!(set.stdout.lines().all(|line| line.len() < 400), "a long name is clipped");
    let listed = run(&["offsets", "list", "--json"], &[scratch.path()]).json_lines();
    assert_eq!(listed.iter().map(|line| line["offset"].as_u64().unwrap()).collect::<Vec<_>>(), [7; 4]);
    let deleted = run(&["offsets", "delete", "--group", "g", "--all-topics"], &[scratch.path()]);
    assert_eq!(deleted.status, 0, "{}", deleted.stderr);
    assert_eq!(run(&["offsets", "list", "--json"], &[scratch.path()]).stdout, "");
}

#[test]
fn groups_that_nobody_knows_are_told_by_the_exit_status() {
    let scratch = tempfile::tempdir().unwrap();
    let store = open(scratch.path());
    store.commit("g", &[("orders", 0, keeplog::OffsetAndMetadata::new(3))]).unwrap();
    store.close().unwrap();
    let nobody = ["--group", "nobody"];
    run(&[&["offsets", "delete", "--all-topics"], &nobody[..]].concat(), &[scratch.path()]).assert_refused(&["there is no such group"]);
    run(&[&["groups", "describe"], &nobody[..]].concat(), &[scratch.path()]).assert_refused(&["could not describe nobody"]);
    let both = run(&["groups", "describe", "--json", "--group", "g", "--group", "nobody"], &[scratch.path()]);
    assert_eq!((both.status, both.json_lines().len()), (2, 1));
    let words = ["offsets", "set", "--group", "g", "--topic", "orders:0"];
    let below = run(&[&words[..], &["--shift-by", "-9"]].concat(), &[scratch.path()]);
    assert_eq!(below.status, 0);
    assert!(below.stderr.contains("-6 is not an offset: 0 is taken"), "{}", below.stderr);
    run(&["offsets", "set", "--group", "", "--topic", "orders:0", "--to-offset", "1"], &[scratch.path()])
        .assert_refused(&["the name of the group is empty"]);
}

#[test]
fn members_that_are_gone_stop_nobody_if_that_is_said() {
    for words in [
        &["offsets", "set", "--group", "g", "--topic", "orders:0", "--to-offset", "5"][..],
        &["offsets", "delete", "--group", "g", "--all-topics"],
        &["groups", "delete", "--group", "g"],
    ] {
        let scratch = tempfile::tempdir().unwrap();
        let store = open(scratch.path());
        store.commit("g", &[("orders", 0, keeplog::OffsetAndMetadata::new(3))]).unwrap();
        store.close().unwrap();
        write_group(scratch.path(), "g", Some("orders"));
        open(scratch.path()).close().unwrap();
        run(words, &[scratch.path()]).assert_refused(&["it has 1 member", "--members-are-gone"]);
        let done = run(&[words, &["--members-are-gone"]].concat(), &[scratch.path()]);
        assert_eq!(done.status, 0, "{words:?}: {}", done.stderr);
    }
}

#[test]
fn share_groups_cannot_be_set() {
    let broker = unpack(Set::Broker);
    let scratch = tempfile::tempdir().unwrap();
    let data = scratch.path().join("data");
    keeplog_fixtures::copy_dir(broker, &data);
    run(&["offsets", "set", "--group", "shared", "--topic", "orders:0", "--to-offset", "1"], &[&data])
        .assert_refused(&["it is a share group"]);
}

#[test]
fn an_export_as_json_has_the_id_of_the_topic() {
    let scratch = tempfile::tempdir().unwrap();
    open(scratch.path()).close().unwrap();
    let (mut key, mut value) = (Vec::new(), Vec::new());
    assert!(OffsetKey { group: "g", topic: "orders", partition: 0 }.encode(&mut key));
    let committed = OffsetValue {
        offset: 3,
        leader_epoch: None,
        metadata: "",
        commit_timestamp_ms: 1,
        expire_timestamp_ms: None,
        topic_id: Some([0xff; 16]),
    };
    assert!(committed.encode(&mut value));
    append(scratch.path(), Record::new(key, value));
    let exported = run(&["offsets", "export", "--format", "json"], &[scratch.path()]).json_lines();
    assert_eq!(exported[0]["topic_id"], "_____________________w");
}

#[test]
fn a_checkpoint_that_cannot_be_read_is_told() {
    let scratch = tempfile::tempdir().unwrap();
    let store = open(scratch.path());
    store.commit("g", &[("orders", 0, keeplog::OffsetAndMetadata::new(3))]).unwrap();
    store.close().unwrap();
    fs::write(scratch.path().join("log-start-offset-checkpoint"), "what?").unwrap();
    for words in [&["offsets", "list"][..], &["offsets", "export"], &["groups", "describe"]] {
        let read = run(words, &[scratch.path()]);
        assert!(read.stderr.contains("log-start-offset-checkpoint: "), "{words:?}: {}", read.stderr);
    }
}
