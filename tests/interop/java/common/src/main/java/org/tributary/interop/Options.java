package org.tributary.interop;

import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Command line of the peers: --name value or --name=value, nothing else. */
final class Options {
    private final Map<String, String> values = new HashMap<>();

    Options(String[] args) {
        for (int i = 0; i < args.length; i++) {
            if (!args[i].startsWith("--")) {
                throw new IllegalArgumentException("not an option: " + args[i]);
            }
            int equals = args[i].indexOf('=');
            if (equals > 0) {
                values.put(args[i].substring(2, equals), args[i].substring(equals + 1));
            } else if (i + 1 < args.length) {
                values.put(args[i].substring(2), args[++i]);
            } else {
                throw new IllegalArgumentException(args[i] + " wants a value");
            }
        }
    }

    String text(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    int number(String name, int otherwise) {
        return Integer.parseInt(values.getOrDefault(name, String.valueOf(otherwise)));
    }

    List<String> list(String name) {
        String value = values.getOrDefault(name, "");
        return value.isEmpty() ? List.of() : List.of(value.split(","));
    }

    /** The port of --target HOST:PORT. */
    int targetPort() {
        String target = values.getOrDefault("target", "");
        return Integer.parseInt(target.substring(target.lastIndexOf(':') + 1));
    }
}
