package org.tributary.interop;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.zip.GZIPOutputStream;
import org.apache.dubbo.rpc.protocol.tri.compressor.Compressor;

/**
 * A request compressor that can be switched on for one call. Dubbo takes its compressor from the
 * environment (DUBBO_RPC_TRI_COMPRESSOR=switchable chooses this one), for the whole process, and the
 * other cases must stay uncompressed.
 */
public final class SwitchableGzip implements Compressor {
    static volatile boolean on;
    static final AtomicInteger compressed = new AtomicInteger();

    @Override
    public String getMessageEncoding() {
        return on ? "gzip" : "identity";
    }

    @Override
    public byte[] compress(byte[] payload) {
        if (!on) {
            return payload;
        }
        compressed.incrementAndGet();
        try {
            ByteArrayOutputStream squeezed = new ByteArrayOutputStream();
            try (OutputStream gzip = decorate(squeezed)) {
                gzip.write(payload);
            }
            return squeezed.toByteArray();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    // 3.3 has this in the interface, 3.2 does not: no @Override.
    public OutputStream decorate(OutputStream into) {
        try {
            return on ? new GZIPOutputStream(into) : into;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
