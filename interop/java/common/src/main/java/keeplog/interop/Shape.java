package keeplog.interop;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Random;
import java.util.SplittableRandom;

/** What the random log of a seed is made of, and the settings under which it is written and cleaned. */
public final class Shape {
    /** When the logs begin, ms. */
    public static final long T0 = 1_760_000_000_000L;
    /** From one pass to the next, ms. */
    public static final long ROUND_MS = 10_000_000;

    enum Times { RISING, DISORDERED, CONSTANT, PARTLY_MISSING }

    /** Formats, in the order in which the log goes through them. */
    byte[] magics = {2};
    int keys, recordsMax, valueMax, producers, batches, rollOneIn, stepMs;
    double tombstones, transactions, compressed, appendTime;
    boolean headers, gaps, wideGaps, sparse, keyless, empties, epochs, bigBatches, startAdvances;
    /** The last segment holds one batch, and all before it may be cleaned. */
    boolean rolledAtEnd = true;
    Times times = Times.RISING;
    int segmentBytes, indexIntervalBytes, segmentIndexBytes, mapSlots, ioBufferBytes;
    long deleteRetentionMs, minCompactionLagMs;

    private final Random random;

    private Shape(Random random) { this.random = random; }

    /** Any log of today's format. */
    public static Shape any(long seed) {
        Shape s = new Shape(spread(seed, 1));
        s.records();
        s.producers = s.among(0, 0, 1, 3, 6);
        s.transactions = s.producers == 0 ? 0 : s.among(0, 0.3, 0.5, 0.8);
        s.headers = s.oneIn(3);
        s.gaps = s.oneIn(3);
        s.wideGaps = s.oneIn(25);
        s.sparse = s.oneIn(3);
        s.empties = s.oneIn(3);
        s.epochs = s.oneIn(2);
        s.bigBatches = s.oneIn(10);
        s.startAdvances = s.transactions == 0 && s.oneIn(4);
        s.times = Times.values()[s.among(0, 0, 0, 1, 1, 2, 3)];
        s.chooseSettings();
        return s;
    }

    /** A log that began in an old format. */
    public static Shape old(long seed) {
        Shape s = new Shape(spread(seed, 2));
        byte[][] ways = {{0}, {1}, {0, 1}, {1, 2}, {0, 1, 2}};
        s.magics = ways[(int) Math.floorMod(seed, ways.length)];
        s.records();
        s.producers = s.among(0, 2);
        s.transactions = s.producers == 0 ? 0 : 0.3;
        s.headers = s.oneIn(2);
        s.gaps = s.oneIn(3);
        s.sparse = s.oneIn(4);
        s.epochs = s.oneIn(2);
        s.times = Times.values()[s.among(0, 0, 1, 2)];
        s.chooseSettings();
        s.minCompactionLagMs = 0;
        // Each old record is an entry of its own, and Kafka does not look between those of one append whether the index takes more.
        s.segmentIndexBytes = 1 << 20;
        return s;
    }

    /** A log of several small segments with a bit of everything, to be damaged. */
    public static Shape plain(long seed) {
        Shape s = new Shape(spread(seed, 3));
        s.keys = 120;
        s.recordsMax = 6;
        s.valueMax = 120;
        s.tombstones = 0.1;
        s.transactions = 0.25;
        s.compressed = 0.3;
        s.producers = 2;
        s.batches = 150;
        s.stepMs = 50;
        s.rolledAtEnd = false;
        s.segmentBytes = 8192;
        s.indexIntervalBytes = 512;
        s.segmentIndexBytes = 16_384;
        s.deleteRetentionMs = 86_400_000;
        return s;
    }

    private void records() {
        keys = among(5, 50, 200, 400, 2000);
        recordsMax = among(1, 1, 6, 20, 40);
        valueMax = among(20, 100, 100, 300, 1500);
        tombstones = among(0.05, 0.1, 0.3, 0.6);
        compressed = among(0, 0.2, 0.7, 1);
        appendTime = among(0, 0.1, 0.1, 1);
        keyless = oneIn(5);
        batches = 40 + random.nextInt(140);
        rollOneIn = among(0, 0, 6, 12);
        stepMs = among(50, 50, 50_000);
    }

    private void chooseSettings() {
        segmentBytes = among(8192, 16_384, 32_768, 1 << 20);
        indexIntervalBytes = among(0, 512, 512, 4096);
        segmentIndexBytes = among(2400, 16_384, 16_384, 1 << 20);
        deleteRetentionMs = among(0, 5_000_000, 86_400_000);
        minCompactionLagMs = among(0, 0, 0, 0, 3_000_000, 12_000_000);
        mapSlots = oneIn(5) ? 8 + random.nextInt(150) : 100_000;
        ioBufferBytes = among(2048, 65_536, 65_536, 524_288);
    }

    /** Neighbouring seeds of {@link Random} begin alike. */
    static Random spread(long seed, int use) { return new Random(new SplittableRandom(seed * 4 + use).nextLong()); }

    private boolean oneIn(int n) { return random.nextInt(n) == 0; }
    private int among(int... values) { return values[random.nextInt(values.length)]; }
    private double among(double... values) { return values[random.nextInt(values.length)]; }

    /** The settings under which it is written and cleaned, by name; those with a dot are the log's. */
    public Map<String, Long> settings() {
        Map<String, Long> settings = new LinkedHashMap<>();
        settings.put("segment.bytes", (long) segmentBytes);
        settings.put("index.interval.bytes", (long) indexIntervalBytes);
        settings.put("segment.index.bytes", (long) segmentIndexBytes);
        settings.put("delete.retention.ms", deleteRetentionMs);
        settings.put("min.compaction.lag.ms", minCompactionLagMs);
        settings.put("map_slots", (long) mapSlots);
        settings.put("io_buffer_bytes", (long) ioBufferBytes);
        return settings;
    }

    public Json describe() {
        Json json = new Json();
        settings().forEach(json::put);
        return json;
    }
}
