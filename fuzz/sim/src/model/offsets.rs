//! What must be true of the committed offsets.

use std::collections::BTreeMap;

use keeplog::inspect::offsets::record::{OffsetKey, OffsetValue};
use keeplog::inspect::record::Decoder;
use keeplog::{CONSUMER_OFFSETS, OffsetStore};

/// Group, topic, partition.
pub type Place = (String, String, i32);

/// What may be answered for each place: what was acknowledged last, then all that was asked for since.
#[derive(Clone, Debug, Default)]
pub struct OffsetsModel {
    may_be: BTreeMap<Place, Vec<Option<u64>>>,
}

impl OffsetsModel {
    /// `answer` is asked for at `place`.
    pub fn ask(&mut self, place: Place, answer: Option<u64>) {
        self.may_be.entry(place).or_insert_with(|| vec![None]).push(answer);
    }

    /// A deletion of the group is asked for. Returns the places concerned.
    pub fn ask_deletion_of(&mut self, group: &str) -> Vec<Place> {
        let places: Vec<_> = self.may_be.keys().filter(|place| place.0 == group).cloned().collect();
        places.iter().for_each(|place| self.ask(place.clone(), None));
        places
    }

    /// What was asked for last at `places` was acknowledged.
    pub fn settle(&mut self, places: &[Place]) {
        for place in places {
            if let Some(may_be) = self.may_be.get_mut(place) {
                may_be.drain(..may_be.len() - 1);
            }
        }
    }

    /// Somebody looks: what is answered was shown, and stays.
    pub fn look(&mut self, store: &OffsetStore) {
        for ((group, topic, partition), may_be) in &mut self.may_be {
            let Ok(mut answers) = store.fetch(group, &[(topic, *partition)]) else { continue };
            let answer = answers.remove(0).map(|o| o.offset);
            // One that was shown before may still be followed by what was asked for since.
            if may_be.len() > 1 && may_be.last() == Some(&answer) {
                *may_be = vec![answer];
            }
        }
    }

    /// Every answer is one of those that are right.
    pub fn check(&self, store: &OffsetStore) -> Result<(), String> {
        for ((group, topic, partition), may_be) in &self.may_be {
            let answer = store.fetch(group, &[(topic, *partition)]).map_err(|e| format!("{e:?}"))?.remove(0).map(|o| o.offset);
            if !may_be.contains(&answer) {
                return Err(format!("{group} is at {answer:?} of {topic} {partition}, {may_be:?} would be right"));
            }
        }
        let strange = |listed: &keeplog::ListedOffset| {
            !self.may_be.contains_key(&(listed.group.to_string(), listed.topic.to_string(), listed.partition))
        };
        match store.list().map_err(|e| format!("{e:?}"))?.into_iter().find(strange) {
            Some(listed) => Err(format!("{listed:?} was never committed")),
            None => Ok(()),
        }
    }

    /// What is answered now was shown, and stays.
    pub fn take_over(&mut self, store: &OffsetStore) -> Result<(), String> {
        for ((group, topic, partition), may_be) in &mut self.may_be {
            let answer = store.fetch(group, &[(topic, *partition)]).map_err(|e| format!("{e:?}"))?.remove(0).map(|o| o.offset);
            *may_be = vec![answer];
        }
        Ok(())
    }
}

/// The cache answers what a plain reading of the logs gives, oldest record first.
pub fn check_fold(store: &OffsetStore) -> Result<(), String> {
    let mut fold: BTreeMap<Place, i64> = BTreeMap::new();
    for log in store.store().logs().iter().filter(|log| log.topic_partition().topic() == CONSUMER_OFFSETS) {
        let mut decoder = Decoder::new(1 << 20);
        for batch in log.batches_from(log.start_offset()).map_err(|e| format!("{e:?}"))? {
            let batch = batch.map_err(|e| format!("{e:?}"))?;
            for record in decoder.records(&batch.bytes).map_err(|e| e.to_string())? {
                let record = record.map_err(|e| e.to_string())?;
                let key = OffsetKey::decode(record.key.unwrap_or_default()).map_err(|e| e.to_string())?;
                let Some(OffsetKey { group, topic, partition }) = key else { continue };
                let place = (group.to_owned(), topic.to_owned(), partition);
                match record.value {
                    Some(value) => _ = fold.insert(place, OffsetValue::decode(value).map_err(|e| e.to_string())?.offset),
                    None => _ = fold.remove(&place),
                }
            }
        }
    }
    let listed = store.list().map_err(|e| format!("{e:?}"))?;
    let listed: BTreeMap<Place, i64> =
        listed.into_iter().map(|o| ((o.group.to_string(), o.topic.to_string(), o.partition), o.committed.offset as i64)).collect();
    if fold == listed { Ok(()) } else { Err(format!("the cache answers {listed:?}, the logs say {fold:?}")) }
}
