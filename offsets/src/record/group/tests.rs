use proptest::prelude::*;

use super::super::tests::{OFFSETS_LOGS, bytes, fixture_records};
use super::super::{DecodedKey, DecodedRecord, DecodedValue, InternalTopic, Struct, Value};
use super::*;

const SUBSCRIPTION: &str = "0001 00000001 0001 74 ffffffff 00000000";
const ASSIGNMENT: &str = "0001 00000001 0001 74 00000001 00000003 ffffffff";

fn one_member<'a>(subscription: &'a [u8], assignment: &'a [u8]) -> GroupMetadata<'a> {
    GroupMetadata {
        protocol_type: "consumer",
        generation: 1,
        protocol: Some("range"),
        leader: Some("m1"),
        current_state_timestamp_ms: Some(1_700_000_000_000),
        members: vec![GroupMember {
            member_id: "m1",
            instance_id: None,
            client_id: "c1",
            client_host: "/127.0.0.1",
            rebalance_timeout_ms: 60_000,
            session_timeout_ms: 45_000,
            subscription,
            assignment,
        }],
    }
}

#[test]
fn keys_are_told_apart_by_their_type() {
    let key = bytes("0005 0001 67 0002 6d31");
    let decoded = GroupKey::decode(&key).unwrap().unwrap();
    assert_eq!(decoded, GroupKey { key_type: 5, group: "g", rest: &[0, 2, b'm', b'1'] });
    assert_eq!(GroupKey::text_of(decoded.rest), Ok("m1"));
    let mut out = Vec::new();
    assert!(decoded.encode(&mut out));
    assert_eq!(out, key);
    out.clear();
    assert!(GroupKey::classic("g").encode(&mut out));
    assert_eq!(out, bytes("0002 0001 67"));
    for other in ["0000 0001 67 0001 74 00000003", "0001 0001 67 0001 74 00000003", "0018 0001 67", "ffff 0001 67"] {
        assert_eq!(GroupKey::decode(&bytes(other)), Ok(None), "{other}");
    }
    for bad in ["", "00", "0002", "0002 0002 67", "0002 ffff", "0002 fffe", "0002 0001 ff"] {
        assert!(GroupKey::decode(&bytes(bad)).is_err(), "{bad}");
    }
    let long = "x".repeat(1 << 15);
    assert!(!GroupKey::classic(&long).encode(&mut out));
    assert_eq!(out, bytes("0002 0001 67"), "left as it was");
}

#[test]
fn the_types_known_here_are_those_of_the_schemas() {
    let topic = InternalTopic::ConsumerOffsets;
    for key_type in -1..40i16 {
        let key = [&key_type.to_be_bytes()[..], &[0, 1, b'g']].concat();
        let is_commit = matches!(key_type, OFFSET_KEY_V0 | OFFSET_KEY_V1);
        assert_eq!(GroupKey::decode(&key).unwrap().is_some(), topic.knows(key_type) && !is_commit, "{key_type}");
    }
}

#[test]
fn a_classic_group_is_written_as_kafka_writes_it() {
    let empty = GroupMetadata {
        protocol_type: "consumer",
        generation: 7,
        current_state_timestamp_ms: Some(1_700_000_000_000),
        ..GroupMetadata::default()
    };
    let (subscription, assignment) = (bytes(SUBSCRIPTION), bytes(ASSIGNMENT));
    for (group, hex) in [
        (empty, "0003 0008 636f6e73756d6572 00000007 ffff ffff 0000018bcfe56800 00000000"),
        (
            one_member(&subscription, &assignment),
            "0003 0008 636f6e73756d6572 00000001 0005 72616e6765 0002 6d31 0000018bcfe56800 00000001 0002 6d31 ffff 0002 6331 \
             000a 2f3132372e302e302e31 0000ea60 0000afc8 00000011 0001000000010001 74ffffffff00000000 00000015 \
             00010000000100017400000001 00000003ffffffff",
        ),
    ] {
        let mut out = Vec::new();
        assert!(group.encode(&mut out));
        assert_eq!(out, bytes(hex));
        assert_eq!(GroupMetadata::decode(&out), Ok(group));
    }
    let long = "x".repeat(1 << 15);
    let mut out = vec![1];
    assert!(!GroupMetadata { protocol_type: "c", leader: Some(&long), ..GroupMetadata::default() }.encode(&mut out));
    assert_eq!(out, [1], "left as it was");
}

#[test]
fn every_version_has_its_fields() {
    let tail = "00000003 0001 61";
    let member =
        |instance: &str, rebalance: &str| format!("00000001 0001 6d {instance} 0001 63 0001 68 {rebalance} 00000002 {tail} 00000000");
    let head = "0001 70 00000005 0001 71 ffff";
    for (version, value, (timestamp, instance, rebalance)) in [
        (0, format!("0000 {head} {}", member("", "")), (None, None, 2)),
        (1, format!("0001 {head} {}", member("", "00000009")), (None, None, 9)),
        (2, format!("0002 {head} 0000000000000007 {}", member("", "00000009")), (Some(7), None, 9)),
        (3, format!("0003 {head} ffffffffffffffff {}", member("0001 69", "00000009")), (None, Some("i"), 9)),
        (
            4,
            "0004 02 70 00000005 02 71 00 0000000000000008 02 02 6d 02 69 02 63 02 68 00000009 00000002 04 000161 01 01 05 01 aa 00"
                .to_owned(),
            (Some(8), Some("i"), 9),
        ),
        // Of the future: more tags, and more after them.
        (
            9,
            "0009 02 70 00000005 02 71 00 0000000000000008 02 02 6d 00 02 63 02 68 00000009 00000002 04 000161 01 00 01 05 01 aa bb"
                .to_owned(),
            (Some(8), None, 9),
        ),
    ] {
        let value = bytes(&value);
        let group = GroupMetadata::decode(&value).unwrap_or_else(|e| panic!("version {version}: {e}"));
        assert_eq!((group.protocol_type, group.generation, group.protocol, group.leader), ("p", 5, Some("q"), None), "{version}");
        assert_eq!(group.current_state_timestamp_ms, timestamp, "{version}");
        let [member] = group.members[..] else { panic!("{version}") };
        assert_eq!((member.member_id, member.client_id, member.client_host), ("m", "c", "h"), "{version}");
        assert_eq!((member.instance_id, member.rebalance_timeout_ms, member.session_timeout_ms), (instance, rebalance, 2), "{version}");
        assert_eq!(member.assignment, b"", "{version}");
    }
    assert_eq!(GroupMetadata::decode(&bytes("ffff")), Err(DecodeError::Version { version: -1 }));
}

#[test]
fn subscriptions_and_assignments_of_any_version_are_read_by_what_they_share() {
    for version in ["0000", "0001", "0003", "0063"] {
        let subscription = bytes(&format!("{version} 00000002 0001 74 0001 75 00000001 aa"));
        assert_eq!(subscribed_topics(&subscription), Ok(vec!["t", "u"]), "{version}");
        let longer = [&subscription[..], &[1, 2, 3]].concat();
        assert_eq!(subscribed_topics(&longer), Ok(vec!["t", "u"]), "{version}");
        let assignment = bytes(&format!("{version} 00000001 0001 74 00000002 00000003 00000000 ffffffff"));
        assert_eq!(assigned_partitions(&assignment), Ok(vec![("t", vec![3, 0])]), "{version}");
    }
    assert_eq!(assigned_partitions(&[]), Ok(Vec::new()), "a member that has none yet");
    for bad in ["", "00", "ffff 00000000 ffffffff", "0000 00000001 ffff ffffffff", "0000 00000001 0001 74", "0000 7fffffff 0001 74"] {
        assert!(subscribed_topics(&bytes(bad)).is_err(), "{bad}");
    }
    for bad in ["00", "8000 00000000", "0000 00000001 0001 74 00000002 00000003", "0000 7fffffff"] {
        assert!(assigned_partitions(&bytes(bad)).is_err(), "{bad}");
    }
}

fn text<'a>(data: &'a Struct, name: &str) -> Option<&'a str> {
    data.field(name).and_then(Value::as_text)
}

/// Holds what is read here against the tree, which was held against Kafka.
fn assert_same(value: &[u8], tree: &Struct) {
    let group = GroupMetadata::decode(value).unwrap();
    assert_eq!(Some(group.protocol_type), text(tree, "protocolType"));
    assert_eq!(Some(i64::from(group.generation)), tree.field("generation").and_then(Value::as_int));
    assert_eq!((group.protocol, group.leader), (text(tree, "protocol"), text(tree, "leader")));
    let timestamp = tree.field("currentStateTimestamp").and_then(Value::as_int).filter(|ms| *ms >= 0);
    assert_eq!(group.current_state_timestamp_ms, timestamp);
    let Some(Value::List(members)) = tree.field("members") else { panic!("{tree:?}") };
    assert_eq!(group.members.len(), members.len());
    for (ours, theirs) in group.members.iter().zip(members) {
        let Value::Struct(theirs) = theirs else { panic!("{theirs:?}") };
        assert_eq!(Some(ours.member_id), text(theirs, "memberId"));
        assert_eq!(ours.instance_id, text(theirs, "groupInstanceId"));
        assert_eq!((Some(ours.client_id), Some(ours.client_host)), (text(theirs, "clientId"), text(theirs, "clientHost")));
        assert_eq!(Some(i64::from(ours.session_timeout_ms)), theirs.field("sessionTimeout").and_then(Value::as_int));
        if let Some(Value::Embedded(subscription)) = theirs.field("subscription") {
            let Some(Value::List(topics)) = subscription.data().field("topics") else { panic!("{subscription:?}") };
            let topics: Option<Vec<&str>> = topics.iter().map(Value::as_text).collect();
            assert_eq!(subscribed_topics(ours.subscription).ok(), topics);
        }
    }
}

#[test]
fn groups_that_kafka_wrote_are_read_as_the_tree_reads_them() {
    let made = include_str!("../../../tests/data/records.jsonl").lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let is_offsets = line["log"] == "offsets";
        (is_offsets, bytes(line["k"].as_str().unwrap()), line["v"].as_str().map(bytes))
    });
    let real = OFFSETS_LOGS.iter().flat_map(|log| fixture_records(log)).map(|(key, value, _)| (true, key.unwrap(), value));
    let mut versions = std::collections::BTreeSet::new();
    for (_, key, value) in made.chain(real).filter(|(is_offsets, ..)| *is_offsets) {
        let record = DecodedRecord::decode(InternalTopic::ConsumerOffsets, Some(&key), value.as_deref());
        let Some(DecodedKey::Known { schema, .. }) = record.key() else { panic!("{record:?}") };
        if let (GROUP_METADATA_KEY, Some(DecodedValue::Known(tree)), Some(value)) = (schema.key_type(), record.value(), &value) {
            assert_same(value, tree.data());
            versions.insert(tree.version());
        }
    }
    assert_eq!(versions.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
}

proptest! {
    #[test]
    fn no_bytes_cause_a_panic(
        version in 0u8..5, at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>(), noise in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let (subscription, assignment) = (bytes(SUBSCRIPTION), bytes(ASSIGNMENT));
        let mut value = Vec::new();
        prop_assert!(one_member(&subscription, &assignment).encode(&mut value));
        value[1] = version;
        let index = at.index(value.len());
        value[index] = byte;
        value.truncate(cut.index(value.len() + 1));
        for bytes in [&value[..], &noise[..]] {
            if let Ok(group) = GroupMetadata::decode(bytes) {
                for member in &group.members {
                    let _ = (subscribed_topics(member.subscription), assigned_partitions(member.assignment));
                }
            }
            let _ = (subscribed_topics(bytes), assigned_partitions(bytes), GroupKey::decode(bytes));
        }
    }
}
