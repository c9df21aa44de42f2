package keeplog.interop.current;

import java.util.Map;
import keeplog.interop.Server;

/** Kafka as the judge: its log, cleaner, recovery, tools and clients. */
public final class Main {
    public static void main(String[] words) throws Exception {
        Server.serve(Integer.parseInt(words[0]), Map.of(
            "grow", Writing::grow,
            "clean", Cleaning::clean,
            "dump", Reading::dump,
            "recover", Reading::recover,
            "dump-log-segments", Tools::dumpLogSegments,
            "format", Tools::format,
            "fill", Groups::fill,
            "bulk", Groups::bulk,
            "committed", Groups::committed));
    }
}
