package keeplog.interop.current;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/** The {@code .log} files of a partition directory. */
final class Segments {
    private Segments() {}

    /** Those with a base offset of at least {@code base}, ascending. */
    static List<Path> from(Path dir, long base) throws IOException {
        try (var files = Files.list(dir)) {
            return files.filter(f -> f.toString().endsWith(".log") && UnifiedLog.offsetFromFile(f.toFile()) >= base).sorted().toList();
        }
    }
}
