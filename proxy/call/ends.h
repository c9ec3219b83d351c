/*
 * The two ends of a call, as tables: what the call asks of the side that called us and of the side
 * that it calls. Implemented by downstream/ and upstream/, faked in tests. An end calls back
 * through call.h ("events from the ends").
 */
#ifndef TRIBUTARY_CALL_ENDS_H
#define TRIBUTARY_CALL_ENDS_H

#include <stdbool.h>
#include <stdint.h>

#include "proxy/base/slices.h"
#include "proxy/base/text.h"
#include "proxy/stats/stats.h"

struct call;

/* After detach or reset nothing more is asked of the end, and it makes no more events. */
struct downstream_ops {
    void (*send_head)(struct call *call); /* from call->reply, by the server codec */
    void (*send_body)(struct call *call, struct slices *body); /* moves all of body */
    void (*send_end)(
        struct call *call); /* call->status, reply.trailers; head first if it is not out */
    void (*credit)(struct call *call, uint64_t bytes); /* return stream window for request bytes */
    void (*reset)(struct call *call, uint32_t h2_error); /* RST_STREAM and detach */
    void (*detach)(
        struct call *call); /* what was sent still leaves; late request data is dropped */
    struct text (*peer)(struct call *call); /* the client's address, for the access log */
};

/* What is known of an endpoint and a method there (design: how a call goes). */
struct upstream_facts {
    bool endpoint_framed; /* the endpoint takes nothing bare */
    bool method_framed;   /* this method is not taken bare */
    bool method_bare;     /* this method was taken bare */
    bool method_unary;    /* a 200 bare reply was seen: wait for END_STREAM */
};

enum upstream_lesson {
    LESSON_METHOD_BARE,     /* answered in the bare form (an error with a code counts) */
    LESSON_METHOD_UNARY,    /* a 200 bare reply: also METHOD_BARE */
    LESSON_METHOD_FRAMED,   /* 415 without grpc-status, and the framed try went through */
    LESSON_ENDPOINT_FRAMED, /* 415 with it, or Java's 404 */
    LESSON_FORGET,          /* a fact about this method or endpoint turned out wrong */
};

struct upstream_ops {
    /* Choose an endpoint and fill *facts for it. False: none usable, call->status is set. Again:
     * another one if there is one. */
    bool (*pick)(struct call *call, struct upstream_facts *facts);
    /* Get a stream on the picked endpoint (or, if that fails before a stream was granted, on
     * another). call_upstream_granted() or call_upstream_unavailable() follows, possibly before
     * return. */
    void (*open)(struct call *call);
    /* Only inside call_upstream_granted(): send the request head, by the client codec for
     * call->upstream_form. */
    void (*send_head)(struct call *call, bool end);
    void (*send_body)(struct call *call, struct slices *body, bool end); /* moves all of body */
    void (*credit)(struct call *call, uint64_t bytes); /* return stream window for reply bytes */
    void (*learn)(struct call *call, enum upstream_lesson lesson);
    /* End the attempt: RST_STREAM(h2_error) if the exchange is not over, leave the queue if it
     * waits, detach. Idempotent. The picked endpoint is kept for a framed second try when
     * keep_endpoint. */
    void (*cancel)(struct call *call, uint32_t h2_error, bool keep_endpoint);
    /* The picked endpoint's address, for messages and the access log; empty when there is none. */
    struct text (*peer)(struct call *call);
};

extern const struct upstream_ops upstream_ops; /* upstream/ defines it; tests link a fake */

#endif
