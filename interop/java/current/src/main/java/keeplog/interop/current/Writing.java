package keeplog.interop.current;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import keeplog.interop.Arguments;
import keeplog.interop.Json;
import keeplog.interop.RandomLog;
import keeplog.interop.Shape;
import keeplog.interop.Step;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;

/** {@code grow}: the next round in the life of a random log, written by Kafka's own log. */
final class Writing {
    private Writing() {}

    static Json grow(Arguments a) throws IOException {
        long seed = a.number("seed");
        int round = (int) a.number("round");
        Shape shape = a.flag("plain") ? Shape.plain(seed) : Shape.any(seed);
        RandomLog life = new RandomLog(seed, shape);
        for (int past = 1; past < round; past++) life.round(past);
        long start = life.start();
        List<Step> steps = life.round(round);
        long nowMs = Shape.T0 + Shape.ROUND_MS * round;
        Path dir = Files.createDirectories(a.path("dir"));
        Arguments opening = a.with(shape.settings()).with(Map.of("now", nowMs, "log_start", start));
        long firstNew;
        try (OpenLog open = new OpenLog(opening, true, 0)) {
            firstNew = open.log.activeSegment().baseOffset();
            for (Step step : steps) apply(open, step);
            open.log.flush(true);
        }
        long modifiedMs = nowMs - Shape.ROUND_MS;
        for (var segment : Segments.from(dir, firstNew)) Files.setLastModifiedTime(segment, FileTime.fromMillis(modifiedMs += 1000));
        return shape.describe().put("now_ms", nowMs).put("log_start", life.start()).put("end_offset", life.end());
    }

    private static void apply(OpenLog open, Step step) throws IOException {
        if (step instanceof Step.Append append) {
            open.log.appendAsFollower(Encoder.encode(append.batch()), append.batch().leaderEpoch());
        } else if (step instanceof Step.AdvanceStart advance) {
            open.commitAll();
            open.log.maybeIncrementLogStartOffset(advance.offset(), LogStartOffsetIncrementReason.ClientRecordDeletion);
            open.log.deleteOldSegments();
        } else {
            open.log.roll(Optional.empty());
        }
    }
}
