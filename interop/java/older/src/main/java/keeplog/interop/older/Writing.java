package keeplog.interop.older;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.util.List;
import java.util.Map;
import kafka.log.UnifiedLog;
import kafka.server.RequestLocal;
import keeplog.interop.Arguments;
import keeplog.interop.Batch;
import keeplog.interop.Json;
import keeplog.interop.RandomLog;
import keeplog.interop.Shape;
import keeplog.interop.Step;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import scala.Option;

/** {@code grow}: the next round in the life of a log that begins in an old format, by Kafka 3.9's own builders and log. */
final class Writing {
    private Writing() {}

    static Json grow(Arguments a) throws IOException {
        long seed = a.number("seed");
        int round = (int) a.number("round");
        Shape shape = Shape.old(seed);
        RandomLog life = new RandomLog(seed, shape);
        for (int past = 1; past < round; past++) life.round(past);
        List<Step> steps = life.round(round);
        long nowMs = Shape.T0 + Shape.ROUND_MS * round;
        Path dir = Files.createDirectories(a.path("dir"));
        long firstNew;
        int led = 0;
        try (OpenLog open = new OpenLog(a.with(shape.settings()).with(Map.of("now", nowMs)))) {
            firstNew = open.log.activeSegment().baseOffset();
            for (Step step : steps) led += apply(open, step) ? 1 : 0;
            open.log.flush(true);
        }
        long modifiedMs = nowMs - Shape.ROUND_MS;
        try (var files = Files.list(dir)) {
            for (Path f : files.filter(f -> f.toString().endsWith(".log")).sorted().toList()) {
                if (UnifiedLog.offsetFromFile(f.toFile()) >= firstNew) Files.setLastModifiedTime(f, FileTime.fromMillis(modifiedMs += 1000));
            }
        }
        return shape.describe().put("now_ms", nowMs).put("log_start", 0).put("end_offset", life.end()).put("led", led);
    }

    /** Returns whether a leader gave out offsets, and perhaps converted. */
    private static boolean apply(OpenLog open, Step step) {
        if (!(step instanceof Step.Append append)) {
            open.log.roll(Option.empty());
            return false;
        }
        if (append.leading() && append.batch().sender().id() < 0 && lead(open, append.batch())) return true;
        open.log.appendAsFollower(Encoder.encode(append.batch()), append.batch().leaderEpoch());
        return false;
    }

    private static boolean lead(OpenLog open, Batch batch) {
        open.writeFormat(batch.magic());
        byte sent = batch.codec() == 4 ? 2 : (byte) Math.floorMod(batch.baseOffset(), 3);
        try {
            open.log.appendAsLeader(Encoder.sent(batch, sent), batch.leaderEpoch(), AppendOrigin.CLIENT, MetadataVersion.latestProduction(), RequestLocal.NoCaching(),
                VerificationGuard.SENTINEL);
            return true;
        } catch (InvalidRecordException | org.apache.kafka.storage.internals.log.RecordValidationException refused) {
            return false; // records without keys
        }
    }
}
