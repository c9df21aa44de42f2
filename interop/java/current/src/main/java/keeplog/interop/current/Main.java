package keeplog.interop.current;

import static java.util.Map.entry;

import java.util.Map;
import keeplog.interop.Server;

/** Kafka as the judge: its log, cleaner, recovery, tools and clients. */
public final class Main {
    public static void main(String[] words) throws Exception {
        Server.serve(Integer.parseInt(words[0]), Map.ofEntries(
            entry("grow", Writing::grow),
            entry("clean", Cleaning::clean),
            entry("dump", Reading::dump),
            entry("recover", Reading::recover),
            entry("dump-log-segments", Tools::dumpLogSegments),
            entry("format", Tools::format),
            entry("fill", Filling::fill),
            entry("dismiss", Filling::dismiss),
            entry("settle", Filling::settle),
            entry("bulk", Groups::bulk),
            entry("committed", Groups::committed),
            entry("groups", Groups::groups)));
    }
}
