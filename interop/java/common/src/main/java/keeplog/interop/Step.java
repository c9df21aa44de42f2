package keeplog.interop;

/** One thing that happens to a log. */
public sealed interface Step {
    /** A batch arrives: with its offsets, as at a follower, or to be given some, as at a leader. */
    record Append(Batch batch, boolean leading) implements Step {}

    record Roll() implements Step {}

    /** What lies below {@code offset} is given up; whole segments there are removed. */
    record AdvanceStart(long offset) implements Step {}
}
