package org.tributary.interop;

import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.dubbo.common.stream.StreamObserver;
import org.apache.dubbo.rpc.RpcContext;
import org.apache.dubbo.rpc.TriRpcStatus;

/**
 * Does what the request says; see echo.proto. Dubbo-java has no place for leading metadata, error
 * details and error metadata: leading is sent with trailing, the other two are left out.
 */
final class EchoService extends DubboEchoTriple.EchoImplBase {
    private final Counters seen;
    private final String name;

    EchoService(Counters seen, String group, String version) {
        this.seen = seen;
        this.name = group + "/" + version;
    }

    @Override
    public SayReply say(SayRequest request) {
        Counters.Call call = seen.new Call();
        try {
            Map<String, String> headers = headers();
            call.pause(request.getDelayMs());
            attach(request);
            if (request.hasFail()) {
                throw failure(request.getFail());
            }
            return reply(request, headers).build();
        } finally {
            call.end();
        }
    }

    @Override
    public CountReply count(CountRequest request) {
        return CountReply.newBuilder()
                .setStarted(seen.started.get())
                .setEnded(seen.ended.get())
                .setCancelled(seen.cancelled.get())
                .build();
    }

    @Override
    public void expand(SayRequest request, StreamObserver<SayReply> replies) {
        Counters.Call call = seen.new Call(replies);
        try {
            Map<String, String> headers = headers();
            attach(request);
            call.pause(request.getDelayMs());
            int count = request.hasFail()
                    ? Math.min(request.getCount(), Math.max(0, request.getFail().getAfter())) : request.getCount();
            for (int i = 0; i < count; i++) {
                if (i > 0 && !call.pause(request.getGapMs())) {
                    return;
                }
                replies.onNext(reply(request, headers).setIndex(i).build());
            }
            if (request.hasFail()) {
                replies.onError(failure(request.getFail()));
            } else {
                replies.onCompleted();
            }
        } finally {
            call.end();
        }
    }

    /** The requests of one call as Dubbo hands them over; the first one rules. */
    private abstract class Requests implements StreamObserver<SayRequest> {
        final Counters.Call call;
        final Map<String, String> headers = headers();
        final StreamObserver<SayReply> replies;
        SayRequest first;
        int count;
        boolean failed;

        Requests(StreamObserver<SayReply> replies) {
            this.replies = replies;
            call = seen.new Call(replies);
        }

        @Override
        public void onNext(SayRequest request) {
            if (failed) {
                return;
            }
            if (first == null) {
                first = request;
                attach(first);
            }
            if (first.hasFail() && first.getFail().getAfter() == count) {
                fail();
                return;
            }
            take(request);
            count++;
        }

        @Override
        public void onError(Throwable why) {
            call.end(true);
        }

        @Override
        public void onCompleted() {
            if (failed) {
                return;
            }
            if (first != null && first.hasFail()) {
                fail();
                return;
            }
            last(first == null ? SayRequest.getDefaultInstance() : first);
            replies.onCompleted();
            call.end();
        }

        private void fail() {
            failed = true;
            replies.onError(failure(first.getFail()));
            call.end();
        }

        abstract void take(SayRequest request);

        abstract void last(SayRequest rules);
    }

    @Override
    public StreamObserver<SayRequest> collect(StreamObserver<SayReply> replies) {
        return new Requests(replies) {
            private final List<String> texts = new ArrayList<>();
            private long bytes;

            @Override
            void take(SayRequest request) {
                texts.add(request.getText());
                bytes += request.getPayload().size();
            }

            @Override
            void last(SayRequest rules) {
                call.pause(rules.getDelayMs());
                replies.onNext(reply(rules, headers)
                        .setText(String.join(",", texts)).setIndex(count).setTotalBytes(bytes).build());
            }
        };
    }

    @Override
    public StreamObserver<SayRequest> chat(StreamObserver<SayReply> replies) {
        return new Requests(replies) {
            @Override
            void take(SayRequest request) {
                if (call.pause(request.getDelayMs() + (count > 0 ? first.getGapMs() : 0))) {
                    replies.onNext(reply(request, headers).setIndex(count).build());
                }
            }

            @Override
            void last(SayRequest rules) {}
        };
    }

    private SayReply.Builder reply(SayRequest request, Map<String, String> headers) {
        SayReply.Builder reply = SayReply.newBuilder();
        if (request.getEmptyReply()) {
            return reply;
        }
        reply.setText(request.getText()).setPayload(request.getPayload()).setImplementation(name);
        if (request.getReplyBytes() > 0) {
            reply.setPayload(Expect.bytes(request.getReplyBytes()));
        }
        if (request.getWantHeaders()) {
            headers.forEach((key, value) -> reply.addHeaders(Entry.newBuilder().setKey(key).setValue(value)));
        }
        return reply;
    }

    private static RuntimeException failure(Failure wanted) {
        // Triple's 17 is dubbo-go's: Java's table ends at 16.
        if (wanted.getPlain() || wanted.getCode() > 16 || wanted.getCode() == 0) {
            return new IllegalStateException(wanted.getMessage());
        }
        return TriRpcStatus.fromCode(wanted.getCode()).withDescription(wanted.getMessage()).asException();
    }

    /** Dubbo takes -bin off a key and decodes the value: undone, so that the reply shows what was sent. */
    private static Map<String, String> headers() {
        Map<String, String> headers = new TreeMap<>();
        RpcContext.getServerAttachment().getObjectAttachments().forEach((key, value) -> {
            if (value instanceof byte[]) {
                headers.put(key + "-bin", Base64.getEncoder().withoutPadding().encodeToString((byte[]) value));
            } else {
                headers.put(key, String.valueOf(value));
            }
        });
        return headers;
    }

    private static void attach(SayRequest request) {
        request.getLeadingList().forEach(EchoService::attach);
        request.getTrailingList().forEach(EchoService::attach);
    }

    private static void attach(Entry entry) {
        RpcContext.getServerContext().setAttachment(entry.getKey(), entry.getValue());
    }
}
