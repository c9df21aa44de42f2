use std::path::Path;
use std::sync::Arc;

use keeplog_engine::LogOptions;
use keeplog_engine::storage::MemoryStorage;

use super::*;
use crate::record::{OffsetKey, OffsetValue};
use crate::store::delete::encoded;

const KEY: OffsetKey<'static> = OffsetKey { group: "g", topic: "t", partition: 0 };

fn shard() -> Shard {
    let log = Log::open_with(Arc::new(MemoryStorage::new()), Path::new("/__consumer_offsets-0"), LogOptions::new()).unwrap();
    let shard = Shard::new(log, Arc::default());
    shard.lead_at_open();
    shard.reload(0, true).unwrap();
    shard
}

fn commit(offset: i64) -> Vec<Record> {
    let value = OffsetValue { offset, leader_epoch: None, metadata: "", commit_timestamp_ms: 0, expire_timestamp_ms: None, topic_id: None };
    let mut bytes = Vec::new();
    assert!(value.encode(&mut bytes));
    vec![Record::new(encoded(&KEY).unwrap(), bytes)]
}

fn tombstone() -> Vec<Record> {
    vec![Record::tombstone(encoded(&KEY).unwrap())]
}

fn shown(shard: &Shard) -> Option<u64> {
    shard.read(|cache| cache.get(&KEY).map(|c| c.offset)).unwrap()
}

/// Appends two writes, and lets the second be the first to come back from its sync.
fn overtaken(first: Vec<Record>, second: Vec<Record>) -> Option<u64> {
    let shard = shard();
    let mut order = shard.order();
    let first = shard.append(&mut order, None, first, None).unwrap();
    let second = shard.append(&mut order, None, second, None).unwrap();
    drop(order);
    assert_eq!(shown(&shard), None);
    shard.finish(Until::Synced(None), second).unwrap();
    let early = shown(&shard);
    shard.finish(Until::Synced(None), first).unwrap();
    assert_eq!(shown(&shard), early, "the first was shown with the second");
    early
}

#[test]
fn writes_are_shown_in_the_order_of_the_log_whoever_returns_first() {
    assert_eq!(overtaken(commit(5), commit(3)), Some(3));
    assert_eq!(overtaken(commit(5), tombstone()), None);
    assert_eq!(overtaken(tombstone(), commit(5)), Some(5));
}

#[test]
fn only_what_was_appended_before_is_shown_with_a_write() {
    let shard = shard();
    let mut order = shard.order();
    let first = shard.append(&mut order, None, commit(5), None).unwrap();
    shard.append(&mut order, None, commit(6), None).unwrap();
    drop(order);
    shard.finish(Until::Synced(None), first).unwrap();
    assert_eq!(shown(&shard), Some(5));
}

#[test]
fn a_reload_shows_what_waits_and_nothing_of_it_is_shown_again() {
    let shard = shard();
    let mut order = shard.order();
    let first = shard.append(&mut order, None, commit(5), None).unwrap();
    shard.append(&mut order, None, tombstone(), None).unwrap();
    drop(order);
    assert_eq!(shard.reload(0, true).unwrap().tombstones, 1);
    shard.finish(Until::Synced(None), first).unwrap();
    assert_eq!(shown(&shard), None);
}

#[test]
fn records_below_the_start_of_the_log_do_not_count() {
    let shard = shard();
    let mut order = shard.order();
    shard.append(&mut order, None, [commit(5), tombstone()].concat(), None).unwrap();
    drop(order);
    shard.log().advance_start(1).unwrap();
    assert_eq!(shard.reload(0, true).unwrap().records, 1);
}
