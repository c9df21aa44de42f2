package keeplog.interop.older;

import java.nio.ByteBuffer;
import keeplog.interop.Batch;
import keeplog.interop.Batch.Entry;
import keeplog.interop.Batch.Kind;
import keeplog.interop.Batch.Sender;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;

/** A batch in the bytes of Kafka 3.9. */
final class Encoder {
    private Encoder() {}

    static MemoryRecords encode(Batch b) {
        Sender s = b.sender();
        if (b.kind() == Kind.COMMIT || b.kind() == Kind.ABORT) {
            ControlRecordType end = b.kind() == Kind.COMMIT ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
            return MemoryRecords.withEndTransactionMarker(b.baseOffset(), b.timestampMs(), b.leaderEpoch(), s.id(), s.epoch(), new EndTransactionMarker(end, 0));
        }
        return data(b, b.magic(), b.baseOffset());
    }

    /** As a producer sends it that knows the format of {@code magic}: offsets count from 0. */
    static MemoryRecords sent(Batch b, byte magic) { return data(b, magic, 0); }

    private static MemoryRecords data(Batch b, byte magic, long base) {
        Sender s = magic < 2 ? Sender.NONE : b.sender();
        Compression codec = Compression.of(CompressionType.forId(b.codec())).build();
        TimestampType type = magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE : b.appendTime() && base > 0 ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(4096), magic, codec, type, base, b.timestampMs(), s.id(), s.epoch(), s.sequence(),
            s.transactional(), base > 0 ? b.leaderEpoch() : RecordBatch.NO_PARTITION_LEADER_EPOCH);
        long next = base;
        for (Entry e : b.entries()) {
            long offset = base == b.baseOffset() ? e.offset() : next++;
            builder.appendWithOffset(offset, magic == 0 ? -1 : e.timestampMs(), e.key(), e.value(), headers(e, magic));
        }
        return builder.build();
    }

    private static Header[] headers(Entry e, byte magic) {
        return magic < 2 ? new Header[0] : e.headers().stream().map(h -> new RecordHeader(h.key(), h.value())).toArray(Header[]::new);
    }
}
