package org.tributary.interop;

import com.google.protobuf.ByteString;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;

/** Requests that both kinds of Java client send, and what must come back. */
final class Expect {
    static final int FOUR_MIB = 4 * 1024 * 1024;
    static final int STREAM_LENGTH = 20;
    static final String ERROR_TEXT = "no such thing: 100% + two";
    static final String TRAILER = "x-interop-trailer";
    static final String HEADER = "x-interop-header";

    private Expect() {}

    static SayRequest say(String text) {
        return SayRequest.newBuilder().setText(text).setPayload(bytes(64)).build();
    }

    static SayRequest failing(int code, String message) {
        return SayRequest.newBuilder().setText("fails")
                .setFail(Failure.newBuilder().setCode(code).setMessage(message))
                .addTrailing(Entry.newBuilder().setKey(TRAILER).setValue("kept"))
                .build();
    }

    static SayRequest slow(int delayMs) {
        return SayRequest.newBuilder().setText("slow").setDelayMs(delayMs).build();
    }

    static SayRequest stream(int count, int gapMs) {
        return SayRequest.newBuilder().setText("stream").setCount(count).setGapMs(gapMs).build();
    }

    static List<SayRequest> numbered(int count) {
        List<SayRequest> all = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            all.add(SayRequest.newBuilder().setText("n" + i).setPayload(bytes(100 + i)).build());
        }
        return all;
    }

    /** Bytes that repeat with a period that no buffer size divides, so that a shifted copy is seen. */
    static ByteString bytes(int length) {
        byte[] made = new byte[length];
        for (int i = 0; i < length; i++) {
            made[i] = (byte) (i % 251);
        }
        return ByteString.copyFrom(made);
    }

    static void echoed(SayRequest request, SayReply reply) {
        equal("text", request.getText(), reply.getText());
        equal("payload length", request.getPayload().size(), reply.getPayload().size());
        equal("payload", request.getPayload(), reply.getPayload());
    }

    static void inOrder(List<SayReply> replies, int count) {
        equal("number of replies", count, replies.size());
        for (int i = 0; i < count; i++) {
            equal("index", i, replies.get(i).getIndex());
        }
    }

    static void collected(List<SayRequest> requests, SayReply reply) {
        long total = requests.stream().mapToLong(each -> each.getPayload().size()).sum();
        equal("requests counted", requests.size(), reply.getIndex());
        equal("bytes counted", total, reply.getTotalBytes());
    }

    static void within(String what, long ms, long atLeast, long atMost) {
        if (ms < atLeast || ms > atMost) {
            throw new AssertionError(what + " after " + ms + " ms, wanted " + atLeast + " to " + atMost);
        }
    }

    static void equal(String what, Object wanted, Object got) {
        if (!Objects.equals(wanted, got)) {
            throw new AssertionError(what + ": wanted " + brief(wanted) + ", got " + brief(got));
        }
    }

    static void holds(String what, boolean holds) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    private static String brief(Object value) {
        String text = String.valueOf(value);
        return "<" + (text.length() > 300 ? text.substring(0, 300) + "…" : text) + ">";
    }
}
