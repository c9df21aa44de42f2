package keeplog.interop.current;

import static keeplog.interop.current.Clients.ORDERS;
import static keeplog.interop.current.Clients.POLL;
import static keeplog.interop.current.Clients.order;
import static keeplog.interop.current.Clients.utf8;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Queue;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import keeplog.interop.Arguments;
import keeplog.interop.Json;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/**
 * Fills a live broker with groups of every kind: who comes, goes and stays, commits in every way, and takes back. A seed says what is asked of
 * the broker; in which order it gets it is up to the threads.
 */
final class Filling {
    private static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    private static final String DATA = "codecs";
    private static final String GONE = "gone";
    /** Times that somebody is asked again for what takes a while. */
    private static final int ATTEMPTS = 600;
    private static final int THREADS = 4;
    private static final int MEMBERS_MAX = 3;
    /** The transaction that a fill leaves open, for as long as a broker lets it be. */
    private static final String LEFT_OPEN = "left-open";
    private static final String OPEN_MS = "900000";
    private static final String[] CLASSIC = {"session.timeout.ms", "600000", "heartbeat.interval.ms", "200"};

    private interface Step {
        void run(Random random) throws Exception;
    }

    /** Who is to be in a group still when its broker ends, by the broker's address. */
    private static final Map<String, Queue<KafkaConsumer<byte[], byte[]>>> STAYING = new ConcurrentHashMap<>();

    private final Clients clients;
    private final Queue<KafkaConsumer<byte[], byte[]>> staying;

    private Filling(Clients clients, Queue<KafkaConsumer<byte[], byte[]>> staying) {
        this.clients = clients;
        this.staying = staying;
    }

    /** {@code fill}: all of it, by {@code seed}. */
    static Json fill(Arguments a) throws Exception {
        try (Clients clients = new Clients(a)) {
            clients.topic(ORDERS, Clients.ORDERS_PARTITIONS);
            clients.topic(DATA, CODECS.size());
            clients.topic(GONE, 2);
            new Filling(clients, STAYING.computeIfAbsent(a.text("address"), address -> new ConcurrentLinkedQueue<>())).all(a.number("seed"));
        }
        return new Json();
    }

    /** {@code dismiss}: members whose broker has ended end, too; it does not learn of it. */
    static Json dismiss(Arguments a) {
        STAYING.remove(a.text("address")).forEach(member -> member.close(CloseOptions.timeout(Duration.ZERO)));
        return new Json();
    }

    /** {@code settle}: whoever left a transaction open comes back, by which the broker aborts it. */
    static Json settle(Arguments a) {
        try (Clients clients = new Clients(a); KafkaProducer<byte[], byte[]> producer = clients.producer("transactional.id", LEFT_OPEN)) {
            producer.initTransactions();
        }
        return new Json();
    }

    private void all(long seed) throws Exception {
        records(new Random(seed));
        List<Step> steps = List.of(
            random -> comeAndGo("classic-", "classic", random),
            random -> comeAndGo("modern-", "consumer", random),
            this::transactionalCommits, this::migrated, this::byTool, this::staticMembers, this::byPattern, this::shared, this::dataTransactions, this::standalone, this::topicGone);
        ExecutorService pool = Executors.newFixedThreadPool(THREADS);
        try {
            List<Future<?>> running = new ArrayList<>();
            for (int i = 0; i < steps.size(); i++) {
                Step step = steps.get(i);
                Random random = new Random(seed * steps.size() + i);
                running.add(pool.submit(() -> {
                    step.run(random);
                    return null;
                }));
            }
            for (Future<?> each : running) each.get();
        } catch (ExecutionException e) {
            if (e.getCause() instanceof Exception cause) throw cause; // says in which step
            throw e;
        } finally {
            pool.shutdownNow();
        }
    }

    /** What is read, and records of all kinds in every codec. */
    private void records(Random random) {
        for (int p = 0; p < CODECS.size(); p++) {
            try (KafkaProducer<byte[], byte[]> producer = clients.producer("compression.type", CODECS.get(p), "linger.ms", "5")) {
                for (int i = 0; i < 200; i++) {
                    byte[] key = random.nextInt(10) == 0 ? null : utf8("k" + random.nextInt(30));
                    byte[] value = random.nextInt(10) == 0 ? null : utf8("v".repeat(random.nextInt(100)));
                    ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(DATA, p, key, value);
                    if (random.nextInt(5) == 0) record.headers().add("n", utf8("" + i));
                    producer.send(record);
                    producer.send(new ProducerRecord<>(ORDERS, i % Clients.ORDERS_PARTITIONS, utf8("o" + i), utf8("")));
                }
            }
        }
    }

    /** Of two producers at once, some aborted. */
    private void dataTransactions(Random random) {
        try (KafkaProducer<byte[], byte[]> one = clients.producer("transactional.id", "data-one"); KafkaProducer<byte[], byte[]> two = clients.producer("transactional.id", "data-two", "compression.type", "lz4")) {
            List<KafkaProducer<byte[], byte[]>> both = List.of(one, two);
            both.forEach(KafkaProducer::initTransactions);
            for (int i = 0; i < 10; i++) {
                both.forEach(KafkaProducer::beginTransaction);
                for (int j = 0; j < 4; j++) {
                    for (KafkaProducer<byte[], byte[]> each : both) {
                        each.send(new ProducerRecord<>(DATA, random.nextInt(CODECS.size()), utf8("t" + random.nextInt(10)), utf8("v" + i)));
                        if (random.nextBoolean()) each.flush();
                    }
                }
                both.forEach(each -> end(each, random));
            }
        }
    }

    /** Groups in which one after the other joins; they all leave, or none does. */
    private void comeAndGo(String prefix, String protocol, Random random) throws Exception {
        for (int g = 0; g < 3; g++) {
            String group = prefix + g;
            List<KafkaConsumer<byte[], byte[]>> members = new ArrayList<>();
            boolean leave = random.nextInt(3) > 0;
            String[] settings = settings(protocol, random);
            try {
                for (int count = 1 + random.nextInt(MEMBERS_MAX); members.size() < count; ) {
                    members.add(clients.consumer(group, protocol, settings));
                    members.get(members.size() - 1).subscribe(List.of(ORDERS));
                    join(group, members);
                    for (KafkaConsumer<byte[], byte[]> member : members) member.commitSync();
                    for (int i = random.nextInt(20); i > 0; i--) members.get(random.nextInt(members.size())).commitSync(some(random, 1));
                }
            } finally {
                members.forEach(member -> part(member, leave));
            }
        }
    }

    private static String[] settings(String protocol, Random random) {
        if (!protocol.equals("classic")) return new String[] {"client.id", "client ✓ " + random.nextInt(100)};
        String assignor = random.nextBoolean() ? "CooperativeStickyAssignor" : "RoundRobinAssignor";
        return with("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor);
    }

    private static String[] with(String name, String value) { return new String[] {name, value, CLASSIC[0], CLASSIC[1], CLASSIC[2], CLASSIC[3]}; }

    /** Members with names of their own: one comes back as another, one is removed by the tools, one stays. */
    private void staticMembers(Random random) throws Exception {
        for (String instance : List.of("removed", "stays")) {
            String group = "static-" + instance;
            for (int life = 0; life < 2; life++) {
                KafkaConsumer<byte[], byte[]> member = clients.consumer(group, "classic", with("group.instance.id", instance));
                member.subscribe(List.of(ORDERS));
                join(group, List.of(member));
                member.commitSync(some(random, 1));
                member.close();
            }
        }
        clients.admin.removeMembersFromConsumerGroup("static-removed", new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("removed")))).all().get();
    }

    /** The broker finds the topics. */
    private void byPattern(Random random) throws Exception {
        KafkaConsumer<byte[], byte[]> member = clients.consumer("by-pattern", "consumer");
        try {
            member.subscribe(new SubscriptionPattern("ord.*"));
            join("by-pattern", List.of(member));
            member.commitSync(some(random, 1));
        } finally {
            part(member, random.nextBoolean());
        }
    }

    /** From one kind of group to the other, and back; in between it is of both. */
    private void migrated(Random random) throws Exception {
        for (String first : List.of("classic", "consumer")) {
            String group = "was-" + first;
            for (String protocol : List.of(first, first.equals("classic") ? "consumer" : "classic")) {
                KafkaConsumer<byte[], byte[]> member = clients.consumer(group, protocol, protocol.equals("classic") ? CLASSIC : new String[0]);
                member.subscribe(List.of(ORDERS));
                join(group, List.of(member));
                member.commitSync(some(random, 1));
                member.close();
            }
        }
        KafkaConsumer<byte[], byte[]> classic = clients.consumer("mixed", "classic", CLASSIC);
        classic.subscribe(List.of(ORDERS));
        join("mixed", List.of(classic));
        KafkaConsumer<byte[], byte[]> modern = clients.consumer("mixed", "consumer");
        modern.subscribe(List.of(ORDERS));
        join("mixed", List.of(classic, modern));
        modern.commitSync(some(random, 1));
        boolean ends = random.nextBoolean();
        if (ends) modern.close();
        if (ends) join("mixed", List.of(classic));
        classic.commitSync(some(random, 1));
        part(classic, false);
        if (!ends) part(modern, false);
    }

    private void shared(Random random) throws Exception {
        for (String group : List.of("shared", "shared-gone")) {
            ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
            AlterConfigOp earliest = new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
            clients.admin.incrementalAlterConfigs(Map.of(resource, List.of(earliest))).all().get();
            try (KafkaShareConsumer<byte[], byte[]> consumer = clients.shareConsumer(group)) {
                consumer.subscribe(List.of(ORDERS));
                for (int i = 0, read = 0; read < 2; i++) {
                    if (i == ATTEMPTS) throw new IllegalStateException(group + " reads nothing");
                    if (!consumer.poll(POLL).isEmpty()) read++;
                }
            }
        }
        await("shared is not empty", () -> clients.admin.describeShareGroups(List.of("shared", "shared-gone")).all().get().values().stream().allMatch(group -> group.groupState() == GroupState.EMPTY));
        clients.admin.alterShareGroupOffsets("shared", Map.of(order(random.nextInt(3)), 7L)).all().get();
        clients.admin.deleteShareGroups(List.of("shared-gone")).all().get();
    }

    /** Without membership; names beyond ASCII, offsets and metadata as large as is taken. */
    private void standalone(Random random) {
        for (String group : List.of("größe-组-🚀", "with spaces & \\signs/", "")) {
            try (KafkaConsumer<byte[], byte[]> consumer = clients.consumer(group.isEmpty() ? "s".repeat(249) : group, "classic")) {
                consumer.assign(List.of(order(1)));
                consumer.commitSync(Map.of(order(1), new OffsetAndMetadata(7, "m".repeat(4096))));
                consumer.commitSync(Map.of(order(1), new OffsetAndMetadata(Long.MAX_VALUE - 1, Optional.of(3), "✓")));
                if (random.nextBoolean()) consumer.commitSync(Map.of(order(0), new OffsetAndMetadata(0, "a\tb\\c\nd")));
            }
        }
    }

    private void byTool(Random random) throws Exception {
        for (int round = 0; round < 12; round++) {
            Map<String, Map<TopicPartition, OffsetAndMetadata>> commits = new HashMap<>();
            for (int g = 0; g < 40; g++) if (random.nextInt(3) > 0) commits.put("tool-" + g, some(random, 9));
            clients.alter(commits);
            List<String> groups = commits.keySet().stream().sorted().toList();
            String some = groups.get(random.nextInt(groups.size()));
            clients.admin.deleteConsumerGroupOffsets(some, Set.of(commits.get(some).keySet().iterator().next())).all().get();
            if (round % 3 == 2) clients.admin.deleteConsumerGroups(new TreeSet<>(List.of(some, groups.get(0), groups.get(1)))).all().get();
        }
    }

    /** Of several producers at once, for groups with a member and without, among plain commits and deletions; one is left open. */
    private void transactionalCommits(Random random) throws Exception {
        List<String> ids = List.of("t-0", "t-1", "t-2", LEFT_OPEN);
        List<KafkaProducer<byte[], byte[]>> producers = ids.stream().map(id -> clients.producer("transactional.id", id, "transaction.timeout.ms", OPEN_MS)).toList();
        try (KafkaConsumer<byte[], byte[]> member = clients.consumer("exactly-once", "classic", CLASSIC)) {
            member.subscribe(List.of(ORDERS));
            join("exactly-once", List.of(member));
            producers.forEach(KafkaProducer::initTransactions);
            boolean[] open = new boolean[ids.size()];
            for (int i = 0; i < 60; i++) {
                int p = random.nextInt(ids.size());
                KafkaProducer<byte[], byte[]> producer = producers.get(p);
                if (!open[p]) producer.beginTransaction();
                open[p] = true;
                if (random.nextBoolean()) producer.send(new ProducerRecord<>(DATA, p, utf8("k"), utf8("v" + i)));
                String group = "eos-" + random.nextInt(3);
                producer.sendOffsetsToTransaction(some(random, 1), random.nextInt(4) == 0 ? member.groupMetadata() : simple(group));
                if (random.nextInt(3) == 0) interfere(group, random);
                if (random.nextInt(3) > 0) {
                    end(producer, random);
                    open[p] = false;
                }
            }
            leaveOneOpen(producers, open, random);
        } finally {
            producers.forEach(producer -> producer.close(Duration.ZERO));
        }
    }

    private void leaveOneOpen(List<KafkaProducer<byte[], byte[]>> producers, boolean[] open, Random random) {
        int last = producers.size() - 1;
        for (int p = 0; p < last; p++) if (open[p]) end(producers.get(p), random);
        if (!open[last]) producers.get(last).beginTransaction();
        producers.get(last).sendOffsetsToTransaction(some(random, 1), simple("eos-0"));
        producers.get(last).sendOffsetsToTransaction(some(random, 1), simple("eos-only-pending"));
    }

    /** What happens to a group while transactions have commits for it: commits outside of them, deletions. */
    private void interfere(String group, Random random) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = some(random, 9);
        clients.alter(Map.of(group, offsets));
        if (random.nextBoolean()) clients.admin.deleteConsumerGroupOffsets(group, Set.of(offsets.keySet().iterator().next())).all().get();
        if (random.nextInt(4) == 0) clients.admin.deleteConsumerGroups(List.of(group)).all().get();
    }

    /** What is committed for a topic goes with it. */
    private void topicGone(Random random) throws Exception {
        List<String> groups = List.of("reads-gone-0", "reads-gone-1", "reads-gone-2");
        for (String group : groups) {
            Map<TopicPartition, OffsetAndMetadata> offsets = some(random, 9);
            for (int p = 0; p < 2; p++) offsets.put(new TopicPartition(GONE, p), new OffsetAndMetadata(p));
            clients.alter(Map.of(group, offsets));
        }
        clients.admin.deleteTopics(List.of(GONE)).all().get();
        await("offsets of a deleted topic remain", () -> {
            boolean gone = true;
            for (String group : groups) gone &= clients.admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().keySet().stream().noneMatch(of -> of.topic().equals(GONE));
            return gone;
        });
    }

    /** Polls until the members have the partitions between them, and the broker finds the group stable. */
    private void join(String group, List<KafkaConsumer<byte[], byte[]>> members) throws Exception {
        await(group + " does not settle", () -> {
            for (KafkaConsumer<byte[], byte[]> member : members) member.poll(POLL);
            boolean served = members.stream().noneMatch(member -> member.assignment().isEmpty());
            // One that does not know yet that it has to give some away counts them, too.
            int assigned = members.stream().mapToInt(member -> member.assignment().size()).sum();
            if (!served || assigned != Clients.ORDERS_PARTITIONS) return false;
            ConsumerGroupDescription known = clients.admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            return known.groupState() == GroupState.STABLE && known.members().size() == members.size();
        });
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    private static void await(String otherwise, Condition condition) throws Exception {
        for (int i = 0; i < ATTEMPTS; i++) {
            if (condition.holds()) return;
            Thread.sleep(50);
        }
        throw new IllegalStateException(otherwise);
    }

    private static void end(KafkaProducer<byte[], byte[]> producer, Random random) {
        if (random.nextInt(3) == 0) producer.abortTransaction(); else producer.commitTransaction();
    }

    /** Leaves its group, or is in it for as long as the broker lives. */
    private void part(KafkaConsumer<byte[], byte[]> member, boolean leave) {
        if (leave) member.close(); else staying.add(member);
    }

    /** A group that the producer is no member of. */
    @SuppressWarnings("removal") private static ConsumerGroupMetadata simple(String group) { return new ConsumerGroupMetadata(group, -1, "", Optional.empty()); }

    /** At least one. Members look for the leader epochs that they commit: theirs stay below {@code epochs}. */
    private static Map<TopicPartition, OffsetAndMetadata> some(Random random, int epochs) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        do {
            TopicPartition partition = random.nextInt(4) > 0 ? order(random.nextInt(Clients.ORDERS_PARTITIONS)) : new TopicPartition(DATA, random.nextInt(CODECS.size()));
            Optional<Integer> epoch = random.nextBoolean() ? Optional.of(random.nextInt(epochs)) : Optional.empty();
            long offset = random.nextInt(10) == 0 ? 0 : random.nextLong(1L << 40);
            String metadata = switch (random.nextInt(10)) {
                case 0 -> "checkpoint ✓ 🚀 " + offset;
                case 1 -> "m".repeat(random.nextInt(500));
                default -> "";
            };
            offsets.put(partition, new OffsetAndMetadata(offset, epoch, metadata));
        } while (random.nextInt(3) > 0);
        return offsets;
    }
}
