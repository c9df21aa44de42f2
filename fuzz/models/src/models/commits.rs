//! Commits that are answered later, against the thread that syncs them, an expiry, and a change of leaders.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use keeplog_engine::{ErrorKind, Log};
use keeplog_offsets::{CommitOptions, Lead, OffsetAndMetadata, OffsetStore, Outcome, Producer};
use shuttle::thread;

use crate::disk::{Disk, Syncs};
use crate::run::Model;
use crate::world::{allow, any, open, read_all};

/// Two who commit without waiting, and the thread that syncs.
pub(super) const ANSWERS: Model =
    Model { name: "commits-answers", claim: "answers keep the order of the log, and what they say is durable and shown", run: || answers(false) };
/// The same with a sync that fails.
pub(super) const FAILING: Model =
    Model { name: "commits-failing", claim: "everybody is answered, also after a failed sync", run: || answers(true) };
/// A partition is resigned and led again meanwhile.
pub(super) const LEADERS: Model =
    Model { name: "commits-leaders", claim: "commits around a resignation are there after the next load, or were never made", run: leaders };
/// An expiry beside commits, plain and in a transaction.
pub(super) const EXPIRY: Model =
    Model { name: "commits-expiry", claim: "an expiry takes no commit that it has not seen", run: expiry };

const GROUP: &str = "group";
const PRODUCER: Producer = Producer { id: 4, epoch: 0 };

struct Scene {
    disk: Disk,
    log: Log,
    store: OffsetStore,
}

fn scene() -> Scene {
    let disk = Disk::new();
    let log = open(&disk);
    let store = OffsetStore::open(vec![log.clone()], CommitOptions::new()).expect("it opens");
    Scene { disk, log, store }
}

impl Scene {
    fn offset(&self, partition: i32) -> Option<u64> {
        self.store.fetch(GROUP, &[("topic", partition)]).expect("it is loaded").remove(0).map(|found| found.offset)
    }
}

fn at(offset: u64) -> OffsetAndMetadata {
    OffsetAndMetadata::new(offset)
}

fn answers(fails: bool) {
    let scene = scene();
    if fails {
        scene.disk.set_syncs(Syncs::FailAfter(any(3)));
    }
    let told = Arc::new(Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for writer in 0..2 {
            let (scene, told) = (&scene, &told);
            scope.spawn(move || {
                for number in 0..2 {
                    let (told, store) = (Arc::clone(told), scene.store.clone());
                    scene.store.commit_async(GROUP, &[("topic", writer, at(number))]).on_answer(move |answer| {
                        let shown = store.fetch(GROUP, &[("topic", writer)]).expect("it is loaded").remove(0).map(|found| found.offset);
                        told.lock().expect("nobody panicked").push((writer, number, answer.map_err(|error| error.kind()), shown));
                    });
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..2 {
                scene.store.flush_what_waits(Duration::from_secs(1));
            }
        });
    });
    _ = scene.store.flush();
    let told = told.lock().expect("nobody panicked");
    assert_eq!(told.len(), 4, "{told:?}");
    for writer in 0..2 {
        let of_writer: Vec<_> = told.iter().filter(|told| told.0 == writer).collect();
        // Those that are refused at the call are answered at once.
        let accepted: Vec<_> = of_writer.iter().filter(|told| told.2 != Err(ErrorKind::Poisoned)).map(|told| told.1).collect();
        assert!(accepted.is_sorted(), "{told:?}");
        for (_, number, answer, shown) in of_writer {
            match answer {
                Ok(()) => assert!(shown.is_some_and(|shown| shown >= *number), "{told:?}"),
                Err(kind) => assert!(fails && matches!(kind, ErrorKind::Io | ErrorKind::Poisoned), "{told:?}"),
            }
        }
    }
    // What was shown is there after a power failure.
    let again = OffsetStore::open(vec![open(&scene.disk.cut().restore())], CommitOptions::new()).expect("it opens");
    for (writer, _, _, shown) in told.iter().filter(|told| told.3.is_some()) {
        let kept = again.fetch(GROUP, &[("topic", *writer)]).expect("it is loaded").remove(0).map(|found| found.offset);
        assert!(kept >= *shown, "{kept:?} {told:?}");
    }
}

fn leaders() {
    let scene = scene();
    let acknowledged = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for writer in 0..2 {
            let (scene, acknowledged) = (&scene, &acknowledged);
            scope.spawn(move || {
                let waited = match any(2) {
                    0 => scene.store.commit(GROUP, &[("topic", writer, at(1))]),
                    _ => scene.store.commit_async(GROUP, &[("topic", writer, at(1))]).wait(),
                };
                match waited {
                    Ok(()) => acknowledged.lock().expect("nobody panicked").push(writer),
                    Err(error) => allow(&error, &[ErrorKind::NotLeader, ErrorKind::Loading]),
                }
            });
        }
        scope.spawn(|| {
            assert!(scene.store.resign(0, Some(1)).expect("there is a partition"));
            assert_eq!(scene.store.lead(0, 2).expect("there is a partition"), Lead::Loads);
            while let Some((_, loaded)) = scene.store.load_next() {
                loaded.expect("it loads");
            }
        });
    });
    scene.store.flush().expect("it is flushed");
    let shown: Vec<_> = (0..2).filter(|writer| scene.offset(*writer).is_some()).collect();
    let written: Vec<_> = read_all(&scene.log);
    assert_eq!(shown.len(), written.len(), "the cache is what the log says");
    let acknowledged = acknowledged.into_inner().expect("nobody panicked");
    assert!(acknowledged.iter().all(|writer| shown.contains(writer)), "{acknowledged:?} {shown:?}");
}

fn expiry() {
    let scene = scene();
    let old = at(1).commit_timestamp_ms(1);
    scene.store.commit(GROUP, &[("topic", 0, old.clone()), ("topic", 1, old.clone()), ("topic", 2, old)]).expect("it is committed");
    let expired = Mutex::new(0);
    thread::scope(|scope| {
        scope.spawn(|| scene.store.commit(GROUP, &[("topic", 0, at(2))]).expect("it is committed"));
        scope.spawn(|| {
            scene.store.commit_in_transaction(PRODUCER, GROUP, &[("topic", 1, at(2))]).expect("it is committed");
            let outcome = if any(2) == 0 { Outcome::Commit } else { Outcome::Abort };
            scene.store.end_transaction(PRODUCER, outcome).expect("it ends");
        });
        scope.spawn(|| {
            let found = scene.store.expire().expect("it expires");
            *expired.lock().expect("nobody panicked") += found.offsets;
        });
    });
    assert_eq!((scene.offset(0), scene.offset(2)), (Some(2), None));
    assert!(*expired.lock().expect("nobody panicked") >= 1);
    let before = (scene.offset(0), scene.offset(1));
    scene.store.reload().expect("it reloads");
    assert_eq!((scene.offset(0), scene.offset(1)), before, "a reload changes nothing");
}
