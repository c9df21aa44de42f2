//! Groups of consumers, share consumers and streams: many records each, read through their schemas.

use hashbrown::HashMap;

use super::describe::{AssignedPartitions, GroupDescription, GroupKind, GroupState, MemberDescription};
use super::{Part, Records, Stored};
use crate::expiry::Subscription;
use crate::record::{GroupKey, Struct, Value, decode_fields};

const CONSUMER_GROUP: i16 = 3;
const CONSUMER_PARTITIONS: i16 = 4;
const CONSUMER_MEMBER: i16 = 5;
const CONSUMER_ASSIGNMENT: i16 = 8;
const SHARE_PARTITIONS: i16 = 9;
const SHARE_MEMBER: i16 = 10;
const SHARE_GROUP: i16 = 11;
const SHARE_ASSIGNMENT: i16 = 14;
const REGULAR_EXPRESSION: i16 = 16;
const STREAMS_GROUP: i16 = 17;
const STREAMS_PARTITIONS: i16 = 18;
const STREAMS_MEMBER: i16 = 19;
const STREAMS_ASSIGNMENT: i16 = 22;
const STREAMS_TOPOLOGY: i16 = 23;

// What is asked of a record. Its other fields are read over: they may take many times the memory that their bytes do.
const HEAD: &[&str] = &["epoch"];
const SUBSCRIBED: &[&str] = &["subscribedTopicNames", "subscribedTopicRegex"];
const MEMBER: &[&str] = &["instanceId", "clientId", "clientHost", "subscribedTopicNames", "subscribedTopicRegex"];
const MATCHED: &[&str] = &["topics"];
const TOPIC_NAMES: &[&str] = &["topics", "topicId", "topicName"];
const ASSIGNED: &[&str] = &["assignedPartitions", "activeTasks", "topicId", "subtopologyId", "partitions"];
const TOPOLOGY: &[&str] = &["subtopologies", "sourceTopicRegex", "sourceTopics", "repartitionSourceTopics", "name"];

/// The kind of group that has many records, this type among them.
pub(super) fn kind_of(key_type: i16) -> Option<GroupKind> {
    match key_type {
        CONSUMER_GROUP..=CONSUMER_ASSIGNMENT | REGULAR_EXPRESSION => Some(GroupKind::Consumer),
        SHARE_PARTITIONS..REGULAR_EXPRESSION => Some(GroupKind::Share),
        STREAMS_GROUP..=STREAMS_TOPOLOGY => Some(GroupKind::Streams),
        _ => None,
    }
}

/// Whether records of this type say that the group is there, so that others hang on them.
pub(super) fn is_head(key_type: i16) -> bool {
    matches!(key_type, super::GROUP_METADATA_KEY | CONSUMER_GROUP | SHARE_GROUP | STREAMS_GROUP)
}

/// By topic id.
type TopicNames = HashMap<[u8; 16], String>;

/// The records of one group, as one kind of group reads them.
#[derive(Clone, Copy)]
pub(super) struct Modern<'a> {
    pub(super) kind: GroupKind,
    pub(super) records: Option<&'a Records>,
}

/// The types of the records that hold the same thing for different kinds.
struct Types {
    protocol_type: &'static str,
    head: i16,
    partitions: i16,
    member: i16,
    assignment: i16,
}

impl<'a> Modern<'a> {
    fn types(self) -> Types {
        let of = |protocol_type, head, partitions, member, assignment| Types { protocol_type, head, partitions, member, assignment };
        match self.kind {
            GroupKind::Share => of("share", SHARE_GROUP, SHARE_PARTITIONS, SHARE_MEMBER, SHARE_ASSIGNMENT),
            GroupKind::Streams => of("streams", STREAMS_GROUP, STREAMS_PARTITIONS, STREAMS_MEMBER, STREAMS_ASSIGNMENT),
            _ => of("consumer", CONSUMER_GROUP, CONSUMER_PARTITIONS, CONSUMER_MEMBER, CONSUMER_ASSIGNMENT),
        }
    }

    fn of_type(self, key_type: i16) -> impl Iterator<Item = (&'a Part, &'a Stored)> {
        let from = Part { key_type, rest: Box::default() };
        let to = Part { key_type: key_type + 1, rest: Box::default() };
        self.records.into_iter().flat_map(move |records| records.range(&from..&to).collect::<Vec<_>>())
    }

    fn members(self) -> impl Iterator<Item = (&'a Part, &'a Stored)> {
        self.of_type(self.types().member)
    }

    /// These fields of the first record of a type, if it is there and can be read.
    fn first(self, key_type: i16, names: &'static [&'static str]) -> Option<Struct> {
        self.of_type(key_type).next().and_then(|(_, stored)| decode_fields(key_type, &stored.value, names).ok())
    }

    pub(super) fn member_count(self) -> usize {
        self.members().count()
    }

    /// What its members read.
    pub(super) fn subscription(self) -> Subscription {
        if self.kind == GroupKind::Streams {
            return self.topology();
        }
        let each = self
            .members()
            .map(|(part, stored)| self.subscription_of(decode_fields(part.key_type, &stored.value, SUBSCRIBED).ok().as_ref()));
        each.fold(Subscription::none(), Subscription::or)
    }

    /// The topics that the tasks of a streams group read.
    fn topology(self) -> Subscription {
        let topics = || {
            let topology = self.first(STREAMS_TOPOLOGY, TOPOLOGY)?;
            let mut topics = Vec::new();
            for subtopology in structs(topology.field("subtopologies"))? {
                if !list(subtopology.field("sourceTopicRegex"))?.is_empty() {
                    return None;
                }
                topics.extend(texts(subtopology.field("sourceTopics"))?.into_iter().map(str::to_owned));
                for repartition in structs(subtopology.field("repartitionSourceTopics"))? {
                    topics.push(repartition.field("name")?.as_text()?.to_owned());
                }
            }
            Some(topics)
        };
        topics().map_or(Subscription::Unknown, |topics| Subscription::of(topics.iter().map(String::as_str)))
    }

    /// What a member reads, by its record; `None` for one that cannot be read.
    fn subscription_of(self, member: Option<&Struct>) -> Subscription {
        let topics = || Some(Subscription::of(texts(member?.field("subscribedTopicNames"))?));
        let named = topics().unwrap_or(Subscription::Unknown);
        match member.and_then(|member| member.field("subscribedTopicRegex")).and_then(Value::as_text) {
            None | Some("") => named,
            Some(regex) => named.or(self.matched(regex)),
        }
    }

    /// The topics that the coordinator has found for a regular expression.
    fn matched(self, regex: &str) -> Subscription {
        let of_regex = |(part, _): &(&Part, &Stored)| GroupKey::text_of(&part.rest) == Ok(regex);
        let found = self.of_type(REGULAR_EXPRESSION).find(of_regex);
        let decoded = found.and_then(|(_, stored)| decode_fields(REGULAR_EXPRESSION, &stored.value, MATCHED).ok());
        let topics = decoded.as_ref().and_then(|decoded| texts(decoded.field("topics")));
        topics.map_or(Subscription::Unknown, Subscription::of)
    }

    pub(super) fn describe(self) -> GroupDescription {
        let types = self.types();
        let mut described = GroupDescription::simple();
        described.kind = self.kind;
        described.state = GroupState::of(self.member_count());
        types.protocol_type.clone_into(&mut described.protocol_type);
        described.epoch =
            self.first(types.head, HEAD).and_then(|head| head.field("epoch")?.as_int()).and_then(|epoch| i32::try_from(epoch).ok());
        described.subscription = if described.state == GroupState::Empty { Subscription::none() } else { self.subscription() };
        let names = self.topic_names(types.partitions);
        // All members of a streams group read the same.
        let topology = (self.kind == GroupKind::Streams).then(|| described.subscription.clone());
        let describe = |(part, stored)| self.describe_member(part, stored, &names, topology.as_ref());
        described.members = self.members().map(describe).collect();
        described
    }

    fn describe_member(self, part: &Part, stored: &Stored, names: &TopicNames, topology: Option<&Subscription>) -> MemberDescription {
        let member = decode_fields(part.key_type, &stored.value, MEMBER).ok();
        let text = |name| member.as_ref().and_then(|member| member.field(name)?.as_text()).map(str::to_owned);
        let subscription = topology.cloned().unwrap_or_else(|| self.subscription_of(member.as_ref()));
        let key_type = self.types().assignment;
        let assignment = self.records.and_then(|records| records.get(&Part { key_type, rest: part.rest.clone() }));
        MemberDescription {
            member_id: GroupKey::text_of(&part.rest).map_or_else(|_| String::from_utf8_lossy(&part.rest).into_owned(), str::to_owned),
            instance_id: text("instanceId"),
            client_id: text("clientId").unwrap_or_default(),
            client_host: text("clientHost").unwrap_or_default(),
            subscription,
            assignment: match assignment {
                None => Some(Vec::new()),
                Some(stored) => decode_fields(key_type, &stored.value, ASSIGNED).ok().and_then(|decoded| assigned(&decoded, names)),
            },
        }
    }

    /// Names by topic id, which coordinators before 4.1 have written down.
    fn topic_names(self, key_type: i16) -> TopicNames {
        let named = |topic: &Struct| match (topic.field("topicId")?, topic.field("topicName")?) {
            (Value::Uuid(id), Value::Text(name)) => Some((*id, name.to_string())),
            _ => None,
        };
        let metadata = self.first(key_type, TOPIC_NAMES);
        let topics = metadata.as_ref().and_then(|metadata| structs(metadata.field("topics"))).unwrap_or_default();
        topics.into_iter().rev().filter_map(named).collect()
    }
}

/// The partitions, or active tasks, of a member.
fn assigned(assignment: &Struct, names: &TopicNames) -> Option<Vec<AssignedPartitions>> {
    let all = structs(assignment.field("assignedPartitions").or(assignment.field("activeTasks")))?;
    let one = |of_topic: &Struct| {
        let topic = match of_topic.field("topicId") {
            Some(Value::Uuid(id)) => match names.get(id) {
                Some(name) => name.clone(),
                None => crate::record::uuid_text(*id),
            },
            _ => of_topic.field("subtopologyId")?.as_text()?.to_owned(),
        };
        let numbers = list(of_topic.field("partitions"))?.iter().map(|number| i32::try_from(number.as_int()?).ok());
        Some(AssignedPartitions { topic, partitions: numbers.collect::<Option<_>>()? })
    };
    all.into_iter().map(one).collect()
}

/// The items of an array, of which a null one has none.
fn list(value: Option<&Value>) -> Option<&[Value]> {
    match value? {
        Value::List(items) => Some(items),
        Value::Null => Some(&[]),
        _ => None,
    }
}

fn structs(value: Option<&Value>) -> Option<Vec<&Struct>> {
    let items = list(value)?.iter().map(|item| if let Value::Struct(item) = item { Some(&**item) } else { None });
    items.collect()
}

fn texts(value: Option<&Value>) -> Option<Vec<&str>> {
    list(value)?.iter().map(Value::as_text).collect()
}
