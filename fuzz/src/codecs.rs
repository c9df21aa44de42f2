//! Compressed areas: frames from outside, and frames of our own that come back.

use keeplog_engine::record::{BatchHeader, BatchSpec, BatchWriter, Codec, DecodeError, Decoder, ENTRY_PREFIX_BYTES, HEADER_V2_BYTES};

use crate::entries;

const OUR_OWN: u8 = 0x80;
const IN_LEGACY: u8 = 0x08;

/// Byte 0 names the codec (low bits) and what the rest is: a frame (in a v2 batch, or in a v0/v1 wrapper; and which
/// limit it meets), or plain bytes to compress and read back.
pub fn codec(data: &[u8]) {
    let Some((&selector, rest)) = data.split_first() else { return };
    let Ok(codec) = Codec::from_bits(1 + (selector & 3)) else { return };
    let limit = [0, 64, 4096][usize::from(selector >> 5 & 3) % 3];
    if selector & OUR_OWN != 0 {
        comes_back(codec, rest);
    } else if selector & IN_LEGACY != 0 {
        frame(&wrapper(codec, selector >> 4 & 1, rest), limit);
    } else {
        frame(&batch(codec, rest), limit);
    }
}

/// Whatever an area decompresses to, less room gives the same or says so, and never something else.
fn frame(entry: &[u8], limit: usize) {
    let whole = entries::decode(entry);
    let within = Decoder::new(limit).records(entry).map(Iterator::count);
    match (&whole, within) {
        (_, Err(DecodeError::TooLarge { limit: stated })) => assert_eq!(stated, limit as u64),
        (Ok(records), within) => assert_eq!(within, Ok(records.len()), "another outcome within {limit} bytes"),
        // Which of several faults is met first may depend on the room.
        (Err(_), _) => {}
    }
}

fn comes_back(codec: Codec, value: &[u8]) {
    let level = match codec {
        Codec::Gzip | Codec::Zstd | Codec::Lz4 => value.first().map(|byte| 1 + i32::from(byte % 9)),
        Codec::None | Codec::Snappy => None,
    };
    let mut writer = BatchWriter::new();
    for level in [None, level] {
        writer.begin(BatchSpec { codec, level, ..BatchSpec::default() });
        writer.push(0, 0, None, Some(value), &[]).expect("one record fits");
        let mut entry = Vec::new();
        writer.finish(&mut entry).expect("any bytes can be compressed");
        let records = entries::decode(&entry).expect("our own frames are sound");
        assert!(records.len() == 1 && records[0].value.as_deref() == Some(value), "{} changes bytes", codec.name());

        // One wrong byte in the frame: an error, or the right length at least (not every frame has a checksum).
        let at = HEADER_V2_BYTES + value.len() % (entry.len() - HEADER_V2_BYTES);
        entry[at] ^= 1 << (value.len() & 7);
        if let Ok(records) = entries::decode(&entry) {
            assert_eq!(records.len(), 1);
        }
    }
}

/// A v2 batch of one record whose area is `area`.
fn batch(codec: Codec, area: &[u8]) -> Vec<u8> {
    let mut writer = BatchWriter::new();
    writer.push(0, 0, None, None, &[]).expect("one record fits");
    let mut entry = Vec::new();
    writer.finish(&mut entry).expect("a plain batch");
    entry.truncate(HEADER_V2_BYTES);
    entry.extend_from_slice(area);
    let length = (entry.len() - ENTRY_PREFIX_BYTES) as i32;
    entry[8..12].copy_from_slice(&length.to_be_bytes());
    entry[22] = codec.bits();
    entry[23..27].copy_from_slice(&1000_i32.to_be_bytes());
    assert!(BatchHeader::parse(&entry).is_ok());
    entry
}

/// A v0 or v1 wrapper whose value is `set`, compressed.
fn wrapper(codec: Codec, magic: u8, set: &[u8]) -> Vec<u8> {
    let mut body = vec![0, 0, 0, 0, magic, codec.bits()];
    if magic == 1 {
        body.extend_from_slice(&7_i64.to_be_bytes());
    }
    body.extend_from_slice(&(-1_i32).to_be_bytes());
    body.extend_from_slice(&(set.len() as i32).to_be_bytes());
    body.extend_from_slice(set);
    let mut entry = 1000_i64.to_be_bytes().to_vec();
    entry.extend_from_slice(&(body.len() as i32).to_be_bytes());
    entry.extend_from_slice(&body);
    entry
}
