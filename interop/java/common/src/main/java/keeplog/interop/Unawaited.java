package keeplog.interop;

import java.util.concurrent.Delayed;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;

/** Stands for a task whose end nobody waits for. */
public final class Unawaited implements ScheduledFuture<Void> {
    @Override public long getDelay(TimeUnit unit) { return 0; }
    @Override public int compareTo(Delayed other) { return 0; }
    @Override public boolean cancel(boolean interrupt) { return false; }
    @Override public boolean isCancelled() { return false; }
    @Override public boolean isDone() { return false; }
    @Override public Void get() { throw new UnsupportedOperationException(); }
    @Override public Void get(long timeout, TimeUnit unit) { throw new UnsupportedOperationException(); }
}
