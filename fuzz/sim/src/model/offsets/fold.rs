//! The logs of the offset store read record by record, oldest first.

use keeplog::inspect::offsets::record::{OffsetKey, OffsetValue};
use keeplog::inspect::record::Decoder;
use keeplog::{Log, OffsetStore};

use super::{OffsetsModel, Served, State, Visible, What, log_of, visible};

/// The cache answers what a plain reading of the logs gives, where all of that is shown.
pub fn check_fold(model: &OffsetsModel, store: &OffsetStore) -> Result<(), String> {
    for (number, partition) in model.partitions.iter().enumerate() {
        if partition.served != Served::Yes || !partition.all_is_shown() {
            continue;
        }
        let log = log_of(store, number).ok_or("a partition is missing")?;
        let (seen, folded) = (visible(store, number)?, Visible::from(&fold(&log)?));
        if seen != folded {
            return Err(format!("offsets {number}: the cache answers {seen:?}, the log says {folded:?}"));
        }
    }
    Ok(())
}

fn fold(log: &Log) -> Result<State, String> {
    let (mut state, mut decoder) = (State::default(), Decoder::new(1 << 20));
    for batch in log.batches_from(log.start_offset()).map_err(|e| format!("{e:?}"))? {
        let batch = batch.map_err(|e| format!("{e:?}"))?;
        let producer = batch.header.is_transactional().then_some(batch.header.producer_id);
        for record in decoder.records(&batch.bytes).map_err(|e| e.to_string())? {
            let record = record.map_err(|e| e.to_string())?;
            let key = record.key.unwrap_or_default();
            if batch.header.is_control() {
                let commits = key.ends_with(&[1]);
                state.apply(record.offset, &What::Marker(batch.header.producer_id, commits));
                continue;
            }
            let Some(OffsetKey { group, topic, partition }) = OffsetKey::decode(key).map_err(|e| e.to_string())? else { continue };
            let place = (group.to_owned(), topic.to_owned(), partition);
            let what = match record.value {
                None => What::Tombstones(vec![place]),
                Some(value) => {
                    let value = OffsetValue::decode(value).map_err(|e| e.to_string())?;
                    What::Commits(producer, vec![(place, value.offset as u64, value.commit_timestamp_ms)])
                }
            };
            state.apply(record.offset, &what);
        }
    }
    Ok(state)
}
