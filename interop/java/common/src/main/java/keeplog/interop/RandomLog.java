package keeplog.interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import keeplog.interop.Batch.Entry;
import keeplog.interop.Batch.Header;
import keeplog.interop.Batch.Kind;
import keeplog.interop.Batch.Sender;

/** The life of a log, round after round. The same seed and shape give the same life. */
public final class RandomLog {
    private static final byte[] NO_VALUE = null;

    private final Shape shape;
    private final Random random;
    private final Producer[] producers;
    private long offset, nowMs, start;
    private int leaderEpoch;
    private byte magic;

    private static final class Producer {
        final long id;
        short epoch;
        int sequence;
        boolean open;

        Producer(long id, int sequence) {
            this.id = id;
            this.sequence = sequence;
        }
    }

    public RandomLog(long seed, Shape shape) {
        this.shape = shape;
        random = Shape.spread(seed, 0);
        producers = new Producer[shape.producers];
        for (int i = 0; i < producers.length; i++) producers[i] = new Producer(1000 + i, i == 0 ? Integer.MAX_VALUE - 20 : 0);
    }

    /** Where the log starts by now. */
    public long start() { return start; }

    /** One past the last offset given out. */
    public long end() { return offset; }

    /** What happens in a round, the first being 1. Rounds come in order. */
    public List<Step> round(int round) {
        nowMs = Shape.T0 + Shape.ROUND_MS * (round - 1);
        List<Step> steps = new ArrayList<>();
        int batches = round == 1 ? shape.batches : shape.batches / 2;
        for (int i = 0; i < batches; i++) {
            magic = shape.magics[round > 1 ? shape.magics.length - 1 : i * shape.magics.length / batches];
            steps.add(new Step.Append(batch(), random.nextInt(4) == 0));
            if (shape.rollOneIn > 0 && oneIn(shape.rollOneIn)) steps.add(new Step.Roll());
        }
        if (shape.startAdvances && offset > start) {
            start += random.nextLong(Math.min(offset - start, 200) + 1);
            steps.add(new Step.AdvanceStart(start));
        }
        if (!shape.rolledAtEnd) return steps;
        if (!oneIn(8)) steps.add(new Step.Roll());
        Entry last = new Entry(offset, timestamp(), utf8("last"), utf8("x"), List.of());
        steps.add(new Step.Append(data(Sender.NONE, 0, false, offset, List.of(last), offset), false));
        return steps;
    }

    private Batch batch() {
        nowMs += random.nextInt(shape.stepMs);
        if (shape.epochs && oneIn(20)) leaderEpoch++;
        if (shape.gaps && oneIn(15)) offset += random.nextInt(50);
        if (shape.wideGaps && oneIn(60)) offset += Integer.MAX_VALUE - 100L + random.nextInt(200);
        if (magic == 2 && oneIn(400)) return new Batch(Kind.LEADER_CHANGE, magic, 0, false, offset, offset++, leaderEpoch, Sender.NONE, nowMs, List.of());
        Producer p = magic == 2 && producers.length > 0 ? producers[random.nextInt(producers.length)] : null;
        if (p != null && p.open && oneIn(4)) return endTransaction(p);
        boolean transactional = p != null && (p.open || random.nextDouble() < shape.transactions);
        if (p != null && !transactional && random.nextBoolean()) p = null;
        return records(p, transactional);
    }

    private Batch records(Producer p, boolean transactional) {
        int count = 1 + (oneIn(3) ? 0 : random.nextInt(shape.recordsMax));
        // No batch may be larger than a segment.
        int valueMax = Math.min(shape.bigBatches && oneIn(20) ? 40_000 : shape.valueMax, Math.max(0, (shape.segmentBytes - 2000) / count - 100));
        boolean sparse = shape.sparse && oneIn(4);
        long base = offset;
        long next = base + (sparse ? random.nextInt(4) : 0);
        List<Entry> entries = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            entries.add(new Entry(next, timestamp(), key(), value(valueMax), magic == 2 ? headers() : List.of()));
            next += 1 + (sparse ? random.nextInt(3) : 0);
        }
        offset = next + (sparse && magic == 2 ? random.nextInt(3) : 0);
        Sender sender = p == null ? Sender.NONE : new Sender(p.id, p.epoch, p.sequence, transactional);
        if (p != null) {
            p.sequence = (int) ((p.sequence + (offset - base)) & Integer.MAX_VALUE);
            p.open |= transactional;
        }
        int codec = random.nextDouble() < shape.compressed ? 1 + random.nextInt(magic == 2 ? 4 : 3) : 0;
        boolean appendTime = magic > 0 && random.nextDouble() < shape.appendTime;
        if (magic == 2 && shape.empties && oneIn(15)) {
            return new Batch(Kind.EMPTY, magic, 0, appendTime, base, offset - 1, leaderEpoch, sender, nowMs, List.of());
        }
        return data(sender, codec, appendTime, base, entries, offset - 1);
    }

    private Batch data(Sender sender, int codec, boolean appendTime, long base, List<Entry> entries, long last) {
        offset = last + 1;
        return new Batch(Kind.DATA, magic, codec, appendTime, base, last, leaderEpoch, sender, nowMs, entries);
    }

    private Batch endTransaction(Producer p) {
        // What cleaning leaves of a marker that a producer wrote last. It ends nothing.
        boolean empty = shape.empties && oneIn(12);
        p.open = empty;
        Sender sender = new Sender(p.id, p.epoch, -1, true);
        Kind kind = empty ? Kind.EMPTY_MARKER : oneIn(3) ? Kind.ABORT : Kind.COMMIT;
        if (kind == Kind.ABORT && random.nextBoolean()) {
            p.epoch++;
            p.sequence = 0;
        }
        long at = offset++;
        return new Batch(kind, magic, 0, false, at, at, leaderEpoch, sender, nowMs, List.of());
    }

    private long timestamp() {
        if (magic == 0) return -1;
        return switch (shape.times) {
            case RISING -> nowMs + random.nextInt(5);
            case DISORDERED -> nowMs - random.nextInt(2_000_000);
            case CONSTANT -> Shape.T0;
            case PARTLY_MISSING -> oneIn(3) ? -1 : nowMs;
        };
    }

    private byte[] key() {
        if (shape.keyless && oneIn(20)) return null;
        if (oneIn(200)) return new byte[0];
        int key = random.nextInt(shape.keys);
        return utf8("key-" + (oneIn(3) ? key : key / 8));
    }

    private byte[] value(int max) {
        if (random.nextDouble() < shape.tombstones) return NO_VALUE;
        byte[] value = new byte[random.nextInt(max + 1)];
        for (int i = 0; i < value.length; i++) value[i] = i < 6 ? (byte) random.nextInt() : (byte) ('a' + i % 7);
        return value;
    }

    private List<Header> headers() {
        if (!shape.headers || !oneIn(4)) return List.of();
        Header first = new Header("h" + random.nextInt(3), random.nextBoolean() ? null : new byte[] {1, 2, 3});
        return random.nextBoolean() ? List.of(first) : List.of(first, new Header("\u7ec4\u2713", new byte[0]), first);
    }

    private boolean oneIn(int n) { return random.nextInt(n) == 0; }
    private static byte[] utf8(String text) { return text.getBytes(StandardCharsets.UTF_8); }
}
