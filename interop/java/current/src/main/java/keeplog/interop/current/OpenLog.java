package keeplog.interop.current;

import java.io.IOException;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import keeplog.interop.Arguments;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** A partition directory opened by Kafka as a broker opens it. */
final class OpenLog implements AutoCloseable {
    private static final int NEVER_MS = Integer.MAX_VALUE;
    private static final int PRODUCER_EXPIRATION_MS = 86_400_000;

    final UnifiedLog log;
    final SetClock clock;
    private final Deferred deferred = new Deferred();

    /** With the settings among {@code a}, at its time {@code now}, which starts at its {@code log_start}. */
    OpenLog(Arguments a, boolean cleanStop, long recoveryPoint) throws IOException {
        clock = new SetClock(a.number("now"));
        Path dir = a.path("dir");
        log = UnifiedLog.create(dir.toFile(), config(a.settings()), a.number("log_start", 0), recoveryPoint, deferred, new BrokerTopicStats(), clock, NEVER_MS,
            new ProducerStateManagerConfig(PRODUCER_EXPIRATION_MS, false), NEVER_MS, new LogDirFailureChannel(1), cleanStop, Optional.empty());
        log.updateHighWatermark(log.logEndOffset());
    }

    private static LogConfig config(Properties given) {
        Properties p = new Properties();
        p.put("cleanup.policy", "compact");
        p.put("min.cleanable.dirty.ratio", "0");
        p.put("file.delete.delay.ms", "0");
        p.put("max.message.bytes", "10485760");
        p.putAll(given);
        Object segmentBytes = p.remove("segment.bytes"); // has a minimum of 1 MiB
        if (segmentBytes != null) p.put("internal.segment.bytes", segmentBytes);
        return LogConfig.fromProps(Map.of(), p);
    }

    void commitAll() throws IOException { log.updateHighWatermark(log.logEndOffset()); }

    @Override public void close() {
        deferred.runAll();
        log.close();
        deferred.runAll();
    }
}
