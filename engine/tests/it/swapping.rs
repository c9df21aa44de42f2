//! Rewrites: outputs in the place of their sources, at every point of interruption.

use keeplog_engine::record::Record;
use keeplog_engine::{Durability, ErrorKind, Log, Rewrite, SealedOutput};

use crate::support::{T0, all, contents, crash, disk, files, open, put, small};

fn fill(log: &Log) {
    for i in 0..100 {
        log.append(&[Record::new(format!("k{i}"), "v".repeat(100))], Durability::Buffered).unwrap();
    }
}

/// Replaces the first two segments by one that holds every batch with an even offset.
fn halve(log: &Log) {
    let rewrite = log.begin_rewrite().unwrap();
    let sources = rewrite.sources().sealed()[..2].to_vec();
    let end = rewrite.sources().all()[2].base_offset();
    let mut output = rewrite.create_output(sources[0].base_offset()).unwrap();
    for batch in log.batches_from(0).unwrap().map(Result::unwrap).take_while(|b| b.header.base_offset < end) {
        if batch.header.base_offset % 2 == 0 {
            output.append(&batch.bytes).unwrap();
        }
    }
    let output = output.seal(T0).unwrap();
    rewrite.swap(&sources, vec![output]).unwrap();
}

#[test]
fn readers_see_the_old_or_the_new_and_files_go_with_the_last_reader() {
    let disk = disk();
    let log = open(&disk, small());
    fill(&log);
    let mut reader = log.read_from(0).unwrap();
    reader.next().unwrap().unwrap();
    let second = log.segments().all()[1].base_offset();
    let end = log.segments().all()[2].base_offset();
    halve(&log);
    assert_eq!(reader.count(), 99);
    assert_eq!(all(&log).len() as u64, 100 - end / 2);
    assert_eq!(log.segments().all()[0].base_offset(), 0);
    assert_eq!(log.segments().all()[1].base_offset(), end);
    let names = files(&disk);
    assert!(names.iter().all(|n| !n.contains(".deleted") && !n.contains(".swap") && !n.contains(".cleaned")), "{names:?}");
    assert!(!names.contains(&format!("{second:020}.log")));
    log.close().unwrap();
    assert_eq!(all(&open(&disk, small())).len() as u64, 100 - end / 2);
}

#[test]
fn one_rewrite_at_a_time_and_an_abandoned_one_leaves_nothing() {
    let disk = disk();
    let log = open(&disk, small());
    fill(&log);
    let rewrite = log.begin_rewrite().unwrap();
    assert_eq!(log.begin_rewrite().unwrap_err().kind(), ErrorKind::Locked);
    let mut output = rewrite.create_output(0).unwrap();
    output.append(&log.batches_from(0).unwrap().next().unwrap().unwrap().bytes).unwrap();
    drop(output);
    drop(rewrite);
    assert!(files(&disk).iter().all(|n| !n.contains(".cleaned")));
    halve(&log);
}

#[test]
fn wrong_outputs_and_sources_are_refused() {
    let disk = disk();
    let log = open(&disk, small());
    fill(&log);
    let rewrite = log.begin_rewrite().unwrap();
    let sealed = rewrite.sources().sealed().to_vec();
    let batches: Vec<_> = log.batches_from(0).unwrap().map(Result::unwrap).collect();
    let mut output = rewrite.create_output(0).unwrap();
    output.append(&batches[1].bytes).unwrap();
    assert!(output.append(&batches[0].bytes).is_err(), "offsets rise");
    assert!(output.append(&batches[2].bytes[..50]).is_err(), "entries are whole");
    let output = output.seal(T0).unwrap();
    assert!(rewrite.swap(&sealed[1..2], vec![output]).is_err(), "not its source");
}

/// Every prefix of the renames of a swap, on the files as they were before and after it: an open finds all the old
/// or all the new, and never a mixture.
#[test]
fn a_crash_at_any_point_of_a_swap_leaves_old_or_new() {
    let disk = disk();
    let log = open(&disk, small());
    fill(&log);
    log.sync().unwrap();
    let before = crash(log.clone(), &disk);
    let old = all(&log);
    let (second, end) = (log.segments().all()[1].base_offset(), log.segments().all()[2].base_offset());
    halve(&log);
    let new = all(&log);
    let kinds = ["log", "index", "timeindex"];
    let name = |base: u64, kind: &str, suffix: &str| format!("{base:020}.{kind}{suffix}");
    let outputs: Vec<_> = kinds.iter().map(|k| contents(&disk, &name(0, k, ""))).collect();

    // One rename after the other, as the writer makes them.
    let mut steps: Vec<(String, String)> = kinds.iter().map(|k| (name(0, k, ".cleaned"), name(0, k, ".swap"))).collect();
    for base in [0, second] {
        steps.extend(kinds.iter().rev().map(|k| (name(base, k, ""), name(base, k, ".deleted"))));
    }
    steps.extend(kinds.iter().map(|k| (name(0, k, ".swap"), name(0, k, ""))));
    for done in 0..=steps.len() {
        let image = std::sync::Arc::new(before.image());
        for (kind, bytes) in kinds.iter().zip(&outputs) {
            put(&image, &name(0, kind, ".cleaned"), bytes);
        }
        for (from, to) in &steps[..done] {
            use keeplog_engine::storage::Storage;
            image.rename(&crate::support::path(from), &crate::support::path(to)).unwrap();
        }
        let log = open(&image, small());
        let found = all(&log);
        assert_eq!(found, if done < kinds.len() { old.clone() } else { new.clone() }, "after {done} renames");
        assert_eq!(log.end_offset(), 100);
        assert_eq!(log.recovery_report().damage, [], "after {done} renames");
        assert!(log.segments().all().iter().any(|s| s.base_offset() == end));
        let again = crash(log, &image);
        assert_eq!(all(&open(&again, small())), found, "a second recovery after {done} renames");
    }
}

/// A stale output of an earlier failure must not make a later, finished one look unfinished.
#[test]
fn stale_outputs_are_purged_before_a_rewrite() {
    let disk = disk();
    let log = open(&disk, small());
    fill(&log);
    put(&disk, "00000000000000000000.timeindex.cleaned", b"stale");
    let rewrite = log.begin_rewrite().unwrap();
    assert!(files(&disk).iter().all(|n| !n.contains(".cleaned")));
    drop(rewrite);
}

/// An output with all that sealed segment `at` holds.
fn copy(rewrite: &Rewrite, log: &Log, at: usize) -> SealedOutput {
    let segments = rewrite.sources().all();
    let (base, end) = (segments[at].base_offset(), segments[at + 1].base_offset());
    let mut output = rewrite.create_output(base).unwrap();
    for batch in log.batches_from(base).unwrap().map(Result::unwrap).take_while(|batch| batch.header.base_offset < end) {
        output.append(&batch.bytes).unwrap();
    }
    output.seal(T0).unwrap()
}

#[test]
fn nothing_is_swapped_above_an_unfinished_output() {
    let disk = disk();
    let log = open(&disk, small());
    fill(&log);
    let before = all(&log);
    let rewrite = log.begin_rewrite().unwrap();
    let sealed = rewrite.sources().sealed().to_vec();
    let third = copy(&rewrite, &log, 2);
    let unfinished = rewrite.create_output(sealed[0].base_offset()).unwrap();
    // A crash behind the renames of the third would throw its `.swap` files away, and its sources are gone by then.
    let error = rewrite.swap(&sealed[2..3], vec![third]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    drop(unfinished);
    drop(rewrite);
    // Newest first, as long as nothing below is begun.
    let rewrite = log.begin_rewrite().unwrap();
    for at in [2, 0] {
        let output = copy(&rewrite, &log, at);
        rewrite.swap(&sealed[at..=at], vec![output]).unwrap();
    }
    drop(rewrite);
    assert_eq!(all(&log), before);
}
