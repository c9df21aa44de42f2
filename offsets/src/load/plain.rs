//! The log in its order, record by record: slower, and the measure for anything faster. It also says what is wrong.

use keeplog_engine::names::{FileKind, file_name};
use keeplog_engine::planted::{Defect, is_planted};
use keeplog_engine::record::{ControlType, Decoder};
use keeplog_engine::{Error, ErrorKind, Log, Result, StoredBatch};

use super::is_short;
use crate::replay::{Origin, Outcome, Replay, ReplayError};

/// Folds all of `log`, from its start to its end; gives the bytes read as well.
pub(super) fn load(log: &Log) -> Result<(Replay, u64)> {
    let mut replay = Replay::new();
    let bytes = go_on(log, &mut replay, log.start_offset(), &|_| {})?;
    Ok((replay, bytes))
}

/// Folds `log` from an offset to its end into `replay`, which knows what comes before; gives the bytes read.
pub(super) fn go_on(log: &Log, replay: &mut Replay, from_offset: u64, progress: &dyn Fn(u64)) -> Result<u64> {
    let mut decoder = Decoder::new(log.options().decompressed_bytes_max);
    let (mut bytes, mut found, expected) = (0, from_offset, log.end_offset());
    for batch in log.batches_from(from_offset)? {
        let batch = batch?;
        found = batch.header.next_offset();
        bytes += batch.bytes.len() as u64;
        fold(replay, &mut decoder, &batch, from_offset).map_err(|cause| cause.at(log, &batch))?;
        progress(batch.bytes.len() as u64);
    }
    if is_short(log, found, expected) {
        let detail = format!(
            "it can be read up to offset {found} only, and ends at {expected}: the batch behind has a wrong offset; run `keeplog verify` on its directory"
        );
        return Err(Error::new(ErrorKind::Corrupt, "load committed offsets from", detail).at(log.path()).offset_at(found));
    }
    Ok(bytes)
}

fn fold(replay: &mut Replay, decoder: &mut Decoder, batch: &StoredBatch, start_offset: u64) -> Result<(), Cause> {
    let header = &batch.header;
    let producer_id = header.producer_id;
    let origin = if header.is_transactional() { Origin::Transaction { producer_id } } else { Origin::Plain };
    for record in decoder.records(&batch.bytes)? {
        let record = record?;
        if record.offset < start_offset || (record.value.is_none() && is_planted(Defect::LoadSkipsTombstones)) {
            continue;
        }
        if !header.is_control() {
            replay.record(origin, record.offset, record.key, record.value)?;
            continue;
        }
        match ControlType::of_key(record.key.unwrap_or_default())? {
            ControlType::Commit => replay.marker(producer_id, Outcome::Commit),
            ControlType::Abort => replay.marker(producer_id, Outcome::Abort),
            _ => {}
        }
    }
    Ok(())
}

#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error(transparent)]
    Batch(#[from] keeplog_engine::record::DecodeError),
    #[error(transparent)]
    Record(#[from] ReplayError),
}

impl Cause {
    fn at(self, log: &Log, batch: &StoredBatch) -> Error {
        let path = log.path().join(file_name(batch.segment, FileKind::Log));
        let offset = if let Self::Record(error) = &self { error.offset } else { batch.header.base_offset };
        let detail = match &self {
            Self::Batch(cause) => format!("{cause}; run `keeplog verify` on its directory"),
            Self::Record(error) => {
                format!("{error}: {}; `keeplog dump --decode offsets` shows every record of its directory", error.source)
            }
        };
        Error::corrupt("load committed offsets from", &path, batch.position, detail).offset_at(offset).caused_by(self)
    }
}
