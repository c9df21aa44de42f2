//! What is known of the next pass, for people.

use super::keys::Keys;
use super::{Blocker, Dirt, Explained, Pass};
use crate::output;

/// Open transactions that are named.
const TRANSACTIONS_SHOWN: usize = 5;

pub(super) fn of(explained: &Explained) -> String {
    let e = explained;
    let mut text = match &e.dirt {
        Some(dirt) => format!("{}: offsets {}..{}, {}\n", e.partition, dirt.start_offset, dirt.end_offset, output::bytes(e.bytes)),
        None => format!("{}: {}\n", e.partition, output::bytes(e.bytes)),
    };
    let mut say = |head: &str, what: &str| text.push_str(&format!("  {head:<8}  {what}\n"));
    if let Some(dirt) = &e.dirt {
        say("pass", &verdict(e, dirt));
        say("dirty", &dirty(dirt));
        let [clean, cleanable, uncleanable] = [dirt.clean_bytes, dirt.cleanable_bytes, dirt.uncleanable_bytes].map(output::bytes);
        say("bytes", &format!("{clean} clean, {cleanable} cleanable, {uncleanable} uncleanable"));
    }
    let mut head = "stops at";
    let mut transactions = 0;
    for blocker in &e.blocked_by {
        transactions += usize::from(matches!(blocker, Blocker::OpenTransaction { .. }));
        if transactions <= TRANSACTIONS_SHOWN || !matches!(blocker, Blocker::OpenTransaction { .. }) {
            say(head, &describe(blocker, e.now_ms));
            head = "";
        }
    }
    if transactions > TRANSACTIONS_SHOWN {
        say("", &format!("{} more open transactions (--json has all)", transactions - TRANSACTIONS_SHOWN));
    }
    match &e.pass {
        Some(pass) => push_drops(pass, &mut say),
        None if e.dirt.is_some() => say("drops", "nothing"),
        None => {}
    }
    push_keys(&e.keys, &mut text);
    text
}

fn verdict(e: &Explained, dirt: &Dirt) -> String {
    let (ratio, least) = (dirt.dirty_ratio, e.min_cleanable_dirty_ratio);
    match dirt.due {
        "dirty" => format!("due: dirty ratio {ratio:.3} is above min.cleanable.dirty.ratio {least}"),
        "overdue" => {
            let overdue = output::seconds(dirt.overdue_ms as f64 / 1000.0);
            format!("due: a dirty segment has been older than max.compaction.lag.ms for {overdue} (dirty ratio {ratio:.3})")
        }
        "not-yet" => format!(
            "not due: dirty ratio {ratio:.3} is not above min.cleanable.dirty.ratio {least}; keeplog compact cleans it all the same"
        ),
        "clean" => "nothing to do: all below the active segment is clean".to_owned(),
        _ => "not due: no dirty segment may be cleaned".to_owned(),
    }
}

fn dirty(dirt: &Dirt) -> String {
    let from = match (dirt.checkpoint, dirt.checkpoint_fault) {
        (None, _) => "no pass has been here".to_owned(),
        (Some(checkpoint), None) => format!("the last pass came to {checkpoint}"),
        (Some(checkpoint), Some(fault)) => {
            let side = if fault == "below-start" { "below the start" } else { "above the end" };
            format!("the checkpoint {checkpoint} is {side} of the log, so it begins anew")
        }
    };
    format!("offsets {}..{} ({from})", dirt.first_dirty, dirt.first_uncleanable)
}

fn describe(blocker: &Blocker, now_ms: i64) -> String {
    match blocker {
        Blocker::Damage { what } => format!("damage: {}", what.lines().next().unwrap_or_default()),
        Blocker::Policy => {
            "the policy: nothing here says that this log is compacted, so a background cleaner takes it only if its topic's settings say so"
                .to_owned()
        }
        Blocker::OpenTransaction { offset, producer_id, producer_epoch, since_ms } => {
            let since = since_ms.map_or_else(String::new, |ms| {
                let age = output::seconds(now_ms.saturating_sub(ms).max(0) as f64 / 1000.0);
                format!(", begun {} UTC ({age} ago)", output::time_to_seconds(ms))
            });
            format!("offset {offset}: a transaction of producer {producer_id} (epoch {producer_epoch}) is open{since}")
        }
        Blocker::CompactionLag { offset, until_ms } => {
            format!("offset {offset}: its segment is younger than min.compaction.lag.ms until {} UTC", output::time_to_seconds(*until_ms))
        }
        Blocker::ActiveSegment { offset } => format!("offset {offset}: the active segment is never cleaned"),
    }
}

fn push_drops(pass: &Pass, say: &mut impl FnMut(&str, &str)) {
    let (bytes, of_bytes) = (output::bytes(pass.bytes_dropped), output::bytes(pass.bytes_read));
    let (records, of_records) = (output::count(pass.records_dropped), output::count(pass.records_read));
    let percent = output::percent(pass.bytes_dropped, pass.bytes_read);
    say("drops", &format!("{records} of {of_records} records, {bytes} of {of_bytes} ({percent})"));
    let (before, after) = (pass.segments_before, output::counted(pass.segments_after as u64, "segment", "segments"));
    say("leaves", &format!("{after} of {before}, and writes {}", output::bytes(pass.bytes_written)));
}

fn push_keys(keys: &Keys, text: &mut String) {
    let all = keys.keyed.bytes + keys.keyless.bytes + keys.others.bytes;
    let distinct = match keys.distinct {
        Some(count) => output::counted(count, "distinct key", "distinct keys"),
        None => {
            format!(
                "more than fit into memory: counts are at least what is said, and no key left out takes more than {}",
                output::bytes(keys.absent_bytes_max)
            )
        }
    };
    text.push_str(&format!(
        "  keys      {distinct}; {} in {}\n",
        output::bytes(keys.keyed.bytes),
        output::counted(keys.keyed.records, "record", "records")
    ));
    let mut others = Vec::new();
    for (sum, what) in [(keys.keyless, "without a key"), (keys.others, "markers and empty batches")] {
        if sum.bytes > 0 {
            others.push(format!("{}, {} {what}", output::bytes(sum.bytes), output::counted(sum.records, "record", "records")));
        }
    }
    if !others.is_empty() {
        text.push_str(&format!("  others    {}\n", others.join("; ")));
    }
    if keys.top.is_empty() {
        return;
    }
    let rows = keys.top.iter().map(|key| {
        let more = if key.bytes_missed_max > 0 { format!(" (+{} at most)", output::bytes(key.bytes_missed_max)) } else { String::new() };
        let bytes = format!("{}{more}", output::bytes(key.bytes));
        vec![bytes, share(key.bytes, all), output::count(key.records), key.key.clone()]
    });
    text.push_str(&output::indent(&output::table(&[">bytes", ">share", ">records", "key"], rows)));
}

/// `0.3 %`: of many keys, each takes little.
fn share(part: u64, whole: u64) -> String {
    format!("{:.1} %", part as f64 * 100.0 / whole.max(1) as f64)
}
