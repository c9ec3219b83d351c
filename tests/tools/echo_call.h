/*
 * One call at the echo provider, on HTTP/2 or HTTP/1.1: a service tributary.demo.Echo that
 * answers as a dubbo-go provider does (bare bodies, gRPC framing, the same refusals and errors).
 *
 *   Say   unary   the reply is the request
 *   Fail  unary   the request is text: "code=5 details=1 text=what went wrong"
 *   Down  server stream   "count=3 size=10 every_ms=0 code=0": that many messages, "N:" and
 *         pattern bytes up to size each
 *   Up    client stream   replies with the text "count=N bytes=N crc=HEX" (zlib's crc32)
 *   Chat  both            each message comes back
 *
 * Request headers x-NAME come back as header x-NAME and trailer tail-x-NAME (bare: header
 * trailer-tail-x-NAME), but for x-forwarded-*. x-delay-us: N delays the reply.
 *
 * echo_call.c reads the request and decides, echo_methods.c is the service, echo_reply.c writes.
 * Owns: struct echo_call; the embedded peer_stream ties it to its connection.
 */
#ifndef TOOLS_ECHO_CALL_H
#define TOOLS_ECHO_CALL_H

#include "peer_h2.h"
#include "peer_timer.h"

#define ECHO_CONTENT_LENGTH_MAX 4096 /* what dubbo-go sends with a content-length on HTTP/2 */

enum echo_wire { ECHO_WIRE_BOTH, ECHO_WIRE_BARE, ECHO_WIRE_FRAMED };
enum echo_refusal { ECHO_REFUSE_GO, ECHO_REFUSE_JAVA33, ECHO_REFUSE_JAVA32 };
enum echo_method {
    ECHO_SAY,
    ECHO_FAIL,
    ECHO_DOWN, /* from here on streams */
    ECHO_UP,
    ECHO_CHAT,
    ECHO_NO_METHOD,
};

struct echo_provider {
    struct peer_loop net;
    struct peer_timers timers;
    struct peer_record *record;
    struct peer_h2_options h2_options;
    struct peer_body *fixed_reply; /* --reply-size: instead of the echo; NULL: echo */
    const char *service;           /* "*": any */
    int wire;                      /* enum echo_wire */
    int refusal;                   /* enum echo_refusal: how bare requests are refused */
    bool http1;
    bool gzip; /* compress replies when asked to, as dubbo-go does */
    long delay_us;
    long max_message_bytes;
    long content_length_max; /* longer replies carry no content-length; -1: none does */
    struct {
        uint64_t framed;
        uint64_t bare_h2;
        uint64_t bare_h1;
        uint64_t gzip_in;
        uint64_t gzip_out;
        uint64_t refused;
    } counts; /* calls by what they were; told on USR1 */
};

/* What the head decided. */
enum echo_verdict {
    ECHO_SERVE,
    ECHO_NO_PATH,      /* 404 text */
    ECHO_BAD_VERB,     /* 405 */
    ECHO_BAD_TYPE,     /* 415, or what --java33, --java32 make of it */
    ECHO_BAD_VERSION,  /* 400 JSON */
    ECHO_BAD_TIMEOUT,  /* 400 JSON */
    ECHO_TIMEOUT_OVER, /* 408 JSON */
    ECHO_BAD_ENCODING, /* 404 JSON, unimplemented */
};

struct echo_h1;

struct echo_call {
    struct peer_stream stream; /* first: events carry a pointer to it */
    struct echo_provider *provider;
    struct echo_h1 *h1; /* NULL on HTTP/2 */
    struct peer_timer timer;
    enum echo_method method;
    enum echo_verdict verdict;
    bool framed;
    bool is_post;
    bool gzip_in;
    bool gzip_offered;
    bool encoding_unknown;
    bool version_wrong;
    bool timeout_wrong;
    bool answered; /* the head of the reply is submitted */
    bool request_ended;
    bool body_too_long;
    int64_t grpc_timeout_ms; /* -1: none */
    int64_t triple_timeout_ms;
    int64_t timeout_ms; /* the one that counts for the wire form */
    int64_t content_length;
    long delay_us;
    char content_type[64];
    char version[16];
    struct peer_body *metadata; /* see echo_call_metadata(); NULL: none */
    struct peer_framer framer;
    struct peer_body *request; /* bare: the body; framed: the first message with its prefix */
    size_t request_at;         /* where the message begins in request: 0 or PEER_PREFIX_BYTES */
    /* streams */
    unsigned long message_count;
    uint64_t message_bytes;
    uint32_t crc;
    size_t uncredited_bytes;
    long down_count, down_size, down_every_ms;
    /* status of a framed reply, kept until the trailers go out */
    int status;
    struct peer_body *status_text;
    struct peer_body *status_details;
};

/* ---- echo_call.c: the request ---- */
struct echo_call *echo_call_new(struct echo_provider *provider, struct echo_h1 *h1);
void echo_call_free(struct echo_call *call);
void echo_call_field(struct echo_call *call, const uint8_t *name, size_t name_len,
                     const uint8_t *value, size_t value_len);
void echo_call_head(struct echo_call *call);
void echo_call_data(struct echo_call *call, const uint8_t *data, size_t len_bytes);
void echo_call_end(struct echo_call *call);
/* Walks the x- fields: *at starts at 0. The name begins with "trailer-tail-x-". */
bool echo_call_metadata(const struct echo_call *call, size_t *at, const uint8_t **name,
                        size_t *name_len, const uint8_t **value, size_t *value_len);

/* ---- echo_methods.c: the service ---- */
/* A unary request is complete in call->request. */
void echo_method_unary(struct echo_call *call);
/* A message of a stream, prefix included; takes the reference. */
void echo_method_message(struct echo_call *call, struct peer_body *message);
/* The client ended its stream. */
void echo_method_end(struct echo_call *call);

/* ---- echo_reply.c: the reply ---- */
/* Sends a unary reply; takes the reference (NULL: empty). The body of a framed one has its
 * prefix. */
void echo_reply_message(struct echo_call *call, struct peer_body *body);
/* Ends a call that has not been answered, or a stream, with a status. */
void echo_reply_status(struct echo_call *call, int code, const char *text, bool details);
/* Sends what the verdict says. */
void echo_reply_verdict(struct echo_call *call);
/* Sends a stream's head, once. */
void echo_reply_stream_head(struct echo_call *call);
/* Queues a stream's message, prefix included; takes the reference. */
void echo_reply_stream_message(struct echo_call *call, struct peer_body *message);
/* peer_h2's trailers event. */
void echo_reply_trailers(struct peer_stream *stream);

#endif
