package org.tributary.interop;

import java.io.PrintStream;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Named cases of a client, run one after another, each within a time limit, each reported as one line
 * of JSON: {"case", "ok", "detail", "facts"}. Facts are what the case saw beside its verdict (did the
 * trailing metadata arrive, how long did it take); the tests compare them with and without the proxy.
 */
final class Cases {
    private static final long LIMIT_S = 20;

    interface Body {
        void run(Facts facts) throws Exception;
    }

    /** What a case saw, in the order it was seen. */
    static final class Facts {
        private final Map<String, Object> seen = new LinkedHashMap<>();

        synchronized void put(String name, Object value) {
            seen.put(name, value);
        }

        private synchronized String json() {
            List<String> members = new ArrayList<>();
            seen.forEach((name, value) -> members.add(quote(name) + ":"
                    + (value instanceof Number || value instanceof Boolean ? value : quote(String.valueOf(value)))));
            return "{" + String.join(",", members) + "}";
        }
    }

    private final Map<String, Body> all = new LinkedHashMap<>();
    // Libraries write to System.out; the protocol lines have it for themselves.
    private final PrintStream out = System.out;

    Cases() {
        System.setOut(System.err);
    }

    void add(String name, Body body) {
        all.put(name, body);
    }

    /** Runs the wanted cases, or all when the list is empty; the process's exit code. */
    int run(List<String> wanted) {
        boolean allOk = true;
        for (String name : wanted.isEmpty() ? List.copyOf(all.keySet()) : wanted) {
            Body body = all.get(name);
            if (body == null) {
                report(name, false, "this client has no such case", new Facts());
                allOk = false;
            } else {
                allOk &= runOne(name, body);
            }
        }
        return allOk ? 0 : 1;
    }

    private boolean runOne(String name, Body body) {
        ExecutorService thread = Executors.newSingleThreadExecutor(task -> {
            Thread made = new Thread(task, "case-" + name);
            made.setDaemon(true);
            return made;
        });
        Facts facts = new Facts();
        Future<?> result = thread.submit(() -> {
            body.run(facts);
            return null;
        });
        try {
            result.get(LIMIT_S, TimeUnit.SECONDS);
            report(name, true, "", facts);
            return true;
        } catch (TimeoutException e) {
            report(name, false, "no end within " + LIMIT_S + " s", facts);
        } catch (Exception e) {
            Throwable why = e.getCause() == null ? e : e.getCause();
            if (System.getenv("INTEROP_TRACE") != null) {
                why.printStackTrace();
            }
            report(name, false, why.toString(), facts);
        } finally {
            thread.shutdownNow();
        }
        return false;
    }

    private void report(String name, boolean ok, String detail, Facts facts) {
        String oneLine = detail.replaceAll("\\s*\\R\\s*", " | ");
        out.println("{\"case\":" + quote(name) + ",\"ok\":" + ok
                + ",\"detail\":" + quote(oneLine.length() > 600 ? oneLine.substring(0, 600) : oneLine)
                + ",\"facts\":" + facts.json() + "}");
        out.flush();
    }

    private static String quote(String text) {
        StringBuilder json = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                json.append('\\').append(c);
            } else if (c < 0x20 || c > 0x7e) {
                json.append(String.format("\\u%04x", (int) c));
            } else {
                json.append(c);
            }
        }
        return json.append('"').toString();
    }
}
