//! What must be left of a log when it was cleaned.

use keeplog_benches::{Shape, key_number};
use keeplog_engine::Log;
use keeplog_engine::record::Decoder;

use crate::Outcome;

/// No offset: a key that does not occur.
const NONE: u64 = u64::MAX;

/// The newest offset of each key below the active segment, by number of the key.
pub(crate) struct Survivors {
    newest: Vec<u64>,
    /// How many keys occur.
    pub(crate) keys: u64,
    /// How many offsets there were, those of markers among them.
    pub(crate) records: u64,
}

impl Survivors {
    /// By a slow reading of the log as it was before. What was aborted does not count.
    pub(crate) fn of(log: &Log, shape: Shape) -> Outcome<Self> {
        let end = log.segments().active().base_offset();
        let mut found = Self { newest: vec![NONE; shape.keys as usize], keys: 0, records: end - log.start_offset() };
        for record in log.read_committed_from(log.start_offset())? {
            let record = record?;
            if record.offset() >= end {
                break;
            }
            let number = record.key().and_then(|key| key_number(key)).ok_or("a key that no log of a shape has")?;
            let newest = found.newest.get_mut(number as usize).ok_or("a key that this log does not have")?;
            found.keys += u64::from(*newest == NONE);
            *newest = record.offset();
        }
        Ok(found)
    }

    /// That of each key the newest record is there, and nothing else.
    pub(crate) fn check(&self, log: &Log) -> Outcome<()> {
        let mut kept = 0;
        let end = log.segments().active().base_offset();
        let mut decoder = Decoder::new(log.options().decompressed_bytes_max);
        for batch in log.batches_from(log.start_offset())? {
            let batch = batch?;
            if batch.header.base_offset >= end {
                break;
            }
            if batch.header.is_control() {
                continue;
            }
            for record in decoder.records(&batch.bytes)? {
                let record = record?;
                kept += 1;
                let newest = key_number(record.key.unwrap_or_default()).and_then(|number| self.newest.get(number as usize));
                if newest != Some(&record.offset) {
                    return Err(format!("the record at offset {} of {} should not be there", record.offset, log.path().display()).into());
                }
            }
        }
        if kept == self.keys { Ok(()) } else { Err(format!("{kept} records survived of {} keys", self.keys).into()) }
    }
}
