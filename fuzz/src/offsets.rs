//! Records of `__consumer_offsets` and `__transaction_state`.

use keeplog_offsets::groups::Groups;
use keeplog_offsets::record::{
    DecodedKey, DecodedRecord, DecodedValue, GROUP_METADATA_KEY, GroupKey, GroupMetadata, InternalTopic, OffsetKey, OffsetValue,
};

/// Byte 0 names the topic (bit 0) and whether there is a value (bit 1), byte 1 is the length of the key; key and
/// value follow.
pub fn offset_records(data: &[u8]) {
    let [flags, key_bytes, rest @ ..] = data else { return };
    let (key, value) = rest.split_at(rest.len().min(usize::from(*key_bytes)));
    let value = (flags & 2 != 0).then_some(value);
    let topic = if flags & 1 == 0 { InternalTopic::ConsumerOffsets } else { InternalTopic::TransactionState };

    let record = DecodedRecord::decode(topic, Some(key), value);
    assert_eq!(record, DecodedRecord::decode(topic, Some(key), value), "decoding is not a function");
    serde_json::to_string(&record).expect("a decoded record has text keys only");
    if record.is_complete() {
        assert!(matches!(record.key(), Some(DecodedKey::Known { .. })));
        assert!(!matches!(record.value(), Some(DecodedValue::Raw { .. })));
    }
    commit_key(key, topic, &record);
    group(key, value);
    if let Some(value) = value {
        commit_value(value);
        fast_and_slow_agree(key, value, topic, &record);
        group_value(key, value, topic, &record);
    }
}

fn commit_key(key: &[u8], topic: InternalTopic, record: &DecodedRecord) {
    let Ok(decoded) = OffsetKey::decode(key) else { return };
    let known = match record.key() {
        Some(DecodedKey::Known { schema, data, .. }) if schema.name() == "OffsetCommit" => Some(data),
        _ => None,
    };
    if topic == InternalTopic::ConsumerOffsets {
        assert_eq!(decoded.is_some(), known.is_some(), "two decoders, two kinds of key");
    }
    let Some(decoded) = decoded else { return };
    let mut encoded = Vec::new();
    assert!(decoded.encode(&mut encoded), "names that were read can be written");
    assert_eq!(OffsetKey::decode(&encoded), Ok(Some(decoded)));
    assert_eq!(encoded[2..], key[2..encoded.len()], "the two key versions have the same fields");
    if let Some(data) = known.filter(|_| topic == InternalTopic::ConsumerOffsets) {
        let text = |name| data.field(name).and_then(|value| value.as_text());
        assert_eq!((text("group"), text("topic")), (Some(decoded.group), Some(decoded.topic)));
        assert_eq!(data.field("partition").and_then(|value| value.as_int()), Some(i64::from(decoded.partition)));
    }
}

fn commit_value(value: &[u8]) {
    let Ok(decoded) = OffsetValue::decode(value) else { return };
    let mut encoded = Vec::new();
    if !decoded.encode(&mut encoded) {
        assert!(decoded.metadata.len() > i16::MAX as usize);
        return;
    }
    let again = OffsetValue::decode(&encoded).expect("our own values are sound");
    // Version 1 keeps the time of expiry and has no room for epoch and id.
    let kept = if decoded.expire_timestamp_ms.is_some() { OffsetValue { leader_epoch: None, topic_id: None, ..decoded } } else { decoded };
    assert_eq!(again, kept);
    let mut twice = Vec::new();
    assert!(again.encode(&mut twice));
    assert_eq!(twice, encoded);
}

/// The decoder that a store uses by the million, and the one that shows any record.
fn fast_and_slow_agree(key: &[u8], value: &[u8], topic: InternalTopic, record: &DecodedRecord) {
    if topic != InternalTopic::ConsumerOffsets || !matches!(OffsetKey::decode(key), Ok(Some(_))) {
        return;
    }
    let fast = OffsetValue::decode(value);
    let Some(DecodedValue::Known(slow)) = record.value() else {
        // The slow one reads tagged fields of every version, so it may stumble where the fast one has read enough.
        return;
    };
    let fast = fast.expect("one decoder reads what the other refuses");
    let int = |name| slow.data().field(name).and_then(|value| value.as_int());
    assert_eq!(int("offset"), Some(fast.offset));
    assert_eq!(int("commitTimestamp"), Some(fast.commit_timestamp_ms));
    assert_eq!(int("leaderEpoch").filter(|&epoch| epoch != -1), fast.leader_epoch.map(i64::from));
    assert_eq!(slow.data().field("metadata").and_then(|value| value.as_text()).unwrap_or_default(), fast.metadata);
}

/// One record of a group, taken in, looked at, and taken away.
fn group(key: &[u8], value: Option<&[u8]>) {
    let mut groups = Groups::new();
    let taken = groups.record(0, key, value);
    assert_eq!((taken.is_err(), groups.unreadable_keys()), (GroupKey::decode(key).is_err(), u64::from(taken.is_err())));
    let names: Vec<String> = groups.names().map(str::to_owned).collect();
    for name in names {
        let described = groups.describe(&name).expect("a group that has a name has a record");
        assert_eq!((described.kind, described.state), (groups.kind(&name), groups.state(&name)));
        let expiry = groups.expiry_view(&name);
        let is_due = expiry.is_expired("t", 0, None, 0, i64::MAX);
        assert!(!is_due || (expiry.can_expire() && !expiry.may_read("t")));
        assert!(groups.problems().count() <= 1);
        assert_eq!(groups.tombstones_of(&name), [key], "a tombstone has the key of what it takes away");
        assert_eq!(groups.record(1, key, None), Ok(()));
        assert!(groups.is_empty());
    }
}

/// The two decoders of a classic group.
fn group_value(key: &[u8], value: &[u8], topic: InternalTopic, record: &DecodedRecord) {
    let fast = GroupMetadata::decode(value);
    if let Ok(decoded) = &fast {
        let mut encoded = Vec::new();
        if decoded.encode(&mut encoded) {
            assert_eq!(GroupMetadata::decode(&encoded).as_ref(), Ok(decoded));
        }
    }
    let is_classic = matches!(GroupKey::decode(key), Ok(Some(GroupKey { key_type: GROUP_METADATA_KEY, .. })));
    let (true, InternalTopic::ConsumerOffsets, Some(DecodedValue::Known(slow))) = (is_classic, topic, record.value()) else { return };
    // The fast one stops before the last tagged fields, so it may read what the slow one refuses, not the other way round.
    let fast = fast.expect("one decoder reads what the other refuses");
    let text = |name| slow.data().field(name).and_then(|value| value.as_text());
    assert_eq!((text("protocolType").unwrap_or_default(), text("protocol")), (fast.protocol_type, fast.protocol));
    assert_eq!(slow.data().field("generation").and_then(|value| value.as_int()), Some(fast.generation.into()));
}
