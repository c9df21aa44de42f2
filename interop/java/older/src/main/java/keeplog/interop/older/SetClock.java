package keeplog.interop.older;

import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;

/** A clock that stands where it was set. */
record SetClock(long nowMs) implements Time {
    @Override public long milliseconds() { return nowMs; }
    @Override public long hiResClockMs() { return nowMs; }
    @Override public long nanoseconds() { return System.nanoTime(); }
    @Override public void sleep(long ms) {}

    @Override public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) throws InterruptedException {
        Time.SYSTEM.waitObject(object, condition, deadlineMs);
    }
}
