package keeplog.interop.current;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import keeplog.interop.Arguments;
import keeplog.interop.Json;
import keeplog.interop.Shape;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;

/** For measurements side by side: a log of a given shape, and the time that Kafka's cleaner takes over copies of it with a broker's default memory. */
public final class Yardstick {
    private static final int MAP_BYTES = 128 << 20;
    private static final int IO_BUFFER_BYTES = 512 << 10;

    private Yardstick() {}

    public static void main(String[] words) throws Exception {
        Path dir = Path.of(words[1]);
        int[] numbers = Arrays.stream(words, 2, words.length).mapToInt(Integer::parseInt).toArray();
        switch (words[0]) {
            case "bench-make" -> make(dir, numbers[0], numbers[1], numbers[2], numbers[3], CompressionType.forId(numbers[4]), numbers[5]);
            case "bench-clean" -> {
                for (int run = 0; run < numbers[1]; run++) clean(dir, numbers[0]);
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
        System.exit(0);
    }

    private static OpenLog open(Path dir, int segmentMib) throws IOException {
        return new OpenLog(new Arguments(Map.of("dir", dir.toString(), "now", "" + Shape.T0, "segment.bytes", "" + (segmentMib << 20))), true, 0);
    }

    /** Keys of 25 bytes, drawn evenly; a quarter of each value is random. */
    private static void make(Path dir, int mib, int keys, int records, int valueBytes, CompressionType codec, int segmentMib) throws IOException {
        remove(dir);
        Files.createDirectories(dir);
        Random random = new Random(1);
        try (OpenLog open = open(dir, segmentMib)) {
            long offset = 0;
            ByteBuffer buffer = ByteBuffer.allocate(1 << 22);
            for (long bytes = 0; bytes < (long) mib << 20; ) {
                MemoryRecordsBuilder batch = batch(buffer.clear(), codec, offset);
                for (int i = 0; i < records; i++) {
                    int key = random.nextInt(keys);
                    byte[] value = new byte[valueBytes];
                    random.nextBytes(value);
                    for (int at = valueBytes / 4; at < valueBytes; at++) value[at] = (byte) ('a' + (value[at] & 7));
                    String name = String.format("group-%05d:topic-%03d:%03d", key / 1000, key / 50 % 20, key % 50);
                    batch.appendWithOffset(offset, Shape.T0 + offset / 100, name.getBytes(StandardCharsets.UTF_8), value);
                    offset++;
                }
                MemoryRecords built = batch.build();
                bytes += built.sizeInBytes();
                open.log.appendAsFollower(built, 0);
            }
            open.log.roll(Optional.empty());
            MemoryRecordsBuilder last = batch(buffer.clear(), CompressionType.NONE, offset);
            last.appendWithOffset(offset, Shape.T0, "last".getBytes(StandardCharsets.UTF_8), new byte[1]);
            open.log.appendAsFollower(last.build(), 0);
        }
    }

    private static MemoryRecordsBuilder batch(ByteBuffer buffer, CompressionType codec, long base) {
        return MemoryRecords.builder(buffer, RecordBatch.CURRENT_MAGIC_VALUE, Compression.of(codec).build(), TimestampType.CREATE_TIME, base, Shape.T0,
            RecordBatch.NO_PRODUCER_ID, RecordBatch.NO_PRODUCER_EPOCH, RecordBatch.NO_SEQUENCE, false, 0);
    }

    /** Cleans a copy of {@code dir}, made beside it, and prints a line of JSON. */
    private static void clean(Path dir, int segmentMib) throws Exception {
        Path root = dir.resolveSibling(dir.getFileName() + ".copy");
        Path copy = Files.createDirectories(root.resolve("t-0"));
        try (var files = Files.list(dir)) {
            for (Path file : files.filter(Files::isRegularFile).toList()) Files.copy(file, copy.resolve(file.getFileName()));
        }
        new ProcessBuilder("sync").start().waitFor();
        try (OpenLog open = open(copy, segmentMib)) {
            long before = open.log.logSegments().stream().mapToLong(LogSegment::size).sum();
            long began = System.nanoTime();
            for (long dirty = 0; dirty < open.log.activeSegment().baseOffset(); ) {
                LogToClean range = new LogToClean(open.log, dirty, open.log.activeSegment().baseOffset(), false);
                dirty = Cleaning.run(open, range, new SkimpyOffsetMap(MAP_BYTES), IO_BUFFER_BYTES).getKey();
            }
            System.out.println(new Json().put("seconds", (System.nanoTime() - began) / 1e9).put("bytes_before", before));
        }
        remove(root);
    }

    private static void remove(Path path) throws IOException {
        if (!Files.exists(path)) return;
        try (var all = Files.walk(path)) {
            for (Path each : all.sorted(Comparator.reverseOrder()).toList()) Files.delete(each);
        }
    }
}
