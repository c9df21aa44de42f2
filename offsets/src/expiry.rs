//! When a committed offset expires: KIP-211, with what Kafka's coordinator has changed since.
//!
//! | Group | Time counts from | What expires |
//! |---|---|---|
//! | simple: it only ever committed | the commit | everything |
//! | classic, Empty | the moment it became Empty; the commit, if that is not known | everything |
//! | classic, Stable, of protocol type "consumer" | the commit | topics that no member subscribes to |
//! | classic, anything else | - | nothing |
//! | consumer (KIP-848), streams | the commit | topics that no member subscribes to |
//! | share: it commits nothing | - | nothing |
//! | a group whose records cannot be read | - | nothing |
//!
//! Where something expires, a commit with an expire timestamp of its own goes at that time, whatever the retention;
//! any other goes once the retention has passed since the time in the table. Of a commit whose time is not known (-1,
//! as any negative timestamp) nothing can be said, and it stays. A retention of 0 lets go of everything that is not of
//! the future, and a negative one of nothing, as `retention.ms` has it. Differences saturate: no timestamp and no
//! retention can make a young offset look old.
//!
//! Commits that wait for a transaction are not looked at here; what waits anywhere must not expire.

/// The topics that the members of a group read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subscription {
    /// It cannot be told, so that any topic may be read.
    Unknown,
    /// These, ascending and each once.
    Topics(Vec<Box<str>>),
}

impl Subscription {
    /// Of a group without members.
    #[must_use]
    pub fn none() -> Self {
        Self::Topics(Vec::new())
    }

    /// Of a member that subscribes to `topics`, in any order.
    pub(crate) fn of<'a>(topics: impl IntoIterator<Item = &'a str>) -> Self {
        let mut topics: Vec<Box<str>> = topics.into_iter().map(Into::into).collect();
        topics.sort_unstable();
        topics.dedup();
        Self::Topics(topics)
    }

    /// What one of the two reads.
    pub(crate) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Topics(mut topics), Self::Topics(more)) => {
                topics.extend(more);
                topics.sort_unstable();
                topics.dedup();
                Self::Topics(topics)
            }
            _ => Self::Unknown,
        }
    }

    /// Whether `topic` may be read.
    #[must_use]
    pub fn may_read(&self, topic: &str) -> bool {
        match self {
            Self::Unknown => true,
            Self::Topics(topics) => topics.binary_search_by(|held| (**held).cmp(topic)).is_ok(),
        }
    }
}

/// What the expiry of a group's offsets has to know about the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupExpiry {
    clock: Clock,
    subscription: Subscription,
    /// Whether the group has records of its own to remove, and nobody in it.
    dies_without_offsets: bool,
}

/// Since when the time of an offset runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clock {
    /// It does not run.
    Stopped,
    /// Since it was committed.
    SinceCommit,
    /// Since this time, ms, for all offsets of the group.
    Since(i64),
}

impl GroupExpiry {
    /// Of a group of which there are only offsets.
    #[must_use]
    pub fn simple() -> Self {
        Self { clock: Clock::SinceCommit, subscription: Subscription::none(), dies_without_offsets: false }
    }

    /// Of a group that is to be left alone.
    #[must_use]
    pub fn never() -> Self {
        Self { clock: Clock::Stopped, subscription: Subscription::Unknown, dies_without_offsets: false }
    }

    /// Of a classic group without members. One of no protocol type is a simple group that has left a record.
    #[must_use]
    pub fn classic_empty(protocol_type: &str, since_ms: Option<i64>) -> Self {
        let since = since_ms.filter(|ms| !protocol_type.is_empty() && *ms >= 0);
        Self { clock: since.map_or(Clock::SinceCommit, Clock::Since), dies_without_offsets: true, ..Self::simple() }
    }

    /// Of a classic group that has members and no rebalance going on.
    #[must_use]
    pub fn classic_stable(protocol_type: &str, subscription: Subscription) -> Self {
        match protocol_type {
            CONSUMER => Self { clock: Clock::SinceCommit, subscription, dies_without_offsets: false },
            _ => Self::never(),
        }
    }

    /// Of a consumer or streams group without members.
    #[must_use]
    pub fn modern_empty() -> Self {
        Self { dies_without_offsets: true, ..Self::simple() }
    }

    /// Of a consumer or streams group with members.
    #[must_use]
    pub fn modern_with_members(subscription: Subscription) -> Self {
        Self { clock: Clock::SinceCommit, subscription, dies_without_offsets: false }
    }

    /// Whether a member may read `topic`: then none of its offsets expire, and nobody should delete them.
    #[must_use]
    pub fn may_read(&self, topic: &str) -> bool {
        self.subscription.may_read(topic)
    }

    /// Whether anything of the group can expire: saves looking at its offsets.
    #[must_use]
    pub fn can_expire(&self) -> bool {
        self.clock != Clock::Stopped && self.subscription != Subscription::Unknown
    }

    /// Whether an offset that the group committed for a partition of `topic` expires. All times are ms.
    #[must_use]
    pub fn is_expired(
        &self,
        topic: &str,
        commit_timestamp_ms: i64,
        expire_timestamp_ms: Option<i64>,
        retention_ms: i64,
        now_ms: i64,
    ) -> bool {
        let base_ms = match self.clock {
            Clock::Stopped => return false,
            Clock::SinceCommit => commit_timestamp_ms,
            Clock::Since(ms) => ms,
        };
        let is_due = match expire_timestamp_ms.filter(|ms| *ms >= 0) {
            Some(expire_timestamp_ms) => now_ms >= expire_timestamp_ms,
            None => base_ms >= 0 && retention_ms >= 0 && now_ms.saturating_sub(base_ms) >= retention_ms,
        };
        is_due && !self.may_read(topic)
    }

    /// Whether the group goes, its own records with it, once it has no offset left and none waits for a transaction.
    #[must_use]
    pub fn dies_without_offsets(&self) -> bool {
        self.dies_without_offsets
    }
}

/// `offsets.retention.minutes` in ms: more than fits is the longest time there is.
#[must_use]
pub fn retention_ms(minutes: i64) -> i64 {
    const MS_A_MINUTE: i64 = 60_000;
    minutes.saturating_mul(MS_A_MINUTE)
}

/// The protocol type of groups whose members speak the consumer protocol.
pub(crate) const CONSUMER: &str = "consumer";

#[cfg(test)]
mod tests;
