/*
 * For the tests of proxy/net/h2*: an HTTP/2 connection of ours on one end of a loopback socket, a
 * peer on the other whose frames the test writes by hand, and records of what our side reported. Or
 * both ends ours (h2_lab_pair).
 */
#ifndef TESTS_LOOP_H2_LAB_H
#define TESTS_LOOP_H2_LAB_H

#include "loop_fixture.h"

#include <nghttp2/nghttp2.h>

#include "proxy/base/clock.h"
#include "proxy/net/h2.h"

enum { LAB_CALLS = 2048, LAB_BODY = 1 << 20, LAB_CONN_WINDOW = (1 << 30) };
enum {
    F_DATA,
    F_HEADERS,
    F_PRIORITY,
    F_RST,
    F_SETTINGS,
    F_PUSH,
    F_PING,
    F_GOAWAY,
    F_WINDOW,
    F_CONT
};
#define LAB_REQUEST ":method", "POST", ":scheme", "http", ":path", "/s/m", ":authority", "here"
enum { END_STREAM = 1, ACK = 1, END_HEADERS = 4, PADDED = 8 };

struct h2_lab;

/* One stream of ours and everything that was reported about it. */
struct lab_call {
    struct h2_lab *lab;
    struct stream *stream; /* NULL once detached */
    struct arena arena;
    struct fields fields, trailers;
    unsigned heads, datas, ends, resets, flushes;
    bool head_end, got_trailers;
    size_t body_bytes; /* all; the first LAB_BODY are in lab->body of the last call that got data */
    char body[64];     /* its beginning */
    uint32_t reset_error;
    size_t sent;
    uint64_t stalled_ns;
};

/* One of our ends. */
struct lab_end {
    struct h2_lab *lab;
    struct h2 *h2;
    struct conn *conn;
    _Atomic uint64_t reads, writes;
    bool is_open, down, closed;
    int down_error;
    char down_text[64];
    unsigned settings, goaways, pongs, opened, streams_closed;
    uint32_t goaway_code;
    unsigned resets_at_goaway; /* streams that had been reset when on_goaway came */
    struct h2_options options;
};

struct lab_frame {
    uint8_t type, flags;
    uint32_t id;
    size_t len;
    uint8_t *payload;  /* valid until the next frame is read */
    char fields[4096]; /* HEADERS: "name: value\n"… */
    uint32_t word;  /* the payload's first 32 bits: error code, window increment, last stream id */
    uint32_t word2; /* the second: GOAWAY's code */
};

struct h2_lab {
    struct loop_fixture *fixture;
    uv_tcp_t listener;
    struct lab_end server, client; /* the one that is ours has h2 set */
    struct lab_call *calls;        /* of both ends, in the order of their beginning */
    unsigned call_count;
    /* What our side does by itself; all may be NULL / false. */
    void (*on_head)(struct lab_call *call);
    void (*on_data)(struct lab_call *call, const uint8_t *data, size_t len);
    void (*on_end)(struct lab_call *call); /* also when the head had END_STREAM */
    void (*on_reset)(struct lab_call *call);
    void (*on_sent)(struct lab_call *call);
    bool keep_credit;  /* else credit returns at once */
    const void *first; /* given to the server when it opens */
    size_t first_bytes;
    /* the raw peer */
    int fd;
    uint8_t *out, *in;
    size_t out_bytes, in_bytes, in_at, in_cap, out_cap;
    nghttp2_hd_inflater *inflater;
    struct lab_frame frame;
    uint64_t window_updates; /* WINDOW_UPDATE frames skipped by lab_next */
};

extern const struct h2_options lab_options; /* roomy */

/* Our server, a raw client. The preface is exchanged. options NULL: lab_options. */
struct h2_lab *h2_lab_server(struct loop_fixture *fixture, const struct h2_options *options);
/* Our client, a raw server. Nothing has been exchanged. */
struct h2_lab *h2_lab_client(struct loop_fixture *fixture, const struct h2_options *options);
/* Both ends ours. */
struct h2_lab *h2_lab_pair(struct loop_fixture *fixture, const struct h2_options *server,
                           const struct h2_options *client);
struct h2_lab *h2_lab_server_silent(struct loop_fixture *fixture,
                                    const struct h2_options *options); /* no preface yet */
/* As silent, but these bytes were read before our side opened. */
struct h2_lab *
h2_lab_server_sniffed(struct loop_fixture *fixture, const void *first, size_t first_bytes);
/* Our client with SETTINGS exchanged and `count` requests without body under way, whose HEADERS the
 * peer has read. */
struct h2_lab *h2_lab_client_asking(struct loop_fixture *fixture, const struct h2_options *options,
                                    unsigned count);
void h2_lab_close(struct h2_lab *lab); /* whatever is open */

/* The raw peer's output is collected until lab_send(): one segment. */
void lab_raw(struct h2_lab *lab, const void *bytes, size_t len);
void lab_frame(struct h2_lab *lab, uint8_t type, uint8_t flags, uint32_t id, const void *payload,
               size_t len);
void lab_word(struct h2_lab *lab, uint8_t type, uint8_t flags, uint32_t id,
              uint32_t word); /* RST, WINDOW_UPDATE */
void lab_goaway(struct h2_lab *lab, uint32_t last_id, uint32_t code);
void lab_settings(struct h2_lab *lab, const uint32_t *pairs, size_t count); /* id, value, … */
/* HEADERS (or another type) with literal fields: name, value, …, NULL. */
void lab_headers(struct h2_lab *lab, uint32_t id, uint8_t flags, ...);
size_t
lab_field(uint8_t *into, const void *name, size_t name_len, const void *value, size_t value_len);
void lab_request(struct h2_lab *lab, uint32_t id, bool end); /* POST /s/m, application/proto */
void lab_preface(struct h2_lab *lab); /* the client's magic and empty SETTINGS */
void lab_send(struct h2_lab *lab);

/* The next frame from our side; fails at EOF. lab_next skips SETTINGS, their ACKs and
 * WINDOW_UPDATEs of the connection. */
struct lab_frame *lab_next_any(struct h2_lab *lab);
struct lab_frame *lab_next(struct h2_lab *lab);
/* lab_next of this type, stream and flags. */
struct lab_frame *lab_expect(struct h2_lab *lab, uint8_t type, uint32_t id, uint8_t flags);
void lab_expect_goaway(struct h2_lab *lab, uint32_t code); /* skips all before it */
void lab_expect_eof(struct h2_lab *lab);
bool lab_quiet(struct h2_lab *lab); /* nothing (but what lab_next skips) comes within 30 ms */
bool lab_has(const struct lab_frame *frame, const char *line); /* "name: value" among its fields */

/* Our side's verbs with text. fields: name, value, …, NULL. */
int lab_reply_head(struct lab_call *call, bool end, ...);
void lab_say(struct lab_call *call, const void *bytes, size_t len, bool end);
void lab_say_zeros(struct lab_call *call, size_t len, bool end);
void lab_trailers(struct lab_call *call, ...);
struct lab_call *
lab_call_start(struct h2_lab *lab, bool end, ...); /* a client's request; NULL: no capacity */
void lab_detach(struct lab_call *call);
void lab_reset(struct lab_call *call, uint32_t code);
void lab_reply_unary(struct lab_call *call); /* 200, application/proto, "hello" */
/* The server's connection is as it was: a request is answered. */
void lab_expect_served(struct h2_lab *lab, uint32_t id);
struct text lab_value(const struct fields *fields, const char *name);

#endif
