//! The five codecs in the framings that Kafka gives them.
//!
//! What is read comes from outside: output grows with what really comes out of a stream, never by a length that
//! the stream claims, and stops at the caller's limit. Contexts and buffers are kept from call to call.

mod gzip;
mod lz4;
mod snappy;
mod zstd;

use super::{Codec, DecodeError, EncodeError};
use crate::room;

/// Decompressed bytes of one area, behind those of earlier ones that are kept. The buffer keeps its size from area to area.
#[derive(Debug)]
pub(super) struct Output {
    bytes: Vec<u8>,
    /// Where the area begins: what is before is kept.
    start: usize,
    /// Where its bytes end.
    filled: usize,
    /// Bytes of one area at most.
    limit: usize,
}

impl Output {
    const START_BYTES: usize = 4 << 10;

    pub(super) fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), start: 0, filled: 0, limit }
    }

    pub(super) fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.filled]
    }

    /// Where the area begins in what is kept, once it is.
    pub(super) fn start(&self) -> usize {
        self.start
    }

    /// The area is kept: the next one comes behind it.
    pub(super) fn keep(&mut self) {
        self.start = self.filled;
    }

    /// Exchanges what is kept, and all room behind it, for `other`, whose bytes mean nothing.
    pub(super) fn exchange(&mut self, other: &mut Vec<u8>) {
        std::mem::swap(&mut self.bytes, other);
        (self.start, self.filled) = (0, 0);
    }

    /// Bytes that may still come out, and one more that shows that the limit is passed.
    fn allowance(&self) -> usize {
        (self.limit - (self.filled - self.start)).saturating_add(1)
    }

    /// Room for at least `least` bytes, or for all that the limit allows and one byte more, if that is less.
    /// `least` must be backed by input that is really there.
    fn room(&mut self, least: usize) -> Result<&mut [u8], DecodeError> {
        let least = least.min(self.allowance());
        if self.bytes.len() - self.filled < least {
            let doubled = (self.filled * 2).max(Self::START_BYTES).min(self.filled + self.allowance());
            let wanted = doubled.max(self.filled + least);
            room::resize(&mut self.bytes, wanted).map_err(|_| DecodeError::OutOfMemory { bytes: wanted as u64 })?;
        }
        let end = self.bytes.len().min(self.filled + self.allowance());
        Ok(&mut self.bytes[self.filled..end])
    }

    /// Counts `len` bytes, just written to the room, as filled.
    fn advance(&mut self, len: usize) -> Result<(), DecodeError> {
        if len > self.limit - (self.filled - self.start) {
            return Err(self.too_large());
        }
        self.filled += len;
        Ok(())
    }

    fn too_large(&self) -> DecodeError {
        DecodeError::TooLarge { limit: self.limit as u64 }
    }
}

/// Decompresses areas of any codec; contexts are made on first use.
#[derive(Default)]
pub(super) struct Decompressor {
    gzip: Option<gzip::Inflater>,
    snappy: snap::raw::Decoder,
    zstd: Option<zstd::Context>,
}

impl Decompressor {
    /// Replaces what `out` holds by the decompressed `input`. `magic` is the format of the entry around it.
    pub(super) fn decompress(&mut self, codec: Codec, magic: u8, input: &[u8], out: &mut Output) -> Result<(), DecodeError> {
        out.filled = out.start;
        match codec {
            Codec::None => {
                let room = out.room(input.len())?;
                let len = input.len().min(room.len());
                room[..len].copy_from_slice(&input[..len]);
                out.advance(input.len())
            }
            Codec::Gzip => self.gzip.get_or_insert_default().decompress(input, out),
            Codec::Snappy => snappy::decompress(&mut self.snappy, input, out),
            Codec::Lz4 => lz4::decompress(input, lz4::HeaderCheck::of(magic), out),
            Codec::Zstd => self.zstd.get_or_insert_default().decompress(input, out),
        }
    }
}

/// Compresses areas with any codec; contexts are made on first use.
#[derive(Default)]
pub(super) struct Compressor {
    gzip: Option<gzip::Deflater>,
    snappy: Option<snap::raw::Encoder>,
    lz4: Option<lz4_flex::block::CompressTable>,
    zstd: Option<zstd::Compressor>,
}

impl Compressor {
    /// Appends the compressed `input` to `out`. Without a level, Kafka's default. Snappy has no levels, and LZ4
    /// always compresses as Kafka's default does (the fast way), so a level is only checked there.
    pub(super) fn compress(&mut self, codec: Codec, level: Option<i32>, input: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if let Some(level) = level
            && !codec.has_level(level)
        {
            return Err(EncodeError::Level { codec: codec.name(), level });
        }
        match codec {
            Codec::None => {
                out.extend_from_slice(input);
                Ok(())
            }
            Codec::Gzip => self.gzip.get_or_insert_default().compress(level, input, out),
            Codec::Snappy => snappy::compress(self.snappy.get_or_insert_with(snap::raw::Encoder::new), input, out),
            Codec::Lz4 => lz4::compress(self.lz4.get_or_insert_default(), input, out),
            Codec::Zstd => self.zstd.get_or_insert_default().compress(level, input, out),
        }
    }
}

impl Codec {
    /// Whether Kafka knows that level of it. Without levels it takes any.
    #[must_use]
    pub fn has_level(self, level: i32) -> bool {
        match self {
            Self::None | Self::Snappy => true,
            Self::Gzip => level == -1 || (1..=9).contains(&level),
            Self::Lz4 => (1..=17).contains(&level),
            Self::Zstd => zstd::levels().contains(&level),
        }
    }
}

#[cfg(test)]
mod tests;
