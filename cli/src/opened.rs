//! Opening a log to change it: only one that is sound, or that recovery makes sound by cutting a torn tail.

use std::path::Path;
use std::sync::Arc;

use crate::complain;
use crate::door::{Log, LogOptions, RecoveryMode, Storage};
use crate::failure::Failure;
use crate::output;
use crate::owned::{OwnedPartition, OwnedTarget};
use crate::shadow::Shadow;

/// Opens the log of `partition`, which is in `owned`, taken from `dir`, if it is sound, or but for a torn tail. Of another one
/// the records are left as they are: what a pass took away could not be looked for any more, and what recovery cuts off is
/// for somebody to decide. That failure counts as corruption, and what is wrong is complained about.
pub(crate) fn open_sound(
    storage: &Arc<dyn Storage>,
    dir: &Path,
    owned: &OwnedTarget,
    partition: &OwnedPartition,
    options: &LogOptions,
) -> Result<Log, Failure> {
    let name = &partition.topic_partition;
    let strict = options.clone().recovery_mode(RecoveryMode::Strict);
    match Log::open_in(&owned.data_dir, name, strict) {
        Ok(log) if log.recovery_report().is_sound() => return Ok(log),
        Ok(log) => {
            report_recovery(&log, partition);
            let _ = log.close();
            return Err(refused(partition));
        }
        Err(error) if error.is_corruption() => {}
        Err(error) => return Err(error.into()),
    }
    let shadow = OwnedTarget::open(Arc::new(Shadow::new(Arc::clone(storage))), dir)?;
    let tried = Log::open_in(&shadow.data_dir, name, options.clone())?;
    report_recovery(&tried, partition);
    if !tried.recovery_report().is_sound() {
        return Err(refused(partition));
    }
    drop(tried);
    Ok(Log::open_in(&owned.data_dir, name, options.clone())?)
}

fn refused(partition: &OwnedPartition) -> Failure {
    let what = format!("could not work on {}: it is damaged, or something is missing; its records were left as they are", partition.name);
    Failure::damaged(what).advise("keeplog recover mends what can be mended, and says what is left (first with --dry-run); then try again")
}

/// A log that was not closed in order is recovered first; what that costs, or would cost, is worth a word.
fn report_recovery(log: &Log, partition: &OwnedPartition) {
    let report = log.recovery_report();
    if report.cut_bytes() > 0 {
        let bytes = output::counted(report.cut_bytes(), "byte", "bytes");
        let what = if report.is_sound() {
            format!("recovery cuts off a torn tail of {bytes} first")
        } else {
            format!("recovery would cut off {bytes}")
        };
        complain(&format!("{}: {what}", partition.name));
    }
    if let Some(lost) = &report.lost {
        complain(&format!("{}: offsets {}..{} are gone, and were safe once", partition.name, lost.start, lost.end));
    }
    if let Some(end) = report.ended_below_start {
        complain(&format!("{}: the log ends at {end}, below its start offset {}", partition.name, report.log_start_offset));
    }
    for damage in &report.damage {
        let place = format!("{} at byte {} (offset {})", damage.file, damage.position, damage.offset);
        complain(&format!("{}: recovery would find damage in {place}: {}", partition.name, damage.what));
    }
}
