//! Committed offsets: what a fetch answers is safe, as new as what the asker was told, and the same after a reload.

use std::path::Path;
use std::sync::{Arc, Mutex};

use keeplog_engine::{ErrorKind, Log};
use keeplog_offsets::{CommitOptions, OffsetAndMetadata, OffsetStore};
use shuttle::thread;

use crate::disk::{Cut, Disk, Held, Syncs};
use crate::run::Model;
use crate::world::{DIR, Seen, allow, any, open, read_all};

/// Two who commit the same place, one who fetches, one who reloads.
pub(super) const COMMIT: Model = Model {
    name: "offsets-commit",
    claim: "fetch shows what is durable, no older than what was acknowledged",
    run: || commit(Others::Reload),
};
/// The same against deletions of the group.
pub(super) const DELETE: Model =
    Model { name: "offsets-delete", claim: "a deletion and commits end as the log has them", run: || commit(Others::Delete) };
/// The same with a sync that fails.
pub(super) const FAILING: Model =
    Model { name: "offsets-failing", claim: "after a failed sync nothing is shown that is not safe", run: || commit(Others::FailedSync) };
/// A disk that hangs.
pub(super) const HANGING: Model = Model { name: "offsets-hanging", claim: "a fetch waits for no append and no sync", run: hang };

/// What was committed, by its mark, and what a fetch showed after that.
type Told = (String, Option<Arc<str>>);

const GROUP: &str = "group";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    Reload,
    Delete,
    FailedSync,
}

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

fn commit(others: Others) {
    let scene = scene();
    if others == Others::FailedSync {
        scene.disk.set_syncs(Syncs::FailAfter(any(4)));
    }
    let told = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for writer in 0..2 {
            let (scene, told) = (&scene, &told);
            scope.spawn(move || (0..2).for_each(|number| scene.commit(format!("<{writer}.{number}>"), others, told)));
        }
        scope.spawn(|| {
            for _ in 0..3 {
                scene.fetch();
            }
        });
        scope.spawn(|| match others {
            Others::Reload => _ = scene.store.reload().expect("it reloads"),
            Others::Delete => _ = scene.store.delete_group(GROUP).expect("it is deleted"),
            Others::FailedSync => {}
        });
    });
    scene.check(others, &told.into_inner().expect("nobody panicked"));
}

impl Scene {
    /// What is committed, by its metadata. It is safe.
    fn fetch(&self) -> Option<Arc<str>> {
        let found = self.store.fetch(GROUP, &[("topic", 0)]).expect("it is loaded").remove(0).map(|found| found.metadata);
        let cut = self.disk.cut();
        assert!(found.as_ref().is_none_or(|found| holds(&cut, found)), "{found:?} was shown and is not durable");
        found
    }

    fn commit(&self, mark: String, others: Others, told: &Mutex<Vec<Told>>) {
        match self.store.commit(GROUP, &[("topic", 0, OffsetAndMetadata::new(1).metadata(mark.clone()))]) {
            Ok(()) => {
                let shown = self.fetch();
                told.lock().expect("nobody panicked").push((mark, shown));
            }
            Err(error) => {
                assert!(others == Others::FailedSync, "{error:?}");
                allow(&error, &[ErrorKind::Io, ErrorKind::Poisoned]);
            }
        }
    }

    fn check(&self, others: Others, told: &[Told]) {
        let written = read_all(&self.log);
        for (mark, shown) in told {
            let shown = shown.as_ref().map_or_else(|| deletion(&written), |shown| place(&written, shown));
            assert!(place(&written, mark) <= shown && shown.is_some(), "after {mark} came {shown:?}: {written:?}");
        }
        let last = self.fetch();
        if others != Others::FailedSync {
            let newest = written.last().filter(|seen| !seen.value.is_empty());
            assert_eq!(last.as_ref().map(|last| place(&written, last)), newest.map(|seen| Some(seen.offset)), "the last of the log counts");
            self.store.reload().expect("it reloads");
            assert_eq!(self.fetch(), last, "a reload changes nothing");
        }
        let again = open(&self.disk.cut().restore());
        let kept = read_all(&again);
        let store = OffsetStore::open(vec![again], CommitOptions::new()).expect("it opens");
        let after = store.fetch(GROUP, &[("topic", 0)]).expect("it is loaded").remove(0).map(|found| found.metadata);
        let after = after.map_or_else(|| deletion(&kept), |after| place(&kept, &after));
        for (mark, _) in told {
            assert!(place(&kept, mark).is_some_and(|at| Some(at) <= after), "{mark} was acknowledged: {kept:?}");
        }
    }
}

/// Offset of the commit that carries `mark`.
fn place(written: &[Seen], mark: &str) -> Option<u64> {
    written.iter().find(|seen| seen.value.contains(mark)).map(|seen| seen.offset)
}

/// Offset of the last deletion.
fn deletion(written: &[Seen]) -> Option<u64> {
    written.iter().rfind(|seen| seen.value.is_empty()).map(|seen| seen.offset)
}

fn holds(cut: &Cut, mark: &str) -> bool {
    let mut files = cut.files(Path::new(DIR), ".log").into_iter();
    files.any(|(_, bytes)| bytes.windows(mark.len()).any(|window| window == mark.as_bytes()))
}

fn hang() {
    let scene = scene();
    let mark = "<before>";
    scene.store.commit(GROUP, &[("topic", 0, OffsetAndMetadata::new(1).metadata(mark))]).expect("it is committed");
    scene.disk.hold(if any(2) == 0 { Held::Writes } else { Held::Syncs });
    thread::scope(|scope| {
        for writer in 0..2 {
            let scene = &scene;
            scope.spawn(move || {
                let committed = OffsetAndMetadata::new(2).metadata(format!("<{writer}>"));
                scene.store.commit(GROUP, &[("topic", 0, committed)]).expect("it is committed");
            });
        }
        scope.spawn(|| {
            scene.disk.wait_for_held();
            assert_eq!(scene.fetch().as_deref(), Some(mark));
            scene.disk.release();
        });
    });
    assert_ne!(scene.fetch().as_deref(), Some(mark));
}
