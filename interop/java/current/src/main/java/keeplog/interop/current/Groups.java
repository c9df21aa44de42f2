package keeplog.interop.current;

import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.stream.Collectors;
import keeplog.interop.Arguments;
import keeplog.interop.Json;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;

/** What a live broker says of its groups, and commits in bulk. */
final class Groups {
    private static final String BULK = "bulk";

    private Groups() {}

    /** {@code bulk}: commits for {@code groups} groups and {@code partitions} partitions of a topic, {@code rounds} times. */
    static Json bulk(Arguments a) throws Exception {
        int partitions = (int) a.number("partitions");
        try (Clients clients = new Clients(a)) {
            clients.topic(BULK, partitions);
            for (long round = 0; round < a.number("rounds"); round++) {
                Map<String, Map<TopicPartition, OffsetAndMetadata>> commits = new HashMap<>();
                for (long g = 0; g < a.number("groups"); g++) {
                    Map<TopicPartition, OffsetAndMetadata> offsets = commits.computeIfAbsent("bulk-" + g, group -> new HashMap<>());
                    for (int p = 0; p < partitions; p++) offsets.put(new TopicPartition(BULK, p), new OffsetAndMetadata(round * 1000 + g + p));
                }
                clients.alter(commits);
            }
        }
        return new Json();
    }

    /** {@code committed}: a line for each group and partition: group, topic, partition, offset, leader epoch, metadata. */
    static Json committed(Arguments a) throws Exception {
        StringBuilder lines = new StringBuilder();
        try (Clients clients = new Clients(a)) {
            for (GroupListing group : clients.admin.listGroups().all().get()) {
                if (typeOf(group) == GroupType.SHARE) continue; // keeps its positions elsewhere
                var committed = clients.admin.listConsumerGroupOffsets(group.groupId()).partitionsToOffsetAndMetadata().get();
                committed.forEach((partition, position) -> { if (position != null) lines.append(line(group.groupId(), partition, position)); });
            }
        }
        return new Json().put("lines", lines.toString());
    }

    /**
     * {@code groups}: a line for each group that has or had members, with its type, state, protocol type and number of members, and one for each member of a classic or
     * modern one: group, member, instance, client, host, partitions.
     */
    static Json groups(Arguments a) throws Exception {
        StringBuilder lines = new StringBuilder();
        try (Clients clients = new Clients(a)) {
            for (GroupListing group : clients.admin.listGroups().all().get()) {
                if (group.isSimpleConsumerGroup()) continue; // there as long as the broker lives, with or without offsets
                String id = group.groupId();
                Collection<MemberDescription> members = typeOf(group) == GroupType.SHARE ? List.of()
                    : clients.admin.describeConsumerGroups(List.of(id)).describedGroups().get(id).get().members();
                row(lines, "group", id, typeOf(group).toString(), group.groupState().orElseThrow().toString(), group.protocol(), "" + members.size());
                for (MemberDescription m : members) row(lines, "member", id, m.consumerId(), m.groupInstanceId().orElse("-"), m.clientId(), m.host(), partitions(m));
            }
        }
        return new Json().put("lines", lines.toString());
    }

    private static GroupType typeOf(GroupListing group) { return group.type().orElse(GroupType.UNKNOWN); }

    private static String partitions(MemberDescription member) {
        return member.assignment().topicPartitions().stream().map(TopicPartition::toString).collect(Collectors.toCollection(TreeSet::new)).toString();
    }

    private static String line(String group, TopicPartition partition, OffsetAndMetadata position) {
        StringBuilder line = new StringBuilder();
        row(line, group, partition.topic(), "" + partition.partition(), "" + position.offset(), position.leaderEpoch().map(String::valueOf).orElse("-"), position.metadata());
        return line.toString();
    }

    private static void row(StringBuilder lines, String... fields) {
        for (int i = 0; i < fields.length; i++) lines.append(i > 0 ? "\t" : "").append(escaped(fields[i]));
        lines.append('\n');
    }

    /** As Keeplog lists a field with control characters: they, and its backslashes, are escaped. */
    private static String escaped(String field) {
        if (field.chars().noneMatch(Character::isISOControl)) return field;
        return field.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n");
    }
}
