mod broker;

use std::io::ErrorKind as IoKind;

use proptest::prelude::*;

use super::*;
use crate::storage::tests::failing::Failing;
use crate::storage::tests::{get, put};
use crate::storage::{MemoryStorage, RealStorage};

const DATA: &str = "/data";
const MARK: &str = "/data/.kafka_cleanshutdown";
const RECOVERY: &str = "/data/recovery-point-offset-checkpoint";

fn tp(name: &str) -> TopicPartition {
    name.parse().unwrap()
}

/// A file system with partitions in `/data`, not closed in order.
fn with_partitions(names: &[&str]) -> MemoryStorage {
    let storage = MemoryStorage::new();
    storage.create_dir(Path::new(DATA)).unwrap();
    for name in names {
        storage.create_dir(&Path::new(DATA).join(name)).unwrap();
    }
    storage
}

fn open(storage: &MemoryStorage) -> Result<DataDir> {
    DataDir::open(Arc::new(storage.clone()), Path::new(DATA))
}

/// Opens and closes every partition in order, and the directory.
fn close_in_order(storage: &MemoryStorage) {
    let dir = open(storage).unwrap();
    for name in dir.partitions() {
        dir.opened(&name).unwrap();
        dir.closed_clean(&name);
    }
    assert!(dir.close().unwrap());
}

fn has_mark(storage: &MemoryStorage) -> bool {
    storage.metadata(Path::new(MARK)).is_ok()
}

#[test]
fn a_second_owner_is_refused_until_the_first_is_gone() {
    let storage = with_partitions(&["a-0"]);
    close_in_order(&storage);
    let first = open(&storage).unwrap();
    let refused = open(&storage).unwrap_err();
    assert_eq!((refused.kind(), refused.path()), (ErrorKind::Locked, Some(Path::new("/data/.lock"))));
    assert!(refused.is_retriable());
    drop(first);
    let second = open(&storage).unwrap();
    assert!(second.close().is_ok());
    let third = open(&storage).unwrap();
    assert_eq!(second.close().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(second.write_checkpoints().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(second.opened(&tp("a-0")).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(second.create_partition(&tp("b-0")).unwrap_err().kind(), ErrorKind::Closed);
    drop(third);
}

#[test]
fn a_refused_owner_touches_nothing() {
    let storage = with_partitions(&["a-0"]);
    close_in_order(&storage);
    let _broker = storage.lock(Path::new("/data/.lock")).unwrap();
    assert_eq!(open(&storage).unwrap_err().kind(), ErrorKind::Locked);
    assert!(has_mark(&storage));
}

#[test]
fn the_real_lock_keeps_a_second_handle_out() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("deep/data");
    let first = DataDir::open_or_create(Arc::new(RealStorage::new()), &path).unwrap();
    let second = DataDir::open_or_create(Arc::new(RealStorage::new()), &path.join("../data"));
    assert_eq!(second.unwrap_err().kind(), ErrorKind::Locked);
    first.create_partition(&tp("orders-0")).unwrap();
    first.set_recovery_point(&tp("orders-0"), 7);
    assert!(first.close().unwrap());
    let again = DataDir::open(Arc::new(RealStorage::new()), &path).unwrap();
    assert_eq!((again.was_clean(&tp("orders-0")), again.recovery_point(&tp("orders-0"))), (true, 7));
}

#[test]
fn the_mark_is_gone_before_anything_is_loaded() {
    let storage = with_partitions(&["a-0", "b-0"]);
    close_in_order(&storage);
    assert_eq!(get(&storage, Path::new(MARK)).unwrap(), CLEAN_MARK_CONTENT);

    let loading = open(&storage).unwrap();
    assert!(!has_mark(&storage));
    assert!(loading.directory_was_clean() && loading.opened(&tp("a-0")).unwrap());
    drop(loading); // as a crash half-way through loading

    let recovering = open(&storage).unwrap();
    assert!(!recovering.was_clean(&tp("a-0")) && !recovering.was_clean(&tp("b-0")));
    assert!(!recovering.opened(&tp("a-0")).unwrap());
}

#[test]
fn an_open_that_fails_anywhere_never_leaves_a_used_directory_marked() {
    let storage = with_partitions(&["a-0"]);
    close_in_order(&storage);
    for changes in 0.. {
        let failing = Arc::new(Failing::after(storage.clone(), changes, IoKind::Other));
        let opened = DataDir::open(failing, Path::new(DATA));
        assert!(opened.is_err() || !has_mark(&storage));
        if opened.is_ok() {
            break;
        }
    }
    // Found gone, but without the sync nobody knows whether for good: one call allowed, for the removal.
    let failing = Arc::new(Failing::after(storage.clone(), 1, IoKind::Other));
    assert!(DataDir::open(failing, Path::new(DATA)).is_err());
    assert!(!open(&storage).unwrap().was_clean(&tp("a-0")));
}

#[test]
fn the_mark_needs_every_partition_clean() {
    let outcome = |close_first_in_order: bool, act: &dyn Fn(&DataDir)| {
        let storage = with_partitions(&["a-0", "b-0"]);
        if close_first_in_order {
            close_in_order(&storage);
        }
        let dir = open(&storage).unwrap();
        act(&dir);
        let marked = dir.close().unwrap();
        assert_eq!(marked, has_mark(&storage));
        marked
    };
    let clean = |dir: &DataDir, name: &str| {
        dir.opened(&tp(name)).unwrap();
        dir.closed_clean(&tp(name));
    };
    assert!(outcome(true, &|_| {}), "untouched, and clean before");
    assert!(outcome(true, &|dir| clean(dir, "a-0")));
    assert!(!outcome(false, &|_| {}), "untouched, and never recovered");
    assert!(!outcome(false, &|dir| clean(dir, "a-0")), "b was not loaded");
    assert!(outcome(false, &|dir| {
        clean(dir, "a-0");
        clean(dir, "b-0");
        dir.create_partition(&tp("c-0")).unwrap();
    }));
    assert!(!outcome(true, &|dir| assert!(dir.opened(&tp("a-0")).unwrap())), "still open");
    assert!(!outcome(true, &|dir| {
        dir.opened(&tp("a-0")).unwrap();
        dir.closed_unclean(&tp("a-0"));
    }));
    assert!(outcome(true, &|dir| {
        dir.opened(&tp("a-0")).unwrap();
        dir.closed_unclean(&tp("a-0"));
        assert!(!dir.opened(&tp("a-0")).unwrap(), "to be recovered in the same process, too");
        dir.closed_clean(&tp("a-0"));
        assert!(dir.was_clean(&tp("a-0")));
    }));
    assert!(!outcome(true, &|dir| dir.storage().create_dir(Path::new("/data/d-0")).unwrap()), "made behind our back");
}

#[test]
fn copies_that_a_broker_would_open_count_for_the_mark() {
    let id = "0123456789abcdef0123456789abcdef";
    for (suffix, needs_recovery) in [("future", true), ("stray", true), ("delete", false)] {
        let storage = with_partitions(&["a-0", &format!("b-0.{id}-{suffix}")]);
        let dir = open(&storage).unwrap();
        dir.opened(&tp("a-0")).unwrap();
        dir.closed_clean(&tp("a-0"));
        assert_eq!(dir.close().unwrap(), !needs_recovery, "{suffix}");
        put(&storage, Path::new(MARK), b"");
        assert!(open(&storage).unwrap().close().unwrap(), "{suffix}: it was clean before");
    }
}

#[test]
fn a_close_that_fails_anywhere_leaves_no_mark_and_gives_up_the_lock() {
    for changes in 0.. {
        let storage = with_partitions(&["a-0"]);
        let failing = Arc::new(Failing::after(storage.clone(), u64::MAX, IoKind::StorageFull));
        let dir = DataDir::open(Arc::clone(&failing) as Arc<dyn Storage>, Path::new(DATA)).unwrap();
        dir.opened(&tp("a-0")).unwrap();
        dir.set_recovery_point(&tp("a-0"), 100);
        dir.closed_clean(&tp("a-0"));
        failing.allow(changes);
        match dir.close() {
            Ok(marked) => {
                assert!(marked && has_mark(&storage));
                break;
            }
            Err(e) => assert_eq!(e.kind(), ErrorKind::StorageFull),
        }
        // The device may have taken the mark itself, with its content torn: by then all that it stands for is there.
        let again = open(&storage).unwrap();
        assert!(!again.directory_was_clean() || again.recovery_point(&tp("a-0")) == 100);
        assert!(matches!(again.recovery_point(&tp("a-0")), 0 | 100));
    }
}

#[test]
fn space_that_comes_back_is_enough_to_go_on_in_the_same_process() {
    let storage = with_partitions(&["a-0"]);
    let full = Arc::new(Failing::after(storage.clone(), u64::MAX, IoKind::StorageFull));
    let dir = DataDir::open(Arc::clone(&full) as Arc<dyn Storage>, Path::new(DATA)).unwrap();
    dir.set_recovery_point(&tp("a-0"), 5);
    full.allow(0);
    assert_eq!(dir.write_checkpoints().unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(dir.create_partition(&tp("b-0")).unwrap_err().kind(), ErrorKind::StorageFull);
    full.allow(u64::MAX);
    dir.write_checkpoints().unwrap();
    dir.create_partition(&tp("b-0")).unwrap();
    assert_eq!(get(&storage, Path::new(RECOVERY)).unwrap(), b"0\n1\na 0 5\n");
}

#[test]
fn garbled_checkpoints_count_as_empty_and_are_reported() {
    let storage = with_partitions(&["a-0"]);
    put(&storage, Path::new(RECOVERY), b"0\n5\na 0 7\n");
    put(&storage, Path::new("/data/cleaner-offset-checkpoint"), b"1\n1\na 0 7\n");
    put(&storage, Path::new("/data/log-start-offset-checkpoint"), b"0\n1\na 0 x\n");
    put(&storage, Path::new("/data/replication-offset-checkpoint"), b"");
    let dir = open(&storage).unwrap();
    assert_eq!(dir.recovery_point(&tp("a-0")), 0);
    assert_eq!(dir.log_start(&tp("a-0")), 0);
    assert_eq!((dir.cleaner_offset(&tp("a-0")), dir.high_watermark(&tp("a-0"))), (None, None));
    let warned: Vec<_> = dir.warnings().iter().map(|w| w.path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(warned, ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint"]);
    assert!(dir.warnings()[0].to_string().contains("line 3"), "{}", dir.warnings()[0]);
}

/// What was deleted must not come back because a device fails for a moment.
#[test]
fn a_directory_whose_start_offsets_the_device_cannot_read_does_not_open() {
    let storage = with_partitions(&["a-0"]);
    storage.create_dir(Path::new("/data/log-start-offset-checkpoint")).unwrap();
    let error = open(&storage).unwrap_err();
    assert!(error.to_string().contains("log-start-offset-checkpoint"), "{error}");
    storage.remove_dir(Path::new("/data/log-start-offset-checkpoint")).unwrap();
    storage.create_dir(Path::new("/data/recovery-point-offset-checkpoint")).unwrap();
    assert_eq!(open(&storage).unwrap().warnings().len(), 1, "the others only make a start slower");
}

#[test]
fn damaged_checkpoints_are_mended_by_the_next_write() {
    for damage in ["", "0\n5\na 0 7\n", "7\n0\n", "\0\0\0\0", "0\n1\na 0 seven\n"] {
        let storage = with_partitions(&["a-0"]);
        put(&storage, Path::new(RECOVERY), damage.as_bytes());
        let dir = open(&storage).unwrap();
        assert_eq!(dir.warnings().len(), usize::from(!damage.is_empty()), "{damage:?}");
        dir.write_checkpoints().unwrap();
        drop(dir);
        assert_eq!(open(&storage).unwrap().warnings(), [], "{damage:?}");
    }
}

#[test]
fn values_stay_in_memory_until_they_are_written() {
    let storage = with_partitions(&["a-0", "a-1"]);
    put(&storage, Path::new(RECOVERY), b"0\n3\na 0 1\na 1 2\ngone 0 3\n");
    let dir = open(&storage).unwrap();
    assert_eq!(dir.recovery_point(&tp("gone-0")), 0);
    dir.set_recovery_point(&tp("a-0"), 10);
    dir.set_log_start(&tp("a-0"), Some(4));
    dir.set_high_watermark(&tp("a-0"), 12);
    dir.set_cleaner_offset(&tp("a-0"), Some(8));
    assert_eq!(get(&storage, Path::new(RECOVERY)).unwrap(), b"0\n3\na 0 1\na 1 2\ngone 0 3\n");
    dir.write_checkpoints().unwrap();
    assert_eq!(get(&storage, Path::new(RECOVERY)).unwrap(), b"0\n2\na 0 10\na 1 2\n", "kept, though it was not opened");
    drop(dir);
    let dir = open(&storage).unwrap();
    assert_eq!((dir.recovery_point(&tp("a-0")), dir.recovery_point(&tp("a-1"))), (10, 2));
    assert_eq!((dir.log_start(&tp("a-0")), dir.log_start(&tp("a-1"))), (4, 0));
    assert_eq!((dir.high_watermark(&tp("a-0")), dir.cleaner_offset(&tp("a-0"))), (Some(12), Some(8)));
    dir.set_log_start(&tp("a-0"), None);
    dir.set_cleaner_offset(&tp("a-0"), None);
    dir.write_checkpoints().unwrap();
    assert_eq!(get(&storage, Path::new("/data/log-start-offset-checkpoint")).unwrap(), b"0\n0\n");
}

#[test]
fn checkpoints_that_would_not_change_are_left_alone() {
    let storage = with_partitions(&["a-0"]);
    let counting = Arc::new(Failing::after(storage, u64::MAX, IoKind::Other));
    let dir = DataDir::open(Arc::clone(&counting) as Arc<dyn Storage>, Path::new(DATA)).unwrap();
    let changes = |act: &dyn Fn()| {
        counting.allow(100);
        act();
        dir.write_checkpoints().unwrap();
        100 - counting.left()
    };
    assert_eq!(changes(&|| {}), 0);
    assert_eq!(changes(&|| dir.set_recovery_point(&tp("a-0"), 1)), 5);
    assert_eq!(changes(&|| dir.set_recovery_point(&tp("a-0"), 1)), 0);
}

#[test]
fn only_well_named_directories_are_partitions() {
    let id = "0123456789abcdef0123456789abcdef";
    let removed = format!("r-0.{id}-delete");
    let storage = with_partitions(&["a-0", "b.c-d-10", "lost+found", "a-01", &removed, "__cluster_metadata-0"]);
    for file in ["meta.properties", "cleaner-offset-checkpoint.tmp", "notes.txt", "f-0"] {
        put(&storage, &Path::new(DATA).join(file), b"");
    }
    storage.create_other(Path::new("/data/link-0")).unwrap();
    let dir = open(&storage).unwrap();
    assert_eq!(dir.partitions(), [tp("a-0"), tp("b.c-d-10")]);
    let foreign: Vec<_> = dir.foreign().into_iter().map(|f| (f.name, f.kind)).collect();
    let expected = [
        ("__cluster_metadata-0", ForeignKind::Reserved),
        ("a-01", ForeignKind::UnknownDirectory),
        ("f-0", ForeignKind::UnknownFile),
        ("link-0", ForeignKind::NotAFile),
        ("lost+found", ForeignKind::UnknownDirectory),
        ("notes.txt", ForeignKind::UnknownFile),
        (removed.as_str(), ForeignKind::Removed(tp("r-0"))),
    ];
    assert_eq!(foreign, expected.map(|(name, kind)| (name.to_owned(), kind)));
    for missing in ["f-0", "link-0", "__cluster_metadata-0", "x-0"] {
        assert_eq!(dir.opened(&tp(missing)).unwrap_err().kind(), ErrorKind::NotFound, "{missing}");
    }
    for taken in ["f-0", "link-0", "a-0"] {
        assert_eq!(dir.create_partition(&tp(taken)).unwrap_err().kind(), ErrorKind::AlreadyExists, "{taken}");
    }
    assert_eq!(dir.create_partition(&tp("__cluster_metadata-0")).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_partition_is_open_once_at_a_time() {
    let storage = with_partitions(&[]);
    let dir = open(&storage).unwrap();
    dir.create_partition(&tp("a-0")).unwrap();
    assert!(dir.opened(&tp("a-0")).unwrap(), "an empty directory needs no recovery");
    assert_eq!(dir.opened(&tp("a-0")).unwrap_err().kind(), ErrorKind::Locked);
    assert_eq!(dir.remove(&tp("a-0")).unwrap_err().kind(), ErrorKind::Locked);
    dir.closed_clean(&tp("a-0"));
    assert!(dir.opened(&tp("a-0")).unwrap());
    dir.closed_unclean(&tp("a-0"));
    dir.closed_clean(&tp("a-0"));
    assert!(!dir.opened(&tp("a-0")).unwrap(), "a late close vouches for nothing");
}

#[test]
fn a_removed_partition_leaves_no_trace_for_the_next_of_its_name() {
    let storage = with_partitions(&["a-0", "b-0"]);
    put(&storage, Path::new("/data/a-0/00000000000000000000.log"), b"records");
    storage.create_dir(Path::new("/data/a-0/deep")).unwrap();
    put(&storage, Path::new("/data/a-0/deep/f"), b"");
    storage.create_other(Path::new("/data/a-0/link")).unwrap();
    put(&storage, Path::new(RECOVERY), b"0\n2\na 0 9\nb 0 9\n");
    let dir = open(&storage).unwrap();
    dir.remove(&tp("a-0")).unwrap();
    assert_eq!(dir.remove(&tp("a-0")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!((dir.partitions(), dir.foreign()), (vec![tp("b-0")], vec![]));
    assert_eq!(get(&storage, Path::new(RECOVERY)).unwrap(), b"0\n1\nb 0 9\n");
    let names: Vec<_> = storage.list(Path::new(DATA)).unwrap().into_iter().map(|e| e.name).collect();
    assert_eq!(names, [".lock", "b-0", "recovery-point-offset-checkpoint"]);
    dir.create_partition(&tp("a-0")).unwrap();
    assert_eq!(dir.recovery_point(&tp("a-0")), 0);
}

#[test]
fn a_removal_that_stops_anywhere_is_done_or_not_and_can_be_finished() {
    for changes in 0.. {
        let storage = with_partitions(&["a-0"]);
        put(&storage, Path::new("/data/a-0/00000000000000000000.log"), b"records");
        put(&storage, Path::new("/data/log-start-offset-checkpoint"), b"0\n1\na 0 500\n");
        let failing = Arc::new(Failing::after(storage.clone(), u64::MAX, IoKind::Other));
        let dir = DataDir::open(Arc::clone(&failing) as Arc<dyn Storage>, Path::new(DATA)).unwrap();
        failing.allow(changes);
        let done = dir.remove(&tp("a-0"));
        drop(dir);

        let dir = open(&storage).unwrap();
        if dir.partitions() == [tp("a-0")] {
            assert_eq!(changes, 0, "only a failed rename leaves it");
            assert_eq!(dir.log_start(&tp("a-0")), 500);
            continue;
        }
        let left = dir.purge_removed().unwrap();
        assert!(left == 0 || done.is_err());
        assert_eq!(dir.foreign(), []);
        // Made again, and killed at once: the start offset of the old one must not be found.
        dir.create_partition(&tp("a-0")).unwrap();
        drop(dir);
        assert_eq!(open(&storage).unwrap().log_start(&tp("a-0")), 0);
        if done.is_ok() {
            break;
        }
    }
}

#[test]
fn two_removals_of_one_name_do_not_collide() {
    let storage = with_partitions(&["a-0"]);
    let first = tp("a-0").delete_name(u128::from(storage.now_ms().unsigned_abs()) << 64);
    storage.create_dir(&Path::new(DATA).join(&first)).unwrap();
    put(&storage, &Path::new(DATA).join(&first).join("keep"), b"");
    let dir = open(&storage).unwrap();
    dir.remove(&tp("a-0")).unwrap();
    assert_eq!(dir.foreign().into_iter().map(|f| f.name).collect::<Vec<_>>(), [first]);
    assert_eq!(dir.purge_removed().unwrap(), 1);
}

#[test]
fn deep_strangers_are_removed_without_recursion() {
    let storage = with_partitions(&["a-0"]);
    let mut path = PathBuf::from("/data/a-0");
    for _ in 0..300 {
        path.push("d");
        storage.create_dir(&path).unwrap();
    }
    open(&storage).unwrap().remove(&tp("a-0")).unwrap();
    assert_eq!(storage.list(Path::new(DATA)).unwrap().len(), 1, "only the lock file is left");
}

#[test]
fn the_directory_itself_must_be_one() {
    let storage = MemoryStorage::new();
    assert_eq!(open(&storage).unwrap_err().kind(), ErrorKind::NotFound);
    put(&storage, Path::new(DATA), b"");
    assert_eq!(open(&storage).unwrap_err().kind(), ErrorKind::Io);
    let dir = DataDir::open_or_create(Arc::new(storage.clone()), Path::new("/x/y/z")).unwrap();
    assert_eq!((dir.path(), dir.partitions()), (Path::new("/x/y/z"), vec![]));
    assert_eq!(dir.partition_path(&tp("a-0")), Path::new("/x/y/z/a-0"));
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&dir);
}

#[derive(Clone, Debug)]
enum Step {
    Open(u8),
    CloseClean(u8),
    CloseUnclean(u8),
    Create(u8),
    Remove(u8),
    Write,
    Crash,
    Close,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever happens, a log that was in use and not closed in order is never called clean.
    #[test]
    fn an_interrupted_log_is_never_called_clean(steps in prop::collection::vec(prop_oneof![
        (0u8..3).prop_map(Step::Open), (0u8..3).prop_map(Step::CloseClean), (0u8..3).prop_map(Step::CloseUnclean),
        (0u8..3).prop_map(Step::Create), (0u8..3).prop_map(Step::Remove), Just(Step::Write), Just(Step::Crash), Just(Step::Close),
    ], 1..80)) {
        let name = |i: u8| tp(&format!("t-{i}"));
        let storage = with_partitions(&[]);
        let mut dir = open(&storage).unwrap();
        // The truth: which logs exist, are in use, and need recovery.
        let mut needs_recovery: BTreeMap<u8, bool> = BTreeMap::new();
        let mut in_use: BTreeMap<u8, ()> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Open(i) => if let Ok(clean) = dir.opened(&name(i)) {
                    prop_assert!(!clean || needs_recovery.get(&i) == Some(&false));
                    needs_recovery.insert(i, true);
                    in_use.insert(i, ());
                },
                Step::CloseClean(i) => if in_use.remove(&i).is_some() {
                    dir.closed_clean(&name(i));
                    needs_recovery.insert(i, false);
                },
                Step::CloseUnclean(i) => if in_use.remove(&i).is_some() {
                    dir.closed_unclean(&name(i));
                },
                Step::Create(i) => if dir.create_partition(&name(i)).is_ok() {
                    prop_assert!(needs_recovery.insert(i, false).is_none());
                },
                Step::Remove(i) => if dir.remove(&name(i)).is_ok() {
                    prop_assert!(!in_use.contains_key(&i));
                    needs_recovery.remove(&i);
                },
                Step::Write => dir.write_checkpoints().unwrap(),
                Step::Crash | Step::Close => {
                    let marked = matches!(step, Step::Close) && dir.close().unwrap();
                    prop_assert_eq!(marked, has_mark(&storage));
                    prop_assert!(!marked || needs_recovery.values().all(|needed| !needed));
                    in_use.clear();
                    drop(dir);
                    dir = open(&storage).unwrap();
                }
            }
            let expected: Vec<_> = needs_recovery.keys().map(|&i| name(i)).collect();
            prop_assert_eq!(dir.partitions(), expected);
        }
    }
}

#[test]
fn a_log_by_itself_leaves_everything_around_it_alone() {
    let storage = with_partitions(&["a-0"]);
    close_in_order(&storage);
    storage.rename(Path::new("/data/a-0"), Path::new("/data/backup of a")).unwrap();
    let before = storage.list(Path::new("/data")).unwrap();
    let dir = DataDir::open_alone(Arc::new(storage.clone()), Path::new("/data/backup of a")).unwrap();
    let name = dir.partitions().pop().unwrap();
    assert_eq!(dir.partition_path(&name), Path::new("/data/backup of a"));
    assert_eq!(open(&storage).unwrap_err().kind(), ErrorKind::Locked);
    assert!(!dir.opened(&name).unwrap(), "nothing says that it was closed in order");
    assert_eq!(dir.create_partition(&tp("b-0")).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(dir.remove(&name).unwrap_err().kind(), ErrorKind::InvalidInput);
    dir.set_recovery_point(&name, 7);
    dir.closed_clean(&name);
    assert!(!dir.close().unwrap());
    assert_eq!(storage.list(Path::new("/data")).unwrap(), before);
    assert!(has_mark(&storage), "the others are as clean as they were");
}
