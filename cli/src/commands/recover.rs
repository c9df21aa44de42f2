//! `keeplog recover`: open as after a crash, mend, report, close.

use std::sync::Arc;

use serde::Serialize;

use crate::Status;
use crate::args;
use crate::door::check::{self, Finding};
use crate::door::{Log, LogOptions, RecoveryMode, RecoveryReport, Storage};
use crate::failure::Failure;
use crate::metered::Metered;
use crate::output::{self, Canvas, Out};
use crate::owned::OwnedTarget;
use crate::progress;
use crate::shadow::Shadow;

/// What recovery of one partition came to.
#[derive(Debug, Serialize)]
struct Recovered {
    partition: String,
    dir: String,
    /// Nothing was changed: it is what would come of it.
    dry_run: bool,
    /// Whether it had been closed in order: then all that was there was safe, and whatever was cut off is lost.
    closed_in_order: bool,
    recovery_point: u64,
    log_start_offset: u64,
    log_end_offset: u64,
    segments: Vec<Segment>,
    segments_scanned: usize,
    bytes_scanned: u64,
    cut_bytes: u64,
    cuts: Vec<Cut>,
    damage: Vec<Damage>,
    rebuilt: Vec<Rebuilt>,
    removed: Vec<String>,
    swaps_completed: Vec<u64>,
    /// Offsets that were known to be synced and are gone: from the first to below the second.
    lost: Option<[u64; 2]>,
    /// Where the log ended, if that was below its start offset.
    ended_below_start: Option<u64>,
    notes: Vec<String>,
    /// Damage that recovery does not mend, as `verify` finds it.
    not_mended: Vec<Finding>,
    /// Damage at the end was kept, so the log takes no appends.
    read_only: bool,
    seconds: f64,
}

#[derive(Debug, Serialize)]
struct Segment {
    base: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct Cut {
    file: String,
    position: u64,
    bytes: u64,
    why: String,
    /// File that holds the bytes now, unless they were a torn write.
    kept_in: Option<String>,
}

#[derive(Debug, Serialize)]
struct Damage {
    file: String,
    position: u64,
    offset: u64,
    what: String,
    #[serde(skip)]
    in_place: bool,
}

#[derive(Debug, Serialize)]
struct Rebuilt {
    segment: u64,
    why: String,
}

pub(crate) fn run(args: &args::Recover, storage: &Arc<dyn Storage>) -> Result<Status, Failure> {
    let below = if args.dry_run { Arc::new(Shadow::new(Arc::clone(storage))) } else { Arc::clone(storage) };
    let metered = Metered::new(below);
    let bytes_read = metered.bytes_read();
    let owned = OwnedTarget::open(Arc::new(metered), &args.dir)?;
    let mode = if args.cut_damage { RecoveryMode::Salvage } else { RecoveryMode::TruncateTail };
    // Whoever runs this wants to know, so nothing is taken on trust; the recovery point only says what may be cut.
    let options = LogOptions::new().recovery_mode(mode).recovery_full_scan(true);
    let canvas = Canvas::of_stdout();
    let mut out = Out::of_work();
    let result = owned.each(|partition| {
        if let Some(point) = args.recovery_point {
            owned.data_dir.set_recovery_point(&partition.topic_partition, point);
        }
        let closed_in_order = owned.data_dir.was_clean(&partition.topic_partition);
        let started = storage.monotonic();
        owned.distrust(partition)?;
        let work = || Log::open_in(&owned.data_dir, &partition.topic_partition, options.clone());
        let log = progress::watch(&**storage, "recovering", partition.log_bytes, &bytes_read, work)?;
        let report = log.recovery_report().clone();
        // What is left in place makes a clean close impossible; that is in the report.
        let closed = log.close();
        if !report.read_only {
            closed?;
        }
        let seconds = storage.monotonic().saturating_sub(started).as_secs_f64();
        let not_mended = check::beyond_recovery(&**owned.data_dir.storage(), log.path())?;
        let recovered = Recovered { not_mended, closed_in_order, ..Recovered::new(&partition.name, &log, report, seconds, args.dry_run) };
        let status = if recovered.is_sound() { Status::Fine } else { Status::Damage };
        if args.json {
            out.json(&recovered)?;
        } else {
            out.text(&text(&recovered, args.cut_damage, canvas))?;
        }
        out.flush()?;
        Ok(status)
    });
    // Also after a failure: what was recovered keeps its checkpoints.
    let closed = owned.close();
    let status = result?;
    closed?;
    Ok(status)
}

impl Recovered {
    fn new(name: &str, log: &Log, report: RecoveryReport, seconds: f64, dry_run: bool) -> Self {
        Self {
            partition: name.to_owned(),
            dir: output::name(&log.path().display().to_string()),
            dry_run,
            closed_in_order: false,
            recovery_point: report.recovery_point,
            log_start_offset: report.log_start_offset,
            log_end_offset: report.log_end_offset,
            cut_bytes: report.cut_bytes(),
            segments: report.segments.iter().map(|&(base, bytes)| Segment { base, bytes }).collect(),
            segments_scanned: report.segments_scanned,
            bytes_scanned: report.bytes_scanned,
            cuts: report
                .cuts
                .into_iter()
                .map(|c| Cut { file: c.file, position: c.position, bytes: c.bytes, why: c.why, kept_in: c.kept_in })
                .collect(),
            damage: report
                .damage
                .into_iter()
                .map(|d| Damage { file: d.file, position: d.position, offset: d.offset, what: d.what, in_place: d.in_place })
                .collect(),
            rebuilt: report.rebuilt.into_iter().map(|r| Rebuilt { segment: r.segment, why: r.why }).collect(),
            removed: report.removed,
            swaps_completed: report.swaps_completed,
            lost: report.lost.map(|lost| [lost.start, lost.end]),
            ended_below_start: report.ended_below_start,
            notes: report.notes,
            not_mended: Vec::new(),
            read_only: report.read_only,
            seconds,
        }
    }

    /// Whether nothing is damaged or missing.
    fn is_sound(&self) -> bool {
        let cut_what_was_safe = self.closed_in_order && !self.cuts.is_empty();
        !cut_what_was_safe
            && self.damage.is_empty()
            && self.lost.is_none()
            && self.ended_below_start.is_none()
            && self.not_mended.is_empty()
    }
}

fn text(recovered: &Recovered, cut_damage: bool, canvas: Canvas) -> String {
    let r = recovered;
    let verdict = match (r.is_sound(), r.dry_run) {
        (true, false) => "recovered",
        (true, true) => "dry run, would be recovered",
        (false, false) => "DAMAGED",
        (false, true) => "dry run, DAMAGED",
    };
    let mut text = format!(
        "{}: {verdict}, offsets {}..{}, {} ({}, {} scanned in {})\n",
        r.partition,
        r.log_start_offset,
        r.log_end_offset,
        output::counted(r.segments.len() as u64, "segment", "segments"),
        output::bytes(r.segments.iter().map(|segment| segment.bytes).sum()),
        output::bytes(r.bytes_scanned),
        output::seconds(r.seconds),
    );
    let mut say = |line: String| text.push_str(&output::wrap(&line, 2, canvas.text_width));
    let did = |done: &str, would: &str| if r.dry_run { format!("would {would}") } else { done.to_owned() };
    for base in &r.swaps_completed {
        say(format!("{} the interrupted replacement by segment {base}", did("completed", "complete")));
    }
    for cut in &r.cuts {
        let kept = cut.kept_in.as_ref().map_or_else(String::new, |name| format!("; {} {name}", did("kept in", "keep them in")));
        say(format!(
            "{} {} off {} at byte {}: {}{kept}",
            did("cut", "cut"),
            output::counted(cut.bytes, "byte", "bytes"),
            cut.file,
            cut.position,
            cut.why
        ));
    }
    for rebuilt in &r.rebuilt {
        say(format!("{} the indexes of segment {}: {}", did("rebuilt", "rebuild"), rebuilt.segment, rebuilt.why));
    }
    for name in &r.removed {
        say(format!("{} {name}", did("removed", "remove")));
    }
    if let Some([from, to]) = r.lost {
        say(format!("LOST offsets {from}..{to}: by the recovery point they were safe once; restore them from a replica or a backup"));
    }
    if r.closed_in_order && !r.cuts.is_empty() {
        say("LOST what was cut off: the log had been closed in order, so that it was safe once; restore it from a replica or a backup"
            .to_owned());
    }
    if let Some(end) = r.ended_below_start {
        let start = r.log_start_offset;
        say(format!(
            "the log ended at {end}, below its start offset {start} (log-start-offset-checkpoint): what it holds can't be read, and goes with \
             the next retention. If that start offset is wrong, remove its line there and recover again"
        ));
    }
    for finding in &r.not_mended {
        let file = finding.file.as_deref().unwrap_or_default();
        say(format!("not mended: {file}: {} ({}). {}", finding.message, finding.code, finding.advice));
    }
    for note in &r.notes {
        say(format!("note: {note}"));
    }
    for damage in &r.damage {
        say(format!("DAMAGE in {} at byte {} (offset {}): {}", damage.file, damage.position, damage.offset, damage.what));
    }
    if let Some(Damage { offset, .. }) = r.damage.iter().find(|damage| damage.in_place).filter(|_| cut_damage) {
        say(format!("--cut-damage cuts above the recovery point {} only: --recovery-point {offset} lets it cut here", r.recovery_point));
    }
    if r.read_only && !cut_damage && r.damage.iter().all(|damage| damage.offset >= r.recovery_point) {
        say("the log can be read up to the damage and takes no appends; --cut-damage cuts it there".to_owned());
    }
    text
}
