//! Reading: by offset, by time, while the log changes.

use keeplog_engine::record::{BatchSpec, Record};
use keeplog_engine::{Durability, ErrorKind, LogOptions};

use crate::support::{T0, all, batch, contents, disk, open, put, small, text};

#[test]
fn every_offset_can_be_read_from() {
    let disk = disk();
    let log = open(&disk, small());
    for i in 0..120_u64 {
        log.append(&[Record::new(format!("k{i}"), "v".repeat((i % 90) as usize)), Record::new("x", "y")], Durability::Buffered).unwrap();
    }
    for offset in 0..240 {
        let first = log.read_from(offset).unwrap().next().unwrap().unwrap();
        assert_eq!(first.offset(), offset);
        assert_eq!(log.read_from(offset).unwrap().count() as u64, 240 - offset);
    }
    assert_eq!(log.read_from(240).unwrap().count(), 0);
    assert_eq!(log.read_from(241).unwrap_err().kind(), ErrorKind::OutOfRange);
}

#[test]
fn a_timestamp_finds_the_first_record_at_or_after_it() {
    let disk = disk();
    let log = open(&disk, small());
    let times: Vec<i64> = (0..150).map(|i| T0 + i * 10 - if i % 7 == 0 { 45 } else { 0 }).collect();
    for &time in &times {
        log.append(&[Record::new("k", "v".repeat(60)).timestamp_ms(time)], Durability::Buffered).unwrap();
    }
    for probe in (T0 - 100..T0 + 1600).step_by(3) {
        let want = times.iter().position(|&t| t >= probe).map(|i| (i as u64, times[i]));
        assert_eq!(log.find_by_timestamp(probe).unwrap(), want, "at {probe}");
    }
}

#[test]
fn a_reader_goes_on_over_segments_that_were_taken_away() {
    let disk = disk();
    let log = open(&disk, small());
    for i in 0..100 {
        log.append(&[Record::new(format!("k{i}"), "v".repeat(100))], Durability::Buffered).unwrap();
    }
    let mut reader = log.read_from(0).unwrap();
    assert_eq!(text(&reader.next().unwrap().unwrap()).1, "k0");
    log.advance_start(60).unwrap();
    assert!(log.apply_retention().unwrap().segments > 0);
    log.truncate_to(80).unwrap();
    log.append(&[Record::new("new", "v")], Durability::Buffered).unwrap();
    let rest: Vec<_> = reader.map(|r| text(&r.unwrap()).1).collect();
    assert_eq!(rest, (1..100).map(|i| format!("k{i}")).collect::<Vec<_>>(), "the snapshot that it began with");
    assert_eq!(all(&log).last().unwrap(), &(80, "new".into(), Some("v".into())));
    assert_eq!(log.read_from(10).unwrap_err().kind(), ErrorKind::OutOfRange);
}

#[test]
fn a_closed_log_says_so() {
    let disk = disk();
    let log = open(&disk, LogOptions::new());
    let other = log.clone();
    log.close().unwrap();
    log.close().unwrap();
    assert_eq!(other.append(&[Record::new("a", "b")], Durability::Buffered).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(other.read_from(0).unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn a_reader_of_a_closed_log_never_meets_what_its_names_stand_for_next() {
    let disk = disk();
    let log = open(&disk, small());
    for i in 0..100 {
        log.append(&[Record::new(format!("k{i}"), "v".repeat(100))], Durability::Buffered).unwrap();
    }
    let mut reader = log.read_from(0).unwrap();
    assert_eq!(text(&reader.next().unwrap().unwrap()).1, "k0");
    log.close().unwrap();
    let next_life = open(&disk, small());
    next_life.truncate_to(0).unwrap();
    for i in 0..200 {
        next_life.append(&[Record::new(format!("n{i}"), "v".repeat(90))], Durability::Buffered).unwrap();
    }
    let mut seen = 1;
    let end = reader.find_map(|record| match record {
        Ok(record) => {
            assert_eq!(text(&record).1, format!("k{seen}"));
            seen += 1;
            None
        }
        Err(error) => Some(error.kind()),
    });
    assert_eq!(end, Some(ErrorKind::Closed), "after what it had opened");
    assert!(seen < 100);
}

/// Behind a clean mark nothing is scanned at open, so the reader has to notice an index that lies.
#[test]
fn a_damaged_offset_index_makes_reading_slow_and_not_wrong() {
    const INDEX: &str = "00000000000000000000.index";
    let sound = {
        let disk = disk();
        let log = open(&disk, small().segment_bytes(1 << 20));
        for i in 0..60 {
            log.append(&[Record::new(format!("k{i}"), "v".repeat(70))], Durability::Buffered).unwrap();
        }
        log.close().unwrap();
        disk
    };
    let index = contents(&sound, INDEX);
    assert!(index.len() >= 8 * 8);
    // Offsets and positions that keep their order, so that the index alone looks sound: one into a batch, one at a later
    // batch, one at an earlier offset.
    for (at, change) in [(8 * 3 + 7, 5_u8), (8 * 3 + 3, 1), (8 * 5 + 6, 1), (8 * 5 + 3, 2)] {
        for up in [false, true] {
            let disk = std::sync::Arc::new(sound.image());
            let mut damaged = index.clone();
            damaged[at] = if up { damaged[at].wrapping_add(change) } else { damaged[at].wrapping_sub(change) };
            put(&disk, INDEX, &damaged);
            let log = open(&disk, small().segment_bytes(1 << 20));
            for offset in 0..60 {
                let first = log.read_from(offset).unwrap().next().unwrap().unwrap();
                assert_eq!(first.offset(), offset, "byte {at} of the index changed");
            }
        }
    }
}

#[test]
fn records_that_were_there_before_end_a_reading() {
    let disk = disk();
    let log = open(&disk, small());
    for i in 0..80 {
        log.append(&[Record::new(format!("k{i}"), "v".repeat(100))], Durability::Buffered).unwrap();
    }
    let sealed = format!("{:020}.log", log.segments().all()[0].base_offset());
    log.close().unwrap();
    let mut twice = contents(&disk, &sealed);
    twice.extend_from_within(..);
    put(&disk, &sealed, &twice);

    let log = open(&disk, small());
    let mut records = log.read_from(0).unwrap();
    let read: Vec<_> = records.by_ref().map_while(Result::ok).map(|r| r.offset()).collect();
    let next = log.segments().all()[1].base_offset();
    assert_eq!(read, (0..next).collect::<Vec<_>>());
    assert!(records.next().is_none());
    let error = log.read_from(0).unwrap().find_map(Result::err).unwrap();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Corrupt, Some(next)));
}

#[test]
fn an_offset_beyond_the_reach_of_an_index_does_not_stop_the_log() {
    let disk = disk();
    let log = open(&disk, small());
    for i in 0..10 {
        log.append(&[Record::new(format!("k{i}"), "v").timestamp_ms(T0 - 100)], Durability::Buffered).unwrap();
    }
    log.close().unwrap();
    // A log that an old version wrote: the file goes on with an offset that is 2^40 above its base.
    let far = batch(BatchSpec { base_offset: 1 << 40, ..BatchSpec::default() }, &[("far", Some("v"))]);
    let name = "00000000000000000000.log";
    put(&disk, name, &[contents(&disk, name), far].concat());

    let log = open(&disk, small().recovery_full_scan(true));
    assert_eq!(log.end_offset(), (1 << 40) + 1);
    log.append(&[Record::new("more", "v")], Durability::Synced).unwrap();
    log.close().unwrap();
    assert_eq!(all(&open(&disk, small())).len(), 12);
}

#[test]
fn the_rest_of_a_batch_of_an_open_transaction_is_not_committed() {
    let disk = disk();
    let log = open(&disk, small());
    let spec = BatchSpec { producer_id: 10, producer_epoch: 0, base_sequence: 0, transactional: true, ..BatchSpec::default() };
    log.append_batch(batch(spec, &[("a", Some("1")), ("b", Some("1"))]), Durability::Synced).unwrap();
    log.advance_start(1).unwrap();
    assert_eq!(log.last_stable_offset(), 1, "it is not below the start");
    assert_eq!(log.read_committed_from(1).unwrap().count(), 0);
    log.close().unwrap();
    let log = open(&disk, small());
    assert_eq!(log.read_committed_from(1).unwrap().count(), 0, "also after a restart");
}
