package org.tributary.interop;

import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.dubbo.common.stream.StreamObserver;
import org.apache.dubbo.rpc.CancellationContext;
import org.apache.dubbo.rpc.RpcContext;

/** What all implementations of one provider have seen. */
final class Counters {
    final AtomicLong started = new AtomicLong();
    final AtomicLong ended = new AtomicLong();
    final AtomicLong cancelled = new AtomicLong();

    /** One call; made in the thread that Dubbo calls the handler in. */
    final class Call {
        private final CancellationContext context;
        private final AtomicBoolean open = new AtomicBoolean(true);

        /** A unary call. Dubbo gives its handler no sign of a cancelled call: 3.3's context may be another call's. */
        Call() {
            context = null;
            started.incrementAndGet();
        }

        /** A stream, by the observer that its replies go to. */
        Call(StreamObserver<SayReply> replies) {
            context = contextOf(replies);
            started.incrementAndGet();
        }

        boolean gone() {
            return context != null && context.isCancelled();
        }

        void end() {
            end(gone());
        }

        void end(boolean gone) {
            if (open.compareAndSet(true, false)) {
                if (gone) {
                    cancelled.incrementAndGet();
                }
                ended.incrementAndGet();
            }
        }

        /** Sleeps, at most until the call is known to be cancelled; whether it still wants an answer. */
        boolean pause(int milliseconds) {
            long until = System.nanoTime() + milliseconds * 1_000_000L;
            while (!gone() && System.nanoTime() < until) {
                try {
                    Thread.sleep(Math.min(10, milliseconds));
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                    return false;
                }
            }
            return !gone();
        }
    }

    // 3.2's observers and 3.3's have this method, but no common type that declares it.
    private static CancellationContext contextOf(StreamObserver<SayReply> replies) {
        try {
            Object own = replies.getClass().getMethod("getCancellationContext").invoke(replies);
            return own == null ? RpcContext.getCancellationContext() : (CancellationContext) own;
        } catch (ReflectiveOperationException e) {
            return RpcContext.getCancellationContext();
        }
    }
}
