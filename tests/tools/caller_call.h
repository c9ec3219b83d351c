/*
 * One call of the caller: what it sends, and the check of what comes back.
 * caller_call.c reads replies and judges; caller_engine.c owns connections and starts calls.
 */
#ifndef TOOLS_CALLER_CALL_H
#define TOOLS_CALLER_CALL_H

#include "caller_engine.h"

struct caller_call {
    struct peer_stream stream; /* first: events carry a pointer to it */
    struct caller_engine *engine;
    unsigned slot;
    struct peer_timer timer;
    uint64_t number;
    uint64_t start_ns;
    int http_status;
    int grpc_status;        /* -1: not seen */
    int forced_status;      /* -1: none; set by cancel and by a deadline nobody kept */
    bool done;              /* the outcome has been told */
    bool ended;             /* the reply is whole */
    bool packed;            /* the reply says gzip */
    bool grpc_reply;        /* content-type application/grpc */
    size_t reply_bytes;     /* received so far */
    const char *problem;    /* the first one found */
    struct peer_body *kept; /* reply bytes that must be seen whole: errors, gzip */
    struct peer_framer framer;
    long sent_messages;
    long got_messages;
    uint64_t message_bytes;
    uint32_t crc;
    uint32_t lead_seen; /* bit per --metadata */
    uint32_t tail_seen;
    char message[256]; /* grpc-message, cut */
};

/* The call's first bytes (prefix, stamp) and pieces, up to what can be queued at once. */
void caller_call_fill(struct caller_call *call);
/* peer_h2 events. */
void caller_call_field(struct peer_stream *stream, const uint8_t *name, size_t name_len,
                       const uint8_t *value, size_t value_len);
void caller_call_data(struct peer_stream *stream, const uint8_t *data, size_t len_bytes);
/* The verdict; problem NULL when all is as expected. error_code: HTTP/2's, if the stream ended
 * out of order. */
struct caller_outcome caller_call_judge(struct caller_call *call, uint32_t error_code);

#endif
