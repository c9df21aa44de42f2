package keeplog.interop.older;

import kafka.log.Cleaner;
import kafka.log.CleanerStats;
import kafka.log.LogToClean;
import keeplog.interop.Arguments;
import keeplog.interop.Json;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.utils.Throttler;
import scala.Tuple2;
import scala.runtime.BoxedUnit;

/** {@code clean}: one pass of Kafka 3.9's cleaner. */
final class Cleaning {
    private static final int MAP_ENTRY_BYTES = 24;
    private static final double LOAD_FACTOR = 0.9;
    private static final int IO_BUFFER_BYTES_MAX = 10 << 20;

    private Cleaning() {}

    static Json clean(Arguments a) throws Exception {
        try (OpenLog open = new OpenLog(a)) {
            long firstDirty = Math.max(0, a.number("checkpoint", -1));
            long bound = Math.min(open.log.activeSegment().baseOffset(), open.log.lastStableOffset());
            SkimpyOffsetMap map = new SkimpyOffsetMap((int) a.number("map_slots") * MAP_ENTRY_BYTES);
            Throttler unthrottled = new Throttler(Double.MAX_VALUE, 300, "none", "bytes", Time.SYSTEM);
            Cleaner cleaner = new Cleaner(0, map, (int) a.number("io_buffer_bytes"), IO_BUFFER_BYTES_MAX, LOAD_FACTOR, unthrottled, open.clock, partition -> BoxedUnit.UNIT);
            Tuple2<Object, CleanerStats> done = cleaner.clean(new LogToClean(open.log.topicPartition(), open.log, firstDirty, Math.max(bound, firstDirty), false));
            CleanerStats stats = done._2();
            return new Json().put("due", true).put("first_dirty", firstDirty).put("new_dirty", (Long) done._1()).put("map_size", map.size()).put("bytes_read", stats.bytesRead())
                .put("bytes_written", stats.bytesWritten()).put("records_read", stats.messagesRead()).put("records_written", stats.messagesWritten())
                .put("records_keyless", stats.invalidMessagesRead());
        }
    }
}
