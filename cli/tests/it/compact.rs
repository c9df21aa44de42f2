//! `keeplog compact`: what Kafka's cleaner leaves, and nothing at all with `--dry-run`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use keeplog_fixtures::{Set, cases, copy_dir, dump_lines, json, unpack};
use serde_json::Value;

use crate::harness::{Run, in_parallel, keeplog};

/// A data directory with one partition in it and nothing else.
fn data_dir_of(partition: &Path, modified_ms: u64) -> tempfile::TempDir {
    let data = tempfile::tempdir().unwrap();
    let dir = data.path().join("t-0");
    copy_dir(partition, &dir);
    // The archive does not keep modification times, which old formats' tombstones are judged by.
    for entry in fs::read_dir(&dir).unwrap() {
        let file = fs::File::options().write(true).open(entry.unwrap().path()).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_millis(modified_ms)).unwrap();
    }
    data
}

fn compact(dir: &Path, case: &Value, round: &Value, more: &[&str]) -> Run {
    let settings = [
        ("--now", &round["now_ms"]),
        ("--from", &round["first_dirty"]),
        ("--to", &round["first_uncleanable"]),
        ("--map-slots", &case["map_slots"]),
        ("--load-factor", &case["load_factor"]),
        ("--segment-bytes", &case["segment.bytes"]),
        ("--index-interval-bytes", &case["index.interval.bytes"]),
        ("--index-bytes", &case["segment.index.bytes"]),
        ("--delete-retention-ms", &case["delete.retention.ms"]),
    ];
    let mut arguments: Vec<String> =
        ["compact", "--json", "--merge", "sources"].into_iter().chain(more.iter().copied()).map(str::to_owned).collect();
    for (name, value) in settings {
        arguments.extend([name.to_owned(), value.to_string()]);
    }
    arguments.push(dir.to_str().unwrap().to_owned());
    keeplog(arguments)
}

/// Batches of `dir`, without what differs where a compressed batch was written again.
fn batches(dir: &Path) -> Vec<Value> {
    without_encoding(keeplog(["dump".as_ref(), "--json".as_ref(), dir.as_os_str()]).json_lines())
}

fn without_encoding(mut lines: Vec<Value>) -> Vec<Value> {
    for line in &mut lines {
        for field in ["pos", "bytes", "crc"] {
            line.as_object_mut().unwrap().remove(field);
        }
    }
    lines
}

fn segment_files(dir: &Path) -> BTreeSet<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| [".log", ".index", ".timeindex", ".txnindex"].iter().any(|ending| name.ends_with(ending))).collect()
}

fn assert_rounds_equal_kafka(case_dir: &Path) {
    let case = json(case_dir.join("case.json"));
    for (i, round) in case["rounds"].as_array().unwrap().iter().enumerate() {
        let label = format!("{} round {}", case_dir.display(), i + 1);
        let data = data_dir_of(&case_dir.join(format!("before{}", i + 1)), round["now_ms"].as_u64().unwrap());
        let dir = data.path().join("t-0");
        let run = compact(&dir, &case, round, &[]);
        assert_eq!((run.status, run.stderr.as_str()), (0, ""), "{label}");
        let result = run.json_lines().remove(0);
        for field in ["new_dirty", "map_size", "first_dirty"] {
            assert_eq!(result[field], round[field], "{label} {field}: {result}");
        }
        let after = case_dir.join(format!("after{}", i + 1));
        assert_eq!(segment_files(&dir), segment_files(&after), "{label}");
        assert_eq!(batches(&dir), without_encoding(dump_lines(after.with_extension("jsonl"))), "{label}");
        assert_eq!(keeplog(["verify".as_ref(), dir.as_os_str()]).status, 0, "{label}");
    }
}

#[test]
fn a_pass_leaves_what_kafkas_cleaner_leaves() {
    in_parallel(cases(Set::Cleaned).into_iter().chain(cases(Set::Legacy)).collect(), |case: PathBuf| assert_rounds_equal_kafka(&case));
}

#[test]
fn a_dry_run_says_the_same_and_changes_nothing() {
    let case_dir = unpack(Set::Cleaned).join("002");
    let (case, before) = (json(case_dir.join("case.json")), case_dir.join("before1"));
    let data = data_dir_of(&before, 1_760_000_000_000);
    let dir = data.path().join("t-0");
    let state = |dir: &Path| {
        let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).filter(|path| path.is_file()).collect();
        files.sort();
        files.into_iter().map(|path| (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().modified().unwrap(), path)).collect::<Vec<_>>()
    };
    let was = (state(&dir), state(data.path()));
    let dry = compact(&dir, &case, &case["rounds"][0], &["--dry-run"]);
    assert_eq!((dry.status, dry.stderr.as_str()), (0, ""));
    assert!((state(&dir), state(data.path())) == was, "a file has changed");

    let wet = compact(&dir, &case, &case["rounds"][0], &[]);
    let (dry, wet) = (dry.json_lines().remove(0), wet.json_lines().remove(0));
    assert_eq!((&dry["dry_run"], &wet["dry_run"]), (&true.into(), &false.into()));
    for field in [
        "first_dirty",
        "first_uncleanable",
        "new_dirty",
        "bytes_read",
        "bytes_kept",
        "records_read",
        "records_kept",
        "map_size",
        "segments_after",
    ] {
        assert_eq!(dry[field], wet[field], "{field}");
    }
    assert!(wet["bytes_kept"].as_u64() < wet["bytes_read"].as_u64());
}

#[test]
fn the_next_pass_goes_on_where_the_last_one_ended() {
    let data = data_dir_of(&unpack(Set::Cleaned).join("000/before1"), 1_760_000_000_000);
    let dir = data.path().join("t-0");
    let first = keeplog(["compact".as_ref(), "--json".as_ref(), dir.as_os_str()]).json_lines().remove(0);
    assert_eq!((&first["first_dirty"], &first["new_dirty"]), (&0.into(), &85.into()));
    assert_eq!(fs::read_to_string(data.path().join("cleaner-offset-checkpoint")).unwrap(), "0\n1\nt 0 85\n");
    let second = keeplog(["compact".as_ref(), "--json".as_ref(), data.path().as_os_str()]).json_lines().remove(0);
    assert_eq!((&second["first_dirty"], &second["bytes_read"]), (&85.into(), &0.into()));
    let text = keeplog(["compact".as_ref(), data.path().as_os_str()]);
    assert!(text.stdout.starts_with("t-0: nothing to clean from offset 85 to 85"), "{}", text.stdout);
}

#[test]
fn the_text_gives_sizes_before_and_after() {
    let data = data_dir_of(&unpack(Set::Cleaned).join("001/before1"), 1_760_000_000_000);
    let left_out = keeplog(["compact".as_ref(), data.path().as_os_str()]);
    assert_eq!((left_out.status, left_out.stdout.as_str()), (0, ""), "{}", left_out.stderr);
    assert!(left_out.stderr.contains("left out t-0") && left_out.stderr.contains("--all"), "{}", left_out.stderr);
    let run = keeplog(["compact".as_ref(), "--all".as_ref(), data.path().as_os_str()]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    for text in [
        "t-0: cleaned offsets 0..1504 in",
        "segments  7 to 1",
        "records   1,504 to 179",
        "179 in the dirty section",
        "for each byte dropped",
        "/s\n",
    ] {
        assert!(run.stdout.contains(text), "{text:?} is not in {}", run.stdout);
    }
}

#[test]
fn damage_stops_a_pass_and_nothing_is_written() {
    let data = data_dir_of(&unpack(Set::Recovery).join("17-sealed-bit-below-recovery-point/before"), 1_760_000_000_000);
    let dir = data.path().join("t-0");
    let log = dir.join("00000000000000000000.log");
    let before = fs::read(&log).unwrap();
    let run = keeplog(["compact".as_ref(), "--json".as_ref(), dir.as_os_str()]);
    assert_eq!((run.status, run.stdout.as_str()), (1, ""), "{}", run.stderr);
    assert!(
        run.stderr.contains("00000000000000000000.log") && run.stderr.contains("checksum") && run.stderr.contains("keeplog recover"),
        "{}",
        run.stderr
    );
    assert_eq!(fs::read(&log).unwrap(), before);
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let data = data_dir_of(&unpack(Set::Cleaned).join("000/before1"), 1_760_000_000_000);
    let wrong: &[&[&str]] = &[
        &["--load-factor", "0"],
        &["--load-factor", "1.5"],
        &["--load-factor", "NaN"],
        &["--map-slots", "0"],
        &["--now", "-1"],
        &["--from", "9223372036854775808"],
        &["--segment-bytes", "0"],
        &["--index-bytes", "4"],
        &["--map-slots", "1", "--load-factor", "0.5"],
    ];
    for arguments in wrong {
        let path = data.path().join("t-0");
        let path = path.to_str().unwrap();
        let run = keeplog(["compact"].into_iter().chain(arguments.iter().copied()).chain([path]));
        assert_eq!((run.status, run.stdout.as_str()), (2, ""), "{arguments:?}: {}", run.stderr);
    }
}

#[test]
fn a_map_without_room_for_a_key_is_refused_in_the_words_of_the_command_line() {
    let data = data_dir_of(&unpack(Set::Cleaned).join("000/before1"), 1_760_000_000_000);
    let dir = data.path().join("t-0");
    let dir = dir.to_str().unwrap();
    for (slots, factor, least) in [("1", "0.9", "2"), ("1", "0.5", "2"), ("3", "0.25", "4")] {
        let run = keeplog(["compact", "--map-slots", slots, "--load-factor", factor, dir]);
        run.assert_refused(&[&format!("--map-slots {slots} with --load-factor {factor}"), &format!("at least --map-slots {least},")]);
        assert!(!run.stderr.contains("dedupe"), "{}", run.stderr);
        let run = keeplog(["compact", "--json", "--dry-run", "--map-slots", least, "--load-factor", factor, dir]);
        assert_eq!((run.status, &run.json_lines()[0]["map_size"]), (0, &1.into()), "{}", run.stderr);
    }
}

#[test]
fn json_says_why_there_is_nothing_to_clean_and_what_a_pass_wrote() {
    let data = data_dir_of(&unpack(Set::Cleaned).join("000/before1"), 1_760_000_000_000);
    let dir = data.path().join("t-0");
    let compact = |more: &[&str]| keeplog(["compact", "--json", dir.to_str().unwrap()].iter().chain(more)).json_lines().remove(0);
    let left_out = compact(&["--dry-run", "--to", "0"]);
    assert_eq!((&left_out["segments_before"], &left_out["bounded_by"]), (&0.into(), &"to".into()));
    let first = compact(&[]);
    let number = |field: &str| first[field].as_f64().unwrap();
    assert!(number("bytes_dropped") > 0.0 && number("bytes_written") > 0.0 && number("dirty_bytes") > 0.0, "{first}");
    assert_eq!(number("bytes_dropped"), number("bytes_read") - number("bytes_kept"));
    assert_eq!(number("write_amplification"), number("bytes_written") / number("bytes_dropped"));
    assert_eq!(number("written_per_dirty_byte"), number("bytes_written") / number("dirty_bytes"));
    let second = compact(&[]);
    assert_eq!((&second["segments_before"], &second["bounded_by"]), (&0.into(), &"active-segment".into()));
    assert_eq!(second["bound"], "the active segment, from 85 on, is never cleaned");
    assert_eq!((&second["write_amplification"], &second["map_size"]), (&Value::Null, &0.into()));
}

/// Recovery would cut off what could be read; whether it should is not for this command to say.
#[test]
fn the_records_of_a_damaged_log_are_left_alone() {
    let data = data_dir_of(&unpack(Set::Cleaned).join("000/before1"), 1_760_000_000_000);
    let dir = data.path().join("t-0");
    let logs = || {
        let files = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
        let logs = files.filter(|path| path.to_str().unwrap().contains(".log"));
        logs.map(|path| (path.clone(), fs::read(&path).unwrap())).collect::<BTreeSet<_>>()
    };
    let (active, _) = logs().into_iter().rfind(|(_, bytes)| bytes.len() > 300).unwrap();
    let flip = |path: &Path| {
        let mut bytes = fs::read(path).unwrap();
        bytes[100] ^= 1;
        fs::write(path, bytes).unwrap();
    };
    flip(&active);
    let before = logs();
    let run = keeplog(["compact".as_ref(), dir.as_os_str()]);
    assert_eq!((run.status, run.stdout.as_str()), (1, ""), "{}", run.stderr);
    assert!(run.stderr.contains("its records were left as they are") && run.stderr.contains("recovery would"), "{}", run.stderr);
    assert!(logs() == before, "a log was changed");
    // A torn tail is what an interrupted write leaves, and no damage.
    flip(&active);
    let (last, bytes) = logs().pop_last().unwrap();
    fs::write(&last, &bytes[..bytes.len() - 3]).unwrap();
    let run = keeplog(["compact".as_ref(), dir.as_os_str()]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(run.stderr.contains("a torn tail of "), "{}", run.stderr);
}
