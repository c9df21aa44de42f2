package oracle;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;

/** Many of the oracle's commands in one process. Each line of standard input is one command, its words separated by tabs; each is answered by one line. */
public final class Many {
    public static void main(String[] a) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            String[] word = line.split("\t");
            switch (word[0]) {
                case "open" -> System.out.println("{" + OpenCheck.open(Path.of(word[1]), CleanBench.settings(100), Long.parseLong(word[2]), word[3].equals("clean")) + "}");
                case "dump" -> {
                    Dump.toFile(Path.of(word[1]), Path.of(word[2]));
                    System.out.println("{}");
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
        System.exit(0); // Kafka's schedulers leave threads behind
    }
}
