//! How many partitions `__consumer_offsets` has, which tells where a group is: commands must not go by a wrong number.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroU32;
use std::path::Path;

use keeplog::inspect::offsets::partition_for;
use keeplog::{OffsetAndMetadata, OffsetOptions, OffsetStore};

use crate::harness::{Run, keeplog};

const PARTITIONS: u32 = 4;
const GROUPS: u32 = 24;

fn run(words: &[&str], dir: &Path) -> Run {
    keeplog(words.iter().map(AsRef::as_ref).chain([dir.as_os_str()]))
}

fn partition_of(group: &str) -> u32 {
    partition_for(group, NonZeroU32::new(PARTITIONS).unwrap())
}

/// A store of four partitions with groups in all of them.
fn data() -> tempfile::TempDir {
    let scratch = tempfile::tempdir().unwrap();
    let store = OffsetStore::open(scratch.path(), OffsetOptions::new().offsets_topic_num_partitions(PARTITIONS)).unwrap();
    for i in 0..GROUPS {
        store.commit(&format!("group-{i}"), &[("orders", 0, OffsetAndMetadata::new(u64::from(i)))]).unwrap();
    }
    store.close().unwrap();
    scratch
}

/// The first group that is in `partition`.
fn group_in(partition: u32) -> String {
    (0..GROUPS).map(|i| format!("group-{i}")).find(|group| partition_of(group) == partition).unwrap()
}

fn logs(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let partitions = (0..8).map(|i| format!("__consumer_offsets-{i}/00000000000000000000.log"));
    partitions.filter_map(|name| fs::read(dir.join(&name)).ok().map(|bytes| (name, bytes))).collect()
}

/// All commands that write, about `group`.
fn writing<'a>(group: &'a str, csv: &'a str) -> [Vec<&'a str>; 4] {
    [
        vec!["offsets", "set", "--group", group, "--topic", "orders:0", "--to-offset", "99"],
        vec!["offsets", "set", "--group", group, "--from-file", csv],
        vec!["offsets", "delete", "--group", group, "--all-topics"],
        vec!["groups", "delete", "--group", group],
    ]
}

#[test]
fn a_partition_that_is_there_by_name_only_counts() {
    type Mangle = fn(&Path);
    let mangles: [(&str, Mangle); 3] = [
        ("an empty directory", |path| fs::create_dir(path).unwrap()),
        ("a file", |path| fs::write(path, "").unwrap()),
        #[cfg(unix)]
        ("a link", |path| std::os::unix::fs::symlink("elsewhere", path).unwrap()),
    ];
    for (what, mangle) in mangles {
        let scratch = data();
        let last = scratch.path().join("__consumer_offsets-3");
        fs::remove_dir_all(&last).unwrap();
        mangle(&last);
        let group = group_in(1);
        let set = run(&["offsets", "set", "--group", &group, "--topic", "orders:0", "--to-offset", "99"], scratch.path());
        assert_eq!(set.status, 0, "{what}: {}", set.stderr);
        let got = run(&["offsets", "list", "--tsv"], &scratch.path().join("__consumer_offsets-1"));
        assert!(got.stdout.contains(&format!("{group}\torders\t0\t99\t")), "{what}: it lies where it lay: {}", got.stdout);
        let got = keeplog(["offsets".as_ref(), "get".as_ref(), scratch.path().as_os_str(), group.as_ref()]);
        assert!(got.stdout.contains(" 99 "), "{what}: {}{}", got.stdout, got.stderr);
    }
}

#[test]
fn a_wrong_number_of_partitions_is_refused() {
    let csv_dir = tempfile::tempdir().unwrap();
    let csv = csv_dir.path().join("offsets.csv");
    for partition in 0..PARTITIONS - 1 {
        let group = group_in(partition);
        fs::write(&csv, "orders,0,99\n").unwrap();
        for words in writing(&group, csv.to_str().unwrap()) {
            let scratch = data();
            fs::remove_dir_all(scratch.path().join("__consumer_offsets-3")).unwrap();
            let before = logs(scratch.path());
            run(&words, scratch.path()).assert_refused(&["in the wrong one", "--offsets-topic-num-partitions", "where the groups lie, 4"]);
            for (wrong, said) in [("2", "so there are more than 2"), ("5", "in the wrong one")] {
                run(&[&words[..], &["--offsets-topic-num-partitions", wrong]].concat(), scratch.path()).assert_refused(&[said]);
            }
            assert!(logs(scratch.path()) == before, "{words:?}");
            assert!(scratch.path().join(".kafka_cleanshutdown").exists(), "{words:?}: closed in order");
            let right = run(&[&words[..], &["--offsets-topic-num-partitions", "4"]].concat(), scratch.path());
            assert_eq!(right.status, 0, "{words:?}: {}", right.stderr);
        }
    }
}

#[test]
fn a_partition_too_many_is_refused() {
    let scratch = data();
    fs::create_dir(scratch.path().join("__consumer_offsets-4")).unwrap();
    for words in writing(&group_in(0), "no file").into_iter().filter(|words| !words.contains(&"--from-file")) {
        let before = logs(scratch.path());
        run(&words, scratch.path()).assert_refused(&[
            "in the wrong one",
            "there are 4",
            "if __consumer_offsets-4 is none of them, move it away",
        ]);
        assert!(logs(scratch.path()) == before, "{words:?}");
    }
}

#[test]
fn commands_that_read_warn_of_groups_in_the_wrong_partition() {
    let scratch = data();
    fs::remove_dir_all(scratch.path().join("__consumer_offsets-3")).unwrap();
    for words in [&["offsets", "list"][..], &["offsets", "export"], &["groups", "list"], &["groups", "describe"]] {
        let read = run(words, scratch.path());
        assert_eq!(read.status, 0, "{words:?}: {}", read.stderr);
        assert!(read.stderr.contains("in the wrong one") && read.stderr.contains("where the groups lie, 4"), "{words:?}: {}", read.stderr);
        assert!(run(words, data().path()).stderr.is_empty(), "{words:?}");
    }
    for partition in 0..3 {
        let group = group_in(partition);
        let got = keeplog(["offsets".as_ref(), "get".as_ref(), "--json".as_ref(), scratch.path().as_os_str(), group.as_ref()]);
        assert_eq!((got.status, got.json_lines().len()), (0, 1), "{group}: {}", got.stderr);
    }
}

#[test]
fn a_group_in_several_partitions_is_told() {
    let scratch = data();
    let group = group_in(2);
    let copy = scratch.path().join("__consumer_offsets-1/00000000000000000000.log");
    fs::copy(scratch.path().join("__consumer_offsets-2/00000000000000000000.log"), copy).unwrap();
    let read = run(&["offsets", "export"], scratch.path());
    assert!(read.stderr.contains("lie in several partitions") && read.stderr.contains("may be told several times"), "{}", read.stderr);
    for words in writing(&group, "no file").into_iter().filter(|words| !words.contains(&"--from-file")) {
        run(&words, scratch.path()).assert_refused(&["in the wrong one", "no number of partitions fits all groups"]);
    }
}

#[test]
fn a_gap_in_the_numbers_is_told_as_a_range() {
    let scratch = data();
    fs::rename(scratch.path().join("__consumer_offsets-3"), scratch.path().join("__consumer_offsets-2147483647")).unwrap();
    let read = run(&["offsets", "list"], scratch.path());
    assert!(read.stderr.contains("partitions 3-2147483646 are not here"), "{}", read.stderr.chars().take(1000).collect::<String>());
    assert_eq!(read.stdout.lines().count() as u32, GROUPS + 1);
}

#[test]
#[cfg(unix)]
fn a_segment_that_is_no_file_is_damage() {
    for directory in [false, true] {
        let scratch = data();
        let dir = scratch.path().join("__consumer_offsets-2");
        let log = dir.join("00000000000000000000.log");
        fs::rename(&log, dir.join("elsewhere")).unwrap();
        if directory {
            fs::create_dir(&log).unwrap();
        } else {
            std::os::unix::fs::symlink("elsewhere", &log).unwrap();
        }
        for words in [&["offsets", "list"][..], &["offsets", "export"], &["groups", "list"], &["groups", "describe"]] {
            let read = run(words, scratch.path());
            assert_eq!(read.status, 1, "{words:?}: {}", read.stderr);
            assert!(read.stderr.contains("00000000000000000000.log: it is a"), "{words:?}: {}", read.stderr);
        }
        let refused = run(&["groups", "delete", "--group", &group_in(2)], scratch.path());
        refused.assert_refused(&["cannot be read in whole"]);
    }
}
