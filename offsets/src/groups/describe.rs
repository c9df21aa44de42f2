//! What can be said about a group.

use std::fmt;

use super::{Group, subscription_of};
use crate::expiry::{CONSUMER, Subscription};
use crate::record::{DecodeError, GroupMember, GroupMetadata, assigned_partitions, subscribed_topics};

/// What a group is, by its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[non_exhaustive]
pub enum GroupKind {
    /// It only ever committed: nobody joins it.
    Simple,
    /// Its members join and sync; one of them assigns. `consumer` is one protocol type of it, `connect` another.
    Classic,
    /// Consumers, whose partitions the coordinator assigns (KIP-848).
    Consumer,
    /// Consumers that share partitions (KIP-932). It commits no offsets.
    Share,
    /// Kafka Streams, whose tasks the coordinator assigns (KIP-1071).
    Streams,
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Simple => "Simple",
            Self::Classic => "Classic",
            Self::Consumer => "Consumer",
            Self::Share => "Share",
            Self::Streams => "Streams",
        })
    }
}

/// Whether anybody is in a group. A coordinator that loads the log knows no more: a rebalance that was going on has
/// left nothing there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[non_exhaustive]
pub enum GroupState {
    /// It has no members.
    Empty,
    /// It has members.
    Stable,
    /// Its record cannot be read.
    Unknown,
}

impl GroupState {
    pub(super) fn of(members: usize) -> Self {
        if members == 0 { Self::Empty } else { Self::Stable }
    }
}

impl fmt::Display for GroupState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Empty => "Empty",
            Self::Stable => "Stable",
            Self::Unknown => "Unknown",
        })
    }
}

/// All there is to say about a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupDescription {
    /// What it is.
    pub kind: GroupKind,
    /// Whether anybody is in it.
    pub state: GroupState,
    /// What its members speak: "consumer", "connect", "share", "streams". Empty of a simple group.
    pub protocol_type: String,
    /// What its members agreed on, such as the name of an assignor.
    pub protocol: Option<String>,
    /// Generation of a classic group, epoch of any other.
    pub epoch: Option<i32>,
    /// The member that made the assignment, of a classic group.
    pub leader: Option<String>,
    /// When a classic group got into its present state, ms.
    pub current_state_timestamp_ms: Option<i64>,
    /// What its members read.
    pub subscription: Subscription,
    /// By their ids, or in the order of the record.
    pub members: Vec<MemberDescription>,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberDescription {
    /// Its id.
    pub member_id: String,
    /// The id that it was configured with, if it was.
    pub instance_id: Option<String>,
    /// What its client calls itself.
    pub client_id: String,
    /// Where it is, with the slash before it that Kafka writes.
    pub client_host: String,
    /// What it reads.
    pub subscription: Subscription,
    /// What was given to it; `None` if that cannot be told.
    pub assignment: Option<Vec<AssignedPartitions>>,
}

/// Partitions of one topic that a member has.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct AssignedPartitions {
    /// The topic. Where the log has but its id: the id as Kafka prints it, 22 characters. Of a streams group, the
    /// subtopology.
    pub topic: String,
    /// Their numbers.
    pub partitions: Vec<i32>,
}

/// A record of a group whose value cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupProblem<'a> {
    /// The group.
    pub group: &'a str,
    /// Offset of the record.
    pub offset: u64,
    /// Type of its key.
    pub key_type: i16,
    /// What is wrong with the value.
    pub cause: DecodeError,
}

impl fmt::Display for GroupProblem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, offset, key_type, cause } = self;
        write!(f, "the value of the record at offset {offset} (type {key_type}, group {group:?}) cannot be read: {cause}")
    }
}

impl Group {
    pub(super) fn describe(&self) -> GroupDescription {
        match self.kind() {
            kind @ (GroupKind::Simple | GroupKind::Classic) => match self.classic() {
                Some(group) => describe_classic(kind, &group),
                None => GroupDescription { kind, state: GroupState::Unknown, ..GroupDescription::nothing() },
            },
            kind => self.modern(kind).describe(),
        }
    }
}

impl GroupDescription {
    /// Where nothing is known.
    fn nothing() -> Self {
        Self {
            kind: GroupKind::Simple,
            state: GroupState::Empty,
            protocol_type: String::new(),
            protocol: None,
            epoch: None,
            leader: None,
            current_state_timestamp_ms: None,
            subscription: Subscription::Unknown,
            members: Vec::new(),
        }
    }

    /// Of a group that has no records.
    #[must_use]
    pub fn simple() -> Self {
        Self { subscription: Subscription::none(), ..Self::nothing() }
    }
}

fn describe_classic(kind: GroupKind, group: &GroupMetadata<'_>) -> GroupDescription {
    let is_consumer = group.protocol_type == CONSUMER;
    GroupDescription {
        kind,
        state: GroupState::of(group.members.len()),
        protocol_type: group.protocol_type.to_owned(),
        protocol: group.protocol.map(str::to_owned),
        epoch: Some(group.generation),
        leader: group.leader.map(str::to_owned),
        current_state_timestamp_ms: group.current_state_timestamp_ms,
        subscription: if group.members.is_empty() { Subscription::none() } else { subscription_of(group) },
        members: group.members.iter().map(|member| describe_member(member, is_consumer)).collect(),
    }
}

fn describe_member(member: &GroupMember<'_>, is_consumer: bool) -> MemberDescription {
    let topics = if is_consumer { subscribed_topics(member.subscription).ok() } else { None };
    let assigned = if is_consumer { assigned_partitions(member.assignment).ok() } else { None };
    let owned = |(topic, partitions): (&str, Vec<i32>)| AssignedPartitions { topic: topic.to_owned(), partitions };
    MemberDescription {
        member_id: member.member_id.to_owned(),
        instance_id: member.instance_id.map(str::to_owned),
        client_id: member.client_id.to_owned(),
        client_host: member.client_host.to_owned(),
        subscription: topics.map_or(Subscription::Unknown, Subscription::of),
        assignment: assigned.map(|assigned| assigned.into_iter().map(owned).collect()),
    }
}
