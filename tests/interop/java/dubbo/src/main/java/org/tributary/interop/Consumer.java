package org.tributary.interop;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.dubbo.common.stream.StreamObserver;
import org.apache.dubbo.config.ReferenceConfig;
import org.apache.dubbo.rpc.RpcContext;
import org.apache.dubbo.rpc.RpcException;
import org.apache.dubbo.rpc.StatusRpcException;
import org.apache.dubbo.rpc.protocol.tri.CancelableStreamObserver;

/** A dubbo-java consumer with a direct URL, no registry. --target HOST:PORT --cases a,b,c */
final class Consumer {
    private final String url;
    private final Echo echo;
    private Greeter greeter;

    private Consumer(int port) {
        url = "tri://" + Peer.LOOPBACK + ":" + port;
        echo = echo("", "", 5000);
    }

    public static void main(String[] args) {
        Options options = new Options(args);
        Cases cases = new Cases();
        Peer.bootstrap("interop-consumer").start();
        new Consumer(options.targetPort()).addTo(cases);
        int code = cases.run(options.list("cases"));
        // Dubbo's shutdown hook waits for idle timers; there is nothing left to save.
        System.err.flush();
        Runtime.getRuntime().halt(code);
    }

    private void addTo(Cases cases) {
        cases.add("unary", this::unary);
        cases.add("error", this::error);
        cases.add("deadline", this::deadline);
        cases.add("cancel", this::cancel);
        cases.add("server", this::server);
        cases.add("client", this::client);
        cases.add("bidi", this::bidi);
        cases.add("big", this::big);
        cases.add("gzip", this::gzip);
        cases.add("codes", this::codes);
        cases.add("raw_message", this::rawMessage);
        cases.add("plain_error", this::plainError);
        cases.add("metadata", this::metadata);
        cases.add("stream_error", this::streamError);
        cases.add("empty", this::empty);
        cases.add("concurrent", this::concurrent);
        cases.add("group_version", this::groupVersion);
        cases.add("wrapper", this::wrapper);
        cases.add("wrapper_object", this::wrapperObject);
        cases.add("wrapper_exception", this::wrapperException);
        cases.add("wrapper_crash", this::wrapperCrash);
        cases.add("wrapper_gzip", this::wrapperGzip);
    }

    private <T> T refer(Class<T> type, String path, String proxy, String group, String version, int timeoutMs) {
        ReferenceConfig<T> reference = new ReferenceConfig<>();
        reference.setInterface(type);
        reference.setUrl(url + path);
        reference.setProxy(proxy);
        reference.setTimeout(timeoutMs);
        reference.setRetries(0);
        reference.setCheck(false);
        if (!group.isEmpty()) {
            reference.setGroup(group);
        }
        if (!version.isEmpty()) {
            reference.setVersion(version);
        }
        return reference.get();
    }

    private Echo echo(String group, String version, int timeoutMs) {
        // Only the Java interface's path is looked up by group and version; the proto name's is not.
        String path = group.isEmpty() && version.isEmpty() ? "" : "/" + Echo.class.getName();
        return refer(Echo.class, path, "nativestub", group, version, timeoutMs);
    }

    private Greeter greeter() {
        if (greeter == null) {
            greeter = refer(Greeter.class, "", "javassist", "", "", 5000);
        }
        return greeter;
    }

    private void unary(Cases.Facts facts) {
        SayRequest request = Expect.say("hello");
        Expect.echoed(request, echo.say(request));
    }

    private void empty(Cases.Facts facts) {
        Expect.equal("reply", SayReply.getDefaultInstance(),
                echo.say(SayRequest.newBuilder().setEmptyReply(true).build()));
    }

    private interface Call {
        void run() throws Exception;
    }

    /** The status that a call ends with: in the exception itself, or in a cause below it. */
    private static StatusRpcException fails(Call call) throws Exception {
        try {
            call.run();
        } catch (RpcException | ExecutionException e) {
            for (Throwable at = e; at != null; at = at.getCause()) {
                if (at instanceof StatusRpcException) {
                    return (StatusRpcException) at;
                }
            }
            throw e;
        }
        throw new AssertionError("the call went well, an error was wanted");
    }

    private static void failed(int code, String text, StatusRpcException e) {
        Expect.equal("code of " + e, code, e.getStatus().code.code);
        Expect.holds("message: " + e.getMessage(), String.valueOf(e.getMessage()).contains(text));
    }

    private void error(Cases.Facts facts) throws Exception {
        StatusRpcException e = fails(() -> echo.say(Expect.failing(5, Expect.ERROR_TEXT)));
        facts.put("message", String.valueOf(e.getStatus().description));
        facts.put("metadata", "kept".equals(RpcContext.getClientResponseContext().getAttachment(Expect.TRAILER)));
        failed(5, Expect.ERROR_TEXT, e);
    }

    private void codes(Cases.Facts facts) throws Exception {
        for (int code = 1; code <= 16; code++) {
            SayRequest request = Expect.failing(code, "code " + code);
            failed(code, "code " + code, fails(() -> echo.say(request)));
        }
    }

    private void rawMessage(Cases.Facts facts) throws Exception {
        String text = "50% + caf\u00e9\nline two";
        StatusRpcException e = fails(() -> echo.say(Expect.failing(9, text)));
        facts.put("message", String.valueOf(e.getStatus().description));
        failed(9, text, e);
    }

    private void plainError(Cases.Facts facts) throws Exception {
        StatusRpcException e = fails(() -> echo.say(SayRequest.newBuilder()
                .setFail(Failure.newBuilder().setPlain(true).setMessage("plain failure")).build()));
        facts.put("code", e.getStatus().code.code);
        facts.put("message", String.valueOf(e.getStatus().description));
    }

    private void deadline(Cases.Facts facts) throws Exception {
        Echo impatient = echo("", "", 300);
        long start = System.nanoTime();
        try {
            impatient.say(Expect.slow(1500));
            throw new AssertionError("an answer in spite of the timeout");
        } catch (RpcException e) {
            Expect.holds("a timeout: " + e, e.isTimeout() || String.valueOf(e).contains("DEADLINE_EXCEEDED"));
        }
        Expect.within("deadline", (System.nanoTime() - start) / 1_000_000, 250, 1000);
        unary(facts);
    }

    /** The replies of a stream as they come; cancel() resets the stream. */
    private static final class Replies extends CancelableStreamObserver<SayReply> {
        final BlockingQueue<SayReply> queue = new ArrayBlockingQueue<>(10000);
        final List<SayReply> all = Collections.synchronizedList(new ArrayList<>());
        final AtomicReference<Throwable> error = new AtomicReference<>();
        final CountDownLatch ended = new CountDownLatch(1);

        @Override
        public void onNext(SayReply reply) {
            all.add(reply);
            queue.add(reply);
        }

        @Override
        public void onError(Throwable why) {
            error.set(why);
            ended.countDown();
        }

        @Override
        public void onCompleted() {
            ended.countDown();
        }

        SayReply next() throws InterruptedException {
            SayReply reply = queue.poll(5, TimeUnit.SECONDS);
            Expect.holds("a reply within 5 s, " + error.get(), reply != null);
            return reply;
        }

        void end() throws InterruptedException {
            Expect.holds("an end within 5 s", ended.await(5, TimeUnit.SECONDS));
            Expect.equal("error", null, error.get());
        }
    }

    /** Dubbo-java can cancel streams only: a unary call has no handle for it. */
    private void cancel(Cases.Facts facts) throws Exception {
        CountRequest ask = CountRequest.getDefaultInstance();
        long before = echo.count(ask).getCancelled();
        Replies replies = new Replies();
        echo.expand(Expect.stream(100, 50), replies);
        for (int i = 0; i < 3; i++) {
            Expect.equal("index", i, replies.next().getIndex());
        }
        replies.cancel(new RuntimeException("enough"));
        for (int i = 0; i < 40 && echo.count(ask).getCancelled() == before; i++) {
            Thread.sleep(50);
        }
        Expect.holds("the provider saw a cancelled call", echo.count(ask).getCancelled() > before);
        unary(facts);
    }

    private void server(Cases.Facts facts) throws Exception {
        Replies replies = new Replies();
        echo.expand(Expect.stream(Expect.STREAM_LENGTH, 2), replies);
        replies.end();
        Expect.inOrder(replies.all, Expect.STREAM_LENGTH);
    }

    private void streamError(Cases.Facts facts) throws Exception {
        Replies replies = new Replies();
        echo.expand(Expect.stream(10, 1).toBuilder()
                .setFail(Failure.newBuilder().setCode(8).setMessage("enough of it").setAfter(3)).build(), replies);
        Expect.holds("an end within 5 s", replies.ended.await(5, TimeUnit.SECONDS));
        Expect.inOrder(replies.all, 3);
        Throwable why = replies.error.get();
        failed(8, "enough of it", fails(() -> {
            throw why instanceof RpcException ? (RpcException) why : new ExecutionException(why);
        }));
    }

    private void client(Cases.Facts facts) throws Exception {
        Replies replies = new Replies();
        StreamObserver<SayRequest> requests = echo.collect(replies);
        List<SayRequest> all = Expect.numbered(Expect.STREAM_LENGTH);
        all.forEach(requests::onNext);
        requests.onCompleted();
        Expect.collected(all, replies.next());
        replies.end();
    }

    private void bidi(Cases.Facts facts) throws Exception {
        Replies replies = new Replies();
        StreamObserver<SayRequest> requests = echo.chat(replies);
        for (SayRequest request : Expect.numbered(Expect.STREAM_LENGTH)) {
            requests.onNext(request);
            Expect.echoed(request, replies.next());
        }
        requests.onCompleted();
        replies.end();
    }

    private void big(Cases.Facts facts) {
        SayRequest request =
                SayRequest.newBuilder().setText("big").setPayload(Expect.bytes(Expect.FOUR_MIB)).build();
        Expect.echoed(request, echo.say(request));
    }

    private interface Plain {
        void run();
    }

    private static void compressed(Plain call) {
        int before = SwitchableGzip.compressed.get();
        SwitchableGzip.on = true;
        try {
            call.run();
        } finally {
            SwitchableGzip.on = false;
        }
        Expect.equal("requests compressed", before + 1, SwitchableGzip.compressed.get());
    }

    private void gzip(Cases.Facts facts) {
        SayRequest request = SayRequest.newBuilder().setText("squeezed".repeat(8192)).build();
        compressed(() -> Expect.echoed(request, echo.say(request)));
    }

    private void metadata(Cases.Facts facts) {
        RpcContext.getClientAttachment().setAttachment(Expect.HEADER, "text value");
        SayReply reply = echo.say(SayRequest.newBuilder().setWantHeaders(true)
                .addTrailing(Entry.newBuilder().setKey(Expect.TRAILER).setValue("last")).build());
        facts.put("trailing",
                String.valueOf(RpcContext.getClientResponseContext().getAttachment(Expect.TRAILER)));
        List<String> names = new ArrayList<>();
        reply.getHeadersList().forEach(entry -> names.add(entry.getKey()));
        Collections.sort(names);
        facts.put("headers", String.join(" ", names));
        Expect.holds("the provider saw " + Expect.HEADER, names.contains(Expect.HEADER));
    }

    private void concurrent(Cases.Facts facts) throws Exception {
        List<CompletableFuture<SayReply>> all = new ArrayList<>();
        for (int i = 0; i < 100; i++) {
            all.add(echo.sayAsync(Expect.say("c" + i)));
        }
        for (int i = 0; i < all.size(); i++) {
            Expect.echoed(Expect.say("c" + i), all.get(i).get(10, TimeUnit.SECONDS));
        }
    }

    private void groupVersion(Cases.Facts facts) {
        facts.put("plain", echo.say(Expect.say("who")).getImplementation());
        facts.put("grey/2.0", echo("grey", "2.0", 5000).say(Expect.say("who")).getImplementation());
        facts.put("/1.1", echo("", "1.1", 5000).say(Expect.say("who")).getImplementation());
    }

    private void wrapper(Cases.Facts facts) {
        Expect.equal("greeting", "hello caf\u00e9", greeter().greet("caf\u00e9"));
    }

    private void wrapperGzip(Cases.Facts facts) {
        String name = "squeezed".repeat(100);
        compressed(() -> Expect.equal("greeting", "hello " + name, greeter().greet(name)));
    }

    private void wrapperObject(Cases.Facts facts) {
        Greeter.Card card = greeter().card("ann", 3, new ArrayList<>(List.of("red", "green")));
        Expect.equal("name", "ann", card.name);
        Expect.equal("copies", 3, card.copies);
        Expect.equal("tags", List.of("red", "green"), card.tags);
        Expect.equal("size", 5L, card.sizes.get("green"));
    }

    private void wrapperException(Cases.Facts facts) {
        try {
            greeter().refuse("not today");
            throw new AssertionError("no exception");
        } catch (Greeter.Refused e) {
            Expect.equal("message", "not today", e.getMessage());
        }
    }

    private void wrapperCrash(Cases.Facts facts) {
        try {
            greeter().crash("on purpose");
        } catch (RuntimeException e) {
            facts.put("exception", e.getClass().getName());
            Expect.holds("message: " + e.getMessage(), String.valueOf(e.getMessage()).contains("on purpose"));
            return;
        }
        throw new AssertionError("no exception");
    }
}
