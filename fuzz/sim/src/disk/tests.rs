//! The disk itself: what it keeps and what it forgets.

use std::path::Path;

use keeplog::inspect::storage::{OpenMode, Storage, read_full_at};

use super::*;
use crate::dice::{Dice, Odometer};

const FILE: &str = "/a";

fn content(disk: &Disk) -> Option<Vec<u8>> {
    let file = disk.open(Path::new(FILE), OpenMode::Read).ok()?;
    let mut bytes = vec![0; file.len().unwrap() as usize];
    read_full_at(&*file, &mut bytes, 0).unwrap();
    Some(bytes)
}

/// All that may be left of `disk`.
fn left(disk: &Disk, survival: Survival) -> Vec<Option<Vec<u8>>> {
    let (mut odometer, mut all) = (Odometer::default(), Vec::new());
    loop {
        all.push(content(&disk.after_power_failure(survival, &mut odometer)));
        if !odometer.advance() {
            break;
        }
    }
    all.sort();
    all.dedup();
    all
}

#[test]
fn bytes_and_names_are_durable_after_their_own_syncs_only() {
    let disk = Disk::new(0);
    let file = disk.open(Path::new(FILE), OpenMode::CreateNew).unwrap();
    file.write_at(b"abcd", 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(left(&disk, Survival::Each), [None, Some(b"abcd".to_vec())], "the name was not synced");
    disk.sync_dir(Path::new("/")).unwrap();
    assert_eq!(left(&disk, Survival::Each), [Some(b"abcd".to_vec())]);
    file.write_at(b"efgh", 4).unwrap();
    assert_eq!(left(&disk, Survival::Each), [&b"abcd"[..], b"abcdef", b"abcdefgh"].map(|b| Some(b.to_vec())));
    assert_eq!(left(&disk, Survival::Nothing), [Some(b"abcd".to_vec())]);
}

#[test]
fn writes_survive_in_any_order() {
    let disk = Disk::new(0);
    let file = disk.open(Path::new(FILE), OpenMode::CreateNew).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    file.write_at(&[1; 512], 0).unwrap();
    file.write_at(&[2; 512], 512).unwrap();
    let survives = |seed| content(&disk.after_power_failure(Survival::AnyOrder, &mut Dice::new(seed))).unwrap();
    let second_alone = |bytes: Vec<u8>| bytes.len() == 1024 && bytes[0] != 1 && bytes[512..] == [2; 512];
    assert!((0..500).map(survives).any(second_alone), "the second write never survived the first");
}

#[test]
fn what_a_failed_sync_gave_up_is_never_durable() {
    let disk = Disk::new(0);
    let file = disk.open(Path::new(FILE), OpenMode::CreateNew).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    file.write_at(b"lost", 0).unwrap();
    disk.set_fault(Fault::Once { at: 0, kind: std::io::ErrorKind::Other });
    file.sync_data().unwrap_err();
    file.sync_data().unwrap();
    assert_eq!(content(&disk).unwrap(), b"lost", "it can still be read");
    assert_eq!(left(&disk, Survival::Each), [Some(Vec::new())]);
    file.write_at(b"lost", 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(left(&disk, Survival::Each), [Some(b"lost".to_vec())]);
}
