//! Any records round-trip, and no bytes bring the decoder down.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

/// Little enough for many cases, enough for several snappy and lz4 blocks.
const SMALL_LIMIT: usize = 1 << 20;

fn field() -> impl Strategy<Value = Option<Vec<u8>>> {
    let repeated = (vec(any::<u8>(), 1..50), 1..200_usize).prop_map(|(bytes, times)| bytes.repeat(times));
    prop_oneof![Just(None), Just(Some(Vec::new())), vec(any::<u8>(), 0..200).prop_map(Some), repeated.prop_map(Some)]
}

fn headers() -> impl Strategy<Value = Vec<(Vec<u8>, Option<Vec<u8>>)>> {
    let value = prop_oneof![Just(None), vec(any::<u8>(), 0..80).prop_map(Some)];
    prop_oneof![3 => Just(Vec::new()), 1 => vec(("\\PC{0,20}".prop_map(String::into_bytes), value), 1..5)]
}

fn records(base_offset: u64) -> impl Strategy<Value = Vec<Plain>> {
    let timestamp = prop_oneof![Just(-1), 0..1_000_000_000_000_i64, Just(i64::MAX)];
    vec((1..200_u64, timestamp, field(), field(), headers()), 1..30).prop_map(move |parts| {
        let mut offset = base_offset;
        let mut record = |(gap, timestamp, key, value, headers)| {
            offset += gap;
            Plain { offset, timestamp, key, value, headers }
        };
        parts.into_iter().map(&mut record).collect()
    })
}

fn specs() -> impl Strategy<Value = BatchSpec> {
    let horizon = prop_oneof![Just(None), (0..2_000_000_000_000_i64).prop_map(Some)];
    let producer = prop_oneof![Just((-1, -1, -1)), (any::<i64>(), any::<i16>(), any::<i32>())];
    (0..1_u64 << 62, any::<i32>(), 0..5_u8, horizon, producer, any::<(bool, bool)>()).prop_map(
        |(base_offset, leader_epoch, codec, delete_horizon_ms, producer, (transactional, control))| BatchSpec {
            base_offset,
            leader_epoch,
            codec: Codec::from_bits(codec).unwrap(),
            delete_horizon_ms,
            producer_id: producer.0,
            producer_epoch: producer.1,
            base_sequence: producer.2,
            transactional,
            control,
            ..BatchSpec::default()
        },
    )
}

fn batches() -> impl Strategy<Value = (BatchSpec, Vec<Plain>)> {
    specs().prop_flat_map(|spec| (Just(spec), records(spec.base_offset)))
}

fn write(writer: &mut BatchWriter, spec: BatchSpec, records: &[Plain]) -> (BatchHeader, Vec<u8>) {
    writer.begin(spec);
    for record in records {
        let to_append = |(key, value): &(Vec<u8>, Option<Vec<u8>>)| Header {
            key: String::from_utf8(key.clone()).unwrap(),
            value: value.clone().map(Into::into),
        };
        let headers: Vec<Header> = record.headers.iter().map(to_append).collect();
        writer.push(record.offset, record.timestamp, record.key.as_deref(), record.value.as_deref(), &headers).unwrap();
    }
    let mut out = Vec::new();
    (writer.finish(&mut out).unwrap(), out)
}

/// Decodes all there is in both ways and walks every field.
fn walk(entry: &[u8]) {
    if let Ok(records) = decode_within(entry, SMALL_LIMIT) {
        let header = BatchHeader::parse(entry).unwrap();
        assert!(records.iter().is_sorted_by(|a, b| a.offset < b.offset));
        if header.magic == 2 {
            assert!(records.iter().all(|record| (header.base_offset..=header.last_offset).contains(&record.offset)));
            assert_eq!(records.len(), header.count as usize);
        }
        if !records.is_empty() {
            assert!(base_offset_of(entry, SMALL_LIMIT).unwrap() <= records[0].offset);
        }
    }
}

/// Entries of every kind to be damaged.
fn seeds() -> Vec<Vec<u8>> {
    let mut writer = BatchWriter::new();
    let mut plain = Plain::new(10, 1_000, Some("key"), Some("value"));
    plain.headers.push((b"header".to_vec(), Some(b"x".to_vec())));
    let records: Vec<Plain> = (10..40).map(|offset| Plain { offset, ..plain.clone() }).collect();
    let codecs = (0..5).map(|bits| Codec::from_bits(bits).unwrap());
    let mut all: Vec<Vec<u8>> =
        codecs.map(|codec| write(&mut writer, BatchSpec { base_offset: 10, codec, ..BatchSpec::default() }, &records).1).collect();
    all.extend(super::legacy::seeds());
    all
}

proptest! {
    #[test]
    fn batches_round_trip((spec, records) in batches()) {
        let mut writer = BatchWriter::new();
        let (header, entry) = write(&mut writer, spec, &records);
        prop_assert_eq!(BatchHeader::parse(&entry), Ok(header));
        header.verify_crc(&entry).unwrap();
        let decoded = decode(&entry).unwrap();
        prop_assert!(decoded == records);
        let like = BatchSpec::like(&header).unwrap();
        prop_assert_eq!(BatchSpec { last_offset: None, ..like }, spec);

        // Copied bodies give the same bytes, whatever was written with the same buffers before.
        let mut decoder = Decoder::new(LIMIT);
        writer.begin(like);
        for record in decoder.records(&entry).unwrap() {
            writer.push_ref(&record.unwrap()).unwrap();
        }
        let mut copy = Vec::new();
        prop_assert_eq!(writer.finish(&mut copy), Ok(header));
        prop_assert!(copy == entry);
    }

    #[test]
    fn survivors_of_a_batch_keep_all_that_they_are((spec, records) in batches(), kept in any::<u32>()) {
        let mut writer = BatchWriter::new();
        let (header, entry) = write(&mut writer, spec, &records);
        let survives = |index: usize| kept >> (index % 32) & 1 == 1;
        let survivors: Vec<Plain> = records.iter().enumerate().filter(|(i, _)| survives(*i)).map(|(_, record)| record.clone()).collect();
        let mut out = Vec::new();
        if survivors.is_empty() {
            write_empty(&header, &mut out);
        } else {
            let mut decoder = Decoder::new(LIMIT);
            writer.begin(BatchSpec::like(&header).unwrap());
            for (i, record) in decoder.records(&entry).unwrap().enumerate() {
                if survives(i) {
                    writer.push_ref(&record.unwrap()).unwrap();
                }
            }
            writer.finish(&mut out).unwrap();
        }
        let rebuilt = BatchHeader::parse(&out).unwrap();
        rebuilt.verify_crc(&out).unwrap();
        prop_assert_eq!((rebuilt.base_offset, rebuilt.last_offset), (header.base_offset, header.last_offset));
        prop_assert_eq!(rebuilt.last_sequence(), header.last_sequence());
        prop_assert!(decode(&out).unwrap() == survivors);
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in vec(any::<u8>(), 0..300), magic in 0..4_u8, framed: bool) {
        walk(&bytes);
        if framed && bytes.len() > SCAN_PEEK_BYTES {
            let length = (bytes.len() - ENTRY_PREFIX_BYTES) as i32;
            bytes[0] &= 0x7f;
            bytes[8..12].copy_from_slice(&length.to_be_bytes());
            bytes[MAGIC_POSITION] = magic;
            walk(&bytes);
        }
    }

    #[test]
    fn mutated_entries_never_panic(
        seed in any::<Index>(),
        edits in vec((any::<Index>(), any::<u8>()), 1..6),
        cut in prop_oneof![Just(None), any::<Index>().prop_map(Some)],
    ) {
        let seeds = seeds();
        let mut entry = seed.get(&seeds).clone();
        for (at, byte) in edits {
            let at = at.index(entry.len());
            entry[at] = byte;
        }
        if let Some(cut) = cut {
            entry.truncate(cut.index(entry.len()));
            walk(&entry);
            if entry.len() >= SCAN_PEEK_BYTES {
                let length = (entry.len() - ENTRY_PREFIX_BYTES) as i32;
                entry[8..12].copy_from_slice(&length.to_be_bytes());
            }
        }
        walk(&entry);
    }

    #[test]
    fn mutated_areas_under_compression_never_panic(
        codec in 0..5_u8,
        count in -1..4_i32,
        area in vec(prop_oneof![0..24_u8, any::<u8>()], 0..60),
    ) {
        let codec = Codec::from_bits(codec).unwrap();
        let mut entry = write(&mut BatchWriter::new(), BatchSpec::default(), &[Plain::new(0, 0, None, None)]).1;
        entry.truncate(HEADER_V2_BYTES);
        super::super::codec::Compressor::default().compress(codec, None, &area, &mut entry).unwrap();
        let length = (entry.len() - ENTRY_PREFIX_BYTES) as i32;
        entry[8..12].copy_from_slice(&length.to_be_bytes());
        entry[22] = codec.bits();
        entry[23..27].copy_from_slice(&20_i32.to_be_bytes());
        entry[57..61].copy_from_slice(&count.to_be_bytes());
        walk(&entry);
    }
}
