//! The keys that take the space, as they are shown.

use serde::Serialize;

use super::walk::{Sum, Walk};
use crate::door::offsets_record::{DecodedKey, DecodedRecord, InternalTopic, OffsetKey};
use crate::door::{CONSUMER_OFFSETS, TRANSACTION_STATE};
use crate::key_shares::Heavy;
use crate::output;

/// Keys shown.
const SHOWN: usize = 20;
/// Characters of a key shown.
const KEY_CHARS: usize = 60;

/// What the keys of a log take.
#[derive(Debug, Default, Serialize)]
pub(super) struct Keys {
    /// Whether all keys fitted into memory, so that every count is exact.
    pub(super) exact: bool,
    /// Distinct keys, if that is known.
    pub(super) distinct: Option<u64>,
    /// Bytes at most of a key that is not among `top` because it did not fit into memory.
    pub(super) absent_bytes_max: u64,
    pub(super) keyed: Sum,
    pub(super) keyless: Sum,
    /// Control batches, and those that compaction has emptied.
    pub(super) others: Sum,
    pub(super) unread_bytes: u64,
    /// Heaviest first.
    pub(super) top: Vec<Key>,
}

#[derive(Debug, Serialize)]
pub(super) struct Key {
    /// For people.
    pub(super) key: String,
    /// Its bytes, or the first 1024 of them.
    key_hex: String,
    key_bytes: u64,
    pub(super) records: u64,
    /// What its records take, as shares of their batches.
    pub(super) bytes: u64,
    /// So many more they may take at most.
    pub(super) bytes_missed_max: u64,
}

impl Keys {
    pub(super) fn new(walk: &Walk<'_>, topic: &str) -> Self {
        let shares = &walk.shares;
        Self {
            exact: shares.is_exact(),
            distinct: shares.is_exact().then_some(shares.len() as u64),
            absent_bytes_max: shares.absent_bytes_max(),
            keyed: walk.keyed,
            keyless: walk.keyless,
            others: walk.others,
            unread_bytes: walk.unread_bytes,
            top: shares.top(SHOWN).iter().map(|heavy| Key::new(heavy, topic)).collect(),
        }
    }
}

impl Key {
    fn new(heavy: &Heavy, topic: &str) -> Self {
        let mut key_hex = String::new();
        output::push_hex(&mut key_hex, &heavy.head);
        let mut key = readable(&heavy.head, topic);
        let rest = heavy.key_bytes - heavy.head.len() as u64;
        if rest > 0 {
            key.push_str(&format!("...+{rest} B"));
        }
        let share = &heavy.share;
        Self {
            key,
            key_hex,
            key_bytes: heavy.key_bytes,
            records: share.records,
            bytes: share.bytes,
            bytes_missed_max: share.bytes_missed_max,
        }
    }
}

/// `billing/orders/0` for a commit, `group billing` for what a coordinator keeps of a group, else as `dump` shows keys.
fn readable(key: &[u8], topic: &str) -> String {
    let internal = match topic {
        CONSUMER_OFFSETS => InternalTopic::ConsumerOffsets,
        TRANSACTION_STATE => InternalTopic::TransactionState,
        _ => return output::data(key, KEY_CHARS),
    };
    if internal == InternalTopic::ConsumerOffsets
        && let Ok(Some(OffsetKey { group, topic, partition })) = OffsetKey::decode(key)
    {
        return format!("{}/{}/{partition}", output::clipped(group, KEY_CHARS), output::clipped(topic, KEY_CHARS));
    }
    match DecodedRecord::decode(internal, Some(key), None).key() {
        Some(DecodedKey::Known { schema, data, .. }) => {
            let texts = data.fields().filter_map(|(_, value)| value.as_text());
            let name = texts.map(|text| output::clipped(text, KEY_CHARS)).collect::<Vec<_>>().join("/");
            format!("{} {name}", schema.name())
        }
        _ => output::data(key, KEY_CHARS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_coordinators_say_what_they_are_about() {
        let mut commit = Vec::new();
        assert!(OffsetKey { group: "billing", topic: "orders", partition: 7 }.encode(&mut commit));
        assert_eq!(readable(&commit, CONSUMER_OFFSETS), "billing/orders/7");
        assert_eq!(readable(b"\0\x02\0\x07billing", CONSUMER_OFFSETS), "GroupMetadata billing");
        assert_eq!(readable(b"\0\0\0\x03pay", TRANSACTION_STATE), "TransactionLog pay");
        assert_eq!(readable(b"EURUSD", CONSUMER_OFFSETS), "\"EURUSD\"");
        assert_eq!(readable(b"EURUSD", "prices"), "\"EURUSD\"");
        assert_eq!(readable(&commit[..5], "prices"), "0x0001000762");
    }
}
