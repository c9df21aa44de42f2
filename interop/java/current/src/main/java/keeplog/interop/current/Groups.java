package keeplog.interop.current;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import keeplog.interop.Arguments;
import keeplog.interop.Json;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A live broker's groups: {@code fill} makes every kind of them, {@code bulk} commits more, {@code committed} lists what the broker answers. */
final class Groups implements AutoCloseable {
    private static final String ORDERS = "orders";
    private static final int PARTITIONS = 3;
    private static final Duration POLL = Duration.ofMillis(100);

    private final String address;
    private final Admin admin;
    private final Random random = new Random(42);

    private Groups(Arguments a) {
        address = a.text("address");
        admin = Admin.create(Map.of("bootstrap.servers", address));
    }

    static Json fill(Arguments a) throws Exception {
        try (Groups groups = new Groups(a)) {
            groups.topic(ORDERS, PARTITIONS);
            groups.topic("codecs", 1);
            groups.orders();
            groups.subscribed("classic", "classic", 25);
            groups.subscribed("modern", "consumer", 40);
            groups.standalone();
            groups.byTool();
            groups.transactional();
            groups.share();
            for (int round = 0; round < 12; round++) {
                Map<String, Map<TopicPartition, OffsetAndMetadata>> commits = new HashMap<>();
                for (int g = 0; g < 60; g++) commits.put("batch-" + g, groups.some(round * 50, new Random(g * 100 + round)));
                groups.alterAll(commits);
            }
        }
        return new Json();
    }

    static Json bulk(Arguments a) throws Exception {
        try (Groups groups = new Groups(a)) {
            for (long round = 0; round < a.number("rounds"); round++) {
                Map<String, Map<TopicPartition, OffsetAndMetadata>> commits = new HashMap<>();
                for (long g = 0; g < a.number("groups"); g++) commits.put("bulk-" + g, Map.of(order(0), new OffsetAndMetadata(round * 1000 + g), order(2), new OffsetAndMetadata(g)));
                groups.alterAll(commits);
            }
        }
        return new Json();
    }

    /** A line for each group and partition: group, topic, partition, offset, leader epoch, metadata. */
    static Json committed(Arguments a) throws Exception {
        StringBuilder lines = new StringBuilder();
        try (Groups groups = new Groups(a)) {
            for (GroupListing group : groups.admin.listGroups().all().get()) {
                try {
                    var committed = groups.admin.listConsumerGroupOffsets(group.groupId()).partitionsToOffsetAndMetadata().get();
                    committed.forEach((partition, position) -> { if (position != null) lines.append(line(group.groupId(), partition, position)); });
                } catch (ExecutionException shareGroup) {
                    continue; // keeps its positions elsewhere
                }
            }
        }
        return new Json().put("lines", lines.toString());
    }

    private static String line(String group, TopicPartition partition, OffsetAndMetadata position) {
        String epoch = position.leaderEpoch().map(String::valueOf).orElse("-");
        return String.join("\t", group, partition.topic(), "" + partition.partition(), "" + position.offset(), epoch, position.metadata()) + "\n";
    }

    @Override public void close() { admin.close(); }

    private void orders() {
        try (KafkaProducer<byte[], byte[]> producer = producer(null)) {
            for (int i = 0; i < 1500; i++) producer.send(new ProducerRecord<>(ORDERS, i % PARTITIONS, utf8("o" + i % 100), utf8("v" + i)));
        }
    }

    /** Two members of one group, the second of which makes it rebalance. */
    private void subscribed(String group, String protocol, int polls) {
        try (KafkaConsumer<byte[], byte[]> one = consumer(group, protocol); KafkaConsumer<byte[], byte[]> two = consumer(group, protocol)) {
            one.subscribe(List.of(ORDERS));
            awaitRecords(one);
            for (int i = 1; i <= 30; i++) {
                Map<TopicPartition, OffsetAndMetadata> some = some(i * 10, random);
                if (!some.isEmpty()) one.commitSync(some);
            }
            two.subscribe(List.of(ORDERS));
            for (int i = 0; i < polls; i++) {
                one.poll(POLL);
                two.poll(POLL);
            }
            one.commitSync();
            two.commitSync();
        }
    }

    /** Without membership; names and metadata beyond ASCII, the largest that is taken. */
    private void standalone() {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("gr\u00f6\u00dfe-\u7ec4-\ud83d\ude80", "classic")) {
            consumer.assign(List.of(order(1)));
            consumer.commitSync(Map.of(order(1), new OffsetAndMetadata(7, "m".repeat(4096))));
            consumer.commitSync(Map.of(order(1), new OffsetAndMetadata(Long.MAX_VALUE - 1, Optional.of(3), "\u2713")));
        }
    }

    private void byTool() throws Exception {
        for (String group : List.of("tool", "tool-gone")) {
            for (int i = 0; i < 10; i++) alter(group, Map.of(order(0), new OffsetAndMetadata(i), order(1), new OffsetAndMetadata(i + 100), order(2), new OffsetAndMetadata(i + 200)));
        }
        admin.deleteConsumerGroupOffsets("tool", Set.of(order(1), order(2))).all().get();
        admin.deleteConsumerGroups(List.of("tool-gone")).all().get();
        alter("tool", Map.of(order(1), new OffsetAndMetadata(5, "back again")));
    }

    private void transactional() {
        try (KafkaProducer<byte[], byte[]> producer = producer("transactions"); KafkaConsumer<byte[], byte[]> consumer = consumer("exactly-once", "classic")) {
            consumer.subscribe(List.of(ORDERS));
            awaitRecords(consumer);
            producer.initTransactions();
            for (int i = 1; i <= 20; i++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>("codecs", 0, utf8("k"), utf8("v" + i)));
                producer.sendOffsetsToTransaction(Map.of(order(i % PARTITIONS), new OffsetAndMetadata(i * 5L, "t" + i)), consumer.groupMetadata());
                if (i % 4 == 0) producer.abortTransaction(); else producer.commitTransaction();
            }
        }
    }

    private void share() throws Exception {
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, "shared");
        AlterConfigOp earliest = new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(group, List.of(earliest))).all().get();
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(reader("shared"))) {
            consumer.subscribe(List.of(ORDERS));
            for (int i = 0; i < 20; i++) consumer.poll(POLL);
        }
    }

    private void alter(String group, Map<TopicPartition, OffsetAndMetadata> offsets) throws Exception { alterAll(Map.of(group, offsets)); }

    /** All at once, by group. */
    private void alterAll(Map<String, Map<TopicPartition, OffsetAndMetadata>> commits) throws Exception {
        List<KafkaFuture<Void>> done = new ArrayList<>();
        commits.forEach((group, offsets) -> { if (!offsets.isEmpty()) done.add(admin.alterConsumerGroupOffsets(group, offsets).all()); });
        for (KafkaFuture<Void> each : done) each.get();
    }

    private Map<TopicPartition, OffsetAndMetadata> some(long from, Random random) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (int p = 0; p < PARTITIONS; p++) {
            if (random.nextBoolean()) offsets.put(order(p), new OffsetAndMetadata(from + p, random.nextInt(6) == 0 ? "at " + from + " \u2713" : ""));
        }
        return offsets;
    }

    private void topic(String name, int partitions) throws Exception {
        try {
            admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
        } catch (ExecutionException e) {
            if (!(e.getCause() instanceof TopicExistsException)) throw e;
        }
    }

    private KafkaProducer<byte[], byte[]> producer(String transactionalId) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", address, "key.serializer", ByteArraySerializer.class, "value.serializer", ByteArraySerializer.class));
        if (transactionalId != null) settings.put("transactional.id", transactionalId);
        return new KafkaProducer<>(settings);
    }

    private KafkaConsumer<byte[], byte[]> consumer(String group, String protocol) {
        Map<String, Object> settings = reader(group);
        settings.putAll(Map.of("group.protocol", protocol, "enable.auto.commit", "false", "auto.offset.reset", "earliest"));
        return new KafkaConsumer<>(settings);
    }

    private Map<String, Object> reader(String group) {
        return new HashMap<>(Map.of("bootstrap.servers", address, "group.id", group, "key.deserializer", ByteArrayDeserializer.class, "value.deserializer", ByteArrayDeserializer.class));
    }

    private static void awaitRecords(KafkaConsumer<byte[], byte[]> consumer) {
        for (int i = 0; i < 200 && consumer.poll(POLL).isEmpty(); i++) Thread.onSpinWait();
    }

    private static TopicPartition order(int partition) { return new TopicPartition(ORDERS, partition); }
    private static byte[] utf8(String text) { return text.getBytes(StandardCharsets.UTF_8); }
}
