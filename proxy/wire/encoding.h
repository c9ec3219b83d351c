/*
 * Compression names and gzip itself (zlib): whole messages only. The limit stops a decompression
 * bomb one byte after it.
 */
#ifndef TRIBUTARY_WIRE_ENCODING_H
#define TRIBUTARY_WIRE_ENCODING_H

#include "proxy/base/slices.h"

enum encoding {
    ENCODING_IDENTITY,
    ENCODING_GZIP,
    ENCODING_OTHER, /* a name that this proxy cannot decode: passes only where nothing must be
                       touched */
};

/* Empty and "identity" are identity. Exact, lower case (gRPC and HTTP names are compared without
 * case in the HTTP field only). */
enum encoding encoding_of(struct text name);
/* Whether a grpc-accept-encoding / accept-encoding list offers the name: OWS and ;q= handled, q=0
 * is no. */
bool encoding_offered(struct text list, struct text name);

/*
 * Inflate all of `in` (left as it is) to the end of `out`. 0; -EFBIG more than max_bytes; -EINVAL
 * no whole gzip stream (trailing garbage too); -ENOBUFS the pool's budget is used up. Zero bytes in
 * are zero bytes out.
 */
int encoding_gunzip(struct chunk_pool *pool, const struct slices *in, struct slices *out,
                    uint64_t max_bytes);
/* Deflate as gzip at zlib's level 1 … 9 (0: default 6). 0 or -ENOBUFS. */
int encoding_gzip(struct chunk_pool *pool, const struct slices *in, struct slices *out, int level);

#endif
