package org.tributary.interop;

import java.io.Serializable;
import java.util.List;
import java.util.Map;

/** A plain Java interface: Triple carries it in wrapper messages, the arguments in hessian2. */
public interface Greeter {
    String greet(String name);

    Card card(String name, int copies, List<String> tags);

    void refuse(String why) throws Refused;

    void crash(String why);

    /** A value object as services without IDL pass them. */
    final class Card implements Serializable {
        private static final long serialVersionUID = 1;
        public String name;
        public int copies;
        public List<String> tags;
        public Map<String, Long> sizes;
    }

    /** A checked exception of the service: it must arrive as itself. */
    final class Refused extends Exception {
        private static final long serialVersionUID = 1;

        public Refused(String why) {
            super(why);
        }
    }
}
