//! Field reports about producers and transactions.

use keeplog_engine::ErrorKind;
use keeplog_engine::record::{Attributes, BatchHeader, BatchSpec, TxnResult, write_empty};
use keeplog_index::AbortedTxn;

use super::build::{KeyValue, Producer, T0, put, records};
use super::keys::{clean, clean_from};
use super::memory::MemoryLog;
use crate::options::{CleanOptions, Overflow};

const DAY_MS: i64 = 86_400_000;

#[test]
fn a09_a_segment_of_which_only_an_empty_batch_stays() {
    let mut log = MemoryLog::new();
    let mut producer = Producer::new(1);
    log.append_by(&mut producer, &[put("a", "1"), put("b", "1")]);
    log.roll();
    log.append(&[put("a", "2"), put("b", "2")]);
    log.roll();
    let options = CleanOptions { segment_bytes: 1, ..CleanOptions::new(T0) };
    log.clean(&options).unwrap();
    let (segment, header, entry) = log.entries()[0];
    assert_eq!((segment, header.base_offset, header.last_offset, header.count, entry.len()), (0, 0, 1, 0, 61));
    assert_eq!((header.producer_id, header.base_sequence, header.last_sequence()), (1, 0, 1));
    assert_eq!(log.contents(), records(&[(2, "a", Some("2")), (3, "b", Some("2"))]));
}

#[test]
fn a10_the_last_batch_of_a_producer_stays_and_those_before_it_go() {
    let mut log = MemoryLog::new();
    let mut producer = Producer::transactional(1);
    for _ in 0..2 {
        producer.sequence = 0;
        log.append_by(&mut producer, &[put("a", "1")]);
        log.end_txn(&producer, TxnResult::Committed);
        producer.epoch += 1;
    }
    log.append(&[put("a", "2")]);
    log.roll();
    let report = clean(&mut log, T0);
    let left: Vec<_> = log.entries().iter().map(|(_, h, _)| (h.base_offset, h.count)).collect();
    assert_eq!(left, [(1, 1), (2, 0), (3, 1), (4, 1)]);

    // The first marker's data is gone: it is stamped, then dropped. The second one's emptied batch is still data.
    log.append(&[put("b", "1")]);
    log.roll();
    let report = clean_from(&mut log, report.new_dirty, T0 + 1);
    assert_eq!(log.markers(), [1, 3]);
    log.append(&[put("b", "2")]);
    log.roll();
    clean_from(&mut log, report.new_dirty, T0 + 2 * DAY_MS);
    assert_eq!(log.markers(), [3]);
    assert_eq!(log.entries()[0].1.base_sequence, 0);
}

#[test]
fn a_batch_is_protected_only_while_its_producer_is_active() {
    let mut log = MemoryLog::new();
    log.append_by(&mut Producer::new(1), &[put("a", "1")]);
    log.append(&[put("a", "2")]);
    log.roll();
    log.producers = Some(Vec::new());
    clean(&mut log, T0);
    assert_eq!(log.entries().len(), 1);
}

#[test]
fn a_producer_known_by_its_marker_alone_keeps_that_marker() {
    let mut log = MemoryLog::new();
    let mut producer = Producer::transactional(1);
    let old_marker = log.end_txn(&producer, TxnResult::Aborted);
    producer.epoch = 1;
    let marker = log.end_txn(&producer, TxnResult::Aborted);
    log.append(&[put("a", "1")]);
    log.roll();
    let report = clean(&mut log, T0);
    assert_eq!(log.markers(), [old_marker, marker], "stamped first");
    log.append(&[put("a", "2")]);
    log.roll();
    clean_from(&mut log, report.new_dirty, T0 + DAY_MS);
    assert_eq!(log.markers(), [marker]);
    let (_, header, _) = log.entries()[0];
    assert_eq!((header.count, header.producer_epoch), (0, 1));
}

#[test]
fn a12_a_user_key_may_look_like_a_control_key() {
    let mut log = MemoryLog::new();
    let mut producer = Producer::transactional(1);
    let (abort, commit): (KeyValue<'_>, KeyValue<'_>) =
        ((Some(&[0, 0, 0, 0]), Some(b"an abort?")), (Some(&[0, 0, 0, 1]), Some(b"a commit?")));
    log.append_by(&mut producer, &[put("a", "1")]);
    log.end_txn(&producer, TxnResult::Committed);
    log.append_by(&mut producer, &[commit, abort]);
    log.end_txn(&producer, TxnResult::Committed);
    log.roll();
    clean(&mut log, T0);
    assert_eq!(log.markers(), [1, 4]);
    assert_eq!(log.records().iter().map(|record| record.0).collect::<Vec<_>>(), [0, 2, 3]);
}

#[test]
fn a13_a_marker_waits_for_data_in_an_older_segment() {
    for result in [TxnResult::Committed, TxnResult::Aborted] {
        for segment_bytes in [1, 10_000] {
            let mut log = MemoryLog::new();
            let mut producer = Producer::transactional(1);
            log.append_by(&mut producer, &[put("a", "1")]);
            log.roll();
            let marker = log.end_txn(&producer, result);
            log.roll();
            log.append(&[put("a", "2")]);
            log.roll();
            log.producers = Some(Vec::new());
            let mut options = CleanOptions { segment_bytes, ..CleanOptions::new(T0) };
            // First the data goes, then the marker is stamped, then it goes.
            for (pass, kept) in [(0, true), (1, true), (2, false)] {
                options.first_dirty = log.clean(&options).unwrap().new_dirty;
                assert_eq!(log.markers() == [marker], kept, "pass {pass}, {result:?}");
                assert!(log.contents().iter().all(|(offset, _, _)| *offset != 0));
                options.now_ms += DAY_MS;
                log.append(&[put("next", "1")]);
                log.roll();
            }
        }
    }
}

#[test]
fn a13_the_segment_of_the_data_alone() {
    let mut log = MemoryLog::new();
    let mut producer = Producer::transactional(1);
    log.append_by(&mut producer, &[put("a", "1")]);
    log.roll();
    log.end_txn(&producer, TxnResult::Aborted);
    log.roll();
    let bound = log.segments[1].base;
    log.clean(&CleanOptions { first_uncleanable: Some(bound), ..CleanOptions::new(T0) }).unwrap();
    assert_eq!(log.contents(), [], "the marker that aborts it stands above the range");
    assert_eq!(log.markers(), [1]);
    assert_eq!(log.entries()[0].1.count, 0, "the last batch of the range and of its producer");
}

#[test]
fn a14_markers_do_not_replace_each_other() {
    let mut log = MemoryLog::new();
    let mut producers = [Producer::transactional(1), Producer::transactional(2)];
    log.append_by(&mut producers[0], &[put("a", "1")]);
    log.append_by(&mut producers[1], &[put("b", "1")]);
    let markers = producers.map(|producer| log.end_txn(&producer, TxnResult::Aborted));
    log.roll();
    let report = clean(&mut log, T0);
    assert_eq!(log.markers(), markers);
    let txn = |producer_id, first_offset, last_offset, last_stable_offset| AbortedTxn {
        producer_id,
        first_offset,
        last_offset,
        last_stable_offset,
    };
    // The sources had no transaction index: what a log can tell by itself is the same.
    assert_eq!(log.segments[0].aborted, [txn(1, 0, 2, 1), txn(2, 1, 3, 4)]);
    // Emptied batches of active producers are data still.
    log.append(&[put("c", "1")]);
    log.roll();
    clean_from(&mut log, report.new_dirty, T0 + DAY_MS);
    assert_eq!(log.markers(), markers);
    assert_eq!(log.segments[0].aborted.len(), 2);
}

#[test]
fn the_stored_transaction_index_is_kept_where_the_log_tells_less() {
    let mut log = MemoryLog::new();
    let mut producer = Producer::transactional(1);
    log.append(&[put("first batch of the transaction, cleaned away", "1")]);
    log.append_by(&mut producer, &[put("a", "1")]);
    let marker = log.end_txn(&producer, TxnResult::Aborted);
    let stored = AbortedTxn { producer_id: 1, first_offset: 0, last_offset: marker, last_stable_offset: marker + 1 };
    let stray = AbortedTxn { producer_id: 9, last_offset: marker + 1, ..stored };
    log.segments[0].aborted = vec![stored, stray];
    log.roll();
    let mut wrong = log.clone();
    clean(&mut log, T0);
    assert_eq!(log.segments[0].aborted, [stored]);
    // An entry that leaves out data of its transaction is not believed.
    wrong.segments[0].aborted = vec![AbortedTxn { first_offset: marker, ..stored }];
    clean(&mut wrong, T0);
    assert_eq!(wrong.segments[0].aborted, [AbortedTxn { first_offset: 1, ..stored }]);
}

#[test]
fn a15_an_emptied_control_batch_is_dropped() {
    let mut log = MemoryLog::new();
    let mut producer = Producer::transactional(1);
    log.append_by(&mut producer, &[put("a", "1")]);
    let offset = log.end_offset();
    let header = BatchHeader::parse(log.entries()[0].2).unwrap();
    let emptied = BatchHeader {
        base_offset: offset,
        last_offset: offset,
        attributes: Attributes(Attributes::CONTROL | Attributes::TRANSACTIONAL),
        ..header
    };
    write_empty(&emptied, &mut log.segments[0].log);
    log.append_by(&mut producer, &[put("b", "1")]);
    log.end_txn(&producer, TxnResult::Aborted);
    log.append(&[put("c", "1")]);
    log.roll();
    clean(&mut log, T0);
    assert_eq!(log.markers(), [3]);
    // It ended nothing: the data before it belongs to the transaction that the marker after it aborts.
    assert_eq!(log.contents(), records(&[(4, "c", Some("1"))]));
    assert_eq!(log.segments[0].aborted[0].first_offset, 0);
}

#[test]
fn control_batches_of_other_kinds_stay() {
    let mut log = MemoryLog::new();
    let spec = BatchSpec { control: true, ..BatchSpec::default() };
    let leader_change: KeyValue<'_> = (Some(&[0, 0, 0, 2]), Some(&[0; 8]));
    log.append_spec(spec, &[leader_change]);
    log.append_spec(spec, &[leader_change]);
    log.append(&[put("a", "1")]);
    log.roll();
    let before = log.clone();
    let report = clean(&mut log, T0);
    assert_eq!(log, before);
    assert_eq!((report.records_kept, report.map_size, report.bytes_written), (3, 1, 0));
}

#[test]
fn a28_an_aborted_group_goes_as_a_whole_and_a_committed_one_by_its_keys() {
    for result in [TxnResult::Committed, TxnResult::Aborted] {
        let mut log = MemoryLog::new();
        let mut producer = Producer::transactional(1);
        log.append(&[put("a", "0"), put("e", "0")]);
        log.append_by(&mut producer, &[put("a", "1"), put("b", "1"), put("c", "1")]);
        log.roll();
        log.append_by(&mut producer, &[put("d", "1"), put("e", "1")]);
        log.end_txn(&producer, result);
        log.append(&[put("b", "2")]);
        log.roll();
        // Only the first segment: whoever reads committed data sees all of the group that newer records left, or none.
        let bound = log.segments[1].base;
        log.clean(&CleanOptions { first_uncleanable: Some(bound), ..CleanOptions::new(T0) }).unwrap();
        let in_first: Vec<_> = log.contents().into_iter().filter(|(offset, _, _)| *offset < bound).collect();
        match result {
            TxnResult::Aborted => assert_eq!(in_first, records(&[(0, "a", Some("0")), (1, "e", Some("0"))])),
            TxnResult::Committed => {
                let all = [(1, "e", Some("0")), (2, "a", Some("1")), (3, "b", Some("1")), (4, "c", Some("1"))];
                assert_eq!(in_first, records(&all));
            }
        }
        clean_from(&mut log, bound, T0);
        let all: Vec<_> = log.contents().into_iter().map(|(offset, _, _)| offset).collect();
        let expected: &[u64] = if result == TxnResult::Aborted { &[0, 1, 8] } else { &[2, 4, 5, 6, 8] };
        assert_eq!(all, expected);
    }
}

#[test]
fn an_open_transaction_holds_back_its_segment_and_all_after_it() {
    let mut log = MemoryLog::new();
    log.append(&[put("a", "1"), put("a", "2")]);
    log.roll();
    let mut producer = Producer::transactional(1);
    let open = log.append_by(&mut producer, &[put("b", "1"), put("b", "2")]);
    log.roll();
    log.append(&[put("c", "1"), put("c", "2")]);
    log.roll();
    log.last_stable_offset = Some(open);
    let report = clean(&mut log, T0);
    assert_eq!((report.first_uncleanable, report.new_dirty), (2, 2));
    assert_eq!(log.contents().len(), 5);
}

/// A marker of a segment that the pass does not read decides over records in those that it does: any bit of it may have been
/// flipped, that of a checksum, of the kind, of the producer, or those that say that it is a marker.
#[test]
fn a_damaged_marker_beyond_the_pass_stops_it() {
    for result in [TxnResult::Aborted, TxnResult::Committed] {
        // Nothing is asked of the log but by the pass.
        let mut sound = MemoryLog { producers: Some(Vec::new()), ..MemoryLog::new() };
        let (mut producer, mut other) = (Producer::transactional(1), Producer::transactional(3));
        sound.append(&[put("a", "0"), put("b", "0"), put("c", "0")]);
        sound.append_by(&mut producer, &[put("a", "1"), put("b", "1")]);
        sound.append_by(&mut other, &[put("c", "1")]);
        sound.roll();
        sound.end_txn(&producer, result);
        let marker_bytes = sound.segments[1].log.len();
        sound.end_txn(&other, TxnResult::Committed);
        let expected = {
            let mut log = sound.clone();
            clean(&mut log, T0);
            log.contents()
        };
        // Offset and length come before what the checksum is of, and so does the leader epoch.
        for bit in (16 * 8..marker_bytes * 8).filter(|bit| bit / 8 != 12) {
            let mut log = sound.clone();
            log.segments[1].log[bit / 8] ^= 1 << (bit % 8);
            let before = log.clone();
            let options = CleanOptions::new(T0);
            match log.clean(&options) {
                Err(error) => assert!(error.kind() == ErrorKind::Corrupt && error.position() == Some(0), "bit {bit}: {error}"),
                Ok(report) => panic!("bit {bit}: {report}, {:?} for {expected:?}", log.contents()),
            }
            assert_eq!(log, before, "bit {bit}");
        }
    }
}

/// The same for a segment between the end of a pass whose set is full and the first that may not be cleaned.
#[test]
fn a_damaged_marker_behind_a_full_set_stops_the_pass() {
    let mut log = MemoryLog { producers: Some(Vec::new()), ..MemoryLog::new() };
    let mut producer = Producer::transactional(1);
    log.append_by(&mut producer, &[put("a", "1")]);
    for number in 0..200 {
        log.append(&[put(&format!("key-{number}"), "1")]);
        if number % 20 == 19 {
            log.roll();
        }
    }
    log.end_txn(&producer, TxnResult::Committed);
    log.roll();
    log.append(&[put("last", "1")]);
    let options = CleanOptions { overflow: Overflow::EndPass, dedupe_buffer_bytes: 1024, ..CleanOptions::new(T0) };
    let report = log.clone().clean(&options).unwrap();
    assert!(report.new_dirty < 150, "{report}");
    let sealed = log.segments.len() - 2;
    let last = log.segments[sealed].log.len() - 1;
    log.segments[sealed].log[last - 8] ^= 1;
    assert_eq!(log.clean(&options).unwrap_err().kind(), ErrorKind::Corrupt);
}
