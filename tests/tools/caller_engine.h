/*
 * The calling side: connections to one target, and calls on them whose every reply is checked,
 * byte for byte. Base of echo-caller and of the load generator.
 *
 * Owns: connections (reopened after GOAWAY or loss), calls, request templates. Does not own: when
 * calls start; the user starts them and is told of each end by done(), from which it may start
 * the next. Happy path: caller_engine_init(), caller_engine_call() ..., done() ...,
 * caller_engine_stop().
 * Failure: a call that cannot be sent or whose connection is lost ends with status 14.
 *
 * Unary calls and the messages of streams begin (behind a protobuf field's head) with 16 digits
 * that differ from call to call and message to message (when there is room and no text is given),
 * so that a reply that went to the wrong call is seen.
 */
#ifndef TOOLS_CALLER_ENGINE_H
#define TOOLS_CALLER_ENGINE_H

#include "peer_h2.h"
#include "peer_options.h"
#include "peer_timer.h"

enum caller_type { CALLER_UNARY, CALLER_SERVER, CALLER_CLIENT, CALLER_BIDI };

#define CALLER_STAMP_BYTES 16u
#define CALLER_FIELDS_MAX (16 + PEER_OPTION_LIST_MAX)

struct caller_config {
    const char *target;    /* HOST:PORT, [v6]:PORT, unix:PATH */
    const char *authority; /* NULL: the target */
    const char *method;    /* /package.Service/Method */
    const char *codec;     /* NULL: application/grpc, application/proto */
    const char *text;      /* request message; NULL: generated, of size bytes */
    const char *body;      /* file with the request message, instead; unary only */
    const char *expect;    /* file with the reply's message; NULL: replies are echoes */
    int type;              /* enum caller_type */
    int triple;            /* 1: unary calls bare; streams are framed in both */
    long size;
    long proto_field; /* the message is this protobuf field with size bytes; 0: bytes alone */
    long messages;    /* of a stream */
    bool lockstep;    /* bidi: the next message after the echo of the last */
    bool gzip;        /* compress requests and offer gzip */
    long gzip_level;  /* 1 to 9 */
    bool random;      /* generated messages that do not compress */
    bool check_metadata;
    long reply_size;        /* the provider's --reply-size; -1: replies are echoes */
    const char *reply_tail; /* hex: stands behind each echo of other providers; NULL: "" */
    long reply_index; /* protobuf field behind that: the message's number in the stream; 0: none */
    long deadline_ms;
    long cancel_ms; /* reset the call after this time; 0: don't */
    long connections;
    long window;
    int expect_status;
    const char *expect_text; /* in the error's message; NULL: any */
    struct peer_option_list metadata;
    struct peer_record *record;
};

struct caller_outcome {
    int status;          /* gRPC code */
    const char *problem; /* NULL: exactly what was expected */
    const char *message; /* grpc-message, as on the wire; "" for none; during done() */
    uint64_t start_ns;
    uint64_t end_ns;
    uint64_t bytes; /* of messages, both directions */
};

struct caller_connection;

struct caller_engine {
    struct caller_config config;
    struct peer_loop net;
    struct peer_timers timers;
    struct caller_connection **slots; /* current connection of each; NULL until first used */
    struct caller_connection *all;
    void (*done)(struct caller_engine *engine, unsigned slot, const struct caller_outcome *outcome);
    void *user;
    bool framed;                   /* requests carry prefixes */
    struct peer_body *plain;       /* prefix and pattern: the message when it is generated */
    struct peer_body *packed;      /* with gzip: what is sent instead */
    struct peer_body *tail;        /* behind each echo */
    struct peer_body *other_reply; /* NULL: the unary reply is exactly the request */
    bool echoes;                   /* the unary reply begins with the request, stamp included */
    const uint8_t *expect;         /* the unary reply, as it is on the wire */
    size_t expect_len;
    size_t stamp_at; /* in plain */
    size_t stamp_len;
    long expect_messages; /* server stream */
    long expect_size;
    nghttp2_nv fields[CALLER_FIELDS_MAX];
    size_t field_count;
    char authority[128];
    char content_type[64];
    char timeout[24];
    char content_length[24];
    char tail_names[PEER_OPTION_LIST_MAX][64];
    uint64_t next_number;
    uint64_t in_flight;
    uint64_t replies; /* messages received, of all calls */
    bool stopping;
    uint64_t connects;
};

/* Prepares templates; connects at the first call of a slot. 0, or a negative errno with *error
 * set. */
int caller_engine_init(struct caller_engine *engine, uv_loop_t *loop,
                       const struct caller_config *config, const char **error);
/* Connects slots beforehand, so that the first calls do not pay for it. */
void caller_engine_connect(struct caller_engine *engine);
/* Starts a call on the connection of a slot (0 to connections - 1). done() comes later, never
 * before this returns. start_ns: when the call was due; 0: now. */
void caller_engine_call(struct caller_engine *engine, unsigned slot, uint64_t start_ns);
/* Closes connections and handles; calls under way end without done(). */
void caller_engine_stop(struct caller_engine *engine);
/* Frees; after uv_run has returned. */
void caller_engine_fini(struct caller_engine *engine);

#endif
