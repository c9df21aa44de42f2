package keeplog.interop.current;

import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import keeplog.interop.Arguments;
import keeplog.interop.Json;
import org.apache.kafka.tools.DumpLogSegments;

/** Kafka's own command-line tools, in this process. */
final class Tools {
    private Tools() {}

    /** {@code dump-log-segments}: over the files that the file {@code list} names, a line each, with {@code flag}; it prints to {@code out}, and to {@code complaints}. */
    static synchronized Json dumpLogSegments(Arguments a) throws IOException {
        List<String> words = new ArrayList<>(List.of("--files", String.join(",", Files.readAllLines(a.path("list")))));
        if (!a.text("flag").isEmpty()) words.add(a.text("flag"));
        PrintStream outBefore = System.out;
        PrintStream errBefore = System.err;
        try (PrintStream out = to(a.path("out")); PrintStream complaints = to(a.path("complaints"))) {
            System.setOut(out);
            System.setErr(complaints);
            DumpLogSegments.main(words.toArray(String[]::new));
        } finally {
            System.setOut(outBefore);
            System.setErr(errBefore);
        }
        return new Json();
    }

    private static PrintStream to(Path file) throws IOException { return new PrintStream(Files.newOutputStream(file), false, StandardCharsets.UTF_8); }

    /** {@code format}: makes the directories of a broker with the settings in the file {@code conf}, and a {@code feature} at some level. */
    static Json format(Arguments a) {
        Path conf = a.path("conf");
        int status = kafka.tools.StorageTool.execute(new String[] {"format", "-t", a.text("cluster"), "-c", conf.toString(), "--feature", a.text("feature")}, new PrintStream(OutputStream.nullOutputStream()));
        if (status != 0) throw new IllegalStateException("kafka-storage format ended with " + status);
        return new Json();
    }
}
