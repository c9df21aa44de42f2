package keeplog.interop.current;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ExecutionException;
import keeplog.interop.Arguments;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Clients of the broker at {@code address}. */
final class Clients implements AutoCloseable {
    /** What groups read. */
    static final String ORDERS = "orders";
    static final int ORDERS_PARTITIONS = 3;
    static final Duration POLL = Duration.ofMillis(100);

    /** On a machine that is busy with other work. */
    private static final String PATIENCE_MS = "180000";
    private static final int AT_ONCE = 200;

    final Admin admin;
    private final String address;

    Clients(Arguments a) {
        address = a.text("address");
        admin = Admin.create(Map.of("bootstrap.servers", address, "default.api.timeout.ms", PATIENCE_MS, "request.timeout.ms", PATIENCE_MS));
    }

    @Override public void close() { admin.close(); }

    void topic(String name, int partitions) throws Exception {
        try {
            admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
        } catch (ExecutionException e) {
            if (!(e.getCause() instanceof TopicExistsException)) throw e;
        }
    }

    /** Commits without being in the groups, as the tools do: by group, many at once. */
    void alter(Map<String, Map<TopicPartition, OffsetAndMetadata>> commits) throws Exception {
        Queue<KafkaFuture<Void>> running = new ArrayDeque<>();
        for (var commit : commits.entrySet()) {
            if (running.size() == AT_ONCE) running.remove().get();
            if (!commit.getValue().isEmpty()) running.add(admin.alterConsumerGroupOffsets(commit.getKey(), commit.getValue()).all());
        }
        for (KafkaFuture<Void> each : running) each.get();
    }

    KafkaProducer<byte[], byte[]> producer(String... settings) {
        Map<String, Object> all = pairs(settings);
        all.putAll(Map.of("bootstrap.servers", address, "key.serializer", ByteArraySerializer.class, "value.serializer", ByteArraySerializer.class));
        return new KafkaProducer<>(all);
    }

    KafkaConsumer<byte[], byte[]> consumer(String group, String protocol, String... settings) {
        Map<String, Object> all = reader(group, settings);
        all.putAll(Map.of("group.protocol", protocol, "enable.auto.commit", "false", "auto.offset.reset", "earliest"));
        return new KafkaConsumer<>(all);
    }

    KafkaShareConsumer<byte[], byte[]> shareConsumer(String group) { return new KafkaShareConsumer<>(reader(group)); }

    private Map<String, Object> reader(String group, String... settings) {
        Map<String, Object> all = pairs(settings);
        all.putAll(Map.of("bootstrap.servers", address, "group.id", group, "key.deserializer", ByteArrayDeserializer.class, "value.deserializer", ByteArrayDeserializer.class));
        return all;
    }

    private static Map<String, Object> pairs(String... settings) {
        Map<String, Object> all = new HashMap<>();
        for (int i = 0; i < settings.length; i += 2) all.put(settings[i], settings[i + 1]);
        return all;
    }

    static TopicPartition order(int partition) { return new TopicPartition(ORDERS, partition); }
    static byte[] utf8(String text) { return text.getBytes(StandardCharsets.UTF_8); }
}
