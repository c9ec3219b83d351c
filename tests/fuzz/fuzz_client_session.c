/*
 * What a provider may send: the bytes are a provider's, towards a proxy whose client has three
 * calls under way (unary, stream, auto). The first byte says how long each piece is (0: all at
 * once), its highest bit that the provider then hangs up; a new connection of the proxy gets the
 * bytes from their beginning again.
 */
#include "fuzz_session.h"

static const uint8_t *reply_bytes;
static size_t reply_len, piece;
static size_t positions[SESSION_PROVIDERS];
static bool calling; /* the client has sent its calls; before that the proxy has only dialled */

static void
on_bytes(struct session *session, unsigned index, const uint8_t *bytes, size_t len)
{
    (void)bytes, (void)len;
    if (calling && positions[index] == 0 && reply_len > 0) {
        positions[index] = piece < reply_len ? piece : reply_len;
        session_reply(session, index, reply_bytes, positions[index]);
    }
}

static void
on_closed(struct session *session, unsigned index)
{
    (void)session, (void)index;
}

static const struct session_provider PROVIDER = {on_bytes, on_closed};

/* A header field, literal, without Huffman coding. */
static size_t
add_field(uint8_t *at, const char *name, const char *value)
{
    size_t name_len = strlen(name), value_len = strlen(value);
    at[0] = 0;
    at[1] = (uint8_t)name_len;
    memcpy(at + 2, name, name_len);
    at[2 + name_len] = (uint8_t)value_len;
    memcpy(at + 3 + name_len, value, value_len);
    return 3 + name_len + value_len;
}

static void
add_frame_head(uint8_t *at, size_t len, uint8_t type, uint8_t flags, uint32_t id)
{
    const uint8_t head[9] = {0, (uint8_t)(len >> 8), (uint8_t)len, type, flags, 0, 0,
                             0, (uint8_t)id};
    memcpy(at, head, sizeof(head));
}

static size_t
add_call(uint8_t *out, uint32_t id, const char *path)
{
    static const uint8_t MESSAGE[] = {0, 0, 0, 0, 2, 'h', 'i'};
    uint8_t *at = out + 9;
    at += add_field(at, ":method", "POST");
    at += add_field(at, ":scheme", "http");
    at += add_field(at, ":path", path);
    at += add_field(at, ":authority", "a");
    at += add_field(at, "te", "trailers");
    at += add_field(at, "content-type", "application/grpc");
    add_frame_head(out, (size_t)(at - out) - 9, 1, 4, id);
    add_frame_head(at, sizeof(MESSAGE), 0, 1, id);
    memcpy(at + 9, MESSAGE, sizeof(MESSAGE));
    return (size_t)(at - out) + 9 + sizeof(MESSAGE);
}

static void
send_calls(struct session *session)
{
    static const char PREFACE[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
    uint8_t out[1024];
    size_t len = sizeof(PREFACE) - 1;
    memcpy(out, PREFACE, len);
    len += add_call(out + len, 1, "/u.S/M");
    len += add_call(out + len, 3, "/s.S/M");
    len += add_call(out + len, 5, "/a.S/M");
    calling = true;
    session_send(session, out, len);
}

/* The rest, piece by piece, on every connection that is open. True when something was sent. */
static bool
send_pieces(struct session *session)
{
    bool sent = false;
    for (unsigned i = 0; i < session->fd_count; i++) {
        size_t left = reply_len - positions[i], len = piece < left ? piece : left;
        if (session->fds[i] < 0 || len == 0 || positions[i] == 0)
            continue;
        session_reply(session, i, reply_bytes + positions[i], len);
        positions[i] += len;
        sent = true;
    }
    return sent;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct session session;
    if (size == 0 || size > 16384)
        return 0;
    reply_bytes = data + 1;
    reply_len = size - 1;
    piece = data[0] & 0x7f ? (size_t)(data[0] & 0x7f) * 8 : size;
    memset(positions, 0, sizeof(positions));
    calling = false;
    session_begin(&session, &PROVIDER);
    send_calls(&session);
    while (send_pieces(&session))
        session_turn(&session, 16);
    if (data[0] & 0x80)
        for (unsigned i = 0; i < session.fd_count; i++)
            session_hang_up(&session, i);
    session_turn(&session, 64);
    session_end(&session);
    return 0;
}
