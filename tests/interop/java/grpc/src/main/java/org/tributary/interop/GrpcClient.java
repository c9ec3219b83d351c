package org.tributary.interop;

import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.Status.Code;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.StreamObserver;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

/** A grpc-java client: the plain gRPC side of the Java interop tests. --target HOST:PORT --cases a,b,c */
final class GrpcClient {
    private static final Metadata.Key<String> TRAILER =
            Metadata.Key.of(Expect.TRAILER, Metadata.ASCII_STRING_MARSHALLER);
    private static final Metadata.Key<String> HEADER =
            Metadata.Key.of(Expect.HEADER, Metadata.ASCII_STRING_MARSHALLER);
    private static final Metadata.Key<byte[]> BINARY =
            Metadata.Key.of("x-interop-bin", Metadata.BINARY_BYTE_MARSHALLER);

    private final ManagedChannel channel;
    private final EchoMethods methods;

    private GrpcClient(ManagedChannel channel, EchoMethods methods) {
        this.channel = channel;
        this.methods = methods;
    }

    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        NettyChannelBuilder builder = NettyChannelBuilder.forTarget("dns:///" + options.text("target", ""))
                .usePlaintext()
                .maxInboundMessageSize(16 * 1024 * 1024);
        // A window wide enough for a 3.2 provider that must never see the connection window at 0.
        int window = options.number("window", 0);
        if (window > 0) {
            builder.initialFlowControlWindow(window);
        }
        ManagedChannel channel = builder.build();
        Cases cases = new Cases();
        new GrpcClient(channel, new EchoMethods(options.text("service", "tributary.interop.Echo"))).addTo(cases);
        int code = cases.run(options.list("cases"));
        channel.shutdownNow().awaitTermination(2, TimeUnit.SECONDS);
        System.exit(code);
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
        cases.add("cancel_stream", this::cancelStream);
        cases.add("stream_error", this::streamError);
        cases.add("stream_deadline", this::streamDeadline);
        cases.add("empty", this::empty);
        cases.add("concurrent", this::concurrent);
        cases.add("cancel_burst", this::cancelBurst);
        cases.add("implementation", this::implementation);
    }

    private SayReply say(SayRequest request, CallOptions options) {
        return ClientCalls.blockingUnaryCall(channel, methods.say(), options, request);
    }

    private void unary(Cases.Facts facts) {
        SayRequest request = Expect.say("hello");
        Expect.echoed(request, say(request, CallOptions.DEFAULT));
    }

    private void empty(Cases.Facts facts) {
        SayReply reply = say(SayRequest.newBuilder().setEmptyReply(true).build(), CallOptions.DEFAULT);
        Expect.equal("reply", SayReply.getDefaultInstance(), reply);
    }

    private void implementation(Cases.Facts facts) {
        facts.put("implementation", say(Expect.say("who"), CallOptions.DEFAULT).getImplementation());
    }

    private interface Call {
        void run() throws Exception;
    }

    private static StatusRuntimeException fails(Call call) throws Exception {
        try {
            call.run();
        } catch (StatusRuntimeException e) {
            return e;
        }
        throw new AssertionError("the call went well, an error was wanted");
    }

    private void error(Cases.Facts facts) throws Exception {
        StatusRuntimeException e = fails(() -> say(Expect.failing(5, Expect.ERROR_TEXT), CallOptions.DEFAULT));
        facts.put("message", String.valueOf(e.getStatus().getDescription()));
        facts.put("metadata", e.getTrailers() != null && "kept".equals(e.getTrailers().get(TRAILER)));
        Expect.equal("code", Code.NOT_FOUND, e.getStatus().getCode());
        Expect.holds("message: " + e.getStatus().getDescription(),
                String.valueOf(e.getStatus().getDescription()).contains(Expect.ERROR_TEXT));
    }

    private void codes(Cases.Facts facts) throws Exception {
        for (int code = 1; code <= 16; code++) {
            SayRequest request = Expect.failing(code, "code " + code);
            StatusRuntimeException e = fails(() -> say(request, CallOptions.DEFAULT));
            Expect.equal("code", code, e.getStatus().getCode().value());
            Expect.holds("message of " + code + ": " + e.getStatus().getDescription(),
                    String.valueOf(e.getStatus().getDescription()).contains("code " + code));
        }
    }

    /** What a provider that sends its messages raw must not get past a proxy: line feed, percent, plus, Latin-1. */
    private void rawMessage(Cases.Facts facts) throws Exception {
        StatusRuntimeException e =
                fails(() -> say(Expect.failing(9, "50% + caf\u00e9\nline two"), CallOptions.DEFAULT));
        facts.put("message", String.valueOf(e.getStatus().getDescription()));
        Expect.equal("code", Code.FAILED_PRECONDITION, e.getStatus().getCode());
        Expect.holds("message: " + e.getStatus().getDescription(),
                String.valueOf(e.getStatus().getDescription()).contains("50% + caf\u00e9\nline two"));
    }

    private void plainError(Cases.Facts facts) throws Exception {
        SayRequest request = SayRequest.newBuilder()
                .setFail(Failure.newBuilder().setPlain(true).setMessage("plain failure")).build();
        StatusRuntimeException e = fails(() -> say(request, CallOptions.DEFAULT));
        facts.put("code", e.getStatus().getCode().value());
        facts.put("message", String.valueOf(e.getStatus().getDescription()));
        Expect.equal("code", Code.UNKNOWN, e.getStatus().getCode());
    }

    private void deadline(Cases.Facts facts) throws Exception {
        long start = System.nanoTime();
        StatusRuntimeException e = fails(() -> say(Expect.slow(1500),
                CallOptions.DEFAULT.withDeadlineAfter(300, TimeUnit.MILLISECONDS)));
        Expect.equal("code", Code.DEADLINE_EXCEEDED, e.getStatus().getCode());
        Expect.within("deadline", (System.nanoTime() - start) / 1_000_000, 250, 1000);
        unary(facts);
    }

    private void cancel(Cases.Facts facts) throws Exception {
        ClientCall<SayRequest, SayReply> call = channel.newCall(methods.say(), CallOptions.DEFAULT);
        var future = ClientCalls.futureUnaryCall(call, Expect.slow(2000));
        Thread.sleep(200);
        future.cancel(true);
        Expect.holds("the future says that it was cancelled", future.isCancelled());
        unary(facts);
    }

    private void cancelStream(Cases.Facts facts) throws Exception {
        long before = count().getCancelled();
        ClientCall<SayRequest, SayReply> call = channel.newCall(methods.expand(), CallOptions.DEFAULT);
        Iterator<SayReply> replies = ClientCalls.blockingServerStreamingCall(call, Expect.stream(100, 50));
        for (int i = 0; i < 3; i++) {
            Expect.equal("index", i, replies.next().getIndex());
        }
        call.cancel("enough", null);
        for (int i = 0; i < 40 && count().getCancelled() == before; i++) {
            Thread.sleep(50);
        }
        Expect.holds("the provider saw a cancelled call", count().getCancelled() > before);
    }

    private CountReply count() {
        return ClientCalls.blockingUnaryCall(channel, methods.count(), CallOptions.DEFAULT,
                CountRequest.getDefaultInstance());
    }

    private void server(Cases.Facts facts) {
        List<SayReply> replies = new ArrayList<>();
        ClientCalls.blockingServerStreamingCall(channel, methods.expand(), CallOptions.DEFAULT,
                Expect.stream(Expect.STREAM_LENGTH, 2)).forEachRemaining(replies::add);
        Expect.inOrder(replies, Expect.STREAM_LENGTH);
    }

    private void streamError(Cases.Facts facts) throws Exception {
        SayRequest request = Expect.stream(10, 1).toBuilder()
                .setFail(Failure.newBuilder().setCode(8).setMessage("enough of it").setAfter(3)).build();
        List<SayReply> replies = new ArrayList<>();
        StatusRuntimeException e = fails(() -> ClientCalls.blockingServerStreamingCall(
                channel, methods.expand(), CallOptions.DEFAULT, request).forEachRemaining(replies::add));
        Expect.inOrder(replies, 3);
        Expect.equal("code", Code.RESOURCE_EXHAUSTED, e.getStatus().getCode());
        Expect.holds("message: " + e.getStatus().getDescription(),
                String.valueOf(e.getStatus().getDescription()).contains("enough of it"));
    }

    private void streamDeadline(Cases.Facts facts) throws Exception {
        long start = System.nanoTime();
        StatusRuntimeException e = fails(() -> ClientCalls.blockingServerStreamingCall(channel, methods.expand(),
                CallOptions.DEFAULT.withDeadlineAfter(400, TimeUnit.MILLISECONDS), Expect.stream(100, 50))
                .forEachRemaining(reply -> {}));
        Expect.equal("code", Code.DEADLINE_EXCEEDED, e.getStatus().getCode());
        Expect.within("deadline", (System.nanoTime() - start) / 1_000_000, 350, 1200);
    }

    /** A stream of requests and the replies to it, as they come. */
    private static final class Conversation implements StreamObserver<SayReply> {
        final BlockingQueue<SayReply> replies = new ArrayBlockingQueue<>(1000);
        final AtomicReference<Throwable> error = new AtomicReference<>();
        final CountDownLatch ended = new CountDownLatch(1);

        @Override
        public void onNext(SayReply reply) {
            replies.add(reply);
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
            SayReply reply = replies.poll(5, TimeUnit.SECONDS);
            Expect.holds("a reply within 5 s, " + error.get(), reply != null);
            return reply;
        }

        void end() throws InterruptedException {
            Expect.holds("an end within 5 s", ended.await(5, TimeUnit.SECONDS));
            Expect.equal("error", null, error.get());
        }
    }

    private void client(Cases.Facts facts) throws Exception {
        Conversation conversation = new Conversation();
        StreamObserver<SayRequest> requests = ClientCalls.asyncClientStreamingCall(
                channel.newCall(methods.collect(), CallOptions.DEFAULT), conversation);
        List<SayRequest> all = Expect.numbered(Expect.STREAM_LENGTH);
        all.forEach(requests::onNext);
        requests.onCompleted();
        Expect.collected(all, conversation.next());
        conversation.end();
    }

    private void bidi(Cases.Facts facts) throws Exception {
        Conversation conversation = new Conversation();
        StreamObserver<SayRequest> requests = ClientCalls.asyncBidiStreamingCall(
                channel.newCall(methods.chat(), CallOptions.DEFAULT), conversation);
        for (SayRequest request : Expect.numbered(Expect.STREAM_LENGTH)) {
            requests.onNext(request);
            Expect.echoed(request, conversation.next());
        }
        requests.onCompleted();
        conversation.end();
    }

    private void big(Cases.Facts facts) {
        SayRequest request =
                SayRequest.newBuilder().setText("big").setPayload(Expect.bytes(Expect.FOUR_MIB)).build();
        Expect.echoed(request, say(request, CallOptions.DEFAULT));
    }

    private void gzip(Cases.Facts facts) {
        SayRequest request = SayRequest.newBuilder().setText("squeezed".repeat(8192)).build();
        Expect.echoed(request, say(request, CallOptions.DEFAULT.withCompression("gzip")));
    }

    /** Headers there, trailers back: text, binary. */
    private void metadata(Cases.Facts facts) throws Exception {
        Metadata headers = new Metadata();
        headers.put(HEADER, "text value");
        headers.put(BINARY, new byte[] {0, 1, 2, (byte) 0xfe, (byte) 0xff});
        AtomicReference<SayReply> reply = new AtomicReference<>();
        AtomicReference<Metadata> leading = new AtomicReference<>(new Metadata());
        AtomicReference<Metadata> trailing = new AtomicReference<>(new Metadata());
        AtomicReference<Status> status = new AtomicReference<>();
        CountDownLatch ended = new CountDownLatch(1);
        ClientCall<SayRequest, SayReply> call = channel.newCall(methods.say(), CallOptions.DEFAULT);
        call.start(new ClientCall.Listener<>() {
            @Override
            public void onHeaders(Metadata got) {
                leading.set(got);
            }

            @Override
            public void onMessage(SayReply got) {
                reply.set(got);
            }

            @Override
            public void onClose(Status got, Metadata trailers) {
                status.set(got);
                trailing.set(trailers);
                ended.countDown();
            }
        }, headers);
        call.request(2);
        call.sendMessage(SayRequest.newBuilder().setWantHeaders(true)
                .addLeading(Entry.newBuilder().setKey("x-interop-leading").setValue("first"))
                .addTrailing(Entry.newBuilder().setKey(Expect.TRAILER).setValue("last")).build());
        call.halfClose();
        Expect.holds("an end within 5 s", ended.await(5, TimeUnit.SECONDS));
        Expect.equal("status", Code.OK, status.get().getCode());
        facts.put("leading", String.valueOf(leading.get().get(
                Metadata.Key.of("x-interop-leading", Metadata.ASCII_STRING_MARSHALLER))));
        facts.put("trailing", String.valueOf(trailing.get().get(TRAILER)));
        List<String> names = new ArrayList<>();
        reply.get().getHeadersList().forEach(entry -> names.add(entry.getKey()));
        names.sort(null);
        facts.put("headers", String.join(" ", names));
        reply.get().getHeadersList().forEach(entry -> {
            if (entry.getKey().equals(Expect.HEADER)) {
                facts.put("text", entry.getValue());
            }
            if (entry.getKey().equals("x-interop-bin")) {
                facts.put("bin", entry.getValue());
            }
        });
        Expect.holds("the provider saw " + Expect.HEADER, names.contains(Expect.HEADER));
        Expect.holds("the provider saw x-interop-bin", names.contains("x-interop-bin"));
    }

    private void concurrent(Cases.Facts facts) throws Exception {
        List<com.google.common.util.concurrent.ListenableFuture<SayReply>> all = new ArrayList<>();
        for (int i = 0; i < 100; i++) {
            all.add(ClientCalls.futureUnaryCall(channel.newCall(methods.say(), CallOptions.DEFAULT),
                    Expect.say("c" + i)));
        }
        for (int i = 0; i < all.size(); i++) {
            Expect.echoed(Expect.say("c" + i), all.get(i).get(10, TimeUnit.SECONDS));
        }
    }

    /** More resets than a Java provider takes on one connection within 30 s; the channel must live on. */
    private void cancelBurst(Cases.Facts facts) throws Exception {
        for (int i = 0; i < 300; i++) {
            ClientCall<SayRequest, SayReply> call = channel.newCall(methods.expand(), CallOptions.DEFAULT);
            Iterator<SayReply> replies = ClientCalls.blockingServerStreamingCall(call, Expect.stream(1000, 20));
            replies.next();
            call.cancel("enough", null);
        }
        for (int i = 0; i < 20; i++) {
            unary(facts);
        }
    }
}
