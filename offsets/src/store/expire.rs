//! Removing offsets that have expired, and groups that nothing is left of.
//!
//! It looks first, while commits go on, and looks again under the lock that writers take: so a tombstone never lands behind a
//! commit that it was not meant for. A partition that is being loaded is left for the next time.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use keeplog_engine::planted::{Defect, is_planted};
use keeplog_engine::{ErrorKind, Result};

use super::OffsetStore;
use super::delete::{GROUPS_AT_A_TIME, encoded};
use super::leading::PartitionState;
use super::shard::Shard;
use crate::record::OffsetKey;
use crate::replay::Replay;

/// What has expired and is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Expired {
    /// Committed offsets.
    pub offsets: u64,
    /// Groups that had records of their own.
    pub groups: u64,
}

impl fmt::Display for Expired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} offsets and {} groups have expired", self.offsets, self.groups)
    }
}

/// When it is, and how long offsets are kept.
#[derive(Clone, Copy)]
struct Now {
    now_ms: i64,
    retention_ms: i64,
}

/// Of one group.
#[derive(Default)]
struct Doomed {
    offsets: Vec<Vec<u8>>,
    /// The keys of the group's own records, if it goes.
    group: Vec<Vec<u8>>,
}

impl OffsetStore {
    /// Removes what has expired in the partitions that are served, by the rules of [`expiry`](crate::expiry) and
    /// [`CommitOptions::offsets_retention`](super::CommitOptions): with tombstones, as a deletion does. What waits to be
    /// committed, in a transaction or for its sync, does not expire.
    ///
    /// # Errors
    /// As [`OffsetStore::delete_group`]; what was removed until then stays removed.
    pub fn expire(&self) -> Result<Expired> {
        let retention_ms = i64::try_from(self.inner.options().offsets_retention.as_millis()).unwrap_or(i64::MAX);
        let now = Now { now_ms: self.now_ms(), retention_ms };
        let _span = tracing::debug_span!("expire committed offsets", retention_ms).entered();
        let mut expired = Expired::default();
        for shard in self.led_shards() {
            if shard.served().state() == PartitionState::Active {
                match self.expire_in(shard, now, &mut expired) {
                    // It was resigned since.
                    Err(error) if matches!(error.kind(), ErrorKind::Loading | ErrorKind::NotLeader) => continue,
                    done => done?,
                }
                shard.compact();
            }
        }
        if expired != Expired::default() {
            tracing::info!(offsets = expired.offsets, groups = expired.groups, "committed offsets have expired");
        }
        Ok(expired)
    }

    fn expire_in(&self, shard: &Shard, now: Now, expired: &mut Expired) -> Result<()> {
        let names = shard.replay(|replay| {
            let registered = replay.groups().names().map(Arc::from);
            replay.cache().groups().cloned().chain(registered).collect::<BTreeSet<Arc<str>>>()
        })?;
        let names: Vec<_> = names.into_iter().collect();
        for some in names.chunks(GROUPS_AT_A_TIME) {
            let none = BTreeSet::new();
            let concerned: Vec<_> =
                shard.replay(|replay| some.iter().filter(|group| !doomed(replay, group, now, &none).is_empty()).collect())?;
            if concerned.is_empty() {
                continue;
            }
            let order = shard.order();
            let unshown = if is_planted(Defect::ExpireUnseen) { BTreeSet::new() } else { order.unshown_keys() };
            let doomed: Vec<_> = shard.replay(|replay| concerned.iter().map(|group| doomed(replay, group, now, &unshown)).collect())?;
            let offsets = doomed.iter().map(|doomed| doomed.offsets.len() as u64).sum::<u64>();
            let groups = doomed.iter().filter(|doomed| !doomed.group.is_empty()).count() as u64;
            let keys: Vec<_> = doomed.into_iter().flat_map(|doomed| doomed.offsets.into_iter().chain(doomed.group)).collect();
            drop(unshown);
            self.write_tombstones(shard, order, keys)?;
            shard.counters().expired(offsets);
            expired.offsets += offsets;
            expired.groups += groups;
        }
        Ok(())
    }
}

/// What of `group` has expired, but for the keys that wait to be shown.
fn doomed(replay: &Replay, group: &str, now: Now, unshown: &BTreeSet<&[u8]>) -> Doomed {
    let view = replay.groups().expiry_view(group);
    if !view.can_expire() && !view.dies_without_offsets() {
        return Doomed::default();
    }
    let held = replay.cache().list_group(group);
    let mut offsets = Vec::new();
    for offset in &held {
        let key = OffsetKey { group, topic: &offset.topic, partition: offset.partition };
        let (committed_ms, expires_ms) = (offset.committed.commit_timestamp_ms, offset.committed.expire_timestamp_ms);
        if !view.is_expired(&offset.topic, committed_ms, expires_ms, now.retention_ms, now.now_ms) || replay.is_pending(&key) {
            continue;
        }
        offsets.extend(encoded(&key).filter(|key| !unshown.contains(&key[..])));
    }
    let of_the_group = |key: &&[u8]| matches!(OffsetKey::decode(key), Ok(Some(key)) if key.group == group);
    let dies = view.dies_without_offsets()
        && offsets.len() == held.len()
        && replay.pending_of(group).next().is_none()
        && !unshown.iter().any(of_the_group);
    Doomed { offsets, group: if dies { replay.groups().tombstones_of(group) } else { Vec::new() } }
}

impl Doomed {
    fn is_empty(&self) -> bool {
        self.offsets.is_empty() && self.group.is_empty()
    }
}
