//! `keeplog bench clean`: a pass over a log made for it.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use crate::harness::{command, finish};

#[test]
fn a_bench_shows_a_pass_and_leaves_nothing_behind() {
    let scratch = tempfile::tempdir().unwrap();
    let bench = |more: &[&str]| {
        let arguments = ["bench", "clean", "--mib", "3", "--keys", "500", "--threads", "2"].iter().chain(more);
        let run = finish(command(arguments).env("TMPDIR", scratch.path()).output().unwrap());
        assert_eq!((run.status, run.stderr.as_str()), (0, ""));
        assert_eq!(scratch.path().read_dir().unwrap().count(), 0, "the log is still there");
        run
    };
    let figures = bench(&["--json"]).json_lines().remove(0);
    let number = |field: &str| figures[field].as_f64().unwrap();
    assert_eq!((number("map_size"), number("records_kept"), number("threads")), (500.0, 500.0, 2.0), "{figures}");
    assert!(number("records_read") > 20_000.0 && number("bytes_read") >= f64::from(3 << 20), "{figures}");
    assert!(number("bytes_per_second") > 0.0 && number("records_per_second") > 0.0, "{figures}");
    assert_eq!(number("new_dirty"), number("first_uncleanable"));
    let text = bench(&[]).stdout;
    for said in ["bench-0: cleaned offsets 0..", " MB/s, ", "records/s on 2 threads", "for each byte dropped", "500 keys"] {
        assert!(text.contains(said), "{said:?} is not in {text}");
    }
}

/// Waits until something is in `dir`.
fn wait_for_entry(dir: &std::path::Path) {
    for _ in 0..1200 {
        if dir.read_dir().unwrap().next().is_some() {
            return;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(50));
    }
    panic!("nothing was made in {}", dir.display());
}

#[test]
fn who_interrupts_a_bench_or_a_demo_finds_nothing_left_behind() {
    for (arguments, signal) in [(&["bench", "clean", "--mib", "20000"][..], 2), (&["demo", "--records", "100000000"], 15)] {
        let scratch = tempfile::tempdir().unwrap();
        let mut run = command(arguments).env("TMPDIR", scratch.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_for_entry(scratch.path());
        assert!(Command::new("kill").args([format!("-{signal}"), run.id().to_string()]).status().unwrap().success());
        let status = run.wait().unwrap();
        assert_eq!(status.signal(), Some(signal), "who asks for its status sees what ended it: {status}");
        assert_eq!(scratch.path().read_dir().unwrap().count(), 0, "{arguments:?}");
    }
}

#[test]
fn a_file_size_limit_is_told_and_does_not_end_the_command_without_a_word() {
    let scratch = tempfile::tempdir().unwrap();
    let limited = format!("ulimit -f 1000; exec {} bench clean --mib 9", env!("CARGO_BIN_EXE_keeplog"));
    let run = finish(Command::new("sh").args(["-c", &limited]).env("TMPDIR", scratch.path()).output().unwrap());
    run.assert_refused(&["ulimit -f", "00000000000000000000.log"]);
    assert_eq!(scratch.path().read_dir().unwrap().count(), 0);
}
