//! Gzip (RFC 1952): one member written, one or more read.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::{DecodeError, EncodeError, Output};
use crate::record::varint::Reader;

/// As the JDK writes it: deflate, no flags, no time, no extra flags, unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
const DEFAULT_LEVEL: i32 = 6;
/// Room that a call of the compressor gets at least.
const STEP_BYTES: usize = 4 << 10;

const FLAG_HEADER_CRC: u8 = 0x02;
const FLAG_EXTRA: u8 = 0x04;
const FLAG_NAME: u8 = 0x08;
const FLAG_COMMENT: u8 = 0x10;
const FLAGS_RESERVED: u8 = 0xe0;

fn damaged(reason: &'static str) -> DecodeError {
    DecodeError::Compression { codec: "gzip", reason }
}

/// Reads members.
pub(super) struct Inflater(Decompress);

impl Default for Inflater {
    fn default() -> Self {
        Self(Decompress::new(false))
    }
}

impl Inflater {
    pub(super) fn decompress(&mut self, input: &[u8], out: &mut Output) -> Result<(), DecodeError> {
        let mut rest = input;
        loop {
            rest = self.member(rest, out)?;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Reads one member and gives what follows it.
    fn member<'a>(&mut self, input: &'a [u8], out: &mut Output) -> Result<&'a [u8], DecodeError> {
        let start = out.filled().len();
        let body = skip_header(input).ok_or(damaged("no gzip header"))?;
        let mut trailer = Reader::new(self.inflate(body, out)?);
        let (Some(crc), Some(len)) = (trailer.array(), trailer.array()) else {
            return Err(damaged("the trailer is cut off"));
        };
        let content = &out.filled()[start..];
        if u32::from_le_bytes(crc) != crc32fast::hash(content) {
            return Err(damaged("the checksum of the content differs"));
        }
        if u32::from_le_bytes(len) != content.len() as u32 {
            return Err(damaged("the length of the content differs"));
        }
        Ok(trailer.rest())
    }

    /// Inflates one deflate stream and gives what follows it.
    fn inflate<'a>(&mut self, input: &'a [u8], out: &mut Output) -> Result<&'a [u8], DecodeError> {
        self.0.reset(false);
        let mut rest = input;
        loop {
            let (in_before, out_before) = (self.0.total_in(), self.0.total_out());
            let room = out.room(1)?;
            let status = self.0.decompress(rest, room, FlushDecompress::None).map_err(|_| damaged("the deflate stream is malformed"))?;
            // Both differences are bounded by the slices just given.
            let taken = (self.0.total_in() - in_before) as usize;
            let given = (self.0.total_out() - out_before) as usize;
            rest = &rest[taken..];
            out.advance(given)?;
            match status {
                Status::StreamEnd => return Ok(rest),
                _ if taken == 0 && given == 0 => return Err(damaged("the deflate stream is cut off")),
                _ => {}
            }
        }
    }
}

/// What follows the header of a member, whatever optional parts it has.
fn skip_header(input: &[u8]) -> Option<&[u8]> {
    let mut reader = Reader::new(input);
    let [0x1f, 0x8b, 8, flags, ..] = reader.array::<10>()? else { return None };
    if flags & FLAGS_RESERVED != 0 {
        return None;
    }
    if flags & FLAG_EXTRA != 0 {
        let len = u16::from_le_bytes(reader.array()?);
        reader.take(len.into())?;
    }
    for flag in [FLAG_NAME, FLAG_COMMENT] {
        if flags & flag != 0 {
            let len = reader.rest().iter().position(|&byte| byte == 0)?;
            reader.take(len + 1)?;
        }
    }
    if flags & FLAG_HEADER_CRC != 0 {
        let header = &input[..input.len() - reader.rest().len()];
        let stored = u16::from_le_bytes(reader.array()?);
        if stored != crc32fast::hash(header) as u16 {
            return None;
        }
    }
    Some(reader.rest())
}

/// Writes members.
pub(super) struct Deflater {
    level: i32,
    context: Compress,
}

impl Default for Deflater {
    fn default() -> Self {
        Self::new(DEFAULT_LEVEL)
    }
}

impl Deflater {
    fn new(level: i32) -> Self {
        Self { level, context: Compress::new(Compression::new(level.unsigned_abs()), false) }
    }

    pub(super) fn compress(&mut self, level: Option<i32>, input: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let level = level.filter(|&level| level != -1).unwrap_or(DEFAULT_LEVEL);
        if level == self.level {
            self.context.reset();
        } else {
            *self = Self::new(level);
        }

        out.extend_from_slice(&HEADER);
        let mut rest = input;
        loop {
            out.reserve((rest.len() / 2).max(STEP_BYTES));
            let taken_before = self.context.total_in();
            let status = self
                .context
                .compress_vec(rest, out, FlushCompress::Finish)
                .map_err(|_| EncodeError::Compression { codec: "gzip", reason: "the compressor failed" })?;
            rest = &rest[(self.context.total_in() - taken_before) as usize..];
            if status == Status::StreamEnd {
                break;
            }
        }
        out.extend_from_slice(&crc32fast::hash(input).to_le_bytes());
        out.extend_from_slice(&(input.len() as u32).to_le_bytes());
        Ok(())
    }
}
