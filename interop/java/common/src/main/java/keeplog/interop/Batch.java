package keeplog.interop;

import java.util.List;

/** One batch to be written, in no version's classes. {@code lastOffset} may lie behind its last record, as cleaning leaves it. */
public record Batch(Kind kind, byte magic, int codec, boolean appendTime, long baseOffset, long lastOffset, int leaderEpoch, Sender sender,
    long timestampMs, List<Entry> entries) {
    public enum Kind { DATA, EMPTY, EMPTY_MARKER, COMMIT, ABORT, LEADER_CHANGE }

    /** Who sent it: the header fields of a producer. */
    public record Sender(long id, short epoch, int sequence, boolean transactional) {
        public static final Sender NONE = new Sender(-1, (short) -1, -1, false);
    }

    public record Entry(long offset, long timestampMs, byte[] key, byte[] value, List<Header> headers) {}

    public record Header(String key, byte[] value) {}
}
