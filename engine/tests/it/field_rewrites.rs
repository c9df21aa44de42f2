//! Field reports about what the cleaner asks of a log.

use std::sync::Arc;

use keeplog_engine::record::{Attributes, BatchHeader, BatchSpec, Record, TxnResult, write_empty};
use keeplog_engine::storage::{MemoryStorage, Storage};
use keeplog_engine::{Durability, ErrorKind, Log, LogOptions, SealedOutput, TransactionEnd};

use crate::support::{T0, all, batch, contents, crash, disk, files, open, path, producer, put, small};

const KINDS: [&str; 3] = ["log", "index", "timeindex"];

fn name(base: u64, kind: &str, suffix: &str) -> String {
    format!("{base:020}.{kind}{suffix}")
}

/// A hundred records in segments of 4 KiB.
fn filled(disk: &Arc<MemoryStorage>) -> Log {
    let log = open(disk, small());
    for i in 0..100 {
        log.append(&[Record::new(format!("k{i}"), "v".repeat(100))], Durability::Buffered).unwrap();
    }
    log.sync().unwrap();
    log
}

/// Offsets below `end`, of which `cuts` are the first of a further output each.
fn outputs(log: &Log, rewrite: &keeplog_engine::Rewrite, cuts: &[u64], end: u64) -> Vec<SealedOutput> {
    let bounds: Vec<_> = [0].iter().chain(cuts).chain([&end]).copied().collect();
    let write = |bounds: &[u64]| {
        let mut output = rewrite.create_output(bounds[0]).unwrap();
        for batch in log.batches_from(0).unwrap().map(Result::unwrap).filter(|b| b.header.base_offset != bounds[0] + 1) {
            if (bounds[0]..bounds[1]).contains(&batch.header.base_offset) {
                output.append(&batch.bytes).unwrap();
            }
        }
        output.seal(T0).unwrap()
    };
    bounds.windows(2).map(write).collect()
}

/// The renames of a swap, in the groups between whose members no sync of the directory stands: the power may fail with
/// any of a group on the disk, and the rest of it not.
fn phases(cuts: &[u64], sources: &[u64]) -> Vec<Vec<(String, String)>> {
    let of = |base: u64, from: &str, to: &str| KINDS.map(|k| (name(base, k, from), name(base, k, to))).to_vec();
    let mut phases = vec![cuts.iter().rev().flat_map(|&base| of(base, ".cleaned", ".swap")).collect(), of(0, ".cleaned", ".swap")];
    phases.push(sources.iter().flat_map(|&base| of(base, "", ".deleted")).collect());
    phases.extend([0].iter().chain(cuts).map(|&base| of(base, ".swap", "")));
    phases
}

#[test]
fn a06_several_outputs_take_the_place_of_their_sources_at_once_wherever_the_power_fails() {
    let disk = disk();
    let log = filled(&disk);
    let before = crash(log.clone(), &disk);
    let old = all(&log);
    let bases: Vec<_> = log.segments().all().iter().map(|s| s.base_offset()).collect();
    // The second output bears the name of the second source, the third one that of no source.
    let cuts = [bases[1], bases[1] + 20];
    let mut rewrite = log.begin_rewrite().unwrap();
    let sources = rewrite.sources().sealed()[..2].to_vec();
    let sealed = outputs(&log, &rewrite, &cuts, bases[2]);
    rewrite.swap(&sources, sealed).unwrap();
    drop(rewrite);
    let new = all(&log);
    assert_eq!(new.len(), 97);
    assert_eq!(log.segments().all().iter().map(|s| s.base_offset()).take(4).collect::<Vec<_>>(), [0, cuts[0], cuts[1], bases[2]]);
    let written: Vec<_> = [0, cuts[0], cuts[1]].map(|base| KINDS.map(|k| contents(&disk, &name(base, k, "")))).to_vec();

    let image = Arc::new(before.image());
    for (base, kinds) in [0, cuts[0], cuts[1]].into_iter().zip(&written) {
        for (kind, bytes) in KINDS.into_iter().zip(kinds) {
            put(&image, &name(base, kind, ".cleaned"), bytes);
        }
    }
    for (i, phase) in phases(&cuts, &bases[..2]).iter().enumerate() {
        for some in 0..1_u32 << phase.len() {
            let image = Arc::new(image.image());
            let done = phase.iter().enumerate().filter(|(at, _)| some & (1 << at) != 0).map(|(_, step)| step);
            done.for_each(|(from, to)| image.rename(&path(from), &path(to)).unwrap());
            let is_swapped = i > 1 || (i == 1 && some + 1 == 1 << phase.len());
            let log = open(&image, small());
            assert!(all(&log) == if is_swapped { new.clone() } else { old.clone() }, "phase {i}, renamed: {some:b}");
            assert_eq!((log.recovery_report().damage.len(), log.end_offset()), (0, 100), "phase {i}, renamed: {some:b}");
            assert!(files(&image).iter().all(|f| !f.contains(".cleaned") && !f.contains(".swap")), "{:?}", files(&image));
        }
        phase.iter().for_each(|(from, to)| image.rename(&path(from), &path(to)).unwrap());
    }
}

#[test]
fn a06_an_output_that_reaches_into_the_next_is_refused() {
    let disk = disk();
    let log = filled(&disk);
    let end = log.segments().all()[1].base_offset();
    let mut rewrite = log.begin_rewrite().unwrap();
    let sources = rewrite.sources().sealed()[..1].to_vec();
    let [first, second] = <[_; 2]>::try_from(outputs(&log, &rewrite, &[10], end)).unwrap();
    let error = rewrite.swap(&sources, vec![second, first]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    drop(rewrite);
    let mut rewrite = log.begin_rewrite().unwrap();
    let long = outputs(&log, &rewrite, &[], end + 1);
    assert_eq!(rewrite.swap(&sources, long).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(all(&log).len(), 100);
}

#[test]
fn a06_a_log_opens_whose_segment_spans_more_than_an_index_can_hold() {
    let disk = disk();
    let log = open(&disk, small());
    log.close().unwrap();
    let at = |base_offset| batch(BatchSpec { base_offset, ..BatchSpec::default() }, &[("k", Some("v"))]);
    put(&disk, &name(0, "log", ""), &[at(1), at((1 << 31) + 1)].concat());
    let log = open(&disk, small().recovery_full_scan(true));
    assert!(log.recovery_report().is_sound(), "{}", log.recovery_report());
    assert_eq!(all(&log).iter().map(|r| r.0).collect::<Vec<_>>(), [1, (1 << 31) + 1]);
    assert_eq!(log.append(&[Record::new("k", "v")], Durability::Synced).unwrap().base_offset, (1 << 31) + 2);
    assert_eq!(log.segments().all()[1].base_offset(), (1 << 31) + 2, "it goes on in a segment of its own");
}

#[test]
fn a15_readers_and_recovery_pass_over_a_control_batch_without_records() {
    let disk = disk();
    let log = open(&disk, LogOptions::new());
    let txn = |sequence| BatchSpec { transactional: true, ..producer(1, 0, sequence) };
    log.append_batch(batch(txn(0), &[("a", Some("1"))]), Durability::Buffered).unwrap();
    let like = log.batches_from(0).unwrap().next().unwrap().unwrap().header;
    let attributes = Attributes(Attributes::CONTROL | Attributes::TRANSACTIONAL);
    let mut emptied = Vec::new();
    write_empty(&BatchHeader { base_offset: 1, last_offset: 1, attributes, ..like }, &mut emptied);
    log.append_as_follower(&emptied, Durability::Buffered).unwrap();
    assert_eq!(log.last_stable_offset(), 0, "it ends no transaction");
    log.append_batch(batch(txn(1), &[("b", Some("1"))]), Durability::Buffered).unwrap();
    let end = TransactionEnd { producer_id: 1, producer_epoch: 0, result: TxnResult::Committed, coordinator_epoch: 0 };
    log.end_transaction(&end, Durability::Synced).unwrap();
    let look = |log: &Log| {
        let offsets = |records: keeplog_engine::Records| records.map(|r| r.unwrap().offset()).collect::<Vec<_>>();
        (offsets(log.read_from(0).unwrap()), offsets(log.read_committed_from(0).unwrap()), log.last_stable_offset())
    };
    assert_eq!(look(&log), (vec![0, 2], vec![0, 2], 4));
    let image = crash(log, &disk);
    let log = open(&image, LogOptions::new().recovery_full_scan(true));
    assert!(log.recovery_report().is_sound(), "{}", log.recovery_report());
    assert_eq!(look(&log), (vec![0, 2], vec![0, 2], 4));
}
