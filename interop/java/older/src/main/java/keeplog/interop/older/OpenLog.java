package keeplog.interop.older;

import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import kafka.log.UnifiedLog;
import kafka.server.BrokerTopicStats;
import keeplog.interop.Arguments;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import scala.Option;

/** A partition directory opened by Kafka 3.9 after a clean stop. */
final class OpenLog implements AutoCloseable {
    private static final int NEVER_MS = Integer.MAX_VALUE;
    private static final int PRODUCER_EXPIRATION_MS = 86_400_000;
    /** Settings that take effect with the message format of each magic byte. */
    private static final String[] FORMATS = {"0.9.0", "0.10.2", "3.0"};

    final UnifiedLog log;
    final SetClock clock;
    private final Properties settings = new Properties();
    private final Deferred deferred = new Deferred();

    OpenLog(Arguments a) {
        clock = new SetClock(a.number("now"));
        Path dir = a.path("dir");
        settings.put("cleanup.policy", "compact");
        settings.put("file.delete.delay.ms", "0");
        settings.put("max.message.bytes", "10485760");
        settings.putAll(a.settings());
        log = UnifiedLog.apply(dir.toFile(), config(2), 0, 0, deferred, new BrokerTopicStats(false), clock, NEVER_MS,
            new ProducerStateManagerConfig(PRODUCER_EXPIRATION_MS, false), NEVER_MS, new LogDirFailureChannel(1), true, Option.empty(), true, new ConcurrentHashMap<>(), false,
            LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
        commitAll();
    }

    /** From now on the leader writes the format of this magic byte. */
    void writeFormat(int magic) { log.updateConfig(config(magic)); }

    private LogConfig config(int magic) {
        Properties p = new Properties();
        p.putAll(settings);
        p.put("message.format.version", FORMATS[magic]);
        return LogConfig.fromProps(Map.of(), p);
    }

    void commitAll() { log.updateHighWatermark(log.logEndOffset()); }

    @Override public void close() {
        deferred.runAll();
        log.close();
        deferred.runAll();
    }
}
