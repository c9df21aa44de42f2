//! That models hold, notice what they must, and can be run again.

use std::fs;
use std::path::PathBuf;

use keeplog_models::run::{Choice, explore, replay};
use keeplog_models::{ALL, LYING};

/// One for all: the scheduler keeps to the first that it is told of.
fn dir() -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("models");
    fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn every_model_holds_under_a_few_schedules() {
    for &model in ALL {
        for choice in [Choice::Random, Choice::Pct] {
            let outcome = explore(model, choice, 1, 20, &dir());
            assert_eq!((outcome.failure, outcome.schedules), (None, 20), "{}", model.name);
        }
    }
}

#[test]
fn a_disk_that_lies_is_found_out_and_the_schedule_replayed() {
    let outcome = explore(LYING, Choice::Random, 1, 20, &dir());
    let file = outcome.failure.expect("it is noticed");
    assert!(fs::metadata(&file).is_ok_and(|found| found.len() > 0), "{}", file.display());
    assert!(replay(LYING, &file).failure.is_some(), "and again");
}
