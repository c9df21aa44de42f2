//! The layouts of all records, as data: one interpreter ([`super::tree`]) reads and writes them all.
//!
//! Names, order, versions and tags are those of Kafka 4.3; layouts that later versions dropped are as they were
//! last written.

/// One layout through all its versions.
#[derive(Debug)]
pub(crate) struct Schema {
    /// Kafka's name of it.
    pub(crate) name: &'static str,
    /// Versions 0 to this one are known.
    pub(crate) latest: i16,
    /// The first version in the flexible encoding; `NEVER` if there is none.
    pub(crate) flexible_from: i16,
    pub(crate) fields: &'static [Field],
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// First and last version with this field.
    pub(crate) versions: (i16, i16),
    /// Where it stands: at its place in the order, or in the tagged fields at the end.
    pub(crate) tag: Option<u32>,
}

/// Every string, byte string, array and struct is taken as nullable: a null where Kafka writes none is shown, not
/// refused.
#[derive(Debug)]
pub(crate) enum Kind {
    Int8,
    Int16,
    Uint16,
    Int32,
    Int64,
    Uuid,
    String,
    Bytes,
    /// A string naming the protocol whose layouts the `Embedded` fields after it have, if that is "consumer".
    ProtocolType,
    /// Bytes that hold another versioned layout.
    Embedded(&'static Schema),
    Array(&'static Kind),
    Struct(&'static [Field]),
    /// A struct behind a byte that says whether it is there; a varint if the field is tagged.
    NullableStruct(&'static [Field]),
}

pub(crate) const NEVER: i16 = i16::MAX;

const fn field(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, versions: (0, i16::MAX), tag: None }
}

const fn array(name: &'static str, items: &'static Kind) -> Field {
    field(name, Kind::Array(items))
}

impl Field {
    const fn since(mut self, version: i16) -> Self {
        self.versions.0 = version;
        self
    }

    const fn only(mut self, version: i16) -> Self {
        self.versions = (version, version);
        self
    }

    const fn tag(mut self, tag: u32) -> Self {
        self.tag = Some(tag);
        self
    }

    /// Whether `version` of the layout has this field.
    pub(crate) const fn is_in(&self, version: i16) -> bool {
        self.versions.0 <= version && version <= self.versions.1
    }
}

/// A record type: the layouts of its key (after the type) and of its value (after its version).
#[derive(Debug)]
pub(crate) struct RecordSchema {
    pub(crate) key_type: i16,
    pub(crate) key: &'static [Field],
    pub(crate) value: &'static Schema,
}

const fn record(key_type: i16, key: &'static [Field], value: &'static Schema) -> RecordSchema {
    RecordSchema { key_type, key, value }
}

/// A value that is flexible from its first and only version on.
const fn flexible(name: &'static str, fields: &'static [Field]) -> Schema {
    Schema { name, latest: 0, flexible_from: 0, fields }
}

/// The records of `__consumer_offsets`.
pub(crate) const OFFSETS: &[RecordSchema] = &[
    record(0, COMMIT_KEY, &OFFSET_COMMIT),
    record(1, COMMIT_KEY, &OFFSET_COMMIT),
    record(2, &[field("group", Kind::String)], &GROUP_METADATA),
    record(3, GROUP_KEY, &CONSUMER_GROUP_METADATA),
    record(4, GROUP_KEY, &flexible("ConsumerGroupPartitionMetadata", PARTITION_METADATA)),
    record(5, MEMBER_KEY, &flexible("ConsumerGroupMemberMetadata", CONSUMER_GROUP_MEMBER)),
    record(6, GROUP_KEY, &flexible("ConsumerGroupTargetAssignmentMetadata", TARGET_ASSIGNMENT)),
    record(7, MEMBER_KEY, &flexible("ConsumerGroupTargetAssignmentMember", TARGET_PARTITIONS)),
    record(8, MEMBER_KEY, &flexible("ConsumerGroupCurrentMemberAssignment", CONSUMER_GROUP_ASSIGNMENT)),
    record(9, GROUP_KEY, &flexible("ShareGroupPartitionMetadata", PARTITION_METADATA)),
    record(10, MEMBER_KEY, &flexible("ShareGroupMemberMetadata", SHARE_GROUP_MEMBER)),
    record(11, GROUP_KEY, &flexible("ShareGroupMetadata", &[field("epoch", Kind::Int32), field("metadataHash", Kind::Int64)])),
    record(12, GROUP_KEY, &flexible("ShareGroupTargetAssignmentMetadata", TARGET_ASSIGNMENT)),
    record(13, MEMBER_KEY, &flexible("ShareGroupTargetAssignmentMember", TARGET_PARTITIONS)),
    record(14, MEMBER_KEY, &flexible("ShareGroupCurrentMemberAssignment", SHARE_GROUP_ASSIGNMENT)),
    record(15, GROUP_KEY, &flexible("ShareGroupStatePartitionMetadata", SHARE_GROUP_TOPICS)),
    record(16, REGEX_KEY, &flexible("ConsumerGroupRegularExpression", REGULAR_EXPRESSION)),
    record(17, GROUP_KEY, &flexible("StreamsGroupMetadata", STREAMS_GROUP)),
    record(18, GROUP_KEY, &flexible("StreamsGroupPartitionMetadata", PARTITION_METADATA)),
    record(19, MEMBER_KEY, &flexible("StreamsGroupMemberMetadata", STREAMS_GROUP_MEMBER)),
    record(20, GROUP_KEY, &flexible("StreamsGroupTargetAssignmentMetadata", TARGET_ASSIGNMENT)),
    record(21, MEMBER_KEY, &flexible("StreamsGroupTargetAssignmentMember", TARGET_TASKS)),
    record(22, MEMBER_KEY, &flexible("StreamsGroupCurrentMemberAssignment", STREAMS_GROUP_ASSIGNMENT)),
    record(23, GROUP_KEY, &flexible("StreamsGroupTopology", STREAMS_GROUP_TOPOLOGY)),
];

/// The records of `__transaction_state`.
pub(crate) const TRANSACTIONS: &[RecordSchema] = &[record(0, &[field("transactionalId", Kind::String)], &TRANSACTION_LOG)];

const COMMIT_KEY: &[Field] = &[field("group", Kind::String), field("topic", Kind::String), field("partition", Kind::Int32)];
const GROUP_KEY: &[Field] = &[field("groupId", Kind::String)];
const MEMBER_KEY: &[Field] = &[field("groupId", Kind::String), field("memberId", Kind::String)];
const REGEX_KEY: &[Field] = &[field("groupId", Kind::String), field("regularExpression", Kind::String)];

const OFFSET_COMMIT: Schema = Schema {
    name: "OffsetCommit",
    latest: 4,
    flexible_from: 4,
    fields: &[
        field("offset", Kind::Int64),
        field("leaderEpoch", Kind::Int32).since(3),
        field("metadata", Kind::String),
        field("commitTimestamp", Kind::Int64),
        field("expireTimestamp", Kind::Int64).only(1),
        field("topicId", Kind::Uuid).since(4).tag(0),
    ],
};

const GROUP_METADATA: Schema = Schema {
    name: "GroupMetadata",
    latest: 4,
    flexible_from: 4,
    fields: &[
        field("protocolType", Kind::ProtocolType),
        field("generation", Kind::Int32),
        field("protocol", Kind::String),
        field("leader", Kind::String),
        field("currentStateTimestamp", Kind::Int64).since(2),
        array("members", &Kind::Struct(GROUP_METADATA_MEMBER)),
    ],
};

const GROUP_METADATA_MEMBER: &[Field] = &[
    field("memberId", Kind::String),
    field("groupInstanceId", Kind::String).since(3),
    field("clientId", Kind::String),
    field("clientHost", Kind::String),
    field("rebalanceTimeout", Kind::Int32).since(1),
    field("sessionTimeout", Kind::Int32),
    field("subscription", Kind::Embedded(&SUBSCRIPTION)),
    field("assignment", Kind::Embedded(&ASSIGNMENT)),
];

const SUBSCRIPTION: Schema = Schema {
    name: "ConsumerProtocolSubscription",
    latest: 3,
    flexible_from: NEVER,
    fields: &[
        array("topics", &Kind::String),
        field("userData", Kind::Bytes),
        array("ownedPartitions", &Kind::Struct(NAMED_PARTITIONS)).since(1),
        field("generationId", Kind::Int32).since(2),
        field("rackId", Kind::String).since(3),
    ],
};

const ASSIGNMENT: Schema = Schema {
    name: "ConsumerProtocolAssignment",
    latest: 3,
    flexible_from: NEVER,
    fields: &[array("assignedPartitions", &Kind::Struct(NAMED_PARTITIONS)), field("userData", Kind::Bytes)],
};

const NAMED_PARTITIONS: &[Field] = &[field("topic", Kind::String), array("partitions", &Kind::Int32)];

const CONSUMER_GROUP_METADATA: Schema =
    flexible("ConsumerGroupMetadata", &[field("epoch", Kind::Int32), field("metadataHash", Kind::Int64).tag(0)]);

const PARTITION_METADATA: &[Field] = &[array(
    "topics",
    &Kind::Struct(&[
        field("topicId", Kind::Uuid),
        field("topicName", Kind::String),
        field("numPartitions", Kind::Int32),
        array("partitionMetadata", &Kind::Struct(&[field("partition", Kind::Int32), array("racks", &Kind::String)])),
    ]),
)];

const CONSUMER_GROUP_MEMBER: &[Field] = &[
    field("instanceId", Kind::String),
    field("rackId", Kind::String),
    field("clientId", Kind::String),
    field("clientHost", Kind::String),
    array("subscribedTopicNames", &Kind::String),
    field("subscribedTopicRegex", Kind::String),
    field("rebalanceTimeoutMs", Kind::Int32),
    field("serverAssignor", Kind::String),
    field(
        "classicMemberMetadata",
        Kind::NullableStruct(&[
            field("sessionTimeoutMs", Kind::Int32),
            array("supportedProtocols", &Kind::Struct(&[field("name", Kind::String), field("metadata", Kind::Embedded(&SUBSCRIPTION))])),
        ]),
    )
    .tag(0),
];

const TARGET_ASSIGNMENT: &[Field] = &[field("assignmentEpoch", Kind::Int32), field("assignmentTimestamp", Kind::Int64).tag(0)];

const TARGET_PARTITIONS: &[Field] = &[array("topicPartitions", &Kind::Struct(TOPIC_PARTITIONS))];

const TOPIC_PARTITIONS: &[Field] = &[field("topicId", Kind::Uuid), array("partitions", &Kind::Int32)];

const CONSUMER_GROUP_ASSIGNMENT: &[Field] = &[
    field("memberEpoch", Kind::Int32),
    field("previousMemberEpoch", Kind::Int32),
    field("state", Kind::Int8),
    array("assignedPartitions", &Kind::Struct(EPOCH_PARTITIONS)),
    array("partitionsPendingRevocation", &Kind::Struct(EPOCH_PARTITIONS)),
];

const EPOCH_PARTITIONS: &[Field] =
    &[field("topicId", Kind::Uuid), array("partitions", &Kind::Int32), array("assignmentEpochs", &Kind::Int32).tag(0)];

const SHARE_GROUP_MEMBER: &[Field] = &[
    field("rackId", Kind::String),
    field("clientId", Kind::String),
    field("clientHost", Kind::String),
    array("subscribedTopicNames", &Kind::String),
];

const SHARE_GROUP_ASSIGNMENT: &[Field] = &[
    field("memberEpoch", Kind::Int32),
    field("previousMemberEpoch", Kind::Int32),
    field("state", Kind::Int8),
    array("assignedPartitions", &Kind::Struct(TOPIC_PARTITIONS)),
];

const SHARE_GROUP_TOPICS: &[Field] = &[
    array("initializingTopics", &Kind::Struct(TOPIC_PARTITIONS_INFO)),
    array("initializedTopics", &Kind::Struct(TOPIC_PARTITIONS_INFO)),
    array("deletingTopics", &Kind::Struct(&[field("topicId", Kind::Uuid), field("topicName", Kind::String)])),
];

const TOPIC_PARTITIONS_INFO: &[Field] =
    &[field("topicId", Kind::Uuid), field("topicName", Kind::String), array("partitions", &Kind::Int32)];

const REGULAR_EXPRESSION: &[Field] = &[array("topics", &Kind::String), field("version", Kind::Int64), field("timestamp", Kind::Int64)];

const STREAMS_GROUP: &[Field] = &[
    field("epoch", Kind::Int32),
    field("metadataHash", Kind::Int64),
    field("validatedTopologyEpoch", Kind::Int32).tag(0),
    array("lastAssignmentConfigs", &Kind::Struct(KEY_VALUE)).tag(1),
];

const KEY_VALUE: &[Field] = &[field("key", Kind::String), field("value", Kind::String)];

const STREAMS_GROUP_MEMBER: &[Field] = &[
    field("instanceId", Kind::String),
    field("rackId", Kind::String),
    field("clientId", Kind::String),
    field("clientHost", Kind::String),
    field("rebalanceTimeoutMs", Kind::Int32),
    field("topologyEpoch", Kind::Int32),
    field("processId", Kind::String),
    field("userEndpoint", Kind::NullableStruct(&[field("host", Kind::String), field("port", Kind::Uint16)])),
    array("clientTags", &Kind::Struct(KEY_VALUE)),
];

const TARGET_TASKS: &[Field] =
    &[array("activeTasks", &Kind::Struct(TASKS)), array("standbyTasks", &Kind::Struct(TASKS)), array("warmupTasks", &Kind::Struct(TASKS))];

const TASKS: &[Field] = &[field("subtopologyId", Kind::String), array("partitions", &Kind::Int32)];

const STREAMS_GROUP_ASSIGNMENT: &[Field] = &[
    field("memberEpoch", Kind::Int32),
    field("previousMemberEpoch", Kind::Int32),
    field("state", Kind::Int8),
    array("activeTasks", &Kind::Struct(EPOCH_TASKS)),
    array("standbyTasks", &Kind::Struct(EPOCH_TASKS)),
    array("warmupTasks", &Kind::Struct(EPOCH_TASKS)),
    array("activeTasksPendingRevocation", &Kind::Struct(EPOCH_TASKS)),
    array("standbyTasksPendingRevocation", &Kind::Struct(EPOCH_TASKS)),
    array("warmupTasksPendingRevocation", &Kind::Struct(EPOCH_TASKS)),
];

const EPOCH_TASKS: &[Field] =
    &[field("subtopologyId", Kind::String), array("partitions", &Kind::Int32), array("assignmentEpochs", &Kind::Int32).tag(0)];

const STREAMS_GROUP_TOPOLOGY: &[Field] = &[
    field("epoch", Kind::Int32),
    array(
        "subtopologies",
        &Kind::Struct(&[
            field("subtopologyId", Kind::String),
            array("sourceTopics", &Kind::String),
            array("sourceTopicRegex", &Kind::String),
            array("stateChangelogTopics", &Kind::Struct(TOPIC_INFO)),
            array("repartitionSinkTopics", &Kind::String),
            array("repartitionSourceTopics", &Kind::Struct(TOPIC_INFO)),
            array("copartitionGroups", &Kind::Struct(COPARTITION_GROUP)),
        ]),
    ),
];

const TOPIC_INFO: &[Field] = &[
    field("name", Kind::String),
    field("partitions", Kind::Int32),
    field("replicationFactor", Kind::Int16),
    array("topicConfigs", &Kind::Struct(KEY_VALUE)),
];

const COPARTITION_GROUP: &[Field] =
    &[array("sourceTopics", &Kind::Int16), array("sourceTopicRegex", &Kind::Int16), array("repartitionSourceTopics", &Kind::Int16)];

const TRANSACTION_LOG: Schema = Schema {
    name: "TransactionLog",
    latest: 1,
    flexible_from: 1,
    fields: &[
        field("producerId", Kind::Int64),
        field("previousProducerId", Kind::Int64).since(1).tag(0),
        field("nextProducerId", Kind::Int64).since(1).tag(1),
        field("producerEpoch", Kind::Int16),
        field("nextProducerEpoch", Kind::Int16).since(1).tag(3),
        field("transactionTimeoutMs", Kind::Int32),
        field("transactionStatus", Kind::Int8),
        array("transactionPartitions", &Kind::Struct(&[field("topic", Kind::String), array("partitionIds", &Kind::Int32)])),
        field("transactionLastUpdateTimestampMs", Kind::Int64),
        field("transactionStartTimestampMs", Kind::Int64),
        field("clientTransactionVersion", Kind::Int16).since(1).tag(2),
    ],
};
