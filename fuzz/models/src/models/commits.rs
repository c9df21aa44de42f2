//! Commits that are answered later, against the thread that syncs them, an expiry, and a change of leaders.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keeplog::OffsetOptions;
use keeplog_engine::{ErrorKind, Log};
use keeplog_offsets::{CommitOptions, Lead, OffsetAndMetadata, OffsetStore, Outcome, PartitionState, Producer, RequiredAcks, Unstable};
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::thread;

use crate::disk::{Disk, Syncs};
use crate::run::Model;
use crate::world::{allow, any, open, options, read_all};

/// Two who commit without waiting, and the thread that syncs.
pub(super) const ANSWERS: Model = Model {
    name: "commits-answers",
    claim: "answers keep the order of the log, and what they say is durable and shown",
    run: || answers(false),
};
/// The same with a sync that fails.
pub(super) const FAILING: Model =
    Model { name: "commits-failing", claim: "everybody is answered, also after a failed sync", run: || answers(true) };
/// A partition is resigned and led again meanwhile.
pub(super) const LEADERS: Model = Model {
    name: "commits-leaders",
    claim: "commits around a resignation are there after the next load, or were never made",
    run: leaders,
};
/// A partition is resigned while everything is loaded anew.
pub(super) const LIVES: Model =
    Model { name: "commits-lives", claim: "a reload brings back no partition that was resigned meanwhile", run: lives };
/// Commits before, in and after a change of when they are acknowledged.
pub(super) const MODES: Model = Model {
    name: "commits-modes",
    claim: "whenever it is acknowledged, all is shown in the order of the log, and synced in the end",
    run: modes,
};
/// A transaction that is ended while its partition changes leaders.
pub(super) const TRANSACTIONS: Model =
    Model { name: "commits-transactions", claim: "a transaction ends as a whole, whoever loads it", run: transactions };
/// The store is closed meanwhile, and its threads with it.
pub(super) const CLOSE: Model =
    Model { name: "commits-close", claim: "a close answers all, and what is answered as safe is there again", run: close };
/// An expiry beside commits, plain and in a transaction.
pub(super) const EXPIRY: Model = Model { name: "commits-expiry", claim: "an expiry takes no commit that it has not seen", run: expiry };

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
        offset(&self.store, partition)
    }

    /// Commits without waiting; what is answered is told, with what is shown then.
    fn commit_and_tell(&self, writer: i32, number: u64, told: &Arc<Mutex<Vec<Told>>>) {
        let (told, store) = (Arc::clone(told), self.store.clone());
        self.store.commit_async(GROUP, &[("topic", writer, at(number))]).on_answer(move |answer| {
            let shown = offset(&store, writer);
            told.lock().expect("nobody panicked").push((writer, number, answer.map_err(|error| error.kind()), shown));
        });
    }

    /// What a power failure would leave.
    fn after_power_failure(&self) -> OffsetStore {
        OffsetStore::open(vec![open(&self.disk.cut().restore())], CommitOptions::new()).expect("it opens")
    }
}

/// Writer, number, the answer, and what was shown at that moment.
type Told = (i32, u64, Result<(), ErrorKind>, Option<u64>);

fn offset(store: &OffsetStore, partition: i32) -> Option<u64> {
    store.fetch(GROUP, &[("topic", partition)]).expect("it is loaded").remove(0).map(|found| found.offset)
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
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let background = scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                scene.store.flush_what_waits(Duration::from_secs(1));
            }
        });
        let writers = [0, 1].map(|writer| {
            let (scene, told) = (&scene, &told);
            scope.spawn(move || (0..2).for_each(|number| scene.commit_and_tell(writer, number, told)))
        });
        // In a thread of its own: see `on_threads`.
        scope.spawn(|| {
            writers.into_iter().for_each(|writer| writer.join().expect("it did not panic"));
            is_over.store(true, Ordering::SeqCst);
            scene.store.wake();
            background.join().expect("it did not panic");
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
    let again = scene.after_power_failure();
    for (writer, _, _, shown) in told.iter().filter(|told| told.3.is_some()) {
        let kept = offset(&again, *writer);
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

fn lives() {
    let scene = scene();
    thread::scope(|scope| {
        scope.spawn(|| scene.store.reload().map_or_else(|error| allow(&error, &[ErrorKind::NotLeader, ErrorKind::Loading]), drop));
        scope.spawn(|| {
            assert!(scene.store.resign(0, Some(1)).expect("there is a partition"));
            let state = scene.store.partition_state(0).expect("there is a partition");
            assert_eq!(state, PartitionState::NotLed, "right after it was resigned");
        });
        scope.spawn(|| _ = scene.store.expire().expect("it passes over what is not led"));
    });
    assert_eq!(scene.store.partition_state(0).expect("there is a partition"), PartitionState::NotLed);
    assert!(scene.store.list().expect("nothing is led").is_empty());
}

fn modes() {
    let scene = scene();
    thread::scope(|scope| {
        for writer in 0..2 {
            let scene = &scene;
            scope.spawn(move || {
                for number in 0..2 {
                    let offsets = [("topic", writer, at(number))];
                    match any(3) {
                        0 => scene.store.commit(GROUP, &offsets).map_or_else(|error| allow(&error, &[ErrorKind::TimedOut]), drop),
                        1 => scene.store.commit_async(GROUP, &offsets).wait().expect("it is committed"),
                        _ => drop(scene.store.commit_async(GROUP, &offsets)),
                    }
                }
            });
        }
        scope.spawn(|| {
            for acks in [RequiredAcks::Written, RequiredAcks::Queued] {
                scene.store.set_options(CommitOptions::new().offsets_commit_required_acks(acks)).expect("they fit");
                // Whoever waits for the sync of another thread is answered that the outcome is not known.
                scene.disk.live().advance_ms(10_000);
            }
        });
    });
    scene.store.flush().expect("it is flushed");
    let again = scene.after_power_failure();
    for writer in 0..2 {
        assert_eq!((scene.offset(writer), offset(&again, writer)), (Some(1), Some(1)), "the last of writer {writer}");
    }
}

fn transactions() {
    let scene = scene();
    scene.store.commit_in_transaction(PRODUCER, GROUP, &[("topic", 0, at(1)), ("topic", 1, at(1))]).expect("it is committed");
    let outcome = if any(2) == 0 { Outcome::Commit } else { Outcome::Abort };
    let shown = (outcome == Outcome::Commit).then_some(1);
    let (ended, is_resigned) = (Mutex::new(0), any(2) == 0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| match scene.store.end_transaction(PRODUCER, outcome) {
                Ok(partitions) => {
                    *ended.lock().expect("nobody panicked") += partitions;
                    // Where it is not led nothing is known.
                    if !is_resigned {
                        assert_eq!(stable(&scene.after_power_failure()), [Ok(shown), Ok(shown)], "it is safe");
                    }
                }
                Err(error) => allow(&error, &[ErrorKind::NotLeader, ErrorKind::Loading]),
            });
        }
        scope.spawn(|| {
            if !is_resigned {
                return;
            }
            assert!(scene.store.resign(0, Some(1)).expect("there is a partition"));
            assert_eq!(scene.store.lead(0, 2).expect("there is a partition"), Lead::Loads);
            while let Some((_, loaded)) = scene.store.load_next() {
                loaded.expect("it loads");
            }
        });
    });
    *ended.lock().expect("nobody panicked") += scene.store.end_transaction(PRODUCER, outcome).expect("it ends");
    assert_eq!(*ended.lock().expect("nobody panicked"), 1, "it is ended once");
    for store in [&scene.store, &scene.after_power_failure()] {
        assert_eq!(stable(store), [Ok(shown), Ok(shown)]);
    }
}

fn stable(store: &OffsetStore) -> Vec<Result<Option<u64>, Unstable>> {
    let stable = store.fetch_stable(GROUP, &[("topic", 0), ("topic", 1)]).expect("it is loaded");
    stable.into_iter().map(|found| found.map(|found| found.map(|found| found.offset))).collect()
}

/// A store with its threads is closed while somebody commits.
fn close() {
    let disk = Disk::new();
    let options = OffsetOptions::new().offsets_topic_num_partitions(1).log(options());
    let store = keeplog::OffsetStore::open_with(Arc::new(disk.clone()), Path::new("/data"), options.clone()).expect("it opens");
    let told = Arc::new(Mutex::new(Vec::new()));
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..3 {
                let told = Arc::clone(&told);
                store.commit_async(GROUP, &[("topic", 0, at(number))]).on_answer(move |answer| {
                    told.lock().expect("nobody panicked").push((number, answer.map_err(|error| error.kind())));
                });
            }
        });
        let closer = scope.spawn(|| store.close().expect("it closes"));
        // In a thread of its own: see `on_threads`.
        scope.spawn(|| {
            writer.join().expect("it did not panic");
            closer.join().expect("it did not panic");
        });
    });
    drop(store);
    let told = told.lock().expect("nobody panicked").clone();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told.iter().all(|(_, answer)| matches!(answer, Ok(()) | Err(ErrorKind::Closed))), "{told:?}");
    let safe = told.iter().filter(|(_, answer)| answer.is_ok()).map(|(number, _)| *number).max();
    let again = keeplog::OffsetStore::open_with(Arc::new(disk.cut().restore()), Path::new("/data"), options).expect("it opens");
    let kept = again.fetch(GROUP, &[("topic", 0)]).expect("it is loaded").remove(0).map(|found| found.offset);
    assert!(kept >= safe, "{kept:?} {told:?}");
    again.close().expect("it closes");
}
