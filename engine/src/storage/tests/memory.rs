use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::{conformance, get};
use crate::storage::{EntryKind, FixedClock, MemoryStorage, OpenMode, RealStorage, Storage};

#[test]
fn conforms() {
    let storage = MemoryStorage::new();
    storage.create_dir(Path::new("/data")).unwrap();
    conformance::run(&storage, Path::new("/data"));
}

#[test]
fn a_fixed_clock_conforms_and_stands_still() {
    let memory = MemoryStorage::new();
    let fixed = FixedClock::new(Arc::new(memory.clone()), memory.now_ms());
    fixed.create_dir(Path::new("/data")).unwrap();
    conformance::run(&fixed, Path::new("/data"));
    memory.advance_ms(5);
    assert_eq!((fixed.now_ms() + 5, fixed.monotonic()), (memory.now_ms(), Duration::from_millis(5)));
    fixed.set_now_ms(42);
    assert_eq!(fixed.now_ms(), 42);
}

#[test]
fn clones_share_files_and_clocks_move_when_told() {
    let (one, two) = (MemoryStorage::new(), MemoryStorage::new());
    let clone = one.clone();
    one.open(Path::new("/f"), OpenMode::CreateNew).unwrap();
    assert!(clone.metadata(Path::new("/f")).is_ok());
    assert!(two.metadata(Path::new("/f")).is_err());
    let (now, elapsed) = (one.now_ms(), one.monotonic());
    clone.advance_ms(1500);
    assert_eq!((one.now_ms(), one.monotonic()), (now + 1500, elapsed + Duration::from_millis(1500)));
    clone.set_now_ms(7);
    assert_eq!((one.now_ms(), one.monotonic()), (7, elapsed + Duration::from_millis(1500)));
    let file = one.open(Path::new("/f"), OpenMode::Write).unwrap();
    file.write_at(b"x", 0).unwrap();
    assert_eq!(one.metadata(Path::new("/f")).unwrap().modified_ms, 7);
}

#[test]
fn names_that_are_neither_file_nor_directory_are_listed_and_not_opened() {
    let storage = MemoryStorage::new();
    storage.create_other(Path::new("/link")).unwrap();
    assert_eq!(storage.list(Path::new("/")).unwrap()[0].kind, EntryKind::Other);
    for mode in [OpenMode::Read, OpenMode::Write, OpenMode::Truncate] {
        assert_eq!(storage.open(Path::new("/link"), mode).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    storage.remove_file(Path::new("/link")).unwrap();
    assert_eq!(storage.list(Path::new("/")).unwrap(), []);
}

#[test]
fn a_mistaken_length_takes_no_memory() {
    let storage = MemoryStorage::new();
    let file = storage.open(Path::new("/f"), OpenMode::CreateNew).unwrap();
    assert_eq!(file.write_at(b"x", u64::MAX).unwrap_err().kind(), ErrorKind::FileTooLarge);
    assert_eq!(file.set_len(1 << 50).unwrap_err().kind(), ErrorKind::FileTooLarge);
    assert_eq!(file.len().unwrap(), 0);
}

#[derive(Clone, Debug)]
enum Call {
    Open(&'static str, OpenMode),
    Write(&'static str, Vec<u8>, u64),
    SetLen(&'static str, u64),
    Rename(&'static str, &'static str),
    RemoveFile(&'static str),
    CreateDir(&'static str),
    RemoveDir(&'static str),
    List(&'static str),
    Get(&'static str),
}

fn call() -> impl Strategy<Value = Call> {
    let path = || prop::sample::select(vec!["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "f/a", "f"]);
    let mode = prop::sample::select(vec![OpenMode::Read, OpenMode::Write, OpenMode::CreateNew, OpenMode::Truncate]);
    prop_oneof![
        (path(), mode).prop_map(|(p, m)| Call::Open(p, m)),
        (path(), prop::collection::vec(any::<u8>(), 0..9), 0u64..20).prop_map(|(p, b, at)| Call::Write(p, b, at)),
        (path(), 0u64..20).prop_map(|(p, len)| Call::SetLen(p, len)),
        (path(), path()).prop_map(|(a, b)| Call::Rename(a, b)),
        path().prop_map(Call::RemoveFile),
        path().prop_map(Call::CreateDir),
        path().prop_map(Call::RemoveDir),
        path().prop_map(Call::List),
        path().prop_map(Call::Get),
    ]
}

/// What the caller sees of one call: a line of text.
fn play(storage: &dyn Storage, root: &Path, call: &Call) -> String {
    let at = |p: &str| root.join(p);
    let result = match call {
        Call::Open(p, mode) => storage.open(&at(p), *mode).and_then(|f| f.len()).map(|n| n.to_string()),
        Call::Write(p, b, pos) => storage.open(&at(p), OpenMode::Write).and_then(|f| f.write_at(b, *pos)).map(|n| n.to_string()),
        Call::SetLen(p, len) => storage.open(&at(p), OpenMode::Write).and_then(|f| f.set_len(*len)).map(|()| String::new()),
        Call::Rename(a, b) => storage.rename(&at(a), &at(b)).map(|()| String::new()),
        Call::RemoveFile(p) => storage.remove_file(&at(p)).map(|()| String::new()),
        Call::CreateDir(p) => storage.create_dir(&at(p)).map(|()| String::new()),
        Call::RemoveDir(p) => storage.remove_dir(&at(p)).map(|()| String::new()),
        Call::List(p) => storage.list(&at(p)).map(|l| format!("{l:?}")),
        Call::Get(p) => get(storage, &at(p)).map(|b| format!("{b:?}")),
    };
    match result {
        Ok(text) => text,
        Err(e) => e.kind().to_string(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The memory storage answers every call as the machine's own file system does.
    #[test]
    fn random_calls_end_as_on_the_real_one(calls in prop::collection::vec(call(), 1..60)) {
        let dir = tempfile::tempdir().unwrap();
        let (real, memory) = (RealStorage::new(), MemoryStorage::new());
        for call in calls {
            let expected = play(&real, dir.path(), &call);
            prop_assert_eq!(play(&memory, Path::new("/"), &call), expected, "{:?}", call);
        }
    }
}
