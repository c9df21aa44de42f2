//! Zstandard frames without dictionary.
//!
//! Read in one call into the output, not as a stream: no window is kept beside it, so the window that a frame
//! claims costs nothing. What does not fit is read again into four times the room; the buffer keeps its size,
//! so that this is rare.

use std::ops::RangeInclusive;

use zstd::zstd_safe::zstd_sys::ZSTD_ErrorCode;
use zstd::zstd_safe::{self, CCtx, CParameter, DCtx};

use super::{DecodeError, EncodeError, Output};

const DEFAULT_LEVEL: i32 = 3;
/// What is expected to come out of one byte, where the frame does not say.
const RATIO_EXPECTED: usize = 4;
/// How far the size that a frame claims is believed, for the room of a first try.
const RATIO_BELIEVED: usize = 64;
const GROWTH: usize = 4;

fn damaged(reason: &'static str) -> DecodeError {
    DecodeError::Compression { codec: "zstd", reason }
}

pub(super) fn levels() -> RangeInclusive<i32> {
    zstd_safe::min_c_level()..=zstd_safe::max_c_level()
}

/// Reads frames.
#[derive(Default)]
pub(super) struct Context(DCtx<'static>);

impl Context {
    pub(super) fn decompress(&mut self, input: &[u8], out: &mut Output) -> Result<(), DecodeError> {
        let claimed = zstd_safe::get_frame_content_size(input).map_err(|_| damaged("no frame header"))?;
        let expected = input.len().saturating_mul(RATIO_EXPECTED);
        let believed = input.len().saturating_mul(RATIO_BELIEVED);
        let mut room_bytes = claimed.map_or(expected, |claimed| believed.min(usize::try_from(claimed).unwrap_or(believed)));
        loop {
            let allowance = out.allowance();
            let room = out.room(room_bytes)?;
            let len = room.len();
            match self.0.decompress(room, input) {
                Ok(written) => return out.advance(written),
                Err(code) if zstd_safe::is_error_kind(code, ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall) => {
                    if len >= allowance {
                        return Err(out.too_large());
                    }
                    // The room may have been none: a frame can claim to be empty, and another one follow.
                    room_bytes = len.saturating_mul(GROWTH).max(Output::START_BYTES);
                }
                Err(code) => return Err(damaged(zstd_safe::get_error_name(code))),
            }
        }
    }
}

/// Writes frames.
#[derive(Default)]
pub(super) struct Compressor {
    context: CCtx<'static>,
}

impl Compressor {
    pub(super) fn compress(&mut self, level: Option<i32>, input: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let failed = |code| EncodeError::Compression { codec: "zstd", reason: zstd_safe::get_error_name(code) };
        self.context.set_parameter(CParameter::CompressionLevel(level.unwrap_or(DEFAULT_LEVEL))).map_err(failed)?;
        let start = out.len();
        out.resize(start + zstd_safe::compress_bound(input.len()), 0);
        let written = self.context.compress2(&mut out[start..], input).map_err(failed)?;
        out.truncate(start + written);
        Ok(())
    }
}
