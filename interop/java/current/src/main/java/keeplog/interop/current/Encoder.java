package keeplog.interop.current;

import java.nio.ByteBuffer;
import keeplog.interop.Batch;
import keeplog.interop.Batch.Entry;
import keeplog.interop.Batch.Kind;
import keeplog.interop.Batch.Sender;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;

/** A batch in Kafka's own bytes. */
final class Encoder {
    private static final int COORDINATOR_EPOCH = 0;

    private Encoder() {}

    static MemoryRecords encode(Batch b) {
        Sender s = b.sender();
        return switch (b.kind()) {
            case DATA -> data(b);
            case EMPTY, EMPTY_MARKER -> empty(b);
            case COMMIT, ABORT -> MemoryRecords.withEndTransactionMarker(b.baseOffset(), b.timestampMs(), b.leaderEpoch(), s.id(), s.epoch(),
                new EndTransactionMarker(b.kind() == Kind.COMMIT ? ControlRecordType.COMMIT : ControlRecordType.ABORT, COORDINATOR_EPOCH));
            case LEADER_CHANGE -> MemoryRecords.withLeaderChangeMessage(b.baseOffset(), b.timestampMs(), b.leaderEpoch(), ByteBuffer.allocate(256),
                new LeaderChangeMessage().setLeaderId(1));
        };
    }

    private static MemoryRecords data(Batch b) {
        Sender s = b.sender();
        Compression codec = Compression.of(CompressionType.forId(b.codec())).build();
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(4096), b.magic(), codec, time(b), b.baseOffset(), b.timestampMs(), s.id(), s.epoch(),
            s.sequence(), s.transactional(), b.leaderEpoch());
        for (Entry e : b.entries()) builder.appendWithOffset(e.offset(), e.timestampMs(), e.key(), e.value(), headers(e));
        builder.overrideLastOffset(b.lastOffset());
        return builder.build();
    }

    private static MemoryRecords empty(Batch b) {
        Sender s = b.sender();
        ByteBuffer buffer = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(buffer, b.magic(), s.id(), s.epoch(), s.sequence(), b.baseOffset(), b.lastOffset(), b.leaderEpoch(), time(b), b.timestampMs(),
            s.transactional(), b.kind() == Kind.EMPTY_MARKER);
        return MemoryRecords.readableRecords(buffer.flip());
    }

    private static TimestampType time(Batch b) { return b.appendTime() ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME; }

    private static Header[] headers(Entry e) {
        return e.headers().stream().map(h -> new RecordHeader(h.key(), h.value())).toArray(Header[]::new);
    }
}
