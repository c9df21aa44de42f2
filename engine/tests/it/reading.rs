//! Reading: by offset, by time, while the log changes.

use keeplog_engine::record::Record;
use keeplog_engine::{Durability, ErrorKind, LogOptions};

use crate::support::{T0, all, disk, open, small, text};

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
