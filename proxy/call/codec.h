/*
 * A codec translates between one wire protocol's heads and ends and the neutral call. Server codecs
 * (downstream/: grpc, triple) read requests and write replies; client codecs (upstream/: bare,
 * framed) the reverse. They meet at struct call, never at each other. Bodies are not theirs: flow.h
 * converts between the two forms.
 */
#ifndef TRIBUTARY_CALL_CODEC_H
#define TRIBUTARY_CALL_CODEC_H

#include <stdbool.h>

#include "proxy/base/fields.h"

struct call;

enum body_form {
    FORM_FRAMED, /* 5-byte prefixes, status in trailers */
    FORM_BARE,   /* the message is the body; status is HTTP's, errors are JSON */
};

struct codec {
    const char *name; /* "grpc", "triple", "bare", "framed" */
    enum body_form form;

    /* Server role. read_request: call->request.head is complete, and codec is what its content-type
     * names; fill the rest of call->request. False: refused, call->status is set. */
    bool (*read_request)(struct call *call);
    /* Append the reply head (":status" first) from call->reply. */
    void (*write_head)(struct call *call, struct fields *out);
    /* Append what carries call->status and call->reply.trailers: trailers when the head is out;
     * otherwise a whole head (Trailers-Only, or the bare form's error head, whose body goes to
     * call->reply.error_body). */
    void (*write_end)(struct call *call, struct fields *out, bool head_is_out);

    /* Client role. Append the request head (pseudo-headers first). */
    void (*write_request)(struct call *call, struct fields *out);
    /* call->reply.head is complete (end: nothing follows); fill the rest of call->reply. */
    void (*read_reply)(struct call *call, bool end);
    /* The reply is complete: set call->reply.status, trailers and refusal, from the trailers (may
     * be NULL) or from the body that was held because read_reply set reply.body_is_error. */
    void (*read_end)(struct call *call, const struct fields *trailers);
};

#endif
