package keeplog.interop;

import java.util.List;

/** A JSON object on one line. */
public final class Json {
    private final StringBuilder text = new StringBuilder("{");

    public Json put(String name, long value) { return raw(name, Long.toString(value)); }
    public Json put(String name, double value) { return raw(name, Double.toString(value)); }
    public Json put(String name, boolean value) { return raw(name, Boolean.toString(value)); }
    public Json put(String name, String value) { return raw(name, quoted(value)); }
    public Json put(String name, List<Json> values) { return raw(name, values.toString()); }

    public Json raw(String name, String json) {
        if (text.length() > 1) text.append(',');
        text.append(quoted(name)).append(':').append(json);
        return this;
    }

    @Override public String toString() { return text + "}"; }

    private static String quoted(String value) {
        StringBuilder out = new StringBuilder("\"");
        for (int i = 0; i < value.length(); i++) {
            char c = value.charAt(i);
            if (c == '"' || c == '\\') out.append('\\').append(c);
            else if (c < ' ') out.append(String.format("\\u%04x", (int) c));
            else out.append(c);
        }
        return out.append('"').toString();
    }
}
