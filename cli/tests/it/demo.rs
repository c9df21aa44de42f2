//! `keeplog demo`.

use std::fs;
use std::process::Stdio;

use crate::harness::{command, keeplog};

#[test]
fn a_small_run_commits_crashes_and_answers_as_acknowledged() {
    let run = keeplog(["demo", "--json", "--records", "20001"]);
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    let shown = run.json_lines().remove(0);
    assert_eq!((&shown["committed"], &shown["keys"], &shown["wrong_answers"]), (&20001.into(), &20001.into(), &0.into()), "{shown}");
    assert_eq!(shown["at_crash"]["records"], 20001);
    assert!(shown["bytes_appended"].as_u64() >= shown["after_clean"]["bytes"].as_u64());
    assert!(!fs::exists(shown["dir"].as_str().unwrap()).unwrap(), "the temporary directory is gone");
}

#[test]
fn a_directory_that_was_given_stays_and_is_sound() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("kept");
    let run = keeplog(["demo", "--records", "150000", "--dir", dir.to_str().unwrap()]);
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    for line in ["committed", "killed", "recovered", "reloaded", "compared", "left"] {
        assert!(run.stdout.lines().any(|text| text.starts_with(line)), "no {line} in {}", run.stdout);
    }
    assert!(run.stdout.lines().count() <= 50 && run.stdout.contains("none differs"), "{}", run.stdout);
    assert_eq!(keeplog(["verify".as_ref(), dir.as_os_str()]).status, 0);
    let listed = keeplog(["offsets".as_ref(), "list".as_ref(), "--json".as_ref(), dir.as_os_str()]).json_lines();
    assert_eq!(listed.len(), 100_000);

    let again = keeplog(["demo", "--records", "10", "--dir", dir.to_str().unwrap()]);
    again.assert_refused(&["it is not empty", "does not exist yet"]);
}

/// Whoever kills the demo must not be left with a process that goes on writing.
#[test]
fn the_writer_ends_with_the_demo() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("demo");
    let mut demo = command(["demo".as_ref(), "--records".as_ref(), "100000000".as_ref(), "--dir".as_ref(), dir.as_os_str()]);
    let mut demo = demo.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let wait = |what: &str, mut holds: Box<dyn FnMut() -> bool + '_>| {
        for _ in 0..600 {
            if holds() {
                return;
            }
            std::thread::park_timeout(std::time::Duration::from_millis(50));
        }
        panic!("never: {what}");
    };
    let has_written = || keeplog(["verify".as_ref(), dir.as_os_str()]).status != 2;
    wait("a partition", Box::new(has_written));
    demo.kill().unwrap();
    demo.wait().unwrap();
    wait("the directory is free", Box::new(|| keeplog(["recover".as_ref(), dir.as_os_str()]).status == 0));
}
