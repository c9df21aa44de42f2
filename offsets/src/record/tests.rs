use keeplog_fixtures::{Set, dump_lines, unpack};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::schema::{Field, Kind, OFFSETS, Schema, TRANSACTIONS};
use super::wire::{Encoding, put_string, put_uvarint};
use super::*;

pub(super) const OFFSETS_LOGS: [&str; 4] = ["__consumer_offsets-0", "__consumer_offsets-1", "__consumer_offsets-2", "__consumer_offsets-3"];
const TRANSACTION_LOGS: [&str; 2] = ["__transaction_state-0", "__transaction_state-1"];

pub(super) fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|b| *b != b' ').map(|b| (b as char).to_digit(16).unwrap() as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn field_bytes(record: &Json, name: &str) -> Option<Vec<u8>> {
    record[name].as_str().map(bytes)
}

type RawRecord = (Option<Vec<u8>>, Option<Vec<u8>>, u64);

/// Key, value and offset of all data records of a fixture partition.
pub(super) fn fixture_records(log: &str) -> Vec<RawRecord> {
    let mut found = Vec::new();
    for batch in dump_lines(unpack(Set::Broker).join(format!("{log}.jsonl"))) {
        if batch["control"] == false {
            let records = batch["records"].as_array().unwrap();
            found.extend(records.iter().map(|r| (field_bytes(r, "k"), field_bytes(r, "v"), r["o"].as_u64().unwrap())));
        }
    }
    found
}

// The tree's way back to bytes, to show that reading loses nothing.

fn write_record(record: &DecodedRecord) -> (Vec<u8>, Option<Vec<u8>>) {
    let Some(DecodedKey::Known { schema, data, rest }) = record.key() else { panic!("{record:?}") };
    let schema = OFFSETS.iter().chain(TRANSACTIONS).find(|s| s.key_type == schema.key_type() && s.value.name == schema.name()).unwrap();
    let mut key = schema.key_type.to_be_bytes().to_vec();
    write_struct(&mut key, Encoding::Classic, 0, schema.key, data);
    key.extend_from_slice(rest);
    let value = record.value().map(|value| {
        let DecodedValue::Known(value) = value else { panic!("{record:?}") };
        write_versioned(schema.value, value)
    });
    (key, value)
}

fn write_versioned(schema: &Schema, value: &Versioned) -> Vec<u8> {
    let mut out = value.version.to_be_bytes().to_vec();
    let known = value.version.min(schema.latest);
    let encoding = if known < schema.flexible_from { Encoding::Classic } else { Encoding::Flexible };
    write_struct(&mut out, encoding, known, schema.fields, &value.data);
    out.extend_from_slice(&value.rest);
    out
}

fn write_struct(out: &mut Vec<u8>, encoding: Encoding, version: i16, fields: &[Field], data: &Struct) {
    let mut tags = data.unknown_tags.clone();
    for field in fields.iter().filter(|f| f.is_in(version)) {
        match (field.tag, data.field(field.name)) {
            (None, value) => write_value(out, encoding, version, &field.kind, value.unwrap()),
            (Some(_), None) => {}
            (Some(tag), Some(value)) => {
                let mut content = Vec::new();
                match (&field.kind, value) {
                    (Kind::NullableStruct(_), Value::Null) => put_uvarint(&mut content, 0),
                    (Kind::NullableStruct(fields), Value::Struct(inner)) => {
                        put_uvarint(&mut content, 1);
                        write_struct(&mut content, encoding, version, fields, inner);
                    }
                    (kind, value) => write_value(&mut content, encoding, version, kind, value),
                }
                tags.push((tag, content.into()));
            }
        }
    }
    if encoding == Encoding::Flexible {
        tags.sort();
        put_uvarint(out, tags.len() as u32);
        for (tag, content) in tags {
            put_uvarint(out, tag);
            put_uvarint(out, content.len() as u32);
            out.extend_from_slice(&content);
        }
    }
}

fn write_value(out: &mut Vec<u8>, encoding: Encoding, version: i16, kind: &Kind, value: &Value) {
    match (kind, value) {
        (Kind::Int8, Value::Int(n)) => out.extend_from_slice(&(*n as i8).to_be_bytes()),
        (Kind::Int16 | Kind::Uint16, Value::Int(n)) => out.extend_from_slice(&(*n as i16).to_be_bytes()),
        (Kind::Int32, Value::Int(n)) => out.extend_from_slice(&(*n as i32).to_be_bytes()),
        (Kind::Int64, Value::Int(n)) => out.extend_from_slice(&n.to_be_bytes()),
        (Kind::Uuid, Value::Uuid(id)) => out.extend_from_slice(id),
        (Kind::String | Kind::ProtocolType, Value::Null) => assert!(put_string(out, encoding, None)),
        (Kind::String | Kind::ProtocolType, Value::Text(text)) => assert!(put_string(out, encoding, Some(text))),
        (Kind::NullableStruct(_), Value::Null) => out.push(0xFF),
        (Kind::NullableStruct(fields), Value::Struct(inner)) => {
            out.push(1);
            write_struct(out, encoding, version, fields, inner);
        }
        (Kind::Struct(fields), Value::Struct(inner)) => write_struct(out, encoding, version, fields, inner),
        (Kind::Bytes | Kind::Embedded(_) | Kind::Array(_), Value::Null) => put_count(out, encoding, -1),
        (Kind::Bytes | Kind::Embedded(_), Value::Bytes(content)) => {
            put_count(out, encoding, content.len() as i32);
            out.extend_from_slice(content);
        }
        (Kind::Embedded(schema), Value::Embedded(inner)) => {
            let content = write_versioned(schema, inner);
            put_count(out, encoding, content.len() as i32);
            out.extend_from_slice(&content);
        }
        (Kind::Array(items), Value::List(values)) => {
            put_count(out, encoding, values.len() as i32);
            values.iter().for_each(|value| write_value(out, encoding, version, items, value));
        }
        (kind, value) => panic!("{value:?} where {kind:?} is due"),
    }
}

fn put_count(out: &mut Vec<u8>, encoding: Encoding, count: i32) {
    match encoding {
        Encoding::Classic => out.extend_from_slice(&count.to_be_bytes()),
        Encoding::Flexible => put_uvarint(out, count.wrapping_add(1).cast_unsigned()),
    }
}

/// Our view with what Kafka prints taken to be the same: the layout's version is not printed for embedded blobs, and
/// blobs that are not the protocol's stay hex.
fn without_embedded_versions(value: &Json) -> Json {
    match value {
        Json::Object(map) if map.len() == 2 && map.contains_key("version") && map.contains_key("data") => {
            without_embedded_versions(&map["data"])
        }
        Json::Object(map) => map.iter().map(|(name, value)| (name.clone(), without_embedded_versions(value))).collect(),
        Json::Array(items) => items.iter().map(without_embedded_versions).collect(),
        other => other.clone(),
    }
}

/// Decodes the hex text of embedded blobs in Kafka's view of records that were made for this test.
fn embedded_to_hex(ours: &Value) -> Json {
    match ours {
        Value::Embedded(inner) => {
            Json::String(inner.to_hex_for(if inner.data.field("topics").is_some() { "subscription" } else { "assignment" }))
        }
        Value::Struct(inner) => inner.fields().map(|(name, value)| (name.to_owned(), embedded_to_hex(value))).collect(),
        Value::List(items) => items.iter().map(embedded_to_hex).collect(),
        other => serde_json::to_value(other).unwrap(),
    }
}

impl Versioned {
    fn to_hex_for(&self, field: &str) -> String {
        let Kind::Array(Kind::Struct(members)) = &OFFSETS[2].value.fields[5].kind else { panic!() };
        let Kind::Embedded(schema) = &members.iter().find(|f| f.name == field).unwrap().kind else { panic!() };
        tree::hex(&write_versioned(schema, self))
    }
}

#[test]
fn records_written_by_kafkas_own_classes_are_read_as_kafka_prints_them() {
    let mut types = std::collections::BTreeSet::new();
    for line in include_str!("../../tests/data/records.jsonl").lines() {
        let line: Json = serde_json::from_str(line).unwrap();
        let topic = if line["log"] == "offsets" { InternalTopic::ConsumerOffsets } else { InternalTopic::TransactionState };
        let (key, value) = (field_bytes(&line, "k").unwrap(), field_bytes(&line, "v").unwrap());
        let record = DecodedRecord::decode(topic, Some(&key), Some(&value));
        assert!(record.is_complete(), "{line}\n{record:?}");
        let (Some(DecodedKey::Known { schema, data, .. }), Some(DecodedValue::Known(decoded))) = (record.key(), record.value()) else {
            panic!("{record:?}")
        };
        assert_eq!(json!([schema.key_type(), decoded.version()]), json!([line["type"], line["version"]]));
        assert_eq!(serde_json::to_value(data).unwrap(), line["key"]);
        let ours: Json = decoded.data().fields().map(|(name, value)| (name.to_owned(), embedded_to_hex(value))).collect();
        assert_eq!(ours, line["value"], "{line}");
        assert_eq!(write_record(&record), (key, Some(value)), "{line}");
        types.insert((line["log"] == "offsets", schema.key_type()));
    }
    assert_eq!(types.len(), 23, "every type that Kafka 4.3 writes: {types:?}");
}

#[test]
fn every_fixture_record_is_read_whole_and_written_back() {
    let logs = OFFSETS_LOGS.map(|log| (InternalTopic::ConsumerOffsets, log));
    for (topic, log) in logs.into_iter().chain(TRANSACTION_LOGS.map(|log| (InternalTopic::TransactionState, log))) {
        let records = fixture_records(log);
        assert!(records.len() > 50, "{log}");
        for (key, value, offset) in records {
            let record = DecodedRecord::decode(topic, key.as_deref(), value.as_deref());
            assert!(record.is_complete(), "{log} {offset} {record:?}");
            assert_eq!(write_record(&record), (key.unwrap(), value), "{log} {offset}");
        }
    }
}

#[test]
fn fixture_records_are_read_as_kafkas_dump_tool_prints_them() {
    let logs = OFFSETS_LOGS.map(|log| (InternalTopic::ConsumerOffsets, log));
    for (topic, log) in logs.into_iter().chain(TRANSACTION_LOGS.map(|log| (InternalTopic::TransactionState, log))) {
        let text = std::fs::read_to_string(unpack(Set::Broker).join(format!("{log}.kafka-dump.txt"))).unwrap();
        let printed: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("| offset: ")).filter(|l| l.contains(" key: ")).collect();
        let records = fixture_records(log);
        assert_eq!(printed.len(), records.len());
        for (line, (key, value, offset)) in printed.into_iter().zip(records) {
            let (head, rest) = line.split_once(" key: ").unwrap();
            let (printed_key, printed_value) = rest.split_once(" payload: ").unwrap();
            assert_eq!(head.split(' ').next(), Some(&*offset.to_string()));
            let ours = serde_json::to_value(DecodedRecord::decode(topic, key.as_deref(), value.as_deref())).unwrap();
            let theirs: Json = serde_json::from_str(printed_key).unwrap();
            assert_eq!(json!({"type": ours["key"]["type"].to_string(), "data": ours["key"]["data"]}), theirs);
            if printed_value == "<DELETE>" {
                assert_eq!(ours["value"], Json::Null);
                continue;
            }
            let theirs: Json = serde_json::from_str(printed_value).unwrap();
            assert_eq!(ours["value"]["version"].to_string(), theirs["version"].as_str().unwrap());
            assert_eq!(without_embedded_versions(&ours["value"]["data"]), theirs["data"], "{line}");
        }
    }
}

fn show(topic: InternalTopic, key: &str, value: Option<&str>) -> Json {
    serde_json::to_value(DecodedRecord::decode(topic, Some(&bytes(key)), value.map(bytes).as_deref())).unwrap()
}

#[test]
fn the_form_of_the_serialized_tree() {
    let offsets = InternalTopic::ConsumerOffsets;
    assert_eq!(
        show(offsets, "0001 0001 67 0001 74 00000003", Some("0003 000000000000002a 00000005 0001 6d 0000018bcfe56800")),
        json!({
            "key": {"type": 1, "name": "OffsetCommit", "data": {"group": "g", "topic": "t", "partition": 3}},
            "value": {"version": 3, "data": {"offset": 42, "leaderEpoch": 5, "metadata": "m", "commitTimestamp": 1_700_000_000_000_i64}},
        })
    );
    assert_eq!(show(offsets, "0002 0001 67", None)["value"], Json::Null);
    assert_eq!(
        show(offsets, "0003 0001 67 aa", Some("0001 00000005 01 09 02 beef cc")),
        json!({
            "key": {"type": 3, "name": "ConsumerGroupMetadata", "data": {"groupId": "g"}, "rest": "aa"},
            "value": {"version": 1, "data": {"epoch": 5, "unknownTags": {"9": "beef"}}, "rest": "cc"},
        })
    );
    assert_eq!(
        show(offsets, "0063 0001 67", Some("0000 01")),
        json!({"key": {"raw": "0063000167", "reason": "unknown record type 99"}, "value": {"raw": "000001"}})
    );
    assert_eq!(
        show(InternalTopic::TransactionState, "0000 0001 67", Some("ffff")),
        json!({
            "key": {"type": 0, "name": "TransactionLog", "data": {"transactionalId": "g"}},
            "value": {"raw": "ffff", "reason": "the version -1 is negative"},
        })
    );
    assert_eq!(serde_json::to_value(DecodedRecord::decode(offsets, None, None)).unwrap(), json!({"key": null, "value": null}));
}

#[test]
fn a_classic_group_with_one_member() {
    let value = "0003 0008 636f6e73756d6572 00000001 0005 72616e6765 0002 6d31 0000018bcfe56800 00000001 0002 6d31 ffff 0002 6331 \
                 000a 2f3132372e302e302e31 0000ea60 0000afc8 00000011 0001000000010001 74ffffffff00000000 00000015 \
                 00010000000100017400000001 00000003ffffffff";
    let shown = show(InternalTopic::ConsumerOffsets, "0002 0001 67", Some(value));
    assert_eq!(
        shown["value"]["data"]["members"][0],
        json!({
            "memberId": "m1", "groupInstanceId": null, "clientId": "c1", "clientHost": "/127.0.0.1",
            "rebalanceTimeout": 60000, "sessionTimeout": 45000,
            "subscription": {"version": 1, "data": {"topics": ["t"], "userData": null, "ownedPartitions": []}},
            "assignment": {"version": 1, "data": {"assignedPartitions": [{"topic": "t", "partitions": [3]}], "userData": null}},
        })
    );
}

#[test]
fn members_of_other_protocols_keep_their_bytes() {
    // The blob is a valid subscription, but the protocol type is Connect's.
    let value =
        "0000 0007 636f6e6e656374 00000001 ffff ffff 00000001 0001 6d 0001 63 0001 68 00000001 00000008 0000 00000000 ffff 00000000";
    let shown = show(InternalTopic::ConsumerOffsets, "0002 0001 67", Some(value));
    assert_eq!(shown["value"]["data"]["members"][0]["subscription"], "000000000000ffff");
}

#[test]
fn types_that_kafka_dropped_are_still_read() {
    let value = "0000 02 000102030405060708090a0b0c0d0e0f 02 74 00000003 02 00000001 02 03 7231 00 00 00";
    let topics = json!([{
        "topicId": "AAECAwQFBgcICQoLDA0ODw", "topicName": "t", "numPartitions": 3,
        "partitionMetadata": [{"partition": 1, "racks": ["r1"]}],
    }]);
    for (key, name) in [
        ("0004 0001 67", "ConsumerGroupPartitionMetadata"),
        ("0009 0001 67", "ShareGroupPartitionMetadata"),
        ("0012 0001 67", "StreamsGroupPartitionMetadata"),
    ] {
        let shown = show(InternalTopic::ConsumerOffsets, key, Some(value));
        assert_eq!((&shown["key"]["name"], &shown["value"]["data"]["topics"]), (&json!(name), &topics));
    }
}

#[test]
fn counts_that_cannot_be_true_size_nothing() {
    // An array of 2^31 - 1 members in a value of 20 bytes.
    let value = "0000 0000 00000001 ffff ffff 7fffffff 00000000";
    assert_eq!(
        show(InternalTopic::ConsumerOffsets, "0002 0001 67", Some(value))["value"]["reason"],
        "the length 2147483647 at byte 12 cannot be: 4 bytes are left"
    );
}

/// Bytes of a real record with a few of them changed, cut or added to.
fn mangled() -> impl Strategy<Value = (bool, Vec<u8>, Vec<u8>)> {
    let lines: Vec<Json> = include_str!("../../tests/data/records.jsonl").lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (prop::sample::select(lines), changes.clone(), changes, any::<prop::sample::Index>(), 0u8..4).prop_map(
        |(line, key_changes, value_changes, cut, how)| {
            let (mut key, mut value) = (field_bytes(&line, "k").unwrap(), field_bytes(&line, "v").unwrap());
            key_changes.iter().for_each(|(at, byte)| key[at.index(line["k"].as_str().unwrap().len() / 2)] = *byte);
            value_changes.iter().for_each(|(at, byte)| value[at.index(line["v"].as_str().unwrap().len() / 2)] = *byte);
            match how {
                0 => value.truncate(cut.index(value.len())),
                1 => key.truncate(cut.index(key.len())),
                2 => value.extend_from_slice(&[0, 1, 2]),
                _ => {}
            }
            (line["log"] == "offsets", key, value)
        },
    )
}

proptest! {
    #[test]
    fn no_bytes_cause_a_panic((offsets, key, value) in mangled()) {
        let topic = if offsets { InternalTopic::ConsumerOffsets } else { InternalTopic::TransactionState };
        let record = DecodedRecord::decode(topic, Some(&key), Some(&value));
        serde_json::to_string(&record).unwrap();
        // The two readers of commits agree on every commit that the tree can read.
        let (Ok(Some(key)), Some(DecodedKey::Known { data, .. }), true) = (OffsetKey::decode(&key), record.key(), offsets) else {
            return Ok(());
        };
        prop_assert_eq!(data.field("group").and_then(Value::as_text), Some(key.group));
        prop_assert_eq!(data.field("partition").and_then(Value::as_int), Some(key.partition.into()));
        if let Some(DecodedValue::Known(decoded)) = record.value() {
            let value = OffsetValue::decode(&value).unwrap();
            prop_assert_eq!(decoded.data().field("offset").and_then(Value::as_int), Some(value.offset));
            prop_assert_eq!(decoded.data().field("metadata").and_then(Value::as_text).unwrap_or_default(), value.metadata);
        }
    }

    /// By every layout: most of them take bytes that are none of theirs apart in other ways.
    #[test]
    fn what_is_checked_or_kept_in_part_is_judged_as_what_is_decoded((_, _, value) in mangled()) {
        for schema in OFFSETS.iter().chain(TRANSACTIONS) {
            let decoded = Versioned::decode(schema.value, &value);
            prop_assert_eq!(Versioned::check(schema.value, &value), decoded.as_ref().map(|_| ()).map_err(|e| *e));
            let kept = Versioned::decode_only(schema.value, &value, Some(&["topics", "topicId", "members", "assignment"]));
            prop_assert_eq!(kept.as_ref().map(|kept| &kept.rest), decoded.as_ref().map(|decoded| &decoded.rest));
            if let (Ok(kept), Ok(decoded)) = (&kept, &decoded) {
                let topics = |of: &Versioned| of.data.field("topics").map(|topics| if let Value::List(topics) = topics { topics.len() } else { 0 });
                prop_assert_eq!(topics(kept), topics(decoded));
            }
        }
        prop_assert_eq!(GroupMetadata::check(&value), GroupMetadata::decode(&value).map(|_| ()));
    }
}
