// Writes records.jsonl: coordinator records with random fields, serialized and printed by Kafka's own classes.
// Run with the jars of Kafka 4.3.1 on the class path:
//     java -cp "$KAFKA_JARS" RecordVectors.java > records.jsonl
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.*;
import java.lang.reflect.*;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.*;

public class RecordVectors {
    static final Random random = new Random(20261129);
    static final String[] WORDS = {"", "g", "orders", "größe-组-🚀", "consumer-classic-two-2", "a".repeat(130), "/127.0.0.1", "range"};

    public static void main(String[] args) throws Exception {
        for (var type : org.apache.kafka.coordinator.group.generated.CoordinatorRecordType.values()) {
            for (short version = type.lowestSupportedVersion(); version <= type.highestSupportedVersion(); version++) {
                for (int i = 0; i < 6; i++) {
                    line("offsets", type.id(), version, type::newRecordKey, type::newRecordValue,
                        org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters::writeRecordKeyAsJson,
                        org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters::writeRecordValueAsJson);
                }
            }
        }
        for (var type : org.apache.kafka.coordinator.transaction.generated.CoordinatorRecordType.values()) {
            for (short version = type.lowestSupportedVersion(); version <= type.highestSupportedVersion(); version++) {
                for (int i = 0; i < 20; i++) {
                    line("transactions", type.id(), version, type::newRecordKey, type::newRecordValue,
                        org.apache.kafka.coordinator.transaction.generated.CoordinatorRecordJsonConverters::writeRecordKeyAsJson,
                        org.apache.kafka.coordinator.transaction.generated.CoordinatorRecordJsonConverters::writeRecordValueAsJson);
                }
            }
        }
    }

    interface KeyPrinter { JsonNode print(ApiMessage key); }
    interface ValuePrinter { JsonNode print(ApiMessage value, short version); }

    static void line(String log, short type, short version, java.util.function.Supplier<ApiMessage> newKey,
                     java.util.function.Supplier<ApiMessage> newValue, KeyPrinter printKey, ValuePrinter printValue) throws Exception {
        Made key = make(newKey, type, (short) 0, n -> printKey.print(n));
        Made value = make(newValue, version, version, n -> printValue.print(n, version));
        ObjectNode node = JsonNodeFactory.instance.objectNode();
        node.put("log", log).put("type", type).put("version", version).put("k", key.hex).put("v", value.hex);
        node.set("key", hex(key.json));
        node.set("value", hex(value.json));
        System.out.println(node);
    }

    record Made(String hex, JsonNode json) { }

    /** Draws until the message can be written: a null or a field that this version does not take makes another draw. */
    static Made make(java.util.function.Supplier<ApiMessage> fresh, short prefix, short version, KeyPrinter print) throws Exception {
        for (;;) {
            ApiMessage message = fresh.get();
            fill(message);
            try {
                String bytes = HexFormat.of().formatHex(MessageUtil.toVersionPrefixedBytes(version, message));
                return new Made(String.format("%04x", prefix) + bytes.substring(4), print.print(message));
            } catch (NullPointerException | org.apache.kafka.common.errors.UnsupportedVersionException again) {
                continue;
            }
        }
    }

    static void fill(Object message) throws Exception {
        for (Method setter : message.getClass().getMethods()) {
            if (!setter.getName().startsWith("set") || setter.getParameterCount() != 1 || random.nextInt(4) == 0) continue;
            Object value = value(setter.getParameterTypes()[0], setter.getGenericParameterTypes()[0], setter.getName());
            if (value != SKIP) setter.invoke(message, value);
        }
    }

    static final Object SKIP = new Object();

    static Object value(Class<?> type, Type generic, String name) throws Exception {
        if (type == byte.class) return (byte) random.nextInt(8);
        if (type == short.class) return (short) random.nextInt();
        if (type == int.class && name.equals("setPort")) return random.nextInt(65536);
        if (type == int.class) return random.nextBoolean() ? random.nextInt() : random.nextInt(100);
        if (type == long.class) return random.nextBoolean() ? random.nextLong() : 1_700_000_000_000L + random.nextInt(1000);
        if (type == Uuid.class) return random.nextInt(8) == 0 ? Uuid.ZERO_UUID : new Uuid(random.nextLong(), random.nextLong());
        if (!type.isPrimitive() && random.nextInt(10) == 0) return null;
        if (type == String.class && name.equals("setProtocolType")) return random.nextInt(4) == 0 ? "connect" : "consumer";
        if (type == String.class) return WORDS[random.nextInt(WORDS.length)];
        if (type == byte[].class) return blob(name);
        if (type == Short.class) return (short) random.nextInt(9);
        if (type == Integer.class) return random.nextInt(9);
        if (type == List.class) {
            List<Object> list = new ArrayList<>();
            Class<?> of = (Class<?>) ((ParameterizedType) generic).getActualTypeArguments()[0];
            for (int n = random.nextInt(4); n > 0; n--) {
                Object item = value(of, of, name);
                if (item != null) list.add(item);
            }
            return list;
        }
        if (type.getPackageName().contains("generated")) {
            Object nested = type.getConstructor().newInstance();
            fill(nested);
            return nested;
        }
        return SKIP;
    }

    static byte[] blob(String name) throws Exception {
        short version = (short) random.nextInt(4);
        Message message;
        if (name.equals("setAssignment")) {
            var assignment = new ConsumerProtocolAssignment();
            assignment.assignedPartitions().add(new ConsumerProtocolAssignment.TopicPartition().setTopic("orders").setPartitions(List.of(0, 2)));
            message = assignment;
        } else {
            var subscription = new ConsumerProtocolSubscription().setTopics(List.of("orders", "größe")).setGenerationId(7).setRackId("r1");
            subscription.setUserData(random.nextBoolean() ? null : ByteBuffer.wrap(new byte[] {1, 2, 3}));
            subscription.ownedPartitions().add(new ConsumerProtocolSubscription.TopicPartition().setTopic("orders").setPartitions(List.of(1)));
            message = subscription;
        }
        return random.nextInt(8) == 0 ? new byte[] {0, 0, (byte) 255} : MessageUtil.toVersionPrefixedBytes(version, message);
    }

    /** Byte fields as hex text. */
    static JsonNode hex(JsonNode node) throws Exception {
        if (node.isBinary()) return TextNode.valueOf(HexFormat.of().formatHex(node.binaryValue()));
        if (node.isArray()) {
            ArrayNode copy = JsonNodeFactory.instance.arrayNode();
            for (JsonNode item : node) copy.add(hex(item));
            return copy;
        }
        if (node.isObject()) {
            ObjectNode copy = JsonNodeFactory.instance.objectNode();
            for (var fields = node.fields(); fields.hasNext();) {
                var field = fields.next();
                copy.set(field.getKey(), hex(field.getValue()));
            }
            return copy;
        }
        return node;
    }
}
