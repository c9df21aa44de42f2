//! Bytes and names from outside: part (h) of docs/FIELD_REPORTS.md.

use std::path::Path;
use std::sync::{Arc, Mutex};

use keeplog_engine::record::{BatchHeader, BatchSpec, BatchWriter, Codec, DecodeError, Decoder, Record, TimestampType};
use keeplog_engine::storage::MemoryStorage;
use keeplog_engine::{CleanupPolicy, Durability, ErrorKind, Log, LogOptions, RecoveryMode};

use crate::shim::{Call, Shim, Verdict};
use crate::support::{LOG, T0, all, append, batch, contents, crash, disk, open, open_on, producer, put, small, text};

const FIRST: &str = "00000000000000000000.log";
/// Where fields of a v2 batch stand.
const LENGTH: usize = 8;
const MAGIC: usize = 16;
const CRC: usize = 17;
const ATTRIBUTES: usize = 21;
const LAST_OFFSET_DELTA: usize = 23;
const BASE_TIMESTAMP: usize = 27;
const MAX_TIMESTAMP: usize = 35;
const BASE_SEQUENCE: usize = 53;
const COUNT: usize = 57;
const RECORDS: usize = 61;

/// `batch` with `bytes` at `at`, and the checksum that goes with it.
fn with(batch: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut batch = batch.to_vec();
    batch[at..at + bytes.len()].copy_from_slice(bytes);
    sealed(batch)
}

fn sealed(mut batch: Vec<u8>) -> Vec<u8> {
    let crc = crc32c::crc32c(&batch[ATTRIBUTES..]);
    batch[CRC..CRC + 4].copy_from_slice(&crc.to_be_bytes());
    batch
}

/// A batch whose record area is `area`, with `count` records and as many offsets.
fn of_area(area: &[u8], count: i32) -> Vec<u8> {
    let mut batch = [&plain(1)[..RECORDS], area].concat();
    let length = (batch.len() - 12) as i32;
    batch[LENGTH..LENGTH + 4].copy_from_slice(&length.to_be_bytes());
    batch[LAST_OFFSET_DELTA..LAST_OFFSET_DELTA + 4].copy_from_slice(&(count - 1).to_be_bytes());
    batch[COUNT..COUNT + 4].copy_from_slice(&count.to_be_bytes());
    sealed(batch)
}

fn plain(records: usize) -> Vec<u8> {
    let records: Vec<_> = (0..records).map(|_| ("key", Some("value"))).collect();
    batch(BatchSpec::default(), &records)
}

fn records_of(batch: &[u8]) -> Result<usize, DecodeError> {
    let mut decoder = Decoder::new(1 << 20);
    let records = decoder.records(batch)?;
    records.map(|record| record.map(|record| record.headers.len())).try_fold(0, |sum, record| record.map(|_| sum + 1))
}

/// Refused by both ways in; a log that has it all the same opens, and says so instead of giving it out.
fn refused_everywhere(batch: &[u8]) {
    let disk = disk();
    let log = open(&disk, small());
    let error = log.append_batch(batch.to_vec(), Durability::Buffered).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert_eq!((log.end_offset(), contents(&disk, FIRST).len()), (0, 0));
    on_disk(batch);
}

/// A log whose file holds `batch` between two sound ones: whatever it is, what is read of it is no invention.
fn on_disk(batch: &[u8]) {
    let disk = disk();
    let log = open(&disk, small());
    append(&log, "before").unwrap();
    let image = crash(log, &disk);
    let before = contents(&image, FIRST);
    let mut middle = batch.to_vec();
    middle[..8].copy_from_slice(&1_u64.to_be_bytes());
    put(&image, FIRST, &[&before[..], &middle].concat());
    for mode in [RecoveryMode::TruncateTail, RecoveryMode::Salvage, RecoveryMode::Strict] {
        let image = Arc::new(image.image());
        let opened = Log::open_with(image, Path::new(LOG), small().recovery_mode(mode));
        let Ok(log) = opened else {
            assert_eq!(mode, RecoveryMode::Strict);
            continue;
        };
        let read: Vec<_> = log.read_from(0).unwrap().collect();
        assert_eq!(text(read[0].as_ref().unwrap()).2.as_deref(), Some("before"));
        assert!(read.len() == 1 || read.iter().skip(1).any(Result::is_err), "{} records", read.len());
    }
}

/// Zigzag, as lengths in records are.
fn varint(value: i64) -> Vec<u8> {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    let mut bytes = Vec::new();
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}

/// Counts of gigabytes in a few bytes. That no allocation follows, `allocations.rs` counts.
#[test]
fn h02_a_count_is_never_a_capacity() {
    let huge = i64::from(i32::MAX);
    refused_everywhere(&with(&with(&plain(1), COUNT, &i32::MAX.to_be_bytes()), LAST_OFFSET_DELTA, &(i32::MAX - 1).to_be_bytes()));
    let record = |key: &[u8], value: &[u8], headers: &[u8]| {
        let body = [&[0, 0, 0][..], key, value, headers].concat();
        of_area(&[varint(body.len() as i64), body].concat(), 1)
    };
    let (key, value) = ([&varint(1)[..], b"k"].concat(), [&varint(1)[..], b"v"].concat());
    assert_eq!(records_of(&record(&key, &value, &varint(0))), Ok(1));
    for broken in [
        record(&varint(huge), &value, &varint(0)),
        record(&key, &varint(huge), &varint(0)),
        record(&key, &value, &varint(huge)),
        record(&key, &value, &[varint(1), varint(huge)].concat()),
        record(&key, &value, &[varint(1), varint(1), b"h".to_vec(), varint(huge)].concat()),
        of_area(&varint(huge), 1),
    ] {
        refused_everywhere(&broken);
    }
}

#[test]
fn h03_count_offsets_and_contents_must_agree() {
    let three = plain(3);
    for delta in [1, 5, -1] {
        refused_everywhere_unless_cleaned(&with(&three, LAST_OFFSET_DELTA, &i32::to_be_bytes(delta)), delta == 5);
    }
    for inside in [2, 4] {
        let header = with(&plain(inside), COUNT, &3_i32.to_be_bytes());
        refused_everywhere(&with(&header, LAST_OFFSET_DELTA, &2_i32.to_be_bytes()));
    }
    // The offset delta of the second record is that of the first.
    let second = RECORDS + (three.len() - RECORDS) / 3;
    assert_eq!(three[second + 3], 2, "the delta 1, in zigzag");
    for delta in [0, 4, 1] {
        refused_everywhere(&with(&three, second + 3, &[delta]));
    }
    // A sequence may pass its largest number, and wraps; a producer without one is none.
    let log = open(&disk(), small());
    let wraps = batch(producer(7, 0, i32::MAX - 1), &[("k", None), ("k", None), ("k", None)]);
    log.append_batch(wraps, Durability::Buffered).unwrap();
    assert_eq!(log.active_producers()[0].last_sequence, 0);
    for sequence in [-1, -5, i32::MIN] {
        let broken = with(&batch(producer(8, 0, 0), &[("k", None)]), BASE_SEQUENCE, &sequence.to_be_bytes());
        assert_eq!(log.append_batch(broken, Durability::Buffered).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    // Where offsets are kept as they are, fewer records than offsets are what a cleaner leaves, and more are not possible.
    let fewer = batch(BatchSpec { base_offset: 10, last_offset: Some(19), ..BatchSpec::default() }, &[("k", None)]);
    log.append_as_follower(&fewer, Durability::Buffered).unwrap();
    let mut more = with(&three, LAST_OFFSET_DELTA, &1_i32.to_be_bytes());
    more[..8].copy_from_slice(&30_u64.to_be_bytes());
    assert_eq!(log.append_as_follower(&more, Durability::Buffered).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(log.end_offset(), 20);
}

fn refused_everywhere_unless_cleaned(batch: &[u8], like_a_cleaned_one: bool) {
    if !like_a_cleaned_one {
        return refused_everywhere(batch);
    }
    let log = open(&disk(), small());
    assert_eq!(log.append_batch(batch.to_vec(), Durability::Buffered).unwrap_err().kind(), ErrorKind::InvalidInput);
    log.append_as_follower(batch, Durability::Buffered).unwrap();
    assert_eq!((log.end_offset(), all(&log).len()), (6, 3));
}

/// Every byte of a batch, in every value, with the checksum of what it is then: an answer, and never a panic.
#[test]
fn h04_no_single_byte_makes_a_panic_or_a_read_outside() {
    let mut writer = BatchWriter::new();
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        writer.begin(BatchSpec { codec, ..BatchSpec::default() });
        let headers = [keeplog_engine::record::Header { key: "h".into(), value: Some("hv".into()) }];
        writer.push(0, T0, Some(b"key"), Some(b"value"), &headers).unwrap();
        writer.push(1, T0 + 1, Some(b"k2"), None, &[]).unwrap();
        let mut whole = Vec::new();
        writer.finish(&mut whole).unwrap();
        assert_eq!(records_of(&whole), Ok(2));
        let mut decoder = Decoder::new(1 << 16);
        let (mut sound, mut broken) = (0, 0);
        for at in 0..whole.len() {
            for value in 0..=255 {
                let mut changed = whole.clone();
                changed[at] = value;
                if !(CRC..CRC + 4).contains(&at) {
                    changed = sealed(changed);
                }
                let Ok(header) = BatchHeader::parse(&changed) else { continue };
                let _ = header.verify_crc(&changed);
                match decoder
                    .records(&changed)
                    .map(|mut records| records.all(|r| r.map(|r| (r.key.map(<[u8]>::len), r.headers.len())).is_ok()))
                {
                    Ok(true) => sound += 1,
                    Ok(false) | Err(_) => broken += 1,
                }
            }
        }
        assert!(sound > 1000 && broken > 1000, "{codec:?}: {sound} {broken}");
        // Cut at every byte.
        (0..whole.len()).for_each(|end| assert!(decoder.records(&whole[..end]).is_err()));
    }
    // Varints of more than ten bytes, and sizes that are negative or beyond the record.
    for length in [&[0xff; 11][..], &[0x80; 10], &varint(-2), &varint(i64::MIN), &varint(1000)] {
        refused_everywhere(&of_area(&[length, &[0; 20]].concat(), 1));
        let body = [&[0, 0, 0][..], length, b"key"].concat();
        refused_everywhere(&of_area(&[varint(body.len() as i64), body].concat(), 1));
    }
}

/// The limit is that of what is stored, and what arrives is measured before it is decompressed.
#[test]
fn h06_the_size_limit_is_that_of_what_is_stored() {
    let big = "x".repeat(100_000);
    let limited = |codec| LogOptions::new().max_message_bytes(20_000).compression(codec);
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let log = open(&disk(), limited(codec));
        log.append(&[Record::new("k", big.clone())], Durability::Buffered).unwrap();
        let none = open(&disk(), limited(Codec::None));
        assert_eq!(none.append(&[Record::new("k", big.clone())], Durability::Buffered).unwrap_err().kind(), ErrorKind::InvalidInput);
        // A producer's batch is stored as it came, whatever the log compresses with itself.
        let compressed = batch(BatchSpec { codec, ..BatchSpec::default() }, &[("k", Some(&big))]);
        none.append_batch(compressed.clone(), Durability::Buffered).unwrap();
        assert_eq!(none.batches_from(0).unwrap().next().unwrap().unwrap().bytes.len(), compressed.len());
        assert_eq!(all(&none)[0].2.as_ref().map(String::len), Some(100_000));
    }
    let log = open(&disk(), limited(Codec::None));
    let mut noise = [&with(&plain(1), ATTRIBUTES + 1, &[Codec::Zstd.bits()])[..RECORDS], &[0x5a; 30_000]].concat();
    let length = (noise.len() - 12) as i32;
    noise[LENGTH..LENGTH + 4].copy_from_slice(&length.to_be_bytes());
    let error = log.append_batch(sealed(noise), Durability::Buffered).unwrap_err();
    assert!(error.to_string().contains("max_message_bytes"), "before decompression: {error}");
}

#[test]
fn h07_a_last_offset_below_the_base_reserves_nothing() {
    for delta in [-1, i32::MIN, -1000] {
        let broken = with(&plain(1), LAST_OFFSET_DELTA, &delta.to_be_bytes());
        assert!(matches!(BatchHeader::parse(&broken), Err(DecodeError::Field { field: "lastOffsetDelta", .. })));
        refused_everywhere(&broken);
        refused_everywhere(&with(&broken, COUNT, &0_i32.to_be_bytes()));
    }
    // The largest delta, far from what is there.
    let far = with(&plain(1), LAST_OFFSET_DELTA, &i32::MAX.to_be_bytes());
    let log = open(&disk(), small());
    assert_eq!(log.append_batch(far.clone(), Durability::Buffered).unwrap_err().kind(), ErrorKind::InvalidInput);
    log.append_as_follower(&far, Durability::Buffered).unwrap();
    assert_eq!(log.end_offset(), 1 << 31);
    let mut end = far;
    end[..8].copy_from_slice(&(i64::MAX - 5).to_be_bytes());
    assert_eq!(log.append_as_follower(&end, Durability::Buffered).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn h08_timestamps_are_minus_one_or_not_negative() {
    let log = open(&disk(), small());
    for timestamp in [-2, i64::MIN, -1] {
        let record = Record::new("k", "v").timestamp_ms(timestamp);
        assert_eq!(log.append(&[record], Durability::Buffered).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    let dated = |base: i64, max: i64| with(&with(&plain(1), BASE_TIMESTAMP, &base.to_be_bytes()), MAX_TIMESTAMP, &max.to_be_bytes());
    for (base, max) in [(-2, -2), (i64::MIN, i64::MIN), (5, i64::MAX), (i64::MAX, 5), (5, -1), (-1, 5)] {
        assert_eq!(log.append_batch(dated(base, max), Durability::Buffered).unwrap_err().kind(), ErrorKind::InvalidInput, "{base} {max}");
    }
    log.append_batch(dated(-1, -1), Durability::Buffered).unwrap();
    log.append_batch(dated(i64::MAX, i64::MAX), Durability::Buffered).unwrap();
    assert_eq!(log.end_offset(), 2);

    // What another log let through: no sum of times overflows.
    let disk = disk();
    let options = small().cleanup_policy(CleanupPolicy::Delete).retention_ms(Some(i64::MAX)).message_timestamp_type(TimestampType::Create);
    let log = open(&disk, options.clone());
    for (offset, timestamp) in [-2, i64::MIN, i64::MAX, -1, 0].into_iter().enumerate() {
        let mut dated = dated(timestamp, timestamp);
        dated[..8].copy_from_slice(&(offset as u64).to_be_bytes());
        log.append_as_follower(&dated, Durability::Buffered).unwrap();
        log.roll().unwrap();
    }
    let image = crash(log, &disk);
    for retention in [0, 1, i64::MAX] {
        let image = Arc::new(image.image());
        let log = open(&image, options.clone().retention_ms(Some(retention)));
        for timestamp in [i64::MIN, -2, -1, 0, 1, T0, i64::MAX] {
            let _ = log.find_by_timestamp(timestamp).unwrap();
        }
        log.apply_retention().unwrap();
        log.close().unwrap();
    }
}

/// A length of up to 2 GiB in a file of 100 bytes: no read, and so no buffer, is larger than a window.
#[test]
fn h10_a_flipped_length_takes_no_memory_on_the_way_in() {
    let disk = disk();
    let log = open(&disk, small());
    append(&log, "v").unwrap();
    let image = crash(log, &disk);
    let whole = contents(&image, FIRST);
    let largest = Arc::new(Mutex::new(0));
    for length in (0..31).flat_map(|bit| [(1_u32 << bit) - 1, 1 << bit]).chain([i32::MAX as u32, u32::MAX]) {
        for position in [0, whole.len()] {
            let image = MemoryStorage::image(&image);
            let mut second = whole.clone();
            second[..8].copy_from_slice(&1_u64.to_be_bytes());
            let mut bytes = [&whole[..], &second].concat();
            bytes[position + LENGTH..position + LENGTH + 4].copy_from_slice(&length.to_be_bytes());
            bytes.truncate(position + 100);
            put(&image, FIRST, &bytes);
            let shim = Shim::over(&image);
            let seen = Arc::clone(&largest);
            shim.set_rule(move |call, _| {
                if let Call::Read(len) = call {
                    let mut largest = seen.lock().unwrap();
                    *largest = len.max(*largest);
                }
                Verdict::Go
            });
            let log = open_on(&shim, small()).unwrap();
            assert!(log.end_offset() <= 2);
        }
    }
    assert!(*largest.lock().unwrap() <= 1 << 20, "{}", largest.lock().unwrap());
}

#[test]
fn h11_empty_batches_and_unknown_formats_are_named() {
    let empty = of_area(&[], 1);
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let empty = with(&with(&empty, COUNT, &0_i32.to_be_bytes()), ATTRIBUTES + 1, &[codec.bits()]);
        let log = open(&disk(), small());
        let error = log.append_batch(empty.clone(), Durability::Buffered).unwrap_err();
        assert_eq!((error.kind(), log.end_offset()), (ErrorKind::InvalidInput, 0), "{error}");
        // As a cleaner leaves it, it is a batch like any other.
        log.append_as_follower(&empty, Durability::Buffered).unwrap();
        append(&log, "next").unwrap();
        assert_eq!((all(&log).len(), log.end_offset()), (1, 2), "{codec:?}");
    }
    for magic in [0, 1, 3, 0xff] {
        let log = open(&disk(), small());
        let error = log.append_batch(with(&plain(1), MAGIC, &[magic]), Durability::Buffered).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    // Reserved bits of the attributes are kept, and ask for nothing.
    let reserved = with(&plain(1), ATTRIBUTES, &[0xff, 0x80]);
    let log = open(&disk(), small());
    log.append_batch(reserved.clone(), Durability::Buffered).unwrap();
    let stored = log.batches_from(0).unwrap().next().unwrap().unwrap();
    assert_eq!(stored.bytes[ATTRIBUTES..], reserved[ATTRIBUTES..]);
    assert_eq!(all(&log).len(), 1);
}

/// Of a format, or a codec, that only a later version knows, a reader says that; of noise, that it is damage.
#[test]
fn h11_what_is_newer_is_not_called_damaged() {
    let disk = disk();
    let log = open(&disk, small());
    append(&log, "before").unwrap();
    append(&log, "changed").unwrap();
    log.roll().unwrap();
    append(&log, "after").unwrap();
    log.close().unwrap();
    let whole = contents(&disk, FIRST);
    let second = 12 + u32::from_be_bytes(whole[8..12].try_into().unwrap()) as usize;
    let change = |at: usize, to: u8| {
        let mut bytes = whole.clone();
        bytes[second + at] = to;
        [bytes[..second].to_vec(), sealed(bytes[second..].to_vec())].concat()
    };
    let noise = [&whole[..second], &vec![0x77; whole.len() - second]].concat();
    for (bytes, kind) in [
        (change(MAGIC, 3), ErrorKind::Unsupported),
        (change(MAGIC, 0xff), ErrorKind::Unsupported),
        (change(ATTRIBUTES + 1, 6), ErrorKind::Unsupported),
        (noise, ErrorKind::Corrupt),
    ] {
        let image = Arc::new(disk.image());
        put(&image, FIRST, &bytes);
        let log = open(&image, small());
        let read: Vec<_> = log.read_from(0).unwrap().collect();
        let error = read[1].as_ref().unwrap_err();
        assert_eq!((read.len(), error.kind(), error.position()), (2, kind, Some(second as u64)), "{error}");
        let rest = log.read_from(error.resume_offset().unwrap()).unwrap().next().unwrap().unwrap();
        assert_eq!(rest.offset(), 2);
    }
}
