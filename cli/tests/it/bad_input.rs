//! Directories and files that are not what they should be: a clear error, status 2, nothing on stdout.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;

use keeplog_fixtures::{Set, copy_dir, unpack};

use crate::harness::{Run, command, finish, keeplog};

const READING: [&str; 3] = ["dump", "inspect", "verify"];

fn each_command(path: &Path, check: impl Fn(&str, Run)) {
    for name in READING {
        check(name, keeplog([name.as_ref(), path.as_os_str()]));
    }
}

#[track_caller]
fn refused_by_all(path: &Path, said: &[&str]) {
    each_command(path, |_, run| {
        run.assert_refused(said);
        assert!(run.stderr.starts_with("keeplog: could not "), "{}", run.stderr);
        assert!(run.stderr.contains("what to do: "), "{}", run.stderr);
    });
}

#[test]
fn what_is_not_there_or_not_a_log_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    refused_by_all(&dir.join("missing"), &["missing: No such file"]);
    refused_by_all(dir, &["the directory is empty"]);

    fs::write(dir.join("notes.txt"), "x").unwrap();
    refused_by_all(dir, &["it is not a log"]);
    refused_by_all(&dir.join("notes.txt"), &["notes.txt: it is not a directory"]);

    // Files that end in .log are not yet segments.
    fs::write(dir.join("syslog.log"), "x").unwrap();
    refused_by_all(dir, &["it is not a log"]);

    let case = unpack(Set::Cleaned).join("000");
    refused_by_all(&case, &["none in a directory named like a partition", "after1, after2"]);
}

#[test]
fn links_in_a_data_directory_are_not_followed() {
    let scratch = tempfile::tempdir().unwrap();
    let data = scratch.path().join("data");
    fs::create_dir(&data).unwrap();
    symlink(unpack(Set::Broker).join("txn-0"), data.join("txn-0")).unwrap();
    refused_by_all(&data, &["holds only links", "txn-0"]);

    copy_dir(unpack(Set::Broker).join("orders-0"), data.join("orders-0"));
    each_command(&data, |name, run| {
        assert!(run.stderr.contains("left out txn-0: links in a data directory are not followed"), "{}", run.stderr);
        // To judge them is the business of verify.
        assert_eq!(run.status, i32::from(name == "verify"), "{name}: {}", run.stdout);
    });

    // A link that was named by the user is meant.
    each_command(&data.join("txn-0"), |_, run| assert_eq!((run.status, run.stderr.as_str()), (0, "")));
}

#[test]
fn a_segment_that_is_a_link_is_damage() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("orders-0");
    copy_dir(unpack(Set::Broker).join("orders-0"), &dir);
    symlink("/etc/passwd", dir.join("00000000000000001000.log")).unwrap();

    let run = keeplog(["verify".as_ref(), "--json".as_ref(), dir.as_os_str()]);
    assert_eq!(run.status, 1);
    assert_eq!(run.json_lines()[0]["findings"][0]["code"], "not-a-file");
    let run = keeplog(["dump".as_ref(), dir.as_os_str()]);
    assert_eq!(run.status, 1);
    assert!(run.stderr.contains("no ordinary file"), "{}", run.stderr);
    assert!(!run.stdout.contains("root:"));
}

#[test]
fn what_may_not_be_read_is_named_and_the_rest_goes_on() {
    let scratch = tempfile::tempdir().unwrap();
    for name in ["orders-0", "orders-1"] {
        copy_dir(unpack(Set::Broker).join(name), scratch.path().join(name));
    }
    let log = scratch.path().join("orders-0/00000000000000000000.log");
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&log, fs::Permissions::from_mode(0o000)).unwrap();
    // Root may read everything, so give that up.
    let nobody = fs::File::open(&log).is_ok().then_some(65534);
    for name in READING {
        let mut command = command([name.as_ref(), scratch.path().as_os_str()]);
        if let Some(user) = nobody {
            command.uid(user);
        }
        let run = finish(command.output().unwrap());
        assert_eq!(run.status, 2, "{name}");
        assert!(run.stderr.contains("00000000000000000000.log") && run.stderr.contains("Permission denied"), "{}", run.stderr);
        assert!(run.stderr.contains("could not work on 1 of 2 partitions: orders-0"), "{}", run.stderr);
        assert!(!run.stdout.is_empty());
    }
}

#[test]
fn names_from_the_directory_cannot_drive_the_terminal() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("orders-0");
    copy_dir(unpack(Set::Broker).join("orders-0"), &dir);
    fs::write(dir.join("evil\u{1b}[2J\n.log"), "x").unwrap();
    each_command(&dir, |_, run| {
        assert!(!run.stdout.contains('\u{1b}') && !run.stderr.contains('\u{1b}'), "{}{}", run.stdout, run.stderr);
    });
}
