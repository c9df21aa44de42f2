//! Field reports about committed offsets: what becomes of them over restarts, and under odd names and settings.

use std::path::Path;
use std::sync::Arc;

use keeplog::inspect::storage::{MemoryStorage, Storage};
use keeplog::{
    CONSUMER_OFFSETS, Codec, Durability, ErrorKind, LogOptions, OffsetAndMetadata, OffsetOptions, OffsetStore, Record, Store, StoreOptions,
    TimestampType,
};

use crate::disk::disk;

fn by_hand() -> StoreOptions {
    StoreOptions::new().log(LogOptions::new().segment_bytes(4096)).background_thread(false)
}

fn options() -> OffsetOptions {
    OffsetOptions::new().offsets_topic_segment_bytes(4096).offsets_topic_num_partitions(2).store(by_hand())
}

fn open(disk: &Arc<MemoryStorage>, options: OffsetOptions) -> keeplog::Result<OffsetStore> {
    OffsetStore::open_with(Arc::clone(disk) as Arc<dyn Storage>, Path::new("/data"), options)
}

fn at(offset: u64) -> OffsetAndMetadata {
    OffsetAndMetadata::new(offset)
}

fn fetched(offsets: &OffsetStore, group: &str, topic: &str) -> Option<u64> {
    offsets.fetch(group, &[(topic, 0)]).unwrap()[0].as_ref().map(|committed| committed.offset)
}

/// Closed, changed by somebody else, and opened again in the same process: the answers are those of the files.
#[test]
fn e20_a_store_that_is_opened_again_has_no_answer_of_its_earlier_life() {
    let disk = disk();
    let first = open(&disk, options()).unwrap();
    first.commit("g", &[("t", 0, at(1))]).unwrap();
    first.commit("gone", &[("t", 0, at(1))]).unwrap();
    first.close().unwrap();
    let other = open(&disk, options()).unwrap();
    other.commit("g", &[("t", 0, at(2))]).unwrap();
    other.delete_group("gone").unwrap();
    other.close().unwrap();
    let again = open(&disk, options()).unwrap();
    assert_eq!((fetched(&again, "g", "t"), fetched(&again, "gone", "t")), (Some(2), None));
    // The first handle still holds what it held at its close, and says that it is closed to whoever writes.
    assert_eq!(fetched(&first, "g", "t"), Some(1));
    assert_eq!(first.commit("g", &[("t", 0, at(3))]).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(first.reload().unwrap_err().kind(), ErrorKind::Closed);
    drop((first, other));
    assert_eq!(fetched(&again, "g", "t"), Some(2));
    // An open that fails, and one right after it.
    again.close().unwrap();
    assert!(open(&disk, options().offsets_topic_num_partitions(3)).is_err());
    assert_eq!(fetched(&open(&disk, options()).unwrap(), "g", "t"), Some(2));
}

#[test]
fn e21_another_number_of_partitions_is_refused() {
    let disk = disk();
    let few = || options().offsets_topic_num_partitions(5);
    let offsets = open(&disk, few()).unwrap();
    let groups: Vec<_> = (0..50).map(|i| format!("group-{i}")).collect();
    groups.iter().for_each(|group| offsets.commit(group, &[("t", 0, at(7))]).unwrap());
    offsets.close().unwrap();
    for other in [10, 4, 1] {
        let error = open(&disk, options().offsets_topic_num_partitions(other)).unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains("5 partitions"), "{error}");
    }
    let mut not_said = options();
    not_said.offsets_topic_num_partitions = None;
    let offsets = open(&disk, not_said).unwrap();
    assert!(groups.iter().all(|group| fetched(&offsets, group, "t") == Some(7)));
    offsets.close().unwrap();
    // One that was taken away is missed.
    let store = Store::open_with(Arc::clone(&disk) as Arc<dyn Storage>, Path::new("/data"), by_hand()).unwrap();
    store.delete_log(CONSUMER_OFFSETS, 2).unwrap();
    store.close().unwrap();
    assert_eq!(open(&disk, few()).unwrap_err().kind(), ErrorKind::InvalidInput);
}

/// A consumer that is killed ten times while records come in: it sees each once, in order, from where it had committed.
#[test]
fn e22_a_consumer_goes_on_where_it_had_committed() {
    let mut disk = disk();
    let mut seen = Vec::new();
    for life in 0..10 {
        let offsets = open(&disk, options()).unwrap();
        let log = offsets.store().log("events", 0).unwrap();
        for i in 0..20 {
            log.append(&[Record::new(format!("k{i}"), format!("{life}"))], Durability::Buffered).unwrap();
        }
        log.sync().unwrap();
        let next = fetched(&offsets, "g", "events").unwrap_or(0);
        assert_eq!(next, seen.len() as u64, "life {life}");
        // Half of what is there, and more comes in meanwhile.
        for record in log.read_from(next).unwrap().take(10 + life) {
            seen.push(record.unwrap().offset());
            log.append(&[Record::new("meanwhile", "v")], Durability::Buffered).unwrap();
            offsets.commit("g", &[("events", 0, at(seen.len() as u64))]).unwrap();
        }
        let killed = Arc::new(disk.image());
        drop((log, offsets));
        disk = killed;
    }
    assert_eq!(seen, (0..145).collect::<Vec<_>>());
}

/// Names that would be one if they were joined, and names of every kind of character.
#[test]
fn e23_names_are_kept_apart_whatever_is_in_them() {
    let disk = disk();
    let offsets = open(&disk, options()).unwrap();
    let pairs = [("a", "b-1"), ("a-b", "1"), ("a", "b.1"), ("a.b", "1"), ("7", "t"), ("", "t"), ("t", "7")];
    let odd = ["/", ":", "a/b", "a:b", "\0", "a\0b", "\u{1b}[1m", " ", "größe", "..", "🦀"];
    let all: Vec<_> = pairs.into_iter().chain(odd.into_iter().map(|group| (group, "t"))).collect();
    for (i, (group, topic)) in all.iter().enumerate() {
        offsets.commit(group, &[(*topic, 0, at(i as u64))]).unwrap();
    }
    let check = |offsets: &OffsetStore| {
        for (i, (group, topic)) in all.iter().enumerate() {
            assert_eq!(fetched(offsets, group, topic), Some(i as u64), "{group:?} {topic:?}");
            assert_eq!(offsets.fetch(group, &[(*topic, 1)]).unwrap(), [None]);
        }
        assert_eq!(offsets.list().unwrap().len(), all.len());
    };
    check(&offsets);
    offsets.reload().unwrap();
    check(&offsets);
    for topic in ["", "a/b", "a\0", "..", &"x".repeat(250)] {
        assert_eq!(offsets.commit("g", &[(topic, 0, at(1))]).unwrap_err().kind(), ErrorKind::InvalidInput, "{topic:?}");
    }
    assert_eq!(offsets.commit("g", &[("t", -1, at(1))]).unwrap_err().kind(), ErrorKind::InvalidInput);
    for bytes in [32_767, 32_768, 65_536] {
        let group = "x".repeat(bytes);
        let committed = offsets.commit(&group, &[("t", 0, at(1))]);
        // A segment of 4 KiB takes none of them; a larger one takes what the format can say.
        assert_eq!(committed.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    let roomy = open(&self::disk(), options().offsets_topic_segment_bytes(1 << 20)).unwrap();
    roomy.commit(&"x".repeat(32_767), &[("t", 0, at(1))]).unwrap();
    assert_eq!(roomy.commit(&"x".repeat(32_768), &[("t", 0, at(1))]).unwrap_err().kind(), ErrorKind::InvalidInput);
    roomy.reload().unwrap();
    assert_eq!(fetched(&roomy, &"x".repeat(32_767), "t"), Some(1));
}

/// Settings of logs that have nothing to do with committed offsets change no answer.
#[test]
fn e25_odd_settings_of_the_log_refuse_no_commit() {
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        for timestamps in [TimestampType::Create, TimestampType::LogAppend] {
            let disk = disk();
            let log = LogOptions::new().segment_bytes(4096).compression(codec).message_timestamp_type(timestamps).segment_ms(1);
            let odd = || options().log(log.clone().retention_ms(Some(1)).retention_bytes(Some(1)));
            let offsets = open(&disk, odd()).unwrap();
            for round in 0..100 {
                disk.advance_ms(1000);
                offsets.commit(&format!("group-{}", round % 5), &[("t", 0, at(round)), ("u", 0, at(round))]).unwrap();
                if round % 7 == 0 {
                    offsets.delete_offsets(&format!("group-{}", round % 5), &[("u", 0)]).unwrap();
                }
                offsets.store().housekeep();
            }
            let shown: Vec<_> =
                offsets.list().unwrap().iter().map(|o| (o.group.to_string(), o.topic.to_string(), o.committed.offset)).collect();
            assert_eq!(shown.len(), 9, "{shown:?}");
            offsets.close().unwrap();
            let again = open(&disk, odd()).unwrap();
            let loaded: Vec<_> =
                again.list().unwrap().iter().map(|o| (o.group.to_string(), o.topic.to_string(), o.committed.offset)).collect();
            assert_eq!(loaded, shown, "{codec:?} {timestamps:?}");
        }
    }
    // A limit that a commit does not fit is an error that says so, and nothing is dropped in silence.
    let offsets = open(&disk(), options().log(LogOptions::new().segment_bytes(4096).max_message_bytes(200))).unwrap();
    offsets.commit("g", &[("t", 0, at(1))]).unwrap();
    let many: Vec<_> = (0..20).map(|p| ("t", p, at(2))).collect();
    let error = offsets.commit("g", &many).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains("max_message_bytes"), "{error}");
    assert_eq!(fetched(&offsets, "g", "t"), Some(1));
}
