package keeplog.interop.current;

import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.ScheduledFuture;
import keeplog.interop.Unawaited;
import org.apache.kafka.server.util.Scheduler;

/** Runs what Kafka puts off (it removes replaced files later) when it is told to, and nothing periodically. */
final class Deferred implements Scheduler {
    private final Queue<Runnable> tasks = new ArrayDeque<>();

    @Override public void startup() {}
    @Override public void shutdown() {}
    @Override public void resizeThreadPool(int threads) {}

    @Override public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
        if (periodMs < 0) tasks.add(task);
        return new Unawaited();
    }

    void runAll() {
        for (Runnable task; (task = tasks.poll()) != null; ) task.run();
    }
}
