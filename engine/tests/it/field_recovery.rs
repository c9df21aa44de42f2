//! What went wrong elsewhere when a process or a machine stopped, replayed here: part (c) of docs/FIELD_REPORTS.md.

use std::io::ErrorKind::Other;
use std::path::Path;
use std::sync::Arc;

use keeplog_engine::record::BatchHeader;
use keeplog_engine::storage::{MemoryStorage, OpenMode, Storage, write_all_at};
use keeplog_engine::{CleanupPolicy, DataDir, ErrorKind, Log, LogOptions, RecoveryMode, TopicPartition};
use keeplog_fixtures::{Set, cases, json};

use crate::shim::{Call, Shim, Verdict};
use crate::support::{
    LOG, T0, all, append, append_synced, contents, crash, disk, files, open, open_on, path, put, put_data, small, values,
};

const FIRST: &str = "00000000000000000000.log";

/// The replacement of the first two segments was interrupted after its outputs were named `.swap`; the start has gone beyond
/// them meanwhile.
#[test]
fn c02_a_swap_below_the_start_is_finished_and_serves_nothing() {
    let disk = disk();
    let log = open(&disk, small());
    (0..100).for_each(|i| _ = append(&log, &format!("{i:0100}")).unwrap());
    log.sync().unwrap();
    let bases: Vec<_> = log.segments().all().iter().map(|s| s.base_offset()).collect();
    let start = bases[1] + 5;
    log.advance_start(start).unwrap();
    let image = crash(log, &disk);
    for kind in ["log", "index", "timeindex"] {
        let bytes = contents(&image, &format!("{:020}.{kind}", 0));
        put(&image, &format!("{:020}.{kind}.swap", 0), &bytes);
    }
    let log = open(&image, small());
    assert_eq!((log.start_offset(), log.end_offset(), log.recovery_report().is_sound()), (start, 100, true));
    assert_eq!(all(&log)[0].0, start);
    assert_eq!(log.read_from(0).err().map(|e| e.kind()), Some(ErrorKind::OutOfRange));
    assert!(files(&image).iter().all(|name| !name.ends_with(".swap")), "{:?}", files(&image));
    log.close().unwrap();
    assert_eq!(open(&image, small()).start_offset(), start);
}

#[test]
fn c04_an_active_segment_of_less_than_a_header_is_cut_to_nothing() {
    let disk = disk();
    let log = open(&disk, small());
    append(&log, "a").unwrap();
    let whole = contents(&disk, FIRST);
    log.roll().unwrap();
    let image = crash(log, &disk);
    let active = "00000000000000000001.log";
    for bytes in 1..=60 {
        let image = Arc::new(image.image());
        put(&image, active, &whole[..bytes]);
        let log = open(&image, small());
        assert_eq!((log.end_offset(), log.recovery_report().cut_bytes()), (1, bytes as u64));
        assert_eq!(contents(&image, active), b"");
        assert_eq!(append(&log, "b").unwrap(), 1);
    }
}

/// Also the length that the writer was opened with is the recovered one, and it looks whether the file agrees.
#[test]
fn c06_the_writer_goes_on_where_recovery_ended() {
    let disk = disk();
    let log = open(&disk, small());
    append(&log, "a").unwrap();
    let image = crash(log, &disk);
    let whole = contents(&image, FIRST);
    put(&image, FIRST, &[&whole[..], &[0xff; 100], &whole[..30]].concat());
    let log = open(&image, small());
    assert_eq!(contents(&image, FIRST), whole);
    append(&log, "b").unwrap();
    let image = crash(log, &image);
    let log = open(&image, small());
    assert_eq!((log.recovery_report().cut_bytes(), values(&log)), (0, vec!["a".into(), "b".into()]));
    drop(log);

    // A cut that the disk does not carry out is noticed.
    let shim = Shim::over(&disk.image());
    put(&shim.live(), FIRST, &whole);
    let torn = Shim::over(&{
        let image = disk.image();
        put(&image, FIRST, &[&whole[..], b"torn"].concat());
        image
    });
    torn.set_rule(|call, path| if call == Call::Cut && path.ends_with(FIRST) { Verdict::Short(0) } else { Verdict::Go });
    let error = open_on(&torn, small()).unwrap_err();
    assert!(error.to_string().contains("recovery left"), "{error}");
}

/// One flipped byte in batch 50 of 100: what is behind it is found, kept aside or kept in place, and said.
#[test]
fn c07_damage_in_the_middle_is_never_cut_away_in_silence() {
    let disk = disk();
    let log = open(&disk, small().segment_bytes(1 << 20));
    (0..100).for_each(|i| _ = append(&log, &format!("{i}")).unwrap());
    let active = crash(log.clone(), &disk);
    log.roll().unwrap();
    append(&log, "last").unwrap();
    let sealed = crash(log, &disk);
    let mut bytes = contents(&active, FIRST);
    let at = bytes.len() / 2;
    bytes[at] ^= 1;

    put(&sealed, FIRST, &bytes);
    let log = open(&sealed, small());
    let report = log.recovery_report();
    assert_eq!((report.damage.len(), report.cut_bytes(), log.end_offset()), (1, 0, 101), "{report}");
    assert_eq!(contents(&sealed, FIRST), bytes);
    drop(log);

    put(&active, FIRST, &bytes);
    let log = open(&active, small());
    let report = log.recovery_report();
    assert_eq!(report.damage.len(), 1, "{report}");
    let cut = &report.cuts[0];
    assert_eq!(contents(&active, cut.kept_in.as_ref().unwrap()), bytes[cut.position as usize..], "it is kept aside");
}

/// The residue behind damage is read a fixed number of times, however much it is.
#[test]
fn c07_the_search_behind_damage_is_linear() {
    let mut read = Vec::new();
    for residue in [1 << 20, 4 << 20] {
        let disk = disk();
        let log = open(&disk, LogOptions::new());
        append(&log, "a").unwrap();
        let image = crash(log, &disk);
        let whole = contents(&image, FIRST);
        // Noise that looks like the beginning of a batch everywhere.
        let noise: Vec<u8> = whole.iter().copied().cycle().skip(1).take(residue).collect();
        put(&image, FIRST, &[&whole[..], &noise].concat());
        let shim = Shim::over(&image);
        let bytes = Arc::new(std::sync::Mutex::new(0));
        let counted = Arc::clone(&bytes);
        shim.set_rule(move |call, path| {
            if let Call::Read(len) = call
                && path.ends_with(FIRST)
            {
                *counted.lock().unwrap() += len;
            }
            Verdict::Go
        });
        let log = open_on(&shim, LogOptions::new()).unwrap();
        assert_eq!(log.end_offset(), 1);
        read.push(*bytes.lock().unwrap());
        assert!(read.last().unwrap() <= &(16 * residue), "{read:?}");
    }
    assert!(read[1] < 5 * read[0], "{read:?}");
}

fn with_base_offset(log: &[u8], batch: usize, change: impl Fn(u64) -> u64) -> Vec<u8> {
    let size = 12 + u32::from_be_bytes(log[8..12].try_into().unwrap()) as usize;
    let mut bytes = log.to_vec();
    let at = batch * size;
    let offset = u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
    bytes[at..at + 8].copy_from_slice(&change(offset).to_be_bytes());
    bytes
}

/// The checksum covers neither the offset of a batch nor its length. What goes back, or beyond the next file, or does not
/// end where a batch begins, is damage; a gap inside a file is legal, as the cleaner makes them.
#[test]
fn c08_flipped_offsets_and_lengths_are_damage_where_they_can_be_told() {
    let disk = disk();
    let log = open(&disk, small().segment_bytes(1 << 20));
    (0..9).for_each(|_| _ = append(&log, "same").unwrap());
    let active = crash(log.clone(), &disk);
    log.roll().unwrap();
    append(&log, "last").unwrap();
    let sealed = crash(log, &disk);
    let whole = contents(&active, FIRST);
    let reopen = |image: &MemoryStorage, bytes: &[u8], policy| {
        let image = Arc::new(image.image());
        put(&image, FIRST, bytes);
        open(&image, small().cleanup_policy(policy))
    };
    for bit in [0, 20, 40, 62] {
        // What lies around it tells. The file that follows is not touched, and no counter jumps.
        for (batch, bit) in [(4, bit), (5, bit)] {
            let flipped = with_base_offset(&whole, batch, |offset| offset ^ (1 << bit));
            let log = reopen(&active, &flipped, CleanupPolicy::Compact);
            let report = log.recovery_report();
            assert_eq!((report.damage.len(), log.end_offset()), (1, batch as u64), "bit {bit}: {report}");
            let cut = &report.cuts[0];
            assert_eq!(cut.position as usize, batch * whole.len() / 9, "{report}");
            assert!(cut.kept_in.is_some(), "sound batches went with it: {report}");
            let log = reopen(&sealed, &flipped, CleanupPolicy::Compact);
            assert_eq!((log.recovery_report().damage.is_empty(), log.end_offset()), (false, 10), "{}", log.recovery_report());
        }
        // The last batch of all has nothing behind it that tells.
        let flipped = with_base_offset(&whole, 8, |offset| offset ^ (1 << bit));
        let log = reopen(&sealed, &flipped, CleanupPolicy::Compact);
        assert_eq!((log.end_offset(), log.recovery_report().damage.len()), (10, 1), "no counter jumps past the next file");
        let log = reopen(&active, &flipped, CleanupPolicy::Delete);
        assert!(log.recovery_report().notes[0].contains("offsets jump from 8"), "bit {bit}: {}", log.recovery_report());
    }
    for length in [1_u8, 0x7f] {
        let size = whole.len() / 9;
        let mut bytes = whole.clone();
        bytes[4 * size + if length == 1 { 11 } else { 8 }] ^= length;
        let image = Arc::new(active.image());
        put(&image, FIRST, &bytes);
        let log = open(&image, small());
        assert_eq!((log.end_offset(), log.recovery_report().damage.len()), (4, 1), "{}", log.recovery_report());
    }
}

/// Ten of the 200 bytes get through. The log takes nothing more, and goes on behind the last good end when it is opened again.
#[test]
fn c13_after_a_short_write_the_next_one_does_not_land_behind_what_it_left() {
    for (cut_fails, short) in [(false, 10), (true, 10), (true, 0), (true, 100)] {
        let shim = Shim::over(&disk());
        let log = open_on(&shim, small()).unwrap();
        append_synced(&log, "a").unwrap();
        let good = shim.live().metadata(&path(FIRST)).unwrap().len;
        shim.set_rule(move |call, path| match call {
            Call::Write(_) if path.ends_with(FIRST) => Verdict::Partly(short, Other),
            Call::Cut if cut_fails => Verdict::Fail(Other),
            _ => Verdict::Go,
        });
        assert_eq!(append(&log, &"lost".repeat(40)).unwrap_err().kind(), ErrorKind::Io);
        let left = shim.live().metadata(&path(FIRST)).unwrap().len;
        assert_eq!(left - good, if cut_fails { short as u64 } else { 0 });
        shim.heal();
        assert_eq!(append(&log, "again").unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!((values(&log), log.end_offset()), (vec!["a".into()], 1), "reads go on");
        drop(log);
        let log = open_on(&shim, small()).unwrap();
        assert_eq!((append_synced(&log, "again").unwrap(), append(&log, "more").unwrap()), (1, 2));
        assert_eq!(values(&log), ["a", "again", "more"]);
        let image = shim.after_power_cut();
        drop(log);
        assert_eq!(values(&open(&image, small()))[..2], ["a", "again"]);
    }
}

/// Of a sync that failed, nobody knows what it has written. What is read back looks sound, and later syncs leave it out.
#[test]
fn c13_what_a_failed_sync_left_is_written_anew_before_anything_is_acknowledged_behind_it() {
    for rolled in [false, true] {
        let shim = Shim::over(&disk());
        let log = open_on(&shim, small()).unwrap();
        append_synced(&log, "safe").unwrap();
        append(&log, "in doubt").unwrap();
        if rolled {
            log.roll().unwrap();
            append(&log, "in the next file").unwrap();
        }
        shim.set_rule(|call, path| if call == Call::Sync && path.ends_with(FIRST) { Verdict::Fail(Other) } else { Verdict::Go });
        assert_eq!(append_synced(&log, "failed").unwrap_err().kind(), ErrorKind::Io);
        shim.heal();
        assert_eq!(log.sync().unwrap_err().kind(), ErrorKind::Poisoned, "a sync that failed is never tried again");
        let seen = values(&log);
        drop(log);
        let log = open_on(&shim, small()).unwrap();
        assert_eq!(values(&log), seen, "it was not acknowledged, and may stay");
        append_synced(&log, "after").unwrap();
        let image = shim.after_power_cut();
        drop(log);
        let log = open(&image, small());
        assert!(log.recovery_report().is_sound(), "{}", log.recovery_report());
        assert_eq!(values(&log), [&seen[..], &["after".to_owned()]].concat(), "rolled: {rolled}");
    }
}

/// The page cache outlives the process: so does what it forgets. Only the end in doubt is written anew.
#[test]
fn c23_an_open_after_a_kill_trusts_nothing_that_was_never_synced() {
    let shim = Shim::over(&disk());
    let log = open_on(&shim, LogOptions::new()).unwrap();
    (0..20).for_each(|i| _ = append(&log, &format!("safe {i}")).unwrap());
    log.sync().unwrap();
    log.data_dir().write_checkpoints().unwrap();
    let safe = shim.live().metadata(&path(FIRST)).unwrap().len;
    append(&log, "in doubt").unwrap();
    let in_doubt = shim.live().metadata(&path(FIRST)).unwrap().len - safe;
    let killed = shim.live();
    drop(log);
    let shim = Shim::over(&killed);
    let written = Arc::new(std::sync::Mutex::new(0));
    let counted = Arc::clone(&written);
    shim.set_rule(move |call, path| {
        if let Call::Write(bytes) = call
            && path.ends_with(FIRST)
        {
            *counted.lock().unwrap() += bytes as u64;
        }
        Verdict::Go
    });
    let log = open_on(&shim, LogOptions::new()).unwrap();
    assert_eq!((*written.lock().unwrap(), log.recovery_report().bytes_settled), (in_doubt, in_doubt));
    log.close().unwrap();
    *written.lock().unwrap() = 0;
    let log = open_on(&shim, LogOptions::new()).unwrap();
    assert_eq!((*written.lock().unwrap(), log.recovery_report().bytes_settled), (0, 0), "a clean close has synced all");
}

/// Data in an old file that no sync covered, and a durable new one: a sync covers the older files first, and an open says
/// what is missing in between.
#[test]
fn c23_a_sync_covers_older_files_and_a_hole_between_two_is_told() {
    let shim = Shim::over(&disk());
    let log = open_on(&shim, small()).unwrap();
    append(&log, "old").unwrap();
    log.roll().unwrap();
    append_synced(&log, "new").unwrap();
    let image = shim.after_power_cut();
    drop(log);
    assert_eq!(values(&open(&image, small())), ["old", "new"]);

    // As a writer would leave it that syncs its newest file only.
    let whole = contents(&image, FIRST);
    for left in [0, 1, whole.len() - 1] {
        for mode in [RecoveryMode::TruncateTail, RecoveryMode::Salvage] {
            let image = Arc::new(image.image());
            image.remove_file(Path::new("/data/.kafka_cleanshutdown")).unwrap();
            image.remove_file(Path::new("/data/recovery-point-offset-checkpoint")).unwrap();
            put(&image, FIRST, &whole[..left]);
            let log = open(&image, small().recovery_mode(mode));
            let report = log.recovery_report();
            let torn = left > 0;
            assert_eq!(!report.damage.is_empty(), torn, "{report}");
            let kept = if torn && mode == RecoveryMode::Salvage { 0 } else { 1 };
            assert_eq!(values(&log).len(), kept, "{mode:?}: as the table says: {report}");
            assert_eq!(log.end_offset(), if kept == 0 { 0 } else { 2 });
            if kept == 1 && !torn {
                assert!(report.notes.iter().any(|note| note.contains("indexes go up to")), "{report}");
            }
        }
    }
}

/// The mark of a clean close goes, for good, before the first log is touched: whatever stops the next open, the one after it
/// looks for what was torn meanwhile.
#[test]
fn c10_the_clean_mark_is_gone_before_a_log_is_touched() {
    let disk = disk();
    let log = open(&disk, small());
    (0..60).for_each(|i| _ = append(&log, &format!("{i:0100}")).unwrap());
    log.close().unwrap();
    let mark = Path::new("/data/.kafka_cleanshutdown");
    let log_files = |disk: &MemoryStorage| files(disk).into_iter().map(|name| contents(disk, &name)).collect::<Vec<_>>();
    let untouched = log_files(&disk);
    let last = files(&disk).into_iter().rfind(|name| name.ends_with(".log")).unwrap();
    let mut stopped = 0;
    for at in 0.. {
        let shim = Shim::over(&disk.image());
        shim.stop_at(at);
        let result = open_on(&shim, small());
        let image = shim.live();
        if image.metadata(mark).is_ok() {
            assert_eq!(log_files(&image), untouched, "stopped at {at}");
            stopped += 1;
            continue;
        }
        put(&image, &last, &[contents(&image, &last), b"torn".to_vec()].concat());
        let log = open(&image, small());
        assert_eq!((log.recovery_report().clean, log.recovery_report().cut_bytes()), (false, 4), "stopped at {at}");
        if result.is_ok() {
            assert!(stopped > 0 && at > stopped);
            return;
        }
    }
}

/// Of 50 logs that must be recovered, some were when the directory was closed from another thread.
#[test]
fn c11_a_close_before_all_are_loaded_leaves_no_mark() {
    let disk = disk();
    let open_dir = |disk: &MemoryStorage| Arc::new(DataDir::open(Arc::new(disk.clone()), Path::new("/data")).unwrap());
    let name = |i| TopicPartition::new("t", i).unwrap();
    let dir = open_dir(&disk);
    (0..50).for_each(|i| _ = append(&Log::open_in(&dir, &name(i), small()).unwrap(), "v").unwrap());
    for loaded in [0, 10, 49, 50] {
        let image = disk.image();
        let dir = open_dir(&image);
        let (reached, closed) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..loaded).for_each(|i| Log::open_in(&dir, &name(i), small()).unwrap().close().unwrap());
                reached.wait();
                closed.wait();
                if loaded < 50 {
                    let late = Log::open_in(&dir, &name(loaded), small()).err().map(|e| e.kind());
                    assert_eq!(late, Some(ErrorKind::Closed), "nothing is loaded behind the close's back");
                }
            });
            reached.wait();
            assert_eq!(dir.close().unwrap(), loaded == 50);
            closed.wait();
        });
        assert_eq!(open_dir(&image).directory_was_clean(), loaded == 50, "{loaded} were loaded");
    }
}

/// Every damaged directory of the fixtures: recovery is stopped after each of its calls, and comes to the same end the next time.
#[test]
fn c14_a_crash_inside_recovery_changes_no_conclusion() {
    let mut stops = 0;
    for case in cases(Set::Recovery) {
        let point = json(case.join("kafka.json"))["recovery_point"].as_u64().unwrap();
        for mode in [RecoveryMode::TruncateTail, RecoveryMode::Salvage] {
            let before = MemoryStorage::new();
            before.set_now_ms(T0 + 1000);
            before.create_dir(Path::new("/data")).unwrap();
            before.create_dir(Path::new(LOG)).unwrap();
            for file in std::fs::read_dir(case.join("before")).unwrap().map(Result::unwrap) {
                put(&before, file.file_name().to_str().unwrap(), &std::fs::read(file.path()).unwrap());
            }
            put_data(&before, "recovery-point-offset-checkpoint", format!("0\n1\nt 0 {point}\n").as_bytes());
            let options = LogOptions::new().segment_bytes(8192).index_interval_bytes(512).recovery_mode(mode).recovery_full_scan(true);
            let outcome = |image: Arc<MemoryStorage>| {
                let log = open(&image, options.clone());
                let logs: Vec<_> = files(&image).into_iter().filter(|name| name.ends_with(".log")).collect();
                let bytes: Vec<_> = logs.into_iter().map(|name| (contents(&image, &name), name)).collect();
                (log.start_offset(), log.end_offset(), log.last_stable_offset(), bytes)
            };
            let expected = outcome(Arc::new(before.image()));
            for at in (0..).step_by(2) {
                let shim = Shim::over(&before.image());
                shim.stop_at(at);
                let done = open_on(&shim, options.clone()).is_ok();
                assert_eq!(outcome(shim.live()), expected, "{} {mode:?}: stopped at {at}", case.display());
                stops += 1;
                if done {
                    break;
                }
            }
        }
    }
    assert!(stops > 300, "{stops}");
}

/// A damaged batch stands behind the end of a closed segment, and junk behind that: one cut takes both.
#[test]
fn damage_behind_a_cut_goes_with_it() {
    for mode in [RecoveryMode::TruncateTail, RecoveryMode::Salvage] {
        let disk = disk();
        let log = open(&disk, small());
        (0..120).for_each(|i| _ = append(&log, &format!("{i:0100}")).unwrap());
        let second = log.segments().all()[1].base_offset();
        log.close().unwrap();
        disk.remove_file(Path::new("/data/.kafka_cleanshutdown")).unwrap();
        let checkpoint = disk.open(Path::new("/data/recovery-point-offset-checkpoint"), OpenMode::Truncate).unwrap();
        write_all_at(&*checkpoint, format!("0\n1\nt 0 {second}\n").as_bytes(), 0).unwrap();
        let mut bytes = contents(&disk, FIRST);
        let whole = bytes.len();
        let last = log_batches(&bytes).pop().unwrap();
        bytes.extend_from_within(last..);
        bytes[whole + 7] = second as u8;
        bytes[whole + 70] ^= 1;
        bytes.extend_from_slice(&[b'x'; 300]);
        put(&disk, FIRST, &bytes);

        let log = open(&disk, small().recovery_mode(mode).recovery_full_scan(true));
        let report = log.recovery_report();
        let (added, all) = ((bytes.len() - whole) as u64, 20_820);
        let expected = if mode == RecoveryMode::Salvage { 1..=all } else { 0..=added };
        assert!(!report.damage.is_empty() && expected.contains(&report.cut_bytes()), "{mode:?}: {report}");
        assert_eq!(log.read_from(0).unwrap().map_while(Result::ok).count() as u64, second, "{mode:?}: {report}");
        drop(log);
        let again = open(&disk, small().recovery_mode(mode).recovery_full_scan(true));
        assert!(again.recovery_report().cuts.is_empty(), "{}", again.recovery_report());
    }
}

/// Where the batches begin.
fn log_batches(bytes: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        starts.push(at);
        at += BatchHeader::parse(&bytes[at..]).unwrap().size as usize;
    }
    starts
}
