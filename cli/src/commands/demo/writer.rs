//! The process that commits until it is killed.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use serde::{Deserialize, Serialize};

use super::workload::{self, Workload};
use crate::Status;
use crate::door::{OffsetStore, Storage, Store};
use crate::failure::Failure;
use crate::metered::Metered;
use crate::output::Out;

/// Committers. While one waits for the device, the others' commits join its sync.
const WORKERS: u64 = 32;
const TELL_EVERY: u64 = 20_000;

/// A line to the process that watches.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// Offsets acknowledged so far.
    Committed(u64),
    /// All are.
    Done(Written),
}

/// What the writing came to.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Written {
    pub(crate) seconds: f64,
    /// Bytes appended to all logs.
    pub(crate) bytes: u64,
    pub(crate) passes: u64,
    pub(crate) cleaner_bytes_read: u64,
    pub(crate) cleaner_seconds: f64,
}

/// Commits everything, says so, and waits to be killed.
pub(crate) fn run(storage: &Arc<dyn Storage>, dir: &Path, workload: Workload) -> Result<Status, Failure> {
    end_with_parent()?;
    let metered = Metered::new(Arc::clone(storage));
    let appended = metered.bytes_appended();
    let store = Store::open_with(Arc::new(metered), dir, workload::store_options(true))?;
    let offsets = OffsetStore::open(workload::logs(&store)?, workload::commit_options())?;
    let mut out = Out::new();
    let started = storage.monotonic();
    commit_all(&offsets, workload, &mut out)?;
    let seconds = storage.monotonic().saturating_sub(started).as_secs_f64();
    let status = store.cleaner();
    let written = Written {
        seconds,
        bytes: appended.load(Ordering::Relaxed),
        passes: status.passes,
        cleaner_bytes_read: status.bytes_read,
        cleaner_seconds: status.seconds,
    };
    out.json(&Message::Done(written))?;
    out.flush()?;
    // The other side kills this process now. Should it have gone away instead, there is nothing left to do.
    let (_kept, never) = mpsc::channel::<()>();
    let _ = never.recv_timeout(std::time::Duration::from_secs(60));
    Ok(Status::Fine)
}

/// Ends this process when the other one is gone, whose end of the pipe closes then: it would hold the directory for itself.
fn end_with_parent() -> Result<(), Failure> {
    let wait = || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink()); // nothing ever comes
        std::process::exit(i32::from(crate::COULD_NOT_RUN));
    };
    std::thread::Builder::new().spawn(wait).map(drop).map_err(|e| Failure::new("could not start a thread").caused_by(&e))
}

fn commit_all(offsets: &OffsetStore, workload: Workload, out: &mut Out) -> Result<(), Failure> {
    let acknowledged = AtomicU64::new(0);
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (tell, acknowledged) = (tell.clone(), &acknowledged);
            scope.spawn(move || {
                for step in workload.steps(worker, WORKERS) {
                    let result = offsets.commit(&workload::group_name(step.group), &step.offsets);
                    let count = step.offsets.len() as u64;
                    let before = acknowledged.fetch_add(count, Ordering::Relaxed);
                    let failed = result.is_err();
                    if failed || before / TELL_EVERY != (before + count) / TELL_EVERY {
                        // The receiver goes first only after a failure.
                        let _ = tell.send(result.map(|()| before + count));
                    }
                    if failed {
                        break;
                    }
                }
            });
        }
        drop(tell);
        for message in told {
            out.json(&Message::Committed(message?))?;
            out.flush()?;
        }
        Ok(())
    })
}
