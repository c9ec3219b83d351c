package org.tributary.interop;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.util.zip.GZIPOutputStream;
import org.apache.dubbo.rpc.protocol.tri.compressor.Compressor;

/**
 * A request compressor that can be switched on for one call: Dubbo reads its compressor from the
 * process's configuration, 3.3 only once, and the other cases must stay uncompressed.
 */
public final class SwitchableGzip implements Compressor {
    static volatile boolean on;

    @Override
    public String getMessageEncoding() {
        return on ? "gzip" : "identity";
    }

    @Override
    public byte[] compress(byte[] payload) {
        if (!on) {
            return payload;
        }
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
