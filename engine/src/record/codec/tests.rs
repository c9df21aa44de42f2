//! Framings, damage and bounds of the codecs.

use proptest::prelude::*;
use xxhash_rust::xxh32::xxh32;

use super::*;

const COMPRESSED: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
const LIMIT: usize = 16 << 20;

fn compress(codec: Codec, input: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Compressor::default().compress(codec, None, input, &mut out).unwrap();
    out
}

fn decompress_within(codec: Codec, magic: u8, input: &[u8], limit: usize) -> Result<Vec<u8>, DecodeError> {
    let mut out = Output::new(limit);
    let result = Decompressor::default().decompress(codec, magic, input, &mut out);
    assert!(out.bytes.len() <= limit + 1, "{} bytes of buffer for a limit of {limit}", out.bytes.len());
    result.map(|()| out.filled().to_vec())
}

fn decompress(codec: Codec, input: &[u8]) -> Result<Vec<u8>, DecodeError> {
    decompress_within(codec, 2, input, LIMIT)
}

fn assert_damaged(codec: Codec, input: &[u8], expected: &str) {
    match decompress(codec, input) {
        Err(DecodeError::Compression { codec: name, reason }) => assert_eq!((name, reason), (codec.name(), expected)),
        other => panic!("{other:?} instead of: {expected}"),
    }
}

/// Compresses to about half, without repeating itself at once.
fn sample(len: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        b'a' + (state >> 28) as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn sizes_around_block_borders_round_trip_through_one_context() {
    let mut compressor = Compressor::default();
    let mut decompressor = Decompressor::default();
    let mut output = Output::new(LIMIT);
    for len in [0, 1, 32_767, 32_768, 32_769, 65_535, 65_536, 65_537, 200_000, 3 << 20, 100] {
        let input = sample(len);
        for codec in COMPRESSED {
            let mut packed = b"before".to_vec();
            compressor.compress(codec, None, &input, &mut packed).unwrap();
            decompressor.decompress(codec, 2, &packed[6..], &mut output).unwrap();
            assert!(output.filled() == input, "{} of {len} bytes", codec.name());
        }
    }
}

#[test]
fn the_limit_is_exact() {
    let input = sample(100_000);
    let mut compressible = vec![b'x'; 5 << 20];
    compressible.extend_from_slice(&input);
    for data in [input, compressible] {
        for codec in COMPRESSED {
            let packed = compress(codec, &data);
            assert!(decompress_within(codec, 2, &packed, data.len()).unwrap() == data);
            for limit in [0, 1, data.len() / 2, data.len() - 1] {
                let error = DecodeError::TooLarge { limit: limit as u64 };
                assert_eq!(decompress_within(codec, 2, &packed, limit), Err(error), "{} within {limit}", codec.name());
            }
        }
    }
}

#[test]
fn a_few_bytes_that_claim_gigabytes_cost_nothing() {
    let mut zstd_claims = vec![0x28, 0xb5, 0x2f, 0xfd, 0xe0];
    zstd_claims.extend_from_slice(&(1_u64 << 40).to_le_bytes());
    let snappy_claims = [0xff, 0xff, 0xff, 0xff, 0x0f, 0x00];
    let lz4_claims = [lz4_header(0x60, 0x70).as_slice(), &[3, 0, 0, 0, 0x1f, 0xff, 0xff]].concat();
    for (codec, input) in [(Codec::Zstd, zstd_claims), (Codec::Snappy, snappy_claims.to_vec()), (Codec::Lz4, lz4_claims)] {
        let mut out = Output::new(LIMIT);
        let result = Decompressor::default().decompress(codec, 2, &input, &mut out);
        assert!(matches!(result, Err(DecodeError::Compression { .. })), "{}: {result:?}", codec.name());
        assert!(out.bytes.len() <= Output::START_BYTES, "{}: {} bytes of buffer", codec.name(), out.bytes.len());
    }
}

#[test]
fn what_inflates_to_gigabytes_stops_at_the_limit() {
    // 50 bytes: twelve runs of 128 KiB in one frame, and the same claiming a window of 2 GiB.
    for window in [0x58, 0xa8] {
        let mut bomb = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, window];
        for _ in 0..11 {
            bomb.extend_from_slice(&[0x02, 0x00, 0x10, b'x']);
        }
        assert_eq!(bomb.len(), 50);
        assert_eq!(decompress_within(Codec::Zstd, 2, &bomb, 1 << 20), Err(DecodeError::TooLarge { limit: 1 << 20 }));
    }
    // A gigabyte in 32 KiB.
    let mut bomb = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58];
    bomb.extend([0x02, 0x00, 0x10, b'x'].repeat(8192));
    assert_eq!(decompress_within(Codec::Zstd, 2, &bomb, LIMIT), Err(DecodeError::TooLarge { limit: LIMIT as u64 }));
    // A gzip stream a thousand times smaller than its content, many members in a row.
    let bomb = compress(Codec::Gzip, &vec![0; 1 << 20]).repeat(100);
    assert_eq!(decompress_within(Codec::Gzip, 2, &bomb, LIMIT), Err(DecodeError::TooLarge { limit: LIMIT as u64 }));
}

#[test]
fn levels_are_kafkas() {
    let mut compressor = Compressor::default();
    let input = sample(10_000);
    let known =
        [(Codec::Gzip, -1), (Codec::Gzip, 1), (Codec::Gzip, 9), (Codec::Lz4, 9), (Codec::Lz4, 17), (Codec::Zstd, 22), (Codec::Zstd, -5)];
    for (codec, level) in known {
        let mut packed = Vec::new();
        compressor.compress(codec, Some(level), &input, &mut packed).unwrap();
        assert!(decompress(codec, &packed).unwrap() == input);
    }
    for (codec, level) in [(Codec::Gzip, 0), (Codec::Gzip, 10), (Codec::Gzip, -2), (Codec::Lz4, 0), (Codec::Lz4, 18), (Codec::Zstd, 23)] {
        let result = compressor.compress(codec, Some(level), &input, &mut Vec::new());
        assert_eq!(result, Err(EncodeError::Level { codec: codec.name(), level }));
    }
    let packed = |level| {
        let mut out = Vec::new();
        Compressor::default().compress(Codec::Gzip, level, &input, &mut out).unwrap();
        out
    };
    assert_eq!(packed(None), packed(Some(6)));
    assert_eq!(packed(None), packed(Some(-1)));
}

#[test]
fn bytes_behind_the_end_of_a_stream_are_damage() {
    for codec in COMPRESSED {
        let mut packed = compress(codec, &sample(1_000));
        packed.push(0);
        assert!(matches!(decompress(codec, &packed), Err(DecodeError::Compression { .. })), "{}", codec.name());
        packed.truncate(packed.len() - 3);
        assert!(matches!(decompress(codec, &packed), Err(DecodeError::Compression { .. })), "{} cut off", codec.name());
    }
}

#[test]
fn gzip_members_with_every_optional_part_are_read() {
    let plain = compress(Codec::Gzip, b"hello");
    let mut full = vec![0x1f, 0x8b, 8, 0x1e, 1, 2, 3, 4, 2, 3, 2, 0, b'e', b'x'];
    full.extend_from_slice(b"name\0comment\0");
    let header_crc = crc32fast::hash(&full) as u16;
    full.extend_from_slice(&header_crc.to_le_bytes());
    full.extend_from_slice(&plain[10..]);
    assert_eq!(decompress(Codec::Gzip, &full).unwrap(), b"hello");
    assert_eq!(decompress(Codec::Gzip, &[full.clone(), plain.clone()].concat()).unwrap(), b"hellohello");

    full[27] ^= 1;
    assert_damaged(Codec::Gzip, &full, "no gzip header");
    let mut wrong = plain.clone();
    let trailer = wrong.len() - 8;
    wrong[trailer] ^= 1;
    assert_damaged(Codec::Gzip, &wrong, "the checksum of the content differs");
    wrong[trailer] ^= 1;
    wrong[trailer + 4] ^= 1;
    assert_damaged(Codec::Gzip, &wrong, "the length of the content differs");
    assert_damaged(Codec::Gzip, &plain[..trailer - 1], "the deflate stream is cut off");
    assert_damaged(Codec::Gzip, &[], "no gzip header");
}

#[test]
fn snappy_without_framing_is_one_block() {
    let raw = snap::raw::Encoder::new().compress_vec(&sample(100_000)).unwrap();
    assert!(decompress(Codec::Snappy, &raw).unwrap() == sample(100_000));
}

#[test]
fn snappy_streams_may_follow_each_other() {
    let (first, second) = (sample(40_000), b"second".to_vec());
    let joined = [compress(Codec::Snappy, &first), compress(Codec::Snappy, &second)].concat();
    assert!(decompress(Codec::Snappy, &joined).unwrap() == [first, second].concat());
}

#[test]
fn snappy_damage_is_named() {
    let good = compress(Codec::Snappy, b"hello");
    let edited = |at: usize, bytes: &[u8]| {
        let mut copy = good.clone();
        copy[at..at + bytes.len()].copy_from_slice(bytes);
        copy
    };
    assert_damaged(Codec::Snappy, &edited(8, &[0, 0, 0, 0]), "the version of the stream is too old");
    assert_damaged(Codec::Snappy, &edited(16, &[0xff; 4]), "a chunk length is out of range");
    assert_damaged(Codec::Snappy, &edited(16, &[0x20, 0, 0, 1]), "a chunk length is out of range");
    assert_damaged(Codec::Snappy, &edited(16, &[0, 0, 0, 99]), "a chunk is cut off");
    assert_damaged(Codec::Snappy, &good[..18], "a chunk length is cut off");
    assert_damaged(Codec::Snappy, &[&good[..], &good[..10]].concat(), "a stream header is cut off");
    assert_damaged(Codec::Snappy, &[], "a block is malformed");
}

/// A frame header with its check byte right.
fn lz4_header(flags: u8, block: u8) -> Vec<u8> {
    let mut header = vec![0x04, 0x22, 0x4d, 0x18, flags, block];
    if flags & 0x08 != 0 {
        header.extend_from_slice(&5_u64.to_le_bytes());
    }
    header.push((xxh32(&header[4..], 0) >> 8) as u8);
    header
}

const STORED_HELLO: [u8; 9] = [5, 0, 0, 0x80, b'h', b'e', b'l', b'l', b'o'];

#[test]
fn lz4_frames_with_every_optional_part_are_read() {
    assert_eq!(lz4_header(0x60, 0x40)[6], 0x82);
    let mut full = lz4_header(0x7c, 0x70);
    full.extend_from_slice(&STORED_HELLO);
    full.extend_from_slice(&xxh32(b"hello", 0).to_le_bytes());
    full.extend_from_slice(&[0; 4]);
    full.extend_from_slice(b"sum?"); // Kafka skips the content checksum unverified
    assert_eq!(decompress(Codec::Lz4, &full).unwrap(), b"hello");
    let block_checksum = full.len() - 12;
    full[block_checksum] ^= 1;
    assert_damaged(Codec::Lz4, &full, "a block checksum differs");
}

#[test]
fn lz4_frames_that_kafka_refuses_are_refused() {
    let frame = |flags, block| [&lz4_header(flags, block)[..], &STORED_HELLO, &[0; 4]].concat();
    assert_eq!(decompress(Codec::Lz4, &frame(0x60, 0x40)).unwrap(), b"hello");
    assert_damaged(Codec::Lz4, &frame(0x40, 0x40), "blocks depend on each other");
    assert_damaged(Codec::Lz4, &frame(0x61, 0x40), "reserved flags or a dictionary");
    assert_damaged(Codec::Lz4, &frame(0xa0, 0x40), "the frame version is not 1");
    assert_damaged(Codec::Lz4, &frame(0x60, 0x30), "the block size is unknown");
    assert_damaged(Codec::Lz4, &frame(0x60, 0x41), "the block size is unknown");
    let whole = frame(0x60, 0x40);
    assert_damaged(Codec::Lz4, &whole[..whole.len() - 4], "the frame has no end mark");
    assert_damaged(Codec::Lz4, &[whole.clone(), whole.clone()].concat(), "bytes follow the end mark");
    assert_damaged(Codec::Lz4, &[&lz4_header(0x60, 0x40)[..], &[1, 0, 1, 0]].concat(), "a block is longer than the frame allows");
    // One block of more than 64 KiB.
    let block = lz4_flex::block::compress(&vec![0; 65_537]);
    let long = [&lz4_header(0x60, 0x40)[..], &(block.len() as u32).to_le_bytes(), &block, &[0; 4]].concat();
    assert_damaged(Codec::Lz4, &long, "a block holds more than the frame allows");
}

#[test]
fn lz4_check_byte_is_ignored_in_magic_0_only() {
    let mut frame = [&lz4_header(0x60, 0x40)[..], &STORED_HELLO, &[0; 4]].concat();
    frame[6] = 0x1a;
    assert_eq!(decompress_within(Codec::Lz4, 0, &frame, LIMIT).unwrap(), b"hello");
    for magic in [1, 2] {
        assert!(matches!(decompress_within(Codec::Lz4, magic, &frame, LIMIT), Err(DecodeError::Compression { .. })));
    }
}

#[test]
fn zstd_frames_may_follow_each_other() {
    let joined = [compress(Codec::Zstd, b"one"), compress(Codec::Zstd, &sample(50_000))].concat();
    assert!(decompress(Codec::Zstd, &joined).unwrap() == [b"one".to_vec(), sample(50_000)].concat());
}

#[test]
fn zstd_streams_that_do_not_tell_their_size_are_read() {
    use std::io::Write;
    for len in [0, 10, 100_000, 5 << 20] {
        let input: Vec<u8> = (0..len).map(|i| (i / 50_000) as u8).collect();
        let mut stream = ::zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
        stream.include_contentsize(false).unwrap();
        stream.write_all(&input).unwrap();
        let packed = stream.finish().unwrap();
        assert!(decompress(Codec::Zstd, &packed).unwrap() == input);
    }
}

proptest! {
    #[test]
    fn any_bytes_round_trip(input in prop::collection::vec(any::<u8>(), 0..3000), repeats in 1..40_usize, codec in 0..5_u8) {
        let codec = Codec::from_bits(codec).unwrap();
        let input = input.repeat(repeats);
        let packed = compress(codec, &input);
        prop_assert!(decompress(codec, &packed).unwrap() == input);
    }

    #[test]
    fn arbitrary_and_mutated_streams_end_in_peace(
        noise in prop::collection::vec(any::<u8>(), 0..400),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        codec in 1..5_u8,
        magic in 0..3_u8,
    ) {
        let codec = Codec::from_bits(codec).unwrap();
        let _ = decompress_within(codec, magic, &noise, 1 << 16);
        let mut packed = compress(codec, &noise.repeat(8));
        for (at, byte) in edits {
            if !packed.is_empty() {
                let at = at.index(packed.len());
                packed[at] = byte;
            }
        }
        let _ = decompress_within(codec, magic, &packed, 1 << 16);
    }
}
