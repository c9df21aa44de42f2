package keeplog.interop.older;

import java.util.Map;
import keeplog.interop.Server;

/** Kafka 3.9: it still writes and cleans the formats v0 and v1. */
public final class Main {
    public static void main(String[] words) throws Exception {
        Server.serve(Integer.parseInt(words[0]), Map.of("grow", Writing::grow, "clean", Cleaning::clean));
    }
}
