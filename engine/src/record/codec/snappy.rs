//! Snappy blocks in the framing of xerial's snappy-java, which is not Snappy's own framing format.
//!
//! A 16-byte header (magic, version, least compatible version), then chunks: length (big-endian) and one raw
//! block. Another header may stand where a length would. Other clients write one raw block without any framing.

use snap::raw::{Decoder, Encoder, decompress_len, max_compress_len};

use super::{DecodeError, EncodeError, Output};
use crate::record::varint::Reader;

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const HEADER: [u8; 16] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1];
const VERSION_MIN: i32 = 1;
const CHUNK_BYTES_MAX: i32 = 512 << 20;
/// Uncompressed bytes of a chunk that snappy-java writes.
const BLOCK_BYTES: usize = 32 << 10;
/// No element of a block makes more of one byte: a copy of 64 bytes takes at least two.
const RATIO_MAX: usize = 64;

fn damaged(reason: &'static str) -> DecodeError {
    DecodeError::Compression { codec: "snappy", reason }
}

pub(super) fn decompress(decoder: &mut Decoder, input: &[u8], out: &mut Output) -> Result<(), DecodeError> {
    if !input.starts_with(&MAGIC) || input.len() < HEADER.len() {
        return block(decoder, input, out);
    }
    let mut reader = Reader::new(input);
    while !reader.rest().is_empty() {
        if reader.rest().starts_with(&MAGIC[..4]) {
            header(&mut reader)?;
            continue;
        }
        let len = i32::from_be_bytes(reader.array().ok_or(damaged("a chunk length is cut off"))?);
        if !(0..=CHUNK_BYTES_MAX).contains(&len) {
            return Err(damaged("a chunk length is out of range"));
        }
        let chunk = reader.take(len.unsigned_abs() as usize).ok_or(damaged("a chunk is cut off"))?;
        block(decoder, chunk, out)?;
    }
    Ok(())
}

fn header(reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    let (Some(magic), Some(version), Some(_least)) = (reader.array::<8>(), reader.array(), reader.array::<4>()) else {
        return Err(damaged("a stream header is cut off"));
    };
    if magic != MAGIC {
        return Err(damaged("no stream header"));
    }
    if i32::from_be_bytes(version) < VERSION_MIN {
        return Err(damaged("the version of the stream is too old"));
    }
    Ok(())
}

fn block(decoder: &mut Decoder, input: &[u8], out: &mut Output) -> Result<(), DecodeError> {
    let len = decompress_len(input).map_err(|_| damaged("a block has no sound length"))?;
    if len > input.len().saturating_mul(RATIO_MAX) {
        return Err(damaged("a block claims more bytes than it can hold"));
    }
    if len >= out.allowance() {
        return Err(out.too_large());
    }
    let room = out.room(len)?;
    let written = decoder.decompress(input, &mut room[..len]).map_err(|_| damaged("a block is malformed"))?;
    out.advance(written)
}

pub(super) fn compress(encoder: &mut Encoder, input: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    out.extend_from_slice(&HEADER);
    for block in input.chunks(BLOCK_BYTES) {
        let length_at = out.len();
        let start = length_at + 4;
        out.resize(start + max_compress_len(block.len()), 0);
        let written = encoder
            .compress(block, &mut out[start..])
            .map_err(|_| EncodeError::Compression { codec: "snappy", reason: "the compressor failed" })?;
        out[length_at..start].copy_from_slice(&(written as u32).to_be_bytes());
        out.truncate(start + written);
    }
    Ok(())
}
