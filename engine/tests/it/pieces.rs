//! A log in pieces, newest first.

use keeplog_engine::record::Record;
use keeplog_engine::{ChunkBuffer, Durability, ErrorKind, Log, LogOptions, Result};

use crate::support::{append, contents, disk, open, path, put, small};

/// All bytes from `offset` on, put together from pieces, and how many pieces there were.
fn pieces(log: &Log, offset: u64, piece_bytes: u32) -> Result<(Vec<u8>, usize)> {
    let (mut all, mut buffer, mut newer) = (Vec::new(), ChunkBuffer::default(), u64::MAX);
    for piece in log.chunks_from(offset, piece_bytes)? {
        piece?.read(&mut buffer)?;
        let Some(offsets) = buffer.offsets() else { continue };
        assert!(offsets.end <= newer, "from the newest to the oldest");
        newer = offsets.start;
        all.push(buffer.bytes().to_vec());
    }
    all.reverse();
    Ok((all.concat(), all.len()))
}

fn batches(log: &Log, offset: u64) -> Vec<u8> {
    log.batches_from(offset).unwrap().flat_map(|batch| batch.unwrap().bytes.to_vec()).collect()
}

fn filled(options: LogOptions) -> Log {
    let log = open(&disk(), options);
    for i in 0..120_usize {
        let records = [Record::new(format!("k{i}"), "v".repeat(i * 37 % 290)), Record::new("x", "y")];
        log.append(&records, Durability::Buffered).unwrap();
    }
    log
}

#[test]
fn pieces_of_any_size_are_the_batches_of_the_log() {
    let log = filled(small());
    for piece_bytes in [1, 300, 1000, u32::MAX] {
        for offset in (0..=240).step_by(7) {
            assert_eq!(pieces(&log, offset, piece_bytes).unwrap().0, batches(&log, offset), "from {offset} by {piece_bytes}");
        }
    }
    assert_eq!(pieces(&log, 0, 1).unwrap().1, 120, "as small as a batch");
    assert_eq!(pieces(&log, 0, u32::MAX).unwrap().1, log.segments().all().len(), "as large as a segment");
    assert_eq!(log.chunks_from(241, 1).unwrap_err().kind(), ErrorKind::OutOfRange);
}

#[test]
fn without_an_index_the_batches_say_where_to_cut() {
    let log = filled(LogOptions::new().index_interval_bytes(1 << 20));
    assert_eq!(log.segments().active().offset_entries().unwrap(), []);
    let (all, count) = pieces(&log, 0, 1000).unwrap();
    assert_eq!(all, batches(&log, 0));
    assert!(count > 15 && count < 40, "{count} pieces of {} bytes", all.len());
}

#[test]
fn what_is_appended_later_is_in_no_piece() {
    let log = filled(small());
    let (before, chunks) = (batches(&log, 0), log.chunks_from(0, 500).unwrap());
    append(&log, &"later".repeat(500)).unwrap();
    let (mut all, mut buffer) = (Vec::new(), ChunkBuffer::default());
    for piece in chunks {
        piece.unwrap().read(&mut buffer).unwrap();
        all.push(buffer.bytes().to_vec());
    }
    all.reverse();
    assert_eq!(all.concat(), before);
}

/// It may have been damaged behind a clean mark: nothing vouches for it.
#[test]
fn an_index_that_lies_is_noticed() {
    let disk = disk();
    let log = open(&disk, small());
    for i in 0..60 {
        append(&log, &"v".repeat(i * 5)).unwrap();
    }
    log.close().unwrap();
    let name = "00000000000000000000.index";
    let mut index = contents(&disk, name);
    assert!(index.len() > 32);
    index[23] ^= 1;
    put(&disk, name, &index);
    let log = open(&disk, small());
    let error = pieces(&log, 0, 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(pieces(&log, 0, u32::MAX).is_ok(), "where it is not asked it does no harm");
}

#[test]
fn damage_is_named_with_its_place() {
    let disk = disk();
    let log = open(&disk, small());
    let mut last = 0;
    for i in 0..60 {
        last = append(&log, &"v".repeat(i * 5)).unwrap();
    }
    log.close().unwrap();
    let name = "00000000000000000000.log";
    let mut bytes = contents(&disk, name);
    let at = bytes.len() - 3;
    bytes[at] ^= 1;
    put(&disk, name, &bytes);
    let log = open(&disk, small());
    let error = pieces(&log, 0, 500).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Corrupt, Some(&*path(name))));
    assert!(error.to_string().contains("keeplog verify"), "{error}");
    assert!(pieces(&log, last, 500).is_ok(), "the rest can be read");
}
