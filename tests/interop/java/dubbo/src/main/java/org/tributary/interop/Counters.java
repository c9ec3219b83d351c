package org.tributary.interop;

import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.dubbo.rpc.CancellationContext;
import org.apache.dubbo.rpc.RpcContext;

/** What all implementations of one provider have seen. */
final class Counters {
    final AtomicLong started = new AtomicLong();
    final AtomicLong ended = new AtomicLong();
    final AtomicLong cancelled = new AtomicLong();

    /** One call; made in the thread that Dubbo calls the handler in. */
    final class Call {
        private final CancellationContext context = RpcContext.getCancellationContext();
        private final AtomicBoolean open = new AtomicBoolean(true);

        Call() {
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
}
