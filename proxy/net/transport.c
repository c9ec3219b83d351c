/* The transport-neutral verbs of stream.h: one branch to HTTP/2 or HTTP/1.1, no state. */
#include "proxy/net/h1.h"
#include "proxy/net/h2.h"

int
stream_send_head(struct stream *stream, const struct fields *fields, bool end)
{
    return stream->transport == STREAM_H2 ? h2_send_head(stream, fields, end)
                                          : h1_send_head(stream, fields, end);
}

void
stream_send_data(struct stream *stream, struct slices *body, bool end)
{
    if (stream->transport == STREAM_H2)
        h2_send_data(stream, body, end);
    else
        h1_send_data(stream, body, end);
}

void
stream_send_trailers(struct stream *stream, const struct fields *trailers)
{
    if (stream->transport == STREAM_H2)
        h2_send_trailers(stream, trailers);
    else
        h1_send_trailers(stream, trailers);
}

void
stream_credit(struct stream *stream, uint64_t bytes)
{
    if (stream->transport == STREAM_H2)
        h2_credit(stream, bytes);
    else
        h1_credit(stream, bytes);
}

void
stream_reset(struct stream *stream, uint32_t h2_error)
{
    if (stream->transport == STREAM_H2)
        h2_reset(stream, h2_error);
    else
        h1_reset(stream, h2_error);
}

void
stream_detach(struct stream *stream)
{
    if (stream->transport == STREAM_H2)
        h2_detach(stream);
    else
        h1_detach(stream);
}
