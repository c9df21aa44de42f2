//! Appending: offsets, durability, rolling, producers.

use keeplog_engine::record::{BatchSpec, Codec, Record, TimestampType, TxnResult};
use keeplog_engine::{CleanupPolicy, Durability, ErrorKind, LogOptions, TransactionEnd};

use crate::support::{T0, all, batch, disk, open, producer, small, text};

#[test]
fn offsets_and_timestamps_are_assigned_in_order() {
    let disk = disk();
    let log = open(&disk, LogOptions::new());
    let first = log.append(&[Record::new("a", "1"), Record::tombstone("b")], Durability::Buffered).unwrap();
    disk.advance_ms(5);
    let second = log.append(&[Record::new("c", "3").timestamp_ms(7)], Durability::Synced).unwrap();
    assert_eq!((first.base_offset, first.last_offset, first.timestamp_ms), (0, 1, T0));
    assert_eq!((second.base_offset, second.last_offset, second.timestamp_ms), (2, 2, 7));
    assert_eq!(log.recovery_point(), 3);
    assert_eq!(all(&log), [(0, "a".into(), Some("1".into())), (1, "b".into(), None), (2, "c".into(), Some("3".into()))]);
}

#[test]
fn every_codec_and_append_time_read_back() {
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let disk = disk();
        let log = open(&disk, LogOptions::new().compression(codec).message_timestamp_type(TimestampType::LogAppend));
        let value = "x".repeat(10_000);
        log.append(&[Record::new("a", value.clone()).timestamp_ms(1), Record::new("b", "2")], Durability::Buffered).unwrap();
        let records: Vec<_> = log.read_from(0).unwrap().map(Result::unwrap).collect();
        assert_eq!(text(&records[0]), (0, "a".into(), Some(value)));
        assert!(records.iter().all(|r| r.timestamp_ms() == T0), "{codec:?}");
    }
}

#[test]
fn refused_appends_change_nothing() {
    let disk = disk();
    let log = open(&disk, LogOptions::new().max_message_bytes(200));
    let kind = |records: &[Record]| log.append(records, Durability::Buffered).unwrap_err().kind();
    assert_eq!(kind(&[]), ErrorKind::InvalidInput);
    assert_eq!(kind(&[Record::keyless("x")]), ErrorKind::InvalidInput);
    assert_eq!(kind(&[Record::new("k", "v").timestamp_ms(-5)]), ErrorKind::InvalidInput);
    assert_eq!(kind(&[Record::new("k", "v".repeat(200))]), ErrorKind::InvalidInput);
    assert_eq!(log.append_batch(vec![0; 100], Durability::Buffered).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(log.end_offset(), 0);
    let keyless = open(&crate::support::disk(), LogOptions::new().cleanup_policy(CleanupPolicy::Delete));
    keyless.append(&[Record::keyless("x")], Durability::Buffered).unwrap();
}

#[test]
fn segments_roll_by_size_and_are_named_by_their_first_offset() {
    let disk = disk();
    let log = open(&disk, small());
    for i in 0..200 {
        log.append(&[Record::new(format!("key-{i}"), "v".repeat(100))], Durability::Buffered).unwrap();
    }
    let set = log.segments();
    assert!(set.all().len() > 5);
    for segment in set.all() {
        assert!(segment.size_bytes() <= 4096);
        let first = log.batches_from(segment.base_offset()).unwrap().next().unwrap().unwrap();
        assert_eq!((first.segment, first.header.base_offset), (segment.base_offset(), segment.base_offset()));
    }
    assert_eq!(all(&log).len(), 200);
}

#[test]
fn segments_roll_by_record_time_but_not_when_empty() {
    let disk = disk();
    let log = open(&disk, LogOptions::new().segment_ms(1000));
    let at = |t| log.append(&[Record::new("k", "v").timestamp_ms(t)], Durability::Buffered).unwrap();
    at(5_000_000);
    at(5_001_000);
    assert_eq!(log.segments().all().len(), 1);
    at(5_001_001);
    assert_eq!(log.segments().all().len(), 2);
}

#[test]
fn rolling_twice_leaves_one_empty_segment() {
    let disk = disk();
    let log = open(&disk, small());
    log.append(&[Record::new("k", "v")], Durability::Buffered).unwrap();
    log.roll().unwrap();
    log.roll().unwrap();
    assert_eq!(log.segments().all().iter().map(|s| s.base_offset()).collect::<Vec<_>>(), [0, 1]);
}

/// A05: a span of 2^31 offsets does not fit one segment.
#[test]
fn a_sparse_segment_rolls_before_its_index_overflows() {
    let disk = disk();
    let log = open(&disk, LogOptions::new());
    let at = |base_offset, last_offset| {
        let spec = BatchSpec { base_offset, last_offset: Some(last_offset), ..BatchSpec::default() };
        log.append_as_follower(&batch(spec, &[("k", Some("v"))]), Durability::Buffered).unwrap();
    };
    at(0, 0);
    at(1 << 31, 1 << 31);
    at((1 << 31) + 5, (1 << 31) + 5);
    at((1 << 32) - 10, (1 << 32) + 10); // straddles
    assert_eq!(log.segments().all().iter().map(|s| s.base_offset()).collect::<Vec<_>>(), [0, 1 << 31, (1 << 32) - 10]);
    assert_eq!(all(&log).len(), 4);
}

#[test]
fn followers_keep_offsets_and_refuse_what_does_not_rise() {
    let disk = disk();
    let log = open(&disk, LogOptions::new());
    let one = |base_offset| batch(BatchSpec { base_offset, leader_epoch: 4, ..BatchSpec::default() }, &[("k", Some("v"))]);
    let placed = log.append_as_follower(&[one(10), one(20)].concat(), Durability::Buffered).unwrap();
    assert_eq!((placed.base_offset, placed.last_offset, log.end_offset()), (10, 20, 21));
    for bad in [[one(20), one(30)].concat(), [one(30), one(30)].concat()] {
        assert_eq!(log.append_as_follower(&bad, Durability::Buffered).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    let mut flipped = one(30);
    flipped[65] ^= 1;
    assert_eq!(log.append_as_follower(&flipped, Durability::Buffered).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(log.end_offset(), 21);
    // The leader side goes on with the newest epoch of the log.
    log.append(&[Record::new("a", "b")], Durability::Buffered).unwrap();
    assert_eq!(log.batches_from(21).unwrap().next().unwrap().unwrap().header.leader_epoch, 4);
}

#[test]
fn sequences_are_checked_and_duplicates_answered_with_their_old_offsets() {
    let disk = disk();
    let log = open(&disk, LogOptions::new());
    let send = |id, epoch, sequence| {
        log.append_batch(batch(producer(id, epoch, sequence), &[("a", Some("1")), ("b", Some("2"))]), Durability::Buffered)
    };
    assert_eq!(send(7, 0, 100).unwrap().base_offset, 0, "an unknown producer may start anywhere");
    assert_eq!(send(7, 0, 102).unwrap().base_offset, 2);
    let again = send(7, 0, 100).unwrap();
    assert_eq!((again.duplicate, again.base_offset, again.last_offset), (true, 0, 1));
    assert_eq!(send(7, 0, 105).unwrap_err().kind(), ErrorKind::OutOfOrderSequence);
    assert_eq!(send(7, 1, 5).unwrap_err().kind(), ErrorKind::OutOfOrderSequence, "a new epoch starts at 0");
    assert_eq!(send(7, 1, 0).unwrap().base_offset, 4);
    assert_eq!(send(7, 0, 104).unwrap_err().kind(), ErrorKind::ProducerFenced);
    assert_eq!(log.end_offset(), 6);
}

#[test]
fn sequences_wrap_behind_the_largest() {
    let disk = disk();
    let log = open(&disk, LogOptions::new());
    let send = |sequence| log.append_batch(batch(producer(1, 0, sequence), &[("a", None), ("b", None)]), Durability::Buffered);
    send(i32::MAX - 2).unwrap();
    send(i32::MAX).unwrap(); // takes i32::MAX and 0
    assert!(send(i32::MAX).unwrap().duplicate);
    assert!(!send(1).unwrap().duplicate);
    assert_eq!(send(7).unwrap_err().kind(), ErrorKind::OutOfOrderSequence);
}

#[test]
fn an_open_transaction_holds_the_last_stable_offset_back() {
    let disk = disk();
    let log = open(&disk, small());
    let txn = |id, sequence| BatchSpec { transactional: true, ..producer(id, 0, sequence) };
    log.append(&[Record::new("plain", "0")], Durability::Buffered).unwrap();
    log.append_batch(batch(txn(1, 0), &[("a", Some("1"))]), Durability::Buffered).unwrap();
    log.append_batch(batch(txn(2, 0), &[("b", Some("2"))]), Durability::Buffered).unwrap();
    assert_eq!(log.last_stable_offset(), 1);
    let plain = log.append_batch(batch(producer(1, 0, 1), &[("x", Some("1"))]), Durability::Buffered);
    assert_eq!(plain.unwrap_err().kind(), ErrorKind::InvalidInput, "not part of its open transaction");
    let end = |producer_id, result| TransactionEnd { producer_id, producer_epoch: 0, result, coordinator_epoch: 3 };
    log.end_transaction(&end(1, TxnResult::Aborted), Durability::Buffered).unwrap();
    assert_eq!(log.last_stable_offset(), 2);
    log.roll().unwrap();
    log.end_transaction(&end(2, TxnResult::Committed), Durability::Synced).unwrap();
    assert_eq!((log.last_stable_offset(), log.end_offset()), (5, 5));
    let committed: Vec<_> = log.read_committed_from(0).unwrap().map(|r| text(&r.unwrap()).1).collect();
    assert_eq!(committed, ["plain", "b"]);
    let everything: Vec<_> = log.read_from(0).unwrap().map(|r| text(&r.unwrap()).1).collect();
    assert_eq!(everything, ["plain", "a", "b"]);
    let stale = TransactionEnd { coordinator_epoch: 2, ..end(2, TxnResult::Aborted) };
    assert_eq!(log.end_transaction(&stale, Durability::Buffered).unwrap_err().kind(), ErrorKind::ProducerFenced);
}

#[test]
fn a_coordinator_writes_in_the_transaction_of_a_producer_and_counts_nothing() {
    let disk = disk();
    let log = open(&disk, LogOptions::new());
    let write = |epoch, key: &'static str| log.append_in_transaction(5, epoch, &[Record::new(key, "1")], Durability::Buffered);
    write(2, "a").unwrap();
    assert!(!write(2, "b").unwrap().duplicate, "the same sequence number, and two batches");
    assert_eq!((log.last_stable_offset(), log.active_producer(5).unwrap().open_txn_first_offset), (0, Some(0)));
    let header = log.batches_from(1).unwrap().next().unwrap().unwrap().header;
    assert_eq!((header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional()), (5, 2, 0, true));
    assert_eq!(write(1, "c").unwrap_err().kind(), ErrorKind::ProducerFenced);
    assert_eq!(write(-1, "c").unwrap_err().kind(), ErrorKind::InvalidInput);
    let end = TransactionEnd { producer_id: 5, producer_epoch: 2, result: TxnResult::Committed, coordinator_epoch: 0 };
    log.end_transaction(&end, Durability::Buffered).unwrap();
    assert_eq!(log.read_committed_from(0).unwrap().count(), 2);
    assert!(log.active_producer(6).is_none());
    // The producer itself may go on with sequences of its own.
    let own = BatchSpec { transactional: true, ..producer(5, 2, 1) };
    log.append_batch(batch(own, &[("d", Some("1"))]), Durability::Buffered).unwrap();
}

#[test]
fn many_writers_share_syncs_and_lose_nothing() {
    let disk = disk();
    let log = open(&disk, small());
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let log = log.clone();
            scope.spawn(move || {
                for i in 0..50 {
                    let placed = log.append(&[Record::new(format!("{writer}-{i}"), "v")], Durability::Synced).unwrap();
                    assert!(log.recovery_point() > placed.last_offset);
                }
            });
        }
    });
    let mut keys: Vec<_> = all(&log).into_iter().map(|r| r.1).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 400);
}
