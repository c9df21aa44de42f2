//! The seeds, and simple changes of them, through every target: what needs no fuzzer to be found is found by
//! `cargo test`.

#![allow(clippy::disallowed_methods, reason = "the seeds are files")]

use std::fs;
use std::path::Path;

use keeplog_fuzz::TARGETS;

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let names = fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    names.map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect()
}

#[test]
fn seeds_are_sound() {
    for (name, target) in TARGETS {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name} has no seeds");
        seeds.iter().for_each(|seed| target(seed));
    }
}

#[test]
fn changed_seeds_find_nothing() {
    for (name, target) in TARGETS {
        target(&[]);
        for seed in seeds(name).iter().filter(|seed| seed.len() < 1500) {
            let step = 1 + seed.len() / 40;
            for at in (0..seed.len()).step_by(step) {
                target(&seed[..at]);
                let mut changed = seed.clone();
                changed[at] ^= 1 << (at % 8);
                target(&changed);
                changed[at] = 0xff;
                target(&changed);
            }
        }
    }
}

#[test]
fn every_target_has_a_program() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz_targets");
    let mut programs: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned()).collect();
    let mut targets: Vec<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    programs.sort();
    targets.sort();
    assert_eq!(programs, targets);
}
