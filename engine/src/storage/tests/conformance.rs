//! What every storage must do, whatever it stands on. Each check gets an empty directory.

use std::io::ErrorKind;
use std::path::Path;

use super::{get, put};
use crate::storage::{EntryKind, OpenMode, Storage, read_exact_at, read_full_at, write_all_at};

type Check = fn(&dyn Storage, &Path);

/// Runs the suite on `storage`, in `root`, an existing empty directory.
pub(crate) fn run(storage: &dyn Storage, root: &Path) {
    let checks: &[(&str, Check)] = &[
        ("open_modes", open_modes),
        ("directories_are_not_opened", directories_are_not_opened),
        ("reads_and_writes", reads_and_writes),
        ("lengths", lengths),
        ("reading_handles_do_not_write", reading_handles_do_not_write),
        ("maps", maps),
        ("listing", listing),
        ("renames", renames),
        ("renamed_directories", renamed_directories),
        ("removals", removals),
        ("open_files_outlive_their_names", open_files_outlive_their_names),
        ("metadata", metadata),
        ("locks", locks),
        ("directory_syncs_and_paths", directory_syncs_and_paths),
        ("clocks", clocks),
    ];
    for (name, check) in checks {
        let dir = root.join(name);
        storage.create_dir(&dir).unwrap();
        check(storage, &dir);
    }
}

#[track_caller]
fn fails<T>(result: std::io::Result<T>, kind: ErrorKind) {
    assert_eq!(result.err().map(|e| e.kind()), Some(kind));
}

fn open_modes(storage: &dyn Storage, dir: &Path) {
    let path = dir.join("a");
    fails(storage.open(&path, OpenMode::Read), ErrorKind::NotFound);
    fails(storage.open(&path, OpenMode::Write), ErrorKind::NotFound);
    fails(storage.open(&dir.join("no/a"), OpenMode::CreateNew), ErrorKind::NotFound);
    write_all_at(&*storage.open(&path, OpenMode::CreateNew).unwrap(), b"one", 0).unwrap();
    fails(storage.open(&path, OpenMode::CreateNew), ErrorKind::AlreadyExists);
    fails(storage.open(&path.join("b"), OpenMode::CreateNew), ErrorKind::NotADirectory);
    write_all_at(&*storage.open(&path, OpenMode::Write).unwrap(), b"O", 0).unwrap();
    assert_eq!(get(storage, &path).unwrap(), b"One");
    assert!(storage.open(&path, OpenMode::Truncate).unwrap().is_empty().unwrap());
    storage.open(&dir.join("b"), OpenMode::Truncate).unwrap();
    assert_eq!(get(storage, &dir.join("b")).unwrap(), b"");
}

fn directories_are_not_opened(storage: &dyn Storage, dir: &Path) {
    for mode in [OpenMode::Read, OpenMode::Write, OpenMode::Truncate] {
        fails(storage.open(dir, mode), ErrorKind::IsADirectory);
    }
    fails(storage.open(dir, OpenMode::CreateNew), ErrorKind::AlreadyExists);
    fails(storage.lock(dir), ErrorKind::IsADirectory);
}

fn reads_and_writes(storage: &dyn Storage, dir: &Path) {
    let file = storage.open(&dir.join("a"), OpenMode::CreateNew).unwrap();
    write_all_at(&*file, b"head", 0).unwrap();
    write_all_at(&*file, b"tail", 6).unwrap();
    let mut buffer = [9; 12];
    assert_eq!(read_full_at(&*file, &mut buffer, 0).unwrap(), 10);
    assert_eq!(&buffer, b"head\0\0tail\x09\x09", "a gap reads as zeros, and nothing past the end is touched");
    assert_eq!(file.read_at(&mut buffer, 10).unwrap(), 0);
    assert_eq!(file.read_at(&mut buffer, 1 << 40).unwrap(), 0);
    fails(read_exact_at(&*file, &mut buffer, 0), ErrorKind::UnexpectedEof);
    assert_eq!(file.write_at(b"", 100).unwrap(), 0);
    assert_eq!(file.len().unwrap(), 10, "an empty write extends nothing");
    let other = storage.open(&dir.join("a"), OpenMode::Read).unwrap();
    write_all_at(&*file, b"H", 0).unwrap();
    assert_eq!(other.read_at(&mut buffer[..1], 0).unwrap(), 1);
    assert_eq!(buffer[0], b'H', "handles share one file");
    file.sync_data().unwrap();
    other.sync_data().unwrap();
}

fn lengths(storage: &dyn Storage, dir: &Path) {
    let file = storage.open(&dir.join("a"), OpenMode::CreateNew).unwrap();
    write_all_at(&*file, b"abcdef", 0).unwrap();
    file.set_len(3).unwrap();
    file.set_len(5).unwrap();
    assert_eq!(get(storage, &dir.join("a")).unwrap(), b"abc\0\0", "bytes that were cut do not come back");
    assert!(file.set_len(u64::MAX).is_err());
    assert_eq!(file.len().unwrap(), 5);
}

fn reading_handles_do_not_write(storage: &dyn Storage, dir: &Path) {
    put(storage, &dir.join("a"), b"abc");
    let file = storage.open(&dir.join("a"), OpenMode::Read).unwrap();
    assert!(file.write_at(b"x", 0).is_err());
    assert!(file.set_len(0).is_err());
    assert_eq!(get(storage, &dir.join("a")).unwrap(), b"abc");
}

fn maps(storage: &dyn Storage, dir: &Path) {
    let path = dir.join("a");
    let content: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8).collect();
    put(storage, &path, &content);
    let file = storage.open(&path, OpenMode::Read).unwrap();
    let whole = file.map(20_000).unwrap();
    let part = file.map(4097).unwrap();
    assert_eq!(file.map(0).unwrap().len(), 0);
    fails(file.map(20_001), ErrorKind::InvalidInput);
    fails(file.map(u64::MAX), ErrorKind::InvalidInput);
    drop(file);
    put(storage, &dir.join("b"), b"new");
    storage.rename(&dir.join("b"), &path).unwrap();
    storage.remove_file(&path).unwrap();
    assert_eq!(whole, content, "a map outlives its handle and its name");
    assert_eq!(part, content[..4097]);
    assert_eq!(whole.slice(100..200), content[100..200]);
}

fn listing(storage: &dyn Storage, dir: &Path) {
    assert_eq!(storage.list(dir).unwrap(), []);
    for name in ["b", "a.log", "._a"] {
        put(storage, &dir.join(name), b"");
    }
    storage.create_dir(&dir.join("a-0")).unwrap();
    let found: Vec<_> = storage.list(dir).unwrap().into_iter().map(|e| (e.name, e.kind)).collect();
    let expected = [("._a", EntryKind::File), ("a-0", EntryKind::Directory), ("a.log", EntryKind::File), ("b", EntryKind::File)];
    assert_eq!(found, expected.map(|(name, kind)| (name.to_owned(), kind)));
    fails(storage.list(&dir.join("c")), ErrorKind::NotFound);
    fails(storage.list(&dir.join("b")), ErrorKind::NotADirectory);
}

fn renames(storage: &dyn Storage, dir: &Path) {
    let (a, b) = (dir.join("a"), dir.join("b"));
    fails(storage.rename(&a, &b), ErrorKind::NotFound);
    put(storage, &a, b"new");
    put(storage, &b, b"old");
    let (moved, replaced) = (storage.open(&a, OpenMode::Write).unwrap(), storage.open(&b, OpenMode::Read).unwrap());
    storage.rename(&a, &b).unwrap();
    fails(storage.open(&a, OpenMode::Read), ErrorKind::NotFound);
    let mut buffer = [0; 3];
    read_exact_at(&*replaced, &mut buffer, 0).unwrap();
    assert_eq!(&buffer, b"old");
    write_all_at(&*moved, b"N", 0).unwrap();
    assert_eq!(get(storage, &b).unwrap(), b"New", "the handle follows the file, not the name");
    storage.rename(&b, &b).unwrap();
    storage.create_dir(&dir.join("sub")).unwrap();
    fails(storage.rename(&b, &dir.join("sub")), ErrorKind::IsADirectory);
    fails(storage.rename(&b, &dir.join("none/b")), ErrorKind::NotFound);
    storage.rename(&b, &dir.join("sub/c")).unwrap();
    assert_eq!(get(storage, &dir.join("sub/c")).unwrap(), b"New");
}

fn renamed_directories(storage: &dyn Storage, dir: &Path) {
    let (a, b) = (dir.join("a"), dir.join("b"));
    storage.create_dir(&a).unwrap();
    put(storage, &a.join("f"), b"1");
    let open = storage.open(&a.join("f"), OpenMode::Write).unwrap();
    storage.rename(&a, &b).unwrap();
    write_all_at(&*open, b"2", 0).unwrap();
    assert_eq!(get(storage, &b.join("f")).unwrap(), b"2");
    fails(storage.list(&a), ErrorKind::NotFound);
    storage.create_dir(&a).unwrap();
    fails(storage.rename(&a, &b), ErrorKind::DirectoryNotEmpty);
    fails(storage.rename(&b, &b.join("in")), ErrorKind::InvalidInput);
    storage.rename(&b, &a).unwrap();
    assert_eq!(get(storage, &a.join("f")).unwrap(), b"2", "an empty directory is replaced");
    put(storage, &b, b"");
    fails(storage.rename(&a, &b), ErrorKind::NotADirectory);
}

fn removals(storage: &dyn Storage, dir: &Path) {
    let (file, sub) = (dir.join("f"), dir.join("d"));
    fails(storage.remove_file(&file), ErrorKind::NotFound);
    fails(storage.remove_dir(&sub), ErrorKind::NotFound);
    storage.create_dir(&sub).unwrap();
    fails(storage.create_dir(&sub), ErrorKind::AlreadyExists);
    fails(storage.create_dir(&dir.join("no/d")), ErrorKind::NotFound);
    put(storage, &sub.join("f"), b"");
    fails(storage.remove_dir(&sub), ErrorKind::DirectoryNotEmpty);
    assert!(storage.remove_file(&sub).is_err());
    fails(storage.remove_dir(&sub.join("f")), ErrorKind::NotADirectory);
    storage.remove_file(&sub.join("f")).unwrap();
    storage.remove_dir(&sub).unwrap();
    assert_eq!(storage.list(dir).unwrap(), []);
}

fn open_files_outlive_their_names(storage: &dyn Storage, dir: &Path) {
    let path = dir.join("a");
    put(storage, &path, b"abc");
    let file = storage.open(&path, OpenMode::Write).unwrap();
    storage.remove_file(&path).unwrap();
    put(storage, &path, b"another");
    write_all_at(&*file, b"ABCD", 0).unwrap();
    file.sync_data().unwrap();
    let mut buffer = [0; 4];
    read_exact_at(&*file, &mut buffer, 0).unwrap();
    assert_eq!((&buffer, file.len().unwrap()), (b"ABCD", 4));
    assert_eq!(get(storage, &path).unwrap(), b"another");
}

fn metadata(storage: &dyn Storage, dir: &Path) {
    let path = dir.join("a");
    fails(storage.metadata(&path), ErrorKind::NotFound);
    fails(storage.set_modified(&path, 0), ErrorKind::NotFound);
    put(storage, &path, b"abc");
    let found = storage.metadata(&path).unwrap();
    assert_eq!((found.len, found.kind), (3, EntryKind::File));
    assert!((storage.now_ms() - found.modified_ms).abs() < 60_000);
    for time in [1_700_000_000_123, 0, 1] {
        storage.set_modified(&path, time).unwrap();
        assert_eq!(storage.metadata(&path).unwrap().modified_ms, time);
    }
    storage.rename(&path, &dir.join("b")).unwrap();
    assert_eq!(storage.metadata(&dir.join("b")).unwrap().modified_ms, 1, "a rename keeps the time");
    write_all_at(&*storage.open(&dir.join("b"), OpenMode::Write).unwrap(), b"x", 0).unwrap();
    assert!(storage.metadata(&dir.join("b")).unwrap().modified_ms > 1, "a write does not");
    let found = storage.metadata(dir).unwrap();
    assert_eq!((found.len, found.kind), (0, EntryKind::Directory));
}

fn locks(storage: &dyn Storage, dir: &Path) {
    let (path, other) = (dir.join(".lock"), dir.join("other"));
    put(storage, &path, b"");
    let held = storage.lock(&path).unwrap();
    for _ in 0..2 {
        fails(storage.lock(&path), ErrorKind::WouldBlock);
    }
    let _unrelated = storage.lock(&other).unwrap();
    assert_eq!(get(storage, &other).unwrap(), b"", "a missing lock file is created");
    // Neither reading the file nor a refused attempt may give the lock away.
    assert_eq!(get(storage, &path).unwrap(), b"");
    fails(storage.lock(&path), ErrorKind::WouldBlock);
    drop(held);
    drop(storage.lock(&path).unwrap());
    let held = storage.lock(&path).unwrap();
    storage.remove_file(&path).unwrap();
    let _new = storage.lock(&path).unwrap();
    drop(held);
    fails(storage.lock(&path), ErrorKind::WouldBlock);
}

fn directory_syncs_and_paths(storage: &dyn Storage, dir: &Path) {
    storage.sync_dir(dir).unwrap();
    fails(storage.sync_dir(&dir.join("no")), ErrorKind::NotFound);
    put(storage, &dir.join("f"), b"");
    fails(storage.sync_dir(&dir.join("f")), ErrorKind::NotADirectory);
    storage.create_dir(&dir.join("d")).unwrap();
    let plain = storage.canonicalize(&dir.join("d")).unwrap();
    assert!(plain.is_absolute());
    assert_eq!(storage.canonicalize(&dir.join("d/../d/./")).unwrap(), plain);
    fails(storage.canonicalize(&dir.join("no")), ErrorKind::NotFound);
}

fn clocks(storage: &dyn Storage, _: &Path) {
    assert!(storage.now_ms() > 1_600_000_000_000);
    let before = storage.monotonic();
    assert!(storage.monotonic() >= before);
}
