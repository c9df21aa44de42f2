package keeplog.interop.current;

import java.io.IOException;
import java.io.PrintWriter;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.List;
import keeplog.interop.Arguments;
import keeplog.interop.Json;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;
import org.apache.kafka.storage.internals.log.LogSegment;

/** {@code dump}: batches and records as Kafka parses them, a line of JSON for each batch, bytes in hex. {@code recover}: what opening comes to. */
final class Reading {
    private Reading() {}

    static Json dump(Arguments a) throws IOException {
        long batches = 0;
        try (PrintWriter out = new PrintWriter(Files.newBufferedWriter(a.path("out"), StandardCharsets.UTF_8))) {
            BufferSupplier buffers = BufferSupplier.create();
            for (Path file : Segments.from(a.path("dir"), 0)) {
                try (FileRecords records = FileRecords.open(file.toFile(), false)) {
                    for (FileChannelRecordBatch batch : records.batches()) {
                        out.println(batch(file, batch, buffers));
                        batches++;
                    }
                }
            }
        }
        return new Json().put("batches", batches);
    }

    private static Json batch(Path file, FileChannelRecordBatch b, BufferSupplier buffers) {
        Json json = new Json().put("file", file.getFileName().toString()).put("pos", b.position()).put("bytes", b.sizeInBytes()).put("magic", b.magic())
            .put("base", b.baseOffset()).put("last", b.lastOffset()).raw("count", String.valueOf(b.countOrNull())).put("codec", b.compressionType().name)
            .put("ts_type", b.timestampType().name).put("max_ts", b.maxTimestamp())
            .raw("horizon", b.deleteHorizonMs().isPresent() ? Long.toString(b.deleteHorizonMs().getAsLong()) : "null").put("pid", b.producerId())
            .put("epoch", b.producerEpoch()).put("seq", b.baseSequence()).put("leader_epoch", b.partitionLeaderEpoch()).put("txn", b.isTransactional())
            .put("control", b.isControlBatch()).put("crc", b.checksum()).put("valid", b.isValid());
        StringBuilder records = new StringBuilder("[");
        try (CloseableIterator<Record> iterator = b.streamingIterator(buffers)) {
            while (iterator.hasNext()) {
                if (records.length() > 1) records.append(',');
                record(iterator.next(), records);
            }
        }
        return json.raw("records", records.append(']').toString());
    }

    private static void record(Record r, StringBuilder out) {
        out.append("{\"o\":").append(r.offset()).append(",\"t\":").append(r.timestamp()).append(",\"k\":").append(hex(r.key())).append(",\"v\":").append(hex(r.value()));
        Header[] headers = r.headers();
        for (int i = 0; i < headers.length; i++) {
            byte[] value = headers[i].value();
            out.append(i == 0 ? ",\"h\":[[" : ",[").append(hex(ByteBuffer.wrap(headers[i].key().getBytes(StandardCharsets.UTF_8)))).append(',')
                .append(hex(value == null ? null : ByteBuffer.wrap(value))).append(']');
        }
        out.append(headers.length > 0 ? "]}" : "}");
    }

    private static String hex(ByteBuffer bytes) {
        if (bytes == null) return "null";
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return '"' + HexFormat.of().formatHex(copy) + '"';
    }

    /** Opens a directory as a broker does after a stop, clean or not, which mends it. */
    static Json recover(Arguments a) {
        try (OpenLog open = new OpenLog(a, a.flag("clean"), a.number("recovery_point"))) {
            List<Json> segments = open.log.logSegments().stream().map(Reading::segment).toList();
            return new Json().put("opened", true).put("log_start_offset", open.log.logStartOffset()).put("log_end_offset", open.log.logEndOffset())
                .put("last_stable_offset", open.log.lastStableOffset()).put("segments", segments);
        } catch (Throwable refused) {
            return new Json().put("opened", false).put("error", refused.toString());
        }
    }

    private static Json segment(LogSegment s) { return new Json().put("base", s.baseOffset()).put("bytes", s.size()); }
}
