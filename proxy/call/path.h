/*
 * Which way a call goes: a pure decision over what is configured, what has been learnt and what has
 * been read so far. The table in design.md, "How a call goes", line by line; no state, no I/O, so
 * that every row is a test.
 */
#ifndef TRIBUTARY_CALL_PATH_H
#define TRIBUTARY_CALL_PATH_H

#include "proxy/call/codec.h"
#include "proxy/call/ends.h"
#include "proxy/call/snapshot.h"

struct path_input {
    /* configured */
    enum route_call call;
    enum upstream_wire wire;
    uint64_t fast_path_max;
    bool fast_share; /* fast_path is on for this call */
    /* learnt */
    struct upstream_facts facts;
    /* the request so far */
    bool source_bare;  /* a bare downstream request: unary by definition */
    bool must_inflate; /* bare and compressed, for a provider that takes framed and plain only */
    bool first_known;  /* framed source: the first prefix was read; bare source: always */
    int64_t length;    /* of the first message; -1: unknown (bare source without content-length) */
    bool complete;     /* the first message is whole */
    bool several;      /* a second message has begun */
    bool ended;        /* END_STREAM was read */
    bool turn_over;    /* the loop turn that read the message's last byte is over */
    bool head_alone;   /* nothing came for 10 ms after the head */
    bool budget_tight; /* from three quarters of the budget on; once ended it means nothing */
};

enum path_verdict {
    PATH_WAIT,      /* hold and read on */
    PATH_WAIT_TURN, /* the same, and ask again when this turn is over */
    PATH_GO,        /* choice->path and form are final */
};

struct path_choice {
    enum stats_path path;
    enum body_form form; /* towards the provider */
    bool unary;          /* exactly one message is legal from here on */
};

/* A unary call's way depends on its message: before that PATH_WAIT is all that can be said. */
static inline bool
path_needs_message(enum route_call call, bool first_known, bool ended)
{
    return call == CALL_UNARY && !first_known && !ended;
}
enum path_verdict path_decide(const struct path_input *input, struct path_choice *choice);
/* Whether a refusal of the bare form may be followed by a framed try. */
bool path_may_fall_back(enum route_call call, enum upstream_wire wire);

#endif
