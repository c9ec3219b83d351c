/*
 * What a client may send: the bytes are a client's, towards a proxy whose provider (nghttp2's
 * server) answers every request in its own form. The first byte: bits 0 to 5 say how long each
 * piece is (0: all at once), bit 6 that the preface and SETTINGS were sent before, bit 7 that the
 * provider resets every third request.
 */
#include <nghttp2/nghttp2.h>

#include "fuzz_session.h"

static unsigned requests;
static bool resets;

/* --- the provider --- */

struct answer {
    bool framed;
    size_t sent;
};

static nghttp2_nv
field(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)name, (uint8_t *)value, strlen(name), strlen(value),
                        NGHTTP2_NV_FLAG_NONE};
}

static int
on_ng_begin_headers(nghttp2_session *ng, const nghttp2_frame *frame, void *user)
{
    (void)user;
    struct answer *answer = calloc(1, sizeof(*answer));
    check(answer != NULL);
    nghttp2_session_set_stream_user_data(ng, frame->hd.stream_id, answer);
    return 0;
}

static int
on_ng_header(nghttp2_session *ng, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
             const uint8_t *value, size_t value_len, uint8_t flags, void *user)
{
    (void)flags, (void)user;
    struct answer *answer = nghttp2_session_get_stream_user_data(ng, frame->hd.stream_id);
    struct text key = {(const char *)name, name_len}, text = {(const char *)value, value_len};
    if (answer && text_eq(key, TEXT("content-type")))
        answer->framed = text_starts(text, TEXT("application/grpc"));
    return 0;
}

/* "hi", with or without a prefix; framed, the trailers follow. */
static ssize_t
on_ng_read(nghttp2_session *ng, int32_t id, uint8_t *out, size_t bytes, uint32_t *flags,
           nghttp2_data_source *source, void *user)
{
    (void)user;
    struct answer *answer = source->ptr;
    const char *body = answer->framed ? "\0\0\0\0\2hi" : "hi";
    size_t left = (answer->framed ? 7 : 2) - answer->sent, len = left < bytes ? left : bytes;
    memcpy(out, body + answer->sent, len);
    answer->sent += len;
    if (len < left)
        return (ssize_t)len;
    *flags = NGHTTP2_DATA_FLAG_EOF;
    if (answer->framed) {
        const nghttp2_nv trailer = field("grpc-status", "0");
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        nghttp2_submit_trailer(ng, id, &trailer, 1);
    }
    return (ssize_t)len;
}

static void
answer_request(nghttp2_session *ng, int32_t id, struct answer *answer)
{
    const nghttp2_nv fields[] = {
        field(":status", "200"),
        field("content-type", answer->framed ? "application/grpc" : "application/proto"),
    };
    nghttp2_data_provider body = {.source.ptr = answer, .read_callback = on_ng_read};
    if (resets && ++requests % 3 == 0)
        nghttp2_submit_rst_stream(ng, NGHTTP2_FLAG_NONE, id, NGHTTP2_REFUSED_STREAM);
    else
        nghttp2_submit_response(ng, id, fields, 2, &body);
}

static int
on_ng_frame(nghttp2_session *ng, const nghttp2_frame *frame, void *user)
{
    (void)user;
    struct answer *answer = nghttp2_session_get_stream_user_data(ng, frame->hd.stream_id);
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) && answer)
        answer_request(ng, frame->hd.stream_id, answer);
    return 0;
}

static int
on_ng_stream_close(nghttp2_session *ng, int32_t id, uint32_t error, void *user)
{
    (void)error, (void)user;
    free(nghttp2_session_get_stream_user_data(ng, id));
    nghttp2_session_set_stream_user_data(ng, id, NULL);
    return 0;
}

static nghttp2_session *
new_provider(void)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_session *ng;
    check(nghttp2_session_callbacks_new(&callbacks) == 0);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_ng_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_ng_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_ng_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_ng_stream_close);
    check(nghttp2_session_server_new(&ng, callbacks, NULL) == 0);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(ng, NGHTTP2_FLAG_NONE, NULL, 0);
    return ng;
}

static void
on_bytes(struct session *session, unsigned index, const uint8_t *bytes, size_t len)
{
    const uint8_t *out;
    ssize_t out_len;
    if (!session->states[index])
        session->states[index] = new_provider();
    nghttp2_session *ng = session->states[index];
    /* What our client writes must be what a strict server takes. */
    check(nghttp2_session_mem_recv(ng, bytes, len) == (ssize_t)len);
    while ((out_len = nghttp2_session_mem_send(ng, &out)) > 0)
        session_reply(session, index, out, (size_t)out_len);
    check(out_len == 0);
    check(nghttp2_session_want_read(ng) || nghttp2_session_want_write(ng));
}

static void
free_answers(nghttp2_session *ng)
{
    for (int32_t id = 1; id < (int32_t)nghttp2_session_get_last_proc_stream_id(ng) + 2; id += 2)
        free(nghttp2_session_get_stream_user_data(ng, id));
}

static void
on_closed(struct session *session, unsigned index)
{
    nghttp2_session *ng = session->states[index];
    if (ng) {
        free_answers(ng);
        nghttp2_session_del(ng);
    }
    session->states[index] = NULL;
}

static const struct session_provider PROVIDER = {on_bytes, on_closed};

/* --- the client --- */

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char PREFACE[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
    struct session session;
    if (size == 0 || size > 16384)
        return 0;
    size_t piece = data[0] & 0x3f ? (size_t)(data[0] & 0x3f) * 8 : size;
    resets = data[0] & 0x80;
    requests = 0;
    session_begin(&session, &PROVIDER);
    if (data[0] & 0x40)
        session_send(&session, (const uint8_t *)PREFACE, sizeof(PREFACE) - 1);
    for (size_t at = 1; at < size; at += piece)
        session_send(&session, data + at, piece < size - at ? piece : size - at);
    session_end(&session);
    return 0;
}
