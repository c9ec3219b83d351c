package org.tributary.interop;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;

final class GreeterService implements Greeter {
    @Override
    public String greet(String name) {
        return "hello " + name;
    }

    @Override
    public Card card(String name, int copies, List<String> tags) {
        Card card = new Card();
        card.name = name;
        card.copies = copies;
        card.tags = new ArrayList<>(tags);
        card.sizes = new HashMap<>();
        tags.forEach(tag -> card.sizes.put(tag, (long) tag.length()));
        return card;
    }

    @Override
    public void refuse(String why) throws Refused {
        throw new Refused(why);
    }

    @Override
    public void crash(String why) {
        throw new IllegalStateException(why);
    }
}
