//! Bytes that other implementations of the format write and read.

use super::*;

const TS: i64 = 1_700_000_000_000;
const A: &str = "0000000000000005 0000004c 00000003 02 b4db0738 0000 00000001 0000018bcfe56800 0000018bcfe56807
    ffffffffffffffff ffff ffffffff 00000002
    14 00 00 00 04 6b31 04 7631 00
    1e 00 0e 02 04 6b32 01 04 02 68 02 78 02 6e 01";
const B: &str = "0000000000000005 00000044 00000003 02 e170de85 0040 00000001 0000018bd50bc400 0000018bcfe56807
    ffffffffffffffff ffff ffffffff 00000001
    24 00 f1efb252 02 04 6b32 01 04 02 68 02 78 02 6e 01";
const C: &str = "000000000000000a 00000031 00000000 02 cfa67a60 0010 00000002 ffffffffffffffff 0000018bcfe56800
    0000000000000fa0 0001 00000007 00000000";
const D: &str = "0000000000000014 00000042 00000000 02 61ca681a 0030 00000000 0000018bcfe56800 0000018bcfe56800
    0000000000000fa0 0001 ffffffff 00000001
    20 00 00 00 08 00000001 0c 000000000009 00";
const E_AREA: &str = "82534e4150505900 00000001 00000001 0000001d 1b68
    14000000046b31047631001e000e02046b32010402680278026e01";
const F_AREA: &str = "04224d18 60 40 82 1b000080 14000000046b31047631001e000e02046b32010402680278026e01 00000000";
const G: &str = "0000000000000003 00000010 1fecd70a 00 00 00000001 6b 00000001 76";
const H: &str = "0000000000000003 00000017 83e991c6 01 00 0000018bcfe56800 00000001 6b ffffffff";
const I: &str = "0000000000000067 00000064 2a944301 01 01 0000018bcfe56805 ffffffff 0000004e
    1f8b08000000000000ff636080038902d6ea34462083b1fbfcd30c90086322883084ca83a424e4ce7f3180ab61053192408411540d33484df77
    aa606b81a261023194418030085a4d66e6c000000";

fn records_of_a() -> Vec<Plain> {
    let mut second = Plain::new(6, TS + 7, Some("k2"), None);
    second.headers = vec![(b"h".to_vec(), Some(b"x".to_vec())), (b"n".to_vec(), None)];
    vec![Plain::new(5, TS, Some("k1"), Some("v1")), second]
}

fn spec_of_a(codec: Codec) -> BatchSpec {
    BatchSpec { base_offset: 5, leader_epoch: 3, codec, ..BatchSpec::default() }
}

fn write_a(codec: Codec) -> Vec<u8> {
    let mut writer = BatchWriter::new();
    writer.begin(spec_of_a(codec));
    let headers = [Header { key: "h".into(), value: Some("x".into()) }, Header { key: "n".into(), value: None }];
    writer.push(5, TS, Some(b"k1"), Some(b"v1"), &[]).unwrap();
    writer.push(6, TS + 7, Some(b"k2"), None, &headers).unwrap();
    let mut out = Vec::new();
    let header = writer.finish(&mut out).unwrap();
    assert_eq!(BatchHeader::parse(&out), Ok(header));
    out
}

fn header_of(entry: &[u8]) -> BatchHeader {
    let header = BatchHeader::parse(entry).unwrap();
    header.verify_crc(entry).unwrap();
    header
}

#[test]
fn a_plain_batch_is_written_and_read() {
    let entry = hex(A);
    assert_eq!(write_a(Codec::None), entry);
    assert_eq!(decode(&entry), Ok(records_of_a()));
    let header = header_of(&entry);
    assert_eq!((header.base_offset, header.last_offset, header.count, header.size), (5, 6, 2, 88));
    assert_eq!((header.max_timestamp, header.delete_horizon_ms()), (TS + 7, None));
}

#[test]
fn a_delete_horizon_takes_the_place_of_the_base_timestamp() {
    let entry = hex(B);
    let header = header_of(&entry);
    assert_eq!(header.delete_horizon_ms(), Some(TS + 86_400_000));
    assert_eq!(decode(&entry), Ok(records_of_a()[1..].to_vec()));

    let a = hex(A);
    let mut decoder = Decoder::new(LIMIT);
    let kept = decoder.records(&a).unwrap().nth(1).unwrap().unwrap();
    let mut writer = BatchWriter::new();
    let spec = BatchSpec::like(&header_of(&a)).unwrap();
    writer.begin(BatchSpec { delete_horizon_ms: Some(TS + 86_400_000), ..spec });
    writer.push_ref(&kept).unwrap();
    let mut out = Vec::new();
    assert_eq!(writer.finish(&mut out), Ok(header));
    assert_eq!(out, entry);
}

#[test]
fn an_emptied_batch_keeps_what_its_producer_needs() {
    let entry = hex(C);
    let header = header_of(&entry);
    assert_eq!((header.base_offset, header.last_offset, header.count), (10, 12, 0));
    assert_eq!((header.base_sequence, header.last_sequence(), header.max_timestamp), (7, 9, TS));
    assert_eq!(decode(&entry), Ok(Vec::new()));

    let full = BatchHeader {
        size: 200,
        attributes: Attributes(Attributes::TRANSACTIONAL | Attributes::DELETE_HORIZON | u16::from(Codec::Lz4.bits())),
        base_timestamp: TS,
        count: 3,
        ..header
    };
    let mut out = Vec::new();
    write_empty(&full, &mut out);
    assert_eq!(out, entry);
}

#[test]
fn an_end_marker_is_written_and_read() {
    let entry = hex(D);
    let marker = EndMarker {
        offset: 20,
        leader_epoch: 0,
        timestamp: TS,
        producer_id: 4000,
        producer_epoch: 1,
        result: TxnResult::Committed,
        coordinator_epoch: 9,
    };
    let mut out = Vec::new();
    let header = write_end_marker(&marker, &mut out).unwrap();
    assert_eq!(out, entry);
    assert!(header.is_control() && header.is_transactional());

    let records = decode(&entry).unwrap();
    assert_eq!(ControlType::of_key(records[0].key.as_deref().unwrap()), Ok(ControlType::Commit));
    assert_eq!(coordinator_epoch_of(records[0].value.as_deref().unwrap()), Ok(9));
}

#[test]
fn snappy_is_framed_as_xerial_frames_it() {
    let entry = write_a(Codec::Snappy);
    let header = header_of(&entry);
    assert_eq!((header.size, header.attributes.0, header.crc), (0x62 + 12, 2, 0x7d68_47e6));
    assert_eq!(entry[HEADER_V2_BYTES..], hex(E_AREA));
    assert_eq!(decode(&entry), Ok(records_of_a()));
}

#[test]
fn lz4_is_framed_as_kafka_frames_it() {
    let entry = write_a(Codec::Lz4);
    let header = header_of(&entry);
    assert_eq!((header.size, header.attributes.0, header.crc), (0x5b + 12, 3, 0x656f_cd30));
    assert_eq!(entry[HEADER_V2_BYTES..], hex(F_AREA));
    assert_eq!(decode(&entry), Ok(records_of_a()));
}

#[test]
fn gzip_and_zstd_are_read_back() {
    for codec in [Codec::Gzip, Codec::Zstd] {
        let entry = write_a(codec);
        assert_eq!(header_of(&entry).codec(), Ok(codec));
        assert_eq!(decode(&entry), Ok(records_of_a()));
    }
    assert_eq!(write_a(Codec::Gzip)[HEADER_V2_BYTES..][..10], hex("1f8b08 00 00000000 00 ff"));
}

#[test]
fn old_messages_are_read() {
    for (entry, expected) in [(G, Plain::new(3, -1, Some("k"), Some("v"))), (H, Plain::new(3, TS, Some("k"), None))] {
        let entry = hex(entry);
        assert_eq!(header_of(&entry).last_offset, 3);
        assert_eq!(decode(&entry), Ok(vec![expected]));
        assert_eq!(base_offset_of(&entry, LIMIT), Ok(3));
    }
}

#[test]
fn a_wrapper_gives_the_offset_of_its_last_message() {
    let entry = hex(I);
    assert_eq!((header_of(&entry).last_offset, header_of(&entry).max_timestamp), (103, TS + 5));
    let expected = vec![
        Plain::new(100, TS, Some("a"), Some("1")),
        Plain::new(101, TS + 5, Some("b"), Some("2")),
        Plain::new(103, TS + 2, Some("c"), Some("3")),
    ];
    assert_eq!(decode(&entry), Ok(expected));
    assert_eq!(base_offset_of(&entry, LIMIT), Ok(100));
}
