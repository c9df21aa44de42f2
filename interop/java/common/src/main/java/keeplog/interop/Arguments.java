package keeplog.interop;

import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Properties;

/** The arguments of a request by name. A name with a dot in it is a setting of the log. */
public final class Arguments {
    private final Map<String, String> values = new HashMap<>();

    Arguments(String[] words, int from) {
        for (int i = from; i < words.length; i++) {
            int equals = words[i].indexOf('=');
            if (equals < 0) throw new IllegalArgumentException("not NAME=VALUE: " + words[i]);
            values.put(words[i].substring(0, equals), words[i].substring(equals + 1));
        }
    }

    public Arguments(Map<String, String> values) { this.values.putAll(values); }

    /** These and others. */
    public Arguments with(Map<String, Long> others) {
        Arguments more = new Arguments(values);
        others.forEach((name, value) -> more.values.put(name, value.toString()));
        return more;
    }

    public String text(String name) {
        String value = values.get(name);
        if (value == null) throw new NoSuchElementException("no argument " + name);
        return value;
    }

    public Path path(String name) { return Path.of(text(name)); }
    public long number(String name) { return Long.parseLong(text(name)); }
    public long number(String name, long otherwise) { return values.containsKey(name) ? number(name) : otherwise; }
    public boolean flag(String name) { return Boolean.parseBoolean(values.getOrDefault(name, "false")); }

    public Properties settings() {
        Properties settings = new Properties();
        values.forEach((name, value) -> { if (name.contains(".")) settings.put(name, value); });
        return settings;
    }
}
