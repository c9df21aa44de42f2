//! Field reports about names, links, locks and modes: what a real file system has and one in memory does not.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use keeplog::{CleanupPolicy, Durability, ErrorKind, Log, LogOptions, Record, Store, StoreOptions};

const DIR_ENV: &str = "KEEPLOG_TEST_STORE";

fn by_hand() -> StoreOptions {
    let log = LogOptions::new().segment_bytes(4096).index_interval_bytes(256);
    StoreOptions::new().log(log.cleanup_policy(CleanupPolicy::CompactDelete).retention_ms(None)).background_thread(false)
}

fn fill(log: &Log, records: u64) -> keeplog::Result<()> {
    for i in 0..records {
        log.append(&[Record::new(format!("key-{}", i % 10), "x".repeat(100))], Durability::Buffered)?;
    }
    Ok(())
}

/// Everything below `dir`: of files their bytes.
fn tree(dir: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            found.extend(tree(&path));
            found.insert(path, None);
        } else {
            found.insert(path.clone(), fs::read(&path).ok());
        }
    }
    found
}

/// A store with one closed log in `data` of `root`.
fn a_store(root: &Path) -> PathBuf {
    let data = root.join("data");
    let store = Store::open(&data, by_hand()).unwrap();
    let log = store.log("t", 0).unwrap();
    fill(&log, 60).unwrap();
    log.advance_start(5).unwrap();
    store.close().unwrap();
    data
}

#[test]
fn h05_names_cannot_leave_the_data_directory() {
    let root = tempfile::tempdir().unwrap();
    let data = a_store(root.path());
    let store = Store::open(&data, by_hand()).unwrap();
    let before = tree(root.path());
    let (longer, longest) = ("x".repeat(250), "x".repeat(300));
    for bad in ["..", ".", "", "a/b", "../../x", "/etc", "a\\b", "C:x", "a\0", "trailing ", "ä", "t\n", &longer, &longest] {
        assert_eq!(store.log(bad, 0).unwrap_err().kind(), ErrorKind::InvalidInput, "{bad:?}");
        assert_eq!(store.delete_log(bad, 0).unwrap_err().kind(), ErrorKind::InvalidInput, "{bad:?}");
    }
    assert_eq!(store.log("t", u32::MAX).unwrap_err().kind(), ErrorKind::InvalidInput);
    for bad in ["../x-0/..", "x", "..", "a b-0"] {
        assert_eq!(Log::open(data.join(bad), LogOptions::new()).unwrap_err().kind(), ErrorKind::InvalidInput, "{bad:?}");
    }
    assert_eq!(tree(root.path()), before, "nothing was made, inside or outside");
    // Odd, and legal: each is a log of its own, also after a restart.
    let longest = "x".repeat(249);
    let odd = ["a.b", "a_b", "trailing.", "orders-0.deleted", "x-delete", "-", "...", &longest];
    for (i, name) in odd.iter().enumerate() {
        fill(&store.log(name, 0).unwrap(), 1 + i as u64).unwrap();
    }
    store.close().unwrap();
    let store = Store::open(&data, by_hand()).unwrap();
    for (i, name) in odd.iter().enumerate() {
        assert_eq!(store.log(name, 0).unwrap().end_offset(), 1 + i as u64, "{name}");
        store.delete_log(name, 0).unwrap();
    }
    assert_eq!(store.logs().len(), 1);
}

/// Whatever name in the data directory is a link: nothing is written through it, and nothing deleted behind it.
#[test]
fn h05_links_in_the_data_directory_are_not_followed() {
    let segment = |suffix: &str| format!("t-0/{:020}{suffix}", 0);
    let checkpoints =
        ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint", "cleaner-offset-checkpoint"];
    let mut names: Vec<String> = checkpoints.iter().flat_map(|name| [(*name).to_owned(), format!("{name}.tmp")]).collect();
    names.extend([".lock", ".kafka_cleanshutdown", "t-0/leader-epoch-checkpoint", "t-0/leader-epoch-checkpoint.tmp"].map(String::from));
    for kind in [".log", ".index", ".timeindex", ".txnindex"] {
        names.extend(["", ".cleaned", ".swap", ".deleted"].map(|state| segment(&format!("{kind}{state}"))));
    }
    names.push("t-0/00000000000000000060.snapshot".into());
    names.push("t-0/00000000000000000060.log".into());
    names.push("t-0/stranger".into());
    // Most of it is waiting for the device.
    let waiting = std::sync::Mutex::new(names);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap().pop();
                    let Some(name) = next else { break };
                    [false, true].into_iter().for_each(|dangling| live_beside_a_link(&name, dangling));
                }
            });
        }
    });
}

fn live_beside_a_link(name: &str, dangling: bool) {
    let root = tempfile::tempdir().unwrap();
    let data = a_store(root.path());
    let outside = root.path().join("outside");
    if !dangling {
        fs::write(&outside, b"of somebody else").unwrap();
    }
    let _ = fs::remove_file(data.join(name));
    symlink(&outside, data.join(name)).unwrap();
    // As much of a life as comes about: an error is an answer.
    let life = || -> keeplog::Result<()> {
        let store = Store::open(&data, by_hand())?;
        let log = store.log("t", 0)?;
        fill(&log, 60)?;
        log.roll()?;
        store.clean(&log)?;
        log.advance_start(90)?;
        log.apply_retention()?;
        log.truncate_to(100)?;
        store.checkpoint()?;
        store.close()
    };
    let lived = life();
    if let Err(error) = &lived {
        assert!(error.path().is_some_and(|path| path.starts_with(&data)), "{name}: {error:?}");
    }
    if let Ok(store) = Store::open(&data, by_hand()) {
        let _ = store.delete_log("t", 0);
    }
    let left = fs::read(&outside).ok();
    assert_eq!(left.as_deref(), (!dangling).then_some(&b"of somebody else"[..]), "{name}: {lived:?}");
}

#[test]
fn h05_a_log_directory_that_is_a_link_is_neither_opened_nor_deleted_through() {
    let root = tempfile::tempdir().unwrap();
    let data = a_store(root.path());
    let outside = root.path().join("outside-0");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("00000000000000000000.log"), b"of somebody else").unwrap();
    symlink(&outside, data.join("u-0")).unwrap();
    symlink(&outside, data.join("w-0.0123-delete")).unwrap();
    let before = tree(&outside);
    let store = Store::open(&data, by_hand()).unwrap();
    assert_eq!(store.logs().len(), 1);
    assert_eq!(store.log("u", 0).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(store.delete_log("u", 0).unwrap_err().kind(), ErrorKind::NotFound);
    // Inside a log that is deleted, the link goes and what it leads to stays.
    symlink(&outside, data.join("t-0/inner")).unwrap();
    store.delete_log("t", 0).unwrap();
    assert!(!data.join("t-0").exists());
    store.close().unwrap();
    assert_eq!(tree(&outside), before);
}

/// Another process runs `test` on `dir`, under a shell command that comes first. Whether it went well.
fn elsewhere(test: &str, dir: &Path, first: &str) -> bool {
    let status = Command::new("sh")
        .args(["-c", &format!("{first}; exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env(DIR_ENV, dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.unwrap().success()
}

/// The other process; in an ordinary run it has nothing to do.
#[test]
fn child_that_fills_a_store() {
    let Some(dir) = std::env::var_os(DIR_ENV) else { return };
    let store = Store::open(dir, by_hand()).unwrap();
    let log = store.log("t", 0).unwrap();
    fill(&log, 60).unwrap();
    log.roll().unwrap();
    store.clean(&log).unwrap();
    log.truncate_to(55).unwrap();
    store.close().unwrap();
}

/// Also where a copy has taken the place of the lock file that is held, and where there is none any more.
#[test]
fn a_second_process_is_refused_whatever_becomes_of_the_lock_file() {
    let child = "field_names::child_that_fills_a_store";
    let root = tempfile::tempdir().unwrap();
    let data = a_store(root.path());
    let (lock, copy) = (data.join(".lock"), data.join(".lock.copy"));
    let store = Store::open(&data, by_hand()).unwrap();
    assert!(!elsewhere(child, &data, "true"));
    fs::copy(&lock, &copy).unwrap();
    fs::rename(&copy, &lock).unwrap();
    assert!(!elsewhere(child, &data, "true"), "a copy of the lock file is not the lock");
    assert_eq!(Store::open(&data, by_hand()).unwrap_err().kind(), ErrorKind::Locked, "nor within the process");
    fs::remove_file(&lock).unwrap();
    assert!(!elsewhere(child, &data, "true"));
    assert_eq!(store.log("t", 0).unwrap().end_offset(), 60, "the owner goes on");
    store.close().unwrap();
    assert!(elsewhere(child, &data, "true"));
}

#[test]
fn files_get_the_mode_that_the_umask_leaves() {
    for (umask, file_mode, dir_mode) in [("027", 0o640, 0o750), ("077", 0o600, 0o700), ("022", 0o644, 0o755)] {
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("data");
        assert!(elsewhere("field_names::child_that_fills_a_store", &data, &format!("umask {umask}")));
        let all = tree(&data);
        assert!(all.len() > 10, "{all:?}");
        for (path, contents) in all {
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, if contents.is_some() { file_mode } else { dir_mode }, "umask {umask}: {}", path.display());
        }
    }
}
