//! LZ4 frames as Kafka writes and reads them: independent blocks, one frame, no dictionary.

use lz4_flex::block::{CompressTable, DecompressError, compress_into_with_table, decompress_into, get_maximum_output_size};
use xxhash_rust::xxh32::xxh32;

use super::{DecodeError, EncodeError, Output};
use crate::record::varint::Reader;

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// Version 1, independent blocks, nothing optional; blocks of 64 KiB; the header's check byte.
const HEADER: [u8; 7] = [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82];
const BLOCK_BYTES: usize = 64 << 10;
const END_MARK: [u8; 4] = [0; 4];
/// In a block length: the block is stored as it is.
const STORED: u32 = 1 << 31;
/// No block makes more of one byte: a length byte adds 255.
const RATIO_MAX: usize = 256;

const FLAG_INDEPENDENT: u8 = 0x20;
const FLAG_BLOCK_CHECKSUM: u8 = 0x10;
const FLAG_CONTENT_SIZE: u8 = 0x08;
const FLAG_CONTENT_CHECKSUM: u8 = 0x04;
const FLAGS_RESERVED: u8 = 0x03;

fn damaged(reason: &'static str) -> DecodeError {
    DecodeError::Compression { codec: "lz4", reason }
}

/// Whether the check byte of the frame header means anything.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderCheck {
    Verify,
    /// Clients of format v0 computed it over too many bytes.
    Ignore,
}

impl HeaderCheck {
    pub(super) fn of(magic: u8) -> Self {
        if magic == 0 { Self::Ignore } else { Self::Verify }
    }
}

pub(super) fn decompress(input: &[u8], check: HeaderCheck, out: &mut Output) -> Result<(), DecodeError> {
    let mut reader = Reader::new(input);
    let frame = Frame::read(&mut reader, check)?;
    loop {
        let word = u32::from_le_bytes(reader.array().ok_or(damaged("the frame has no end mark"))?);
        let len = (word & !STORED) as usize;
        if len == 0 {
            break;
        }
        if len > frame.block_bytes_max {
            return Err(damaged("a block is longer than the frame allows"));
        }
        let block = reader.take(len).ok_or(damaged("a block is cut off"))?;
        if frame.block_checksum {
            let stored = u32::from_le_bytes(reader.array().ok_or(damaged("a block checksum is cut off"))?);
            if stored != xxh32(block, 0) {
                return Err(damaged("a block checksum differs"));
            }
        }
        if word & STORED != 0 { copy(block, out)? } else { expand(block, frame.block_bytes_max, out)? }
    }
    if frame.content_checksum {
        reader.take(4).ok_or(damaged("the content checksum is cut off"))?;
    }
    if reader.rest().is_empty() { Ok(()) } else { Err(damaged("bytes follow the end mark")) }
}

struct Frame {
    block_bytes_max: usize,
    block_checksum: bool,
    content_checksum: bool,
}

impl Frame {
    fn read(reader: &mut Reader<'_>, check: HeaderCheck) -> Result<Self, DecodeError> {
        let cut_off = damaged("the frame header is cut off");
        if reader.array() != Some(MAGIC) {
            return Err(damaged("no frame header"));
        }
        let described = reader.rest();
        let [flags, block] = reader.array().ok_or(cut_off)?;
        if flags >> 6 != 1 {
            return Err(damaged("the frame version is not 1"));
        }
        if flags & FLAGS_RESERVED != 0 {
            return Err(damaged("reserved flags or a dictionary"));
        }
        if flags & FLAG_INDEPENDENT == 0 {
            return Err(damaged("blocks depend on each other"));
        }
        let size_code = block >> 4;
        if block & 0x0f != 0 || !(4..=7).contains(&size_code) {
            return Err(damaged("the block size is unknown"));
        }
        if flags & FLAG_CONTENT_SIZE != 0 {
            reader.take(8).ok_or(cut_off)?;
        }
        let described = &described[..described.len() - reader.rest().len()];
        let stored = reader.byte().ok_or(cut_off)?;
        if check == HeaderCheck::Verify && stored != (xxh32(described, 0) >> 8) as u8 {
            return Err(damaged("the check byte of the frame header differs"));
        }
        Ok(Self {
            block_bytes_max: 1 << (8 + 2 * size_code),
            block_checksum: flags & FLAG_BLOCK_CHECKSUM != 0,
            content_checksum: flags & FLAG_CONTENT_CHECKSUM != 0,
        })
    }
}

fn copy(block: &[u8], out: &mut Output) -> Result<(), DecodeError> {
    let room = out.room(block.len())?;
    let len = block.len().min(room.len());
    room[..len].copy_from_slice(&block[..len]);
    out.advance(block.len())
}

fn expand(block: &[u8], bytes_max: usize, out: &mut Output) -> Result<(), DecodeError> {
    let most = bytes_max.min(block.len().saturating_mul(RATIO_MAX));
    let limited = out.allowance() <= most;
    let room = out.room(most)?;
    let len = most.min(room.len());
    match decompress_into(block, &mut room[..len]) {
        Ok(written) => out.advance(written),
        Err(DecompressError::OutputTooSmall { .. }) if limited => Err(out.too_large()),
        Err(DecompressError::OutputTooSmall { .. }) => Err(damaged("a block holds more than the frame allows")),
        Err(_) => Err(damaged("a block is malformed")),
    }
}

pub(super) fn compress(table: &mut CompressTable, input: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    out.extend_from_slice(&HEADER);
    for block in input.chunks(BLOCK_BYTES) {
        let length_at = out.len();
        let start = length_at + 4;
        out.resize(start + get_maximum_output_size(block.len()), 0);
        let written = compress_into_with_table(block, &mut out[start..], table)
            .map_err(|_| EncodeError::Compression { codec: "lz4", reason: "the compressor failed" })?;
        let (len, word) = if written < block.len() {
            (written, written as u32)
        } else {
            out[start..start + block.len()].copy_from_slice(block);
            (block.len(), block.len() as u32 | STORED)
        };
        out[length_at..start].copy_from_slice(&word.to_le_bytes());
        out.truncate(start + len);
    }
    out.extend_from_slice(&END_MARK);
    Ok(())
}
