package keeplog.interop;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Answers lines of standard input with lines of standard output until the input ends, several at a time, so that thousands of logs need one
 * process. A request is {@code NUMBER COMMAND NAME=VALUE...}, separated by tabs; its answer is {@code NUMBER JSON}. A command that throws is
 * answered with what it threw, under {@code failed}.
 */
public final class Server {
    public interface Command {
        Json answer(Arguments arguments) throws Exception;
    }

    private Server() {}

    public static void serve(int threads, Map<String, Command> commands) throws IOException, InterruptedException {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err); // Kafka's tools print there
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split("\t");
            pool.execute(() -> {
                Json answer = answer(commands, words);
                synchronized (out) {
                    out.print(words[0] + "\t" + answer + "\n");
                    out.flush();
                }
            });
        }
        pool.shutdown();
        pool.awaitTermination(1, TimeUnit.HOURS);
        System.exit(0); // clients and timers of Kafka's leave threads behind
    }

    private static Json answer(Map<String, Command> commands, String[] words) {
        try {
            Command command = commands.get(words[1]);
            if (command == null) throw new IllegalArgumentException("no command " + words[1]);
            return command.answer(new Arguments(words, 2));
        } catch (Throwable thrown) { // an assertion of Kafka's is an answer, too
            StringBuilder said = new StringBuilder(thrown.toString());
            for (int i = 0; i < Math.min(4, thrown.getStackTrace().length); i++) said.append(" at ").append(thrown.getStackTrace()[i]);
            return new Json().put("failed", said.toString());
        }
    }
}
