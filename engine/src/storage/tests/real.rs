use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{conformance, get, put};
use crate::storage::lock::of_process;
use crate::storage::{EntryKind, OpenMode, RealStorage, Storage};

const LOCK_ENV: &str = "KEEPLOG_TEST_LOCK_FILE";

#[test]
fn conforms() {
    let dir = tempfile::tempdir().unwrap();
    conformance::run(&RealStorage::new(), dir.path());
}

#[test]
fn links_are_listed_but_never_followed() {
    let dir = tempfile::tempdir().unwrap();
    let storage = RealStorage::new();
    let (target, link) = (dir.path().join("target"), dir.path().join("link"));
    put(&storage, &target, b"safe");
    symlink(&target, &link).unwrap();
    assert_eq!(storage.list(dir.path()).unwrap()[0].kind, EntryKind::Other);
    for mode in [OpenMode::Read, OpenMode::Write, OpenMode::Truncate] {
        assert_eq!(storage.open(&link, mode).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert!(storage.lock(&link).is_err() && storage.set_modified(&link, 0).is_err());
    storage.remove_file(&link).unwrap();
    assert_eq!(get(&storage, &target).unwrap(), b"safe", "removing a link leaves what it points to");
    symlink(dir.path().join("nowhere"), &link).unwrap();
    assert!(storage.open(&link, OpenMode::Truncate).is_err());
    assert!(!dir.path().join("nowhere").exists());
    assert!(storage.remove_dir(&link).is_err());
}

#[test]
fn pipes_and_devices_are_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let storage = RealStorage::new();
    let pipe = dir.path().join("00000000000000000000.log");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    for path in [pipe.as_path(), Path::new("/dev/null"), Path::new("/dev/zero")] {
        for mode in [OpenMode::Read, OpenMode::Write, OpenMode::Truncate] {
            assert_eq!(storage.open(path, mode).unwrap_err().kind(), ErrorKind::InvalidInput, "{path:?} {mode:?}");
        }
        assert!(storage.lock(path).is_err());
    }
    assert_eq!(storage.list(dir.path()).unwrap()[0].kind, EntryKind::Other);
}

#[test]
fn names_that_are_not_text_are_listed_as_untouchable() {
    let dir = tempfile::tempdir().unwrap();
    let storage = RealStorage::new();
    let path = dir.path().join(OsStr::from_bytes(b"0\xff.log"));
    if storage.open(&path, OpenMode::CreateNew).is_err() {
        return; // this file system allows text only
    }
    let found = storage.list(dir.path()).unwrap();
    assert_eq!((found[0].name.as_str(), found[0].kind), ("0\u{fffd}.log", EntryKind::Other));
}

#[test]
fn times_before_the_epoch_survive() {
    let dir = tempfile::tempdir().unwrap();
    let storage = RealStorage::new();
    let path = dir.path().join("f");
    put(&storage, &path, b"");
    storage.set_modified(&path, -1_500).unwrap();
    assert_eq!(storage.metadata(&path).unwrap().modified_ms, -1_500);
    assert!(storage.set_modified(&path, i64::MIN).is_err() || storage.metadata(&path).is_ok());
}

#[test]
fn a_process_wide_lock_also_keeps_a_second_handle_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(".lock");
    let held = of_process::exclusive(&path).unwrap();
    assert_eq!(of_process::exclusive(&path).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(lock_elsewhere(&path), Some(false), "the refused attempt must not have given the lock away");
    assert!(RealStorage::new().lock(&path).is_err(), "both kinds of lock see each other");
    drop(held);
    assert_eq!(lock_elsewhere(&path), Some(true));
    drop(of_process::exclusive(&path).unwrap());
}

#[test]
fn another_process_is_kept_out_even_with_a_plain_record_lock() {
    let dir = tempfile::tempdir().unwrap();
    let storage = RealStorage::new();
    let path = dir.path().join(".lock");
    let held = storage.lock(&path).unwrap();
    drop(storage.open(&path, OpenMode::Read).unwrap());
    assert_eq!(lock_elsewhere(&path), Some(false));
    drop(held);
    assert_eq!(lock_elsewhere(&path), Some(true));
}

/// Tries to take a plain record lock, as a broker does, in another process. Whether it got it.
fn lock_elsewhere(path: &Path) -> Option<bool> {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "storage::tests::real::child_that_takes_the_lock"])
        .env(LOCK_ENV, path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    child.code().map(|code| code == 0)
}

/// The other process of [`lock_elsewhere`]; in an ordinary run it has nothing to do.
#[test]
fn child_that_takes_the_lock() {
    if let Some(path) = std::env::var_os(LOCK_ENV) {
        let taken = of_process::exclusive(Path::new(&path));
        assert!(taken.is_ok());
    }
}
