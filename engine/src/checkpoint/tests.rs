use std::io::ErrorKind;

use proptest::prelude::*;

use super::*;
use crate::storage::MemoryStorage;
use crate::storage::tests::failing::Failing;
use crate::storage::tests::{get, put};

const PATH: &str = "/recovery-point-offset-checkpoint";

fn offsets(entries: &[(&str, u32, u64)]) -> OffsetMap {
    entries.iter().map(|&(topic, partition, offset)| (TopicPartition::new(topic, partition).unwrap(), offset)).collect()
}

fn load(text: impl AsRef<[u8]>) -> Loaded<OffsetMap> {
    let storage = MemoryStorage::new();
    put(&storage, Path::new(PATH), text.as_ref());
    read_offsets(&storage, Path::new(PATH)).unwrap()
}

#[test]
fn what_a_broker_writes_is_read_and_written_alike() {
    let text = "0\n2\norders 0 1048576\norders 1 0\n";
    let expected = offsets(&[("orders", 0, 1_048_576), ("orders", 1, 0)]);
    assert_eq!(load(text), Loaded::Found(expected.clone()));
    let storage = MemoryStorage::new();
    write_offsets(&storage, Path::new(PATH), &expected).unwrap();
    assert_eq!(get(&storage, Path::new(PATH)).unwrap(), text.as_bytes());
    assert_eq!(storage.list(Path::new("/")).unwrap().len(), 1, "no working file stays");
}

#[test]
fn missing_and_empty_files_have_no_entries() {
    let storage = MemoryStorage::new();
    assert_eq!(read_offsets(&storage, Path::new(PATH)).unwrap(), Loaded::Missing);
    for text in ["", "0", "0\n", "0\n0", "0\n0\n", "0\r\n0\r\n", "0\r0", "+0\n00\n"] {
        assert_eq!(load(text), Loaded::Empty, "{text:?}");
    }
    write_offsets(&storage, Path::new(PATH), &OffsetMap::new()).unwrap();
    assert_eq!(get(&storage, Path::new(PATH)).unwrap(), b"0\n0\n");
    assert_eq!(read_offsets(&storage, Path::new(PATH)).unwrap(), Loaded::Empty);
}

#[test]
fn all_line_ends_and_runs_of_blanks_are_read() {
    let expected = Loaded::Found(offsets(&[("a", 1, 2), ("b", 3, 4)]));
    for text in [
        "0\n2\na 1 2\nb 3 4",
        "0\r\n2\r\na 1 2\r\nb 3 4\r\n",
        "0\r2\ra 1 2\rb 3 4\r",
        "0\n2\na \t 1  2\nb\x0b3\x0c4  \n",
        "0\n3\na 1 9\na 1 2\nb 3 4\n",
    ] {
        assert_eq!(load(text), expected, "{text:?}");
    }
}

#[test]
fn malformed_files_name_the_line_and_the_reason() {
    use MalformedReason::*;
    let cases: &[(&str, usize, MalformedReason)] = &[
        ("\n", 1, Version),
        ("1\n0\n", 1, Version),
        ("-1\n", 1, Version),
        (" 0\n0\n", 1, Version),
        ("0 \n0\n", 1, Version),
        ("x", 1, Version),
        ("0\n\n", 2, Count),
        ("0\n 1\na 1 2\n", 2, Count),
        ("0\n-1\n", 2, Count),
        ("0\n99999999999\n", 2, Count),
        ("0\n2\na 1 2\n", 3, Entries { found: 1, stated: 2 }),
        ("0\n2147483647\na 1 2\n", 3, Entries { found: 1, stated: i32::MAX as usize }),
        ("0\n1\na 1 2\nb 1 2\n", 4, Entries { found: 2, stated: 1 }),
        ("0\n1\na 1\n", 3, Fields(3)),
        ("0\n1\na 1 2 3\n", 3, Fields(3)),
        ("0\n1\n a 1 2\n", 3, Fields(3)),
        ("0\n1\na 1 2\n\n", 4, Fields(3)),
        ("0\n1\n   \n", 3, Fields(3)),
        ("0\n1\na x 2\n", 3, Number),
        ("0\n1\na 1 0x2\n", 3, Number),
        ("0\n1\na 1 -1\n", 3, Number),
        ("0\n1\na 1 9223372036854775808\n", 3, Number),
        ("0\n1\n../a 1 2\n", 3, Topic),
    ];
    for &(text, line, reason) in cases {
        assert_eq!(load(text), Loaded::Malformed(Malformed { line, reason }), "{text:?}");
    }
    assert_eq!(load(b"0\n1\n\xff 1 2\n"), Loaded::Malformed(Malformed { line: 3, reason: NotText }));
    assert_eq!(load("0\n1\n").or_empty(), OffsetMap::new());
}

#[test]
fn a_cut_file_is_never_taken_for_a_shorter_one() {
    let text = "0\n3\norders 0 1048576\norders 1 17\npayments 0 5\n";
    for end in 4..text.len() - 1 {
        let cut = load(&text[..end]);
        // Cut inside the last number it still parses: nothing in the format can tell.
        let expected_malformed = end < text.find("payments").unwrap() + "payments 0 5".len();
        assert_eq!(matches!(cut, Loaded::Malformed(_)), expected_malformed, "{end}");
    }
}

#[test]
fn what_is_not_a_file_is_an_error_with_its_path() {
    let storage = MemoryStorage::new();
    storage.create_dir(Path::new(PATH)).unwrap();
    let error = read_offsets(&storage, Path::new(PATH)).unwrap_err();
    assert_eq!(error.path(), Some(Path::new(PATH)));
    storage.open(Path::new("/big"), OpenMode::CreateNew).unwrap().set_len(CHECKPOINT_BYTES_MAX + 1).unwrap();
    let big = read_offsets(&storage, Path::new("/big")).unwrap();
    assert!(matches!(big, Loaded::Malformed(Malformed { reason: MalformedReason::TooLarge(_), .. })));
}

#[test]
fn a_write_that_stops_anywhere_leaves_the_old_content_or_the_new() {
    let (old, new) = (offsets(&[("a", 0, 1)]), offsets(&[("a", 0, 2), ("b", 0, 3)]));
    for kind in [ErrorKind::StorageFull, ErrorKind::Other] {
        let mut outcomes = Vec::new();
        for changes in 0.. {
            let memory = MemoryStorage::new();
            write_offsets(&memory, Path::new(PATH), &old).unwrap();
            let failing = Failing::after(memory.clone(), changes, kind);
            let done = write_offsets(&failing, Path::new(PATH), &new);
            let Loaded::Found(found) = read_offsets(&memory, Path::new(PATH)).unwrap() else { panic!("after {changes} changes") };
            assert!(found == old || found == new);
            outcomes.push(found == new);
            // Whatever is left over does not stop the next write.
            write_offsets(&memory, Path::new(PATH), &old).unwrap();
            match done {
                Ok(()) => break,
                Err(e) => assert_eq!(e.kind() == crate::ErrorKind::StorageFull, kind == ErrorKind::StorageFull),
            }
        }
        // Create, write, sync, rename, sync of the directory: the name is taken over only after the sync.
        assert_eq!(outcomes, [false, false, false, false, true, true]);
    }
}

#[test]
fn a_leftover_of_an_earlier_write_is_never_read() {
    let storage = MemoryStorage::new();
    let temporary = format!("{PATH}.tmp");
    put(&storage, Path::new(&temporary), b"0\n1\na 0 999999999999999999 and then some\n");
    assert_eq!(read_offsets(&storage, Path::new(PATH)).unwrap(), Loaded::Missing);
    write_offsets(&storage, Path::new(PATH), &offsets(&[("a", 0, 1)])).unwrap();
    assert_eq!(get(&storage, Path::new(PATH)).unwrap(), b"0\n1\na 0 1\n");
}

fn epochs(entries: &[(u32, u64)]) -> LeaderEpochs {
    let mut epochs = LeaderEpochs::default();
    for &(epoch, start_offset) in entries {
        assert!(epochs.assign(epoch.try_into().unwrap(), start_offset));
    }
    epochs
}

fn pairs(epochs: &LeaderEpochs) -> Vec<(u32, u64)> {
    epochs.entries().iter().map(|e| (e.epoch, e.start_offset)).collect()
}

#[test]
fn assigning_an_epoch_drops_what_contradicts_it() {
    let start = epochs(&[(1, 0), (3, 10), (5, 20)]);
    let assigned = |epoch, offset| {
        let mut epochs = start.clone();
        let changed = epochs.assign(epoch, offset);
        (changed, pairs(&epochs))
    };
    assert_eq!(assigned(5, 20), (false, vec![(1, 0), (3, 10), (5, 20)]));
    assert_eq!(assigned(5, 25), (false, vec![(1, 0), (3, 10), (5, 20)]));
    assert_eq!(assigned(5, 15), (true, vec![(1, 0), (3, 10), (5, 15)]));
    assert_eq!(assigned(6, 30), (true, vec![(1, 0), (3, 10), (5, 20), (6, 30)]));
    assert_eq!(assigned(6, 20), (true, vec![(1, 0), (3, 10), (6, 20)]));
    assert_eq!(assigned(6, 5), (true, vec![(1, 0), (6, 5)]));
    assert_eq!(assigned(3, 30), (true, vec![(1, 0), (3, 30)]));
    assert_eq!(assigned(0, 0), (true, vec![(0, 0)]));
    assert_eq!(assigned(-1, 40), (false, vec![(1, 0), (3, 10), (5, 20)]));
}

#[test]
fn cutting_the_log_cuts_its_epochs() {
    let start = epochs(&[(1, 5), (3, 10), (5, 20)]);
    let cut = |change: fn(&mut LeaderEpochs, u64) -> bool, offset| {
        let mut epochs = start.clone();
        let changed = change(&mut epochs, offset);
        assert_eq!(changed, epochs != start);
        pairs(&epochs)
    };
    for (end, kept) in [(0, 0), (5, 0), (6, 1), (10, 1), (11, 2), (20, 2), (21, 3), (99, 3)] {
        assert_eq!(cut(LeaderEpochs::truncate_tail, end), pairs(&start)[..kept], "tail at {end}");
    }
    assert_eq!(cut(LeaderEpochs::truncate_head, 4), [(1, 5), (3, 10), (5, 20)]);
    assert_eq!(cut(LeaderEpochs::truncate_head, 5), [(1, 5), (3, 10), (5, 20)]);
    assert_eq!(cut(LeaderEpochs::truncate_head, 9), [(1, 9), (3, 10), (5, 20)]);
    assert_eq!(cut(LeaderEpochs::truncate_head, 10), [(3, 10), (5, 20)]);
    assert_eq!(cut(LeaderEpochs::truncate_head, 99), [(5, 99)]);
    assert!(!LeaderEpochs::default().truncate_head(7));
    let mut cleared = start.clone();
    assert!(cleared.clear() && !cleared.clear());
    assert_eq!(start.of_offset(4), None);
    assert_eq!(start.of_offset(10).map(|e| e.epoch), Some(3));
    assert_eq!(start.of_offset(u64::MAX), start.latest());
}

#[test]
fn epochs_are_read_as_they_were_written() {
    let storage = MemoryStorage::new();
    let dir = Path::new("/orders-0");
    storage.create_dir(dir).unwrap();
    assert_eq!(LeaderEpochs::read(&storage, dir).unwrap(), Loaded::Missing);
    let written = epochs(&[(0, 0), (7, 1 << 40)]);
    written.write(&storage, dir).unwrap();
    let path = dir.join("leader-epoch-checkpoint");
    assert_eq!(get(&storage, &path).unwrap(), b"0\n2\n0 0\n7 1099511627776\n");
    assert_eq!(LeaderEpochs::read(&storage, dir).unwrap(), Loaded::Found(written));
    put(&storage, &path, b"0\n3\n5 10\n3 4\n9 2\n");
    assert_eq!(LeaderEpochs::read(&storage, dir).unwrap(), Loaded::Found(epochs(&[(9, 2)])));
    for bad in ["0\n1\n-1 0\n", "0\n1\n1 -1\n", "0\n1\n1\n", "0\n1\n4294967295 0\n"] {
        put(&storage, &path, bad.as_bytes());
        assert!(matches!(LeaderEpochs::read(&storage, dir).unwrap(), Loaded::Malformed(Malformed { line: 3, .. })), "{bad}");
    }
}

proptest! {
    #[test]
    fn offsets_round_trip(entries in prop::collection::btree_map(("[a-z][a-z._-]{0,20}", 0u32..1 << 31), 0..=i64::MAX as u64, 0..50)) {
        let offsets: OffsetMap = entries.iter().map(|((t, p), o)| (TopicPartition::new(t, *p).unwrap(), *o)).collect();
        let storage = MemoryStorage::new();
        write_offsets(&storage, Path::new(PATH), &offsets).unwrap();
        let loaded = read_offsets(&storage, Path::new(PATH)).unwrap();
        prop_assert_eq!(matches!(loaded, Loaded::Empty), offsets.is_empty());
        prop_assert_eq!(loaded.or_empty(), offsets);
    }

    #[test]
    fn random_files_never_panic(text in "[0-9 \t\r\na-c+.-]{0,60}", bytes in prop::collection::vec(any::<u8>(), 0..60), head: bool) {
        let mut content = if head { b"0\n1\n".to_vec() } else { Vec::new() };
        content.extend_from_slice(text.as_bytes());
        let _ = load(&content);
        content.extend_from_slice(&bytes);
        let _ = load(&content);
    }

    #[test]
    fn epochs_always_ascend(calls in prop::collection::vec((0u8..4, -1i32..8, 0u64..50), 0..60)) {
        let mut epochs = LeaderEpochs::default();
        for (call, epoch, offset) in calls {
            let before = epochs.clone();
            let changed = match call {
                0 | 1 => epochs.assign(epoch, offset),
                2 => epochs.truncate_tail(offset),
                _ => epochs.truncate_head(offset),
            };
            prop_assert_eq!(changed, epochs != before);
            prop_assert!(epochs.entries().is_sorted_by(|a, b| a.epoch < b.epoch && a.start_offset < b.start_offset));
        }
    }
}
