use proptest::prelude::*;

use super::super::tests::{OFFSETS_LOGS, bytes, fixture_records};
use super::*;

#[test]
fn commits_of_the_fixtures_are_written_back() {
    let (mut same, mut lower) = (0, 0);
    for log in OFFSETS_LOGS {
        for (key, value, offset) in fixture_records(log) {
            let (key, Some(value)) = (key.unwrap(), value) else { continue };
            let Some(decoded) = OffsetKey::decode(&key).unwrap() else { continue };
            let mut out = Vec::new();
            assert!(decoded.encode(&mut out));
            assert_eq!(out, key, "{log} {offset}");
            out.clear();
            let decoded = OffsetValue::decode(&value).unwrap();
            assert!(decoded.encode(&mut out));
            if decoded.topic_id.is_some() {
                assert_eq!(out, value, "{log} {offset}");
                same += 1;
            } else {
                // Kafka 4.3 writes version 4 even without a topic id; here it is the version that older brokers read too.
                assert_eq!((&value[..2], OffsetValue::decode(&out)), (&[0, 4][..], Ok(decoded)));
                lower += 1;
            }
        }
    }
    assert_eq!((same, lower), (1245, 20));
}

const COMMIT: OffsetValue<'static> = OffsetValue {
    offset: 42,
    leader_epoch: Some(5),
    metadata: "m",
    commit_timestamp_ms: 1_700_000_000_000,
    expire_timestamp_ms: None,
    topic_id: None,
};

#[test]
fn both_key_versions_are_read_and_the_newer_is_written() {
    let key = OffsetKey { group: "g", topic: "t", partition: 3 };
    for hex in ["0000 0001 67 0001 74 00000003", "0001 0001 67 0001 74 00000003"] {
        assert_eq!(OffsetKey::decode(&bytes(hex)), Ok(Some(key)));
    }
    let mut out = Vec::new();
    assert!(key.encode(&mut out));
    assert_eq!(out, bytes("0001 0001 67 0001 74 00000003"));
    let wide = OffsetKey { group: "消费者", topic: "t", partition: 0 };
    assert_eq!(OffsetKey::decode(&bytes("0001 0009 e6b688e8b4b9e88085 0001 74 00000000")), Ok(Some(wide)));
    assert_eq!(OffsetKey::decode(&bytes("0002 0001 67")), Ok(None), "a group's own record");
    assert_eq!(OffsetKey::decode(&bytes("7fff")), Ok(None), "a type of the future");
}

#[test]
fn all_value_versions_are_read() {
    let plain = OffsetValue { leader_epoch: None, ..COMMIT };
    for (hex, expected) in [
        ("0000 000000000000002a 0001 6d 0000018bcfe56800", plain),
        (
            "0001 000000000000002a 0001 6d 0000018bcfe56800 0000018bf3f1ec00",
            OffsetValue { expire_timestamp_ms: Some(1_700_604_800_000), ..plain },
        ),
        ("0001 000000000000002a 0001 6d 0000018bcfe56800 ffffffffffffffff", plain),
        ("0002 000000000000002a 0001 6d 0000018bcfe56800", plain),
        ("0003 000000000000002a 00000005 0001 6d 0000018bcfe56800", COMMIT),
        ("0003 000000000000002a ffffffff 0001 6d 0000018bcfe56800", plain),
        ("0003 000000000000002a 00000005 ffff 0000018bcfe56800", OffsetValue { metadata: "", ..COMMIT }),
        ("0004 000000000000002a 00000005 02 6d 0000018bcfe56800 00", COMMIT),
        ("0004 000000000000002a 00000005 00 0000018bcfe56800 00", OffsetValue { metadata: "", ..COMMIT }),
        (
            "0004 000000000000002a 00000005 02 6d 0000018bcfe56800 02 00 10 000102030405060708090a0b0c0d0e0f 07 01 ff",
            OffsetValue { topic_id: Some(std::array::from_fn(|i| i as u8)), ..COMMIT },
        ),
        ("0009 000000000000002a 00000005 02 6d 0000018bcfe56800 ffffff", COMMIT),
    ] {
        assert_eq!(OffsetValue::decode(&bytes(hex)), Ok(expected), "{hex}");
    }
}

#[test]
fn the_version_written_is_the_lowest_that_keeps_what_is_there() {
    let mut out = Vec::new();
    let expiring = OffsetValue { leader_epoch: None, expire_timestamp_ms: Some(1_700_604_800_000), ..COMMIT };
    for (value, hex) in [
        (COMMIT, "0003 000000000000002a 00000005 0001 6d 0000018bcfe56800"),
        (expiring, "0001 000000000000002a 0001 6d 0000018bcfe56800 0000018bf3f1ec00"),
        (
            OffsetValue { topic_id: Some([7; 16]), ..COMMIT },
            "0004 000000000000002a 00000005 02 6d 0000018bcfe56800 01 00 10 07070707070707070707070707070707",
        ),
    ] {
        out.clear();
        assert!(value.encode(&mut out));
        assert_eq!(out, bytes(hex));
    }
}

#[test]
fn what_does_not_fit_its_length_field_is_not_written() {
    let (fits, too_long) = ("x".repeat(32_767), "x".repeat(32_768));
    let mut out = vec![1];
    assert!(!OffsetKey { group: &too_long, topic: "t", partition: 0 }.encode(&mut out));
    assert!(!OffsetKey { group: "g", topic: &too_long, partition: 0 }.encode(&mut out));
    assert!(!OffsetValue { metadata: &too_long, ..COMMIT }.encode(&mut out));
    assert_eq!(out, [1]);
    assert!(OffsetKey { group: &fits, topic: &fits, partition: 0 }.encode(&mut out));
    assert!(OffsetValue { metadata: &fits, ..COMMIT }.encode(&mut out));
}

#[test]
fn damaged_commits_say_what_is_wrong_where() {
    let key = |hex: &str| OffsetKey::decode(&bytes(hex)).unwrap_err();
    assert_eq!(key("00"), DecodeError::Truncated { at: 0, needed: 2, left: 1 });
    assert_eq!(key("0001 ffff 0001 74 00000003"), DecodeError::Null { at: 2 });
    assert_eq!(key("0001 0005 67"), DecodeError::Length { at: 2, length: 5, left: 1 });
    assert_eq!(key("0001 fffe 67"), DecodeError::Length { at: 2, length: -2, left: 1 });
    assert_eq!(key("0001 0001 ff 0001 74 00000003"), DecodeError::Utf8 { at: 2 });
    assert_eq!(key("0001 0001 67 0001 74 0000"), DecodeError::Truncated { at: 8, needed: 4, left: 2 });
    let value = |hex: &str| OffsetValue::decode(&bytes(hex)).unwrap_err();
    assert_eq!(value("ffff 00"), DecodeError::Version { version: -1 });
    assert_eq!(value("0003 000000000000002a"), DecodeError::Truncated { at: 10, needed: 4, left: 0 });
    let start = "0004 000000000000002a 00000005 02 6d 0000018bcfe56800";
    assert_eq!(value(&format!("{start} ffffffff10")), DecodeError::Varint { at: 24 });
    assert_eq!(value(&format!("{start} 808080808000")), DecodeError::Varint { at: 24 });
    assert_eq!(value(&format!("{start} 01 00 02 0102")), DecodeError::TagSize { at: 27 });
    assert_eq!(value(&format!("{start} 01 00 10 0102")), DecodeError::Truncated { at: 27, needed: 16, left: 2 });
}

proptest! {
    #[test]
    fn commits_survive_the_way_to_bytes_and_back(
        group in ".{0,40}", topic in ".{0,40}", partition: i32, offset: i64, epoch: Option<i32>, metadata in ".{0,40}",
        commit_timestamp_ms: i64, expire_timestamp_ms: Option<i64>, topic_id: Option<[u8; 16]>,
    ) {
        let key = OffsetKey { group: &group, topic: &topic, partition };
        let mut out = Vec::new();
        prop_assert!(key.encode(&mut out));
        prop_assert_eq!(OffsetKey::decode(&out), Ok(Some(key)));
        out.clear();
        let expire_timestamp_ms = expire_timestamp_ms.filter(|t| *t != -1);
        let value = OffsetValue {
            offset,
            leader_epoch: epoch.filter(|e| *e != -1 && expire_timestamp_ms.is_none()),
            metadata: &metadata,
            commit_timestamp_ms,
            expire_timestamp_ms,
            topic_id: topic_id.filter(|_| expire_timestamp_ms.is_none()),
        };
        prop_assert!(value.encode(&mut out));
        prop_assert_eq!(OffsetValue::decode(&out), Ok(value));
    }
}

/// What is nearly always written is read by a way of its own, to the same end.
#[test]
fn the_quick_way_reads_what_the_other_one_reads() {
    let mut quick = (0, 0);
    let mut check = |key: &[u8], value: &[u8]| {
        if let Some(sound) = OffsetKey::sound(key) {
            assert_eq!(OffsetKey::decode_any(key), Ok(Some(sound)));
            quick.0 += 1;
        }
        if let Some(sound) = OffsetValue::sound(value) {
            assert_eq!(OffsetValue::decode_any(value), Ok(sound));
            quick.1 += 1;
        }
    };
    for log in OFFSETS_LOGS {
        for (key, value, _) in fixture_records(log) {
            let (Some(key), Some(value)) = (key, value) else { continue };
            check(&key, &value);
            // Cut, lengthened, and with any byte changed.
            for at in 0..key.len().max(value.len()) {
                let (mut other_key, mut other_value) = (key.clone(), value.clone());
                check(&key[..at.min(key.len())], &value[..at.min(value.len())]);
                for change in [1, 0x7F, 0x80, 0xFF] {
                    let (at_key, at_value) = (at % key.len(), at % value.len());
                    other_key[at_key] ^= change;
                    other_value[at_value] ^= change;
                    check(&other_key, &other_value);
                    other_key[at_key] ^= change;
                    other_value[at_value] ^= change;
                }
            }
            check(&[&key[..], b"more"].concat(), &[&value[..], b"more"].concat());
        }
    }
    assert!(quick.0 > 10_000 && quick.1 > 10_000, "{quick:?}");
}
