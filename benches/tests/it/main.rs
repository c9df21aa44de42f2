//! The program, as it is run: every measurement that needs no other program, as small as it gets.
#![allow(clippy::disallowed_methods, reason = "tests look at the files that were written")]

use std::fs;
use std::process::{Command, Output};

use keeplog_benches::report::{Cell, Report};

fn benches(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_keeplog-benches")).args(args).output().unwrap()
}

/// What a measurement reports.
fn report(args: &[&str]) -> Report {
    let ended = benches(&[args, &["--runs", "1", "--json"]].concat());
    assert!(ended.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ended.stderr));
    serde_json::from_slice(&ended.stdout).unwrap()
}

fn number(cell: &Cell) -> f64 {
    match cell {
        Cell::Number(number) => *number,
        other => panic!("{other:?} is no number"),
    }
}

#[test]
fn the_dedup_set_is_filled() {
    let found = report(&["dedup", "--keys", "1000,3000"]);
    let rows = &found.tables[0].rows;
    assert_eq!(rows.len(), 4, "two sizes, two kinds of set");
    for row in rows {
        assert!(number(&row[4]) >= 8.0, "a key takes its tag at least: {row:?}");
    }
}

#[test]
fn a_pass_writes_little_more_than_it_has_to() {
    let found = report(&["amplification", "--scale", "0.002", "--segment-mib", "1"]);
    let rows = &found.tables[0].rows;
    let (anywhere, neighbours) = (&rows[0], &rows[1]);
    // Every segment of the clean part loses something, or a few of them do.
    assert_eq!(number(&anywhere[1]).to_bits(), number(&anywhere[3]).to_bits());
    assert!(number(&neighbours[3]) < number(&neighbours[1]) / 5.0);
    for row in rows {
        assert!(number(&row[4]) > 0.0 && number(&row[5]) > 0.0, "{row:?}");
    }
}

#[test]
fn appends_are_timed_while_a_pass_runs() {
    let found = report(&["latency", "--mib", "2", "--keys", "1000", "--segment-mib", "1", "--seconds", "0.02"]);
    assert_eq!(found.runs.len(), 2, "buffered and synced");
    for run in found.runs.iter().flat_map(|run| run["runs"].as_array().unwrap()) {
        assert!(run["idle"]["appends"].as_u64() > Some(0) && run["busy"]["appends"].as_u64() > Some(0), "{run}");
    }
}

#[test]
fn a_page_is_made_again_from_its_json() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    report(&["dedup", "--keys", "500", "--out", out]);
    let page = fs::read_to_string(dir.path().join("dedup.md")).unwrap();
    assert!(page.starts_with("# The dedup set\n"), "{page}");
    fs::remove_file(dir.path().join("dedup.md")).unwrap();
    let json = dir.path().join("dedup.json");
    assert!(benches(&["report", "render", json.to_str().unwrap()]).status.success());
    assert_eq!(fs::read_to_string(dir.path().join("dedup.md")).unwrap(), page);
}

#[test]
fn a_process_is_measured_by_itself() {
    let ended = benches(&["measure", "--", "sh", "-c", "echo said"]);
    assert!(ended.status.success());
    let ran: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(ran["printed"], "said\n");
    let peak_bytes = ran["peak_bytes"].as_u64().unwrap();
    assert!((100 << 10..100 << 20).contains(&peak_bytes), "{peak_bytes} bytes for a shell");

    let failed = benches(&["measure", "--", "sh", "-c", "exit 3"]);
    assert_eq!(failed.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&failed.stderr).contains("sh ended with"));
}

/// What is said is what to do, not only what is missing.
#[test]
fn a_missing_program_is_named() {
    let ended = benches(&["report", "clean", "--keeplog", "/no/such/keeplog"]);
    assert_eq!(ended.status.code(), Some(2));
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(said.contains("/no/such/keeplog") && said.contains("--keeplog PATH"), "{said}");
    let ended = benches(&["report", "render", "/no/such.json"]);
    assert!(String::from_utf8_lossy(&ended.stderr).contains("/no/such.json"));
}
