//! Walking a whole `.log`, against a walk over its bytes in one piece.

use std::path::Path;
use std::sync::Arc;

use keeplog_engine::record::{BatchHeader, DecodeError, SCAN_PEEK_BYTES};
use keeplog_engine::scan::{EntryScanner, ScanCause};
use keeplog_engine::storage::{File, OpenMode, Storage};

use crate::world::{self, Piecemeal};

const PATH: &str = "/t-0/00000000000000000000.log";
/// In byte 0: the range that is scanned ends past the end of the file, as when it is cut meanwhile.
const CUT_MEANWHILE: u8 = 0x80;

/// Byte 0 sets how reads are cut to pieces and whether the file is shorter than promised, byte 1 the buffer;
/// the rest is the file.
pub fn scan(data: &[u8]) {
    let [how, buffer, bytes @ ..] = data else { return };
    let disk = world::with_file(PATH, bytes);
    let inner = disk.open(Path::new(PATH), OpenMode::Read).expect("it was just made");
    let file = Piecemeal::new(Arc::clone(&inner), 1 << (how & 15));
    let buffer_bytes = usize::from(*buffer) << 6;
    if how & CUT_MEANWHILE != 0 {
        let mut scanner = EntryScanner::new(&file, 0, bytes.len() as u64 + 100_000, buffer_bytes);
        let mut found = 0;
        while let Some(entry) = scanner.next() {
            found += entry.map_or(0, |entry| entry.bytes.len());
        }
        assert!(found <= bytes.len());
        return;
    }
    compare(&file, bytes, buffer_bytes);
    compare(&*inner, bytes, buffer_bytes);
}

fn compare(file: &dyn File, bytes: &[u8], buffer_bytes: usize) {
    let mut scanner = EntryScanner::new(file, 0, bytes.len() as u64, buffer_bytes);
    let mut position = 0;
    while position < bytes.len() {
        assert_eq!(scanner.position(), position as u64);
        match (slow(&bytes[position..]), scanner.next()) {
            (Ok(header), Some(Ok(entry))) => {
                let end = position + header.size as usize;
                assert_eq!((entry.position, entry.header), (position as u64, header));
                assert!(entry.bytes == &bytes[position..end], "other bytes at {position}");
                position = end;
            }
            (Err(expected), Some(Err(error))) => {
                assert_eq!(error.position, position as u64);
                assert!(matches!(error.cause, ScanCause::Decode(cause) if cause == expected), "{error} where {expected} stands");
                break;
            }
            (expected, found) => panic!("{found:?} at {position} where {expected:?} stands"),
        }
    }
    assert!(scanner.next().is_none(), "the scan goes on after its end");
}

/// The entry at the start of `rest`, which is all that is left.
fn slow(rest: &[u8]) -> Result<BatchHeader, DecodeError> {
    let available = rest.len() as u64;
    if rest.len() < SCAN_PEEK_BYTES {
        return Err(DecodeError::Truncated { needed: SCAN_PEEK_BYTES as u64, available });
    }
    let header = BatchHeader::parse(rest)?;
    if u64::from(header.size) > available {
        return Err(DecodeError::Truncated { needed: u64::from(header.size), available });
    }
    Ok(header)
}
