//! Arguments, help, and where output goes.

use std::io::Read;
use std::process::Stdio;

use keeplog_fixtures::{Set, unpack};

use crate::harness::{command, keeplog};

const READING: [&str; 3] = ["dump", "inspect", "verify"];

#[test]
fn help_and_version_are_no_errors() {
    for arguments in [&["--help"][..], &["-h"], &["--version"], &["help", "verify"]] {
        let run = keeplog(arguments);
        assert_eq!((run.status, run.stderr.as_str()), (0, ""), "{arguments:?}");
        assert!(!run.stdout.is_empty());
    }
}

#[test]
fn the_help_of_every_command_gives_examples() {
    let all = keeplog(["--help"]);
    assert!(all.stdout.contains("Examples:") && all.stdout.contains("Exit status:"), "{}", all.stdout);
    for name in [
        "demo",
        "inspect",
        "dump",
        "verify",
        "recover",
        "compact",
        "explain",
        "offsets list",
        "offsets get",
        "offsets export",
        "offsets set",
        "offsets delete",
        "offsets import",
        "groups list",
        "groups describe",
        "groups delete",
        "bench clean",
    ] {
        let words: Vec<&str> = name.split(' ').collect();
        assert!(all.stdout.contains(&format!("\n  {}", words[0])), "{name} is not in {}", all.stdout);
        let run = keeplog(words.into_iter().chain(["--help"]));
        assert_eq!(run.status, 0);
        assert!(run.stdout.contains("Examples:") && run.stdout.contains(&format!("keeplog {name}")), "{}", run.stdout);
    }
}

#[test]
fn wrong_usage_could_not_run() {
    for arguments in [
        &[][..],
        &["nonsense"],
        &["dump"],
        &["dump", "a", "b"],
        &["verify", "--nonsense", "a"],
        &["dump", "--decode", "x", "a"],
        &["offsets"],
        &["offsets", "get", "a"],
        &["offsets", "set", "a"],
        &["offsets", "set", "--group", "g", "--topic", "t", "a"],
        &["offsets", "set", "--group", "g", "--topic", "t", "--to-latest", "--to-offset", "1", "a"],
        &["offsets", "set", "--group", "g", "--topic", "t:x", "--to-latest", "a"],
        &["offsets", "set", "--group", "g", "--topic", "../t", "--to-latest", "a"],
        &["offsets", "set", "--group", "g", "--topic", "t", "--to-datetime", "noon", "a"],
        &["offsets", "set", "--group", "g", "--topic", "t", "--by-duration", "1h", "a"],
        &["offsets", "delete", "--group", "g", "a"],
        &["offsets", "import", "a"],
        &["groups"],
        &["groups", "list", "--state", "sleepy", "a"],
        &["demo", "--records", "0"],
        &["bench"],
        &["bench", "clean", "--keys", "0"],
        &["explain", "--min-cleanable-dirty-ratio", "1.5", "a"],
    ] {
        let run = keeplog(arguments);
        assert_eq!((run.status, run.stdout.as_str()), (2, ""), "{arguments:?}");
        assert!(run.stderr.contains("--help") || run.stderr.contains("Usage:"), "{}", run.stderr);
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    for arguments in [&["dump", "--json"][..], &["dump"], &["verify"], &["inspect"]] {
        let mut child = command(arguments).arg(unpack(Set::Broker)).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Read a little, then close the pipe while much is still to come.
        child.stdout.take().unwrap().read_exact(&mut [0; 10]).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
    }
}

#[test]
fn a_verdict_does_not_depend_on_who_reads_it() {
    let dir = unpack(Set::Recovery).join("06-active-middle-bit/before");
    let mut child = command(["verify"]).arg(dir).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(1));
}

#[test]
fn json_output_is_one_object_a_line_and_nothing_else() {
    for name in READING {
        let run = keeplog([name.as_ref(), "--json".as_ref(), unpack(Set::Broker).as_os_str()]);
        assert_eq!((run.status, run.stderr.as_str()), (0, ""), "{name}");
        assert!(run.json_lines().iter().all(serde_json::Value::is_object));
    }
}
