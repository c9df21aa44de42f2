//! Every kind of file, damaged in every kind of way: each command ends with a clear word and a status, recovery loses
//! nothing that was sound, and nothing panics (which the harness sees to).

use std::fs;
use std::path::{Path, PathBuf};

use keeplog_fixtures::{Set, copy_dir, unpack};
use serde_json::Value;

use crate::harness::{in_parallel, keeplog};

/// A way to damage the bytes of a file: always the same for the same bytes.
type Damage = fn(Vec<u8>) -> Vec<u8>;

const DAMAGES: [(&str, Damage); 7] = [
    ("emptied", |_| Vec::new()),
    ("cut in half", |mut bytes| {
        bytes.truncate(bytes.len() / 2);
        bytes
    }),
    ("cut by one", |mut bytes| {
        bytes.pop();
        bytes
    }),
    ("one bit flipped", |mut bytes| {
        let middle = bytes.len() / 2;
        if let Some(byte) = bytes.get_mut(middle) {
            *byte ^= 0x10;
        }
        bytes
    }),
    ("zeroed", |bytes| vec![0; bytes.len()]),
    ("all ones", |bytes| vec![0xff; bytes.len()]),
    ("noise", |bytes| noise(bytes.len().max(100))),
];

fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// A data directory with a partition that has every kind of file, and its checkpoints.
fn data_dir() -> tempfile::TempDir {
    let data = tempfile::tempdir().unwrap();
    copy_dir(unpack(Set::Broker).join("txn-0"), data.path().join("txn-0"));
    for (name, content) in [
        ("recovery-point-offset-checkpoint", "0\n1\ntxn 0 510\n"),
        ("cleaner-offset-checkpoint", "0\n1\ntxn 0 17\n"),
        ("replication-offset-checkpoint", "0\n1\ntxn 0 510\n"),
        ("log-start-offset-checkpoint", "0\n0\n"),
    ] {
        fs::write(data.path().join(name), content).unwrap();
    }
    data
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files_below(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Batches without where they are, which is what recovery may not change.
fn dump(dir: &Path) -> Vec<Value> {
    keeplog(["dump".as_ref(), "--json".as_ref(), dir.join("txn-0").as_os_str()]).json_lines()
}

#[test]
fn every_file_in_every_state_is_survived() {
    let whole = data_dir();
    let names: Vec<PathBuf> = files_below(whole.path()).iter().map(|path| path.strip_prefix(whole.path()).unwrap().to_path_buf()).collect();
    let sound = dump(whole.path());
    assert!(names.len() >= 14, "{names:?}");
    let all = names.iter().flat_map(|name| DAMAGES.map(|(damage, apply)| (name, damage, apply))).collect();
    in_parallel(all, |(name, damage, apply): (&PathBuf, &str, Damage)| {
        let data = data_dir();
        let path = data.path().join(name);
        let damaged = apply(fs::read(&path).unwrap());
        fs::write(&path, damaged).unwrap();
        assert_survived(data.path(), name, &format!("{} {damage}", name.display()), &sound);
    });
}

fn assert_survived(data: &Path, name: &Path, label: &str, sound: &[Value]) {
    for command in ["verify", "inspect", "dump"] {
        let run = keeplog([command.as_ref(), data.as_os_str()]);
        assert!(run.status <= 1, "{label}: {command} gave {}: {}", run.status, run.stderr);
        assert!(run.status == 0 || !run.stdout.is_empty(), "{label}");
    }
    let run = keeplog(["offsets".as_ref(), "list".as_ref(), data.join("txn-0").as_os_str()]);
    assert!(run.status > 0 || sound_but_empty(data), "{label}: {}", run.stdout);

    let run = keeplog(["recover".as_ref(), "--json".as_ref(), data.as_os_str()]);
    assert!(run.status <= 1, "{label}: {}", run.stderr);
    let left = dump(data);
    if name.extension().is_some_and(|ending| ending == "log") {
        // Of a damaged log, whatever is there is what was there.
        for batch in left.iter().filter(|batch| batch["valid"] == true) {
            let known = |whole: &&Value| whole["crc"] == batch["crc"] && whole["records"] == batch["records"];
            assert!(sound.iter().any(|whole| known(&whole)), "{label}: {batch}");
        }
        return;
    }
    assert_eq!(left, sound, "{label}");
    // The topic id is nowhere else.
    let stays = name.ends_with("partition.metadata");
    let verified = keeplog(["verify".as_ref(), data.as_os_str()]);
    assert!(verified.status == 0 || stays, "{label}: {}", verified.stdout);
}

/// Whether no segment has a byte.
fn sound_but_empty(data: &Path) -> bool {
    dump(data).is_empty()
}

/// Many things are named like partitions. What holds nothing of one is never taken for one, and never written to.
#[test]
fn directories_that_are_only_named_like_partitions_are_left_alone() {
    let data = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(data.path().join("python-3/lib")).unwrap();
    std::fs::write(data.path().join("python-3/README"), "no log").unwrap();
    for command in ["verify", "inspect", "recover", "compact"] {
        let run = crate::harness::keeplog([command.as_ref(), data.path().as_os_str()]);
        assert_eq!((run.status, run.stdout.as_str()), (2, ""), "{command}: {}", run.stderr);
        assert!(run.stderr.contains("not a log"), "{command}: {}", run.stderr);
    }
    let names: Vec<_> = std::fs::read_dir(data.path().join("python-3")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!((names.len(), std::fs::read_dir(data.path()).unwrap().count()), (2, 1), "{names:?}");
}
