package keeplog.interop.current;

import java.io.File;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import keeplog.interop.Arguments;
import keeplog.interop.Json;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.PreCleanStats;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;

/** {@code clean}: one pass of Kafka's cleaner, over the range that its manager chooses. */
final class Cleaning {
    private static final int MAP_ENTRY_BYTES = 24;
    private static final double LOAD_FACTOR = 0.9;
    private static final int IO_BUFFER_BYTES_MAX = 10 << 20;

    private Cleaning() {}

    static Json clean(Arguments a) throws Exception {
        try (OpenLog open = new OpenLog(a, true, 0)) {
            Optional<LogToClean> due = choose(open, a.number("checkpoint", -1));
            Json answer = new Json().put("due", due.isPresent()).put("end_offset", open.log.logEndOffset()).put("last_stable_offset", open.log.lastStableOffset());
            if (due.isEmpty()) return answer;
            LogToClean range = due.get();
            answer.put("first_dirty", range.firstDirtyOffset()).put("first_uncleanable", range.firstUncleanableOffset()).put("clean_bytes", range.cleanBytes())
                .put("cleanable_bytes", range.cleanableBytes());
            SkimpyOffsetMap map = new SkimpyOffsetMap((int) a.number("map_slots") * MAP_ENTRY_BYTES);
            Map.Entry<Long, CleanerStats> done = run(open, range, map, (int) a.number("io_buffer_bytes"));
            CleanerStats stats = done.getValue();
            return answer.put("new_dirty", done.getKey()).put("map_size", map.size()).put("bytes_read", stats.bytesRead()).put("bytes_written", stats.bytesWritten())
                .put("records_read", stats.messagesRead()).put("records_written", stats.messagesWritten()).put("records_keyless", stats.invalidMessagesRead());
        }
    }

    /** One pass, and where the next one begins. */
    static Map.Entry<Long, CleanerStats> run(OpenLog open, LogToClean range, SkimpyOffsetMap map, int ioBufferBytes) throws Exception {
        Throttler unthrottled = new Throttler(Double.MAX_VALUE, 300, "none", "bytes", Time.SYSTEM);
        return new Cleaner(0, map, ioBufferBytes, IO_BUFFER_BYTES_MAX, LOAD_FACTOR, unthrottled, open.clock, partition -> {}).clean(range);
    }

    /** What the manager chooses of this one log. Nothing was cleaned before if {@code checkpoint} is negative. */
    private static Optional<LogToClean> choose(OpenLog open, long checkpoint) {
        TopicPartition partition = open.log.topicPartition();
        ConcurrentMap<TopicPartition, UnifiedLog> logs = new ConcurrentHashMap<>(Map.of(partition, open.log));
        File dataDir = open.log.parentDirFile();
        LogCleanerManager manager = new LogCleanerManager(List.of(dataDir), logs, new LogDirFailureChannel(1));
        try {
            manager.updateCheckpoints(dataDir, checkpoint < 0 ? Optional.empty() : Optional.of(Map.entry(partition, checkpoint)),
                checkpoint < 0 ? Optional.of(partition) : Optional.empty());
            return manager.grabFilthiestCompactedLog(open.clock, new PreCleanStats());
        } finally {
            manager.removeMetrics();
        }
    }
}
