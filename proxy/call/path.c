/*
 * Which way a call goes. Owns nothing; design.md, "How a call goes" is the source of every rule
 * here.
 *
 * The order of the questions: is it a stream by configuration; is the framed form certain; is the
 * call unary, and when can that be said; may it leave bare; is it held whole.
 */
#include "proxy/call/path.h"

bool
path_may_fall_back(enum route_call call, enum upstream_wire wire)
{
    /* wire = bare with call = unary is the one combination that insists on the bare form. */
    return wire == UPSTREAM_WIRE_AUTO || (wire == UPSTREAM_WIRE_BARE && call == CALL_AUTO);
}

static enum path_verdict
go(struct path_choice *choice, enum stats_path path, bool unary)
{
    choice->path = path;
    choice->form = path == PATH_FRAMED ? FORM_FRAMED : FORM_BARE;
    choice->unary = unary;
    return PATH_GO;
}

/* Framed and known to be unary: held too where it is short, so that prefix, message and END_STREAM
 * leave in one DATA frame (a packet and a hand-over less in a Java provider), and so that it can be
 * sent again. */
static enum path_verdict
decide_framed_unary(const struct path_input *in, struct path_choice *choice)
{
    if (in->ended)
        return go(choice, PATH_FRAMED, true);
    /* A bare source cannot be prefixed without its length, nor decompressed before it has ended. */
    if (in->length < 0 || in->must_inflate)
        return PATH_WAIT;
    bool hold = in->fast_share && (uint64_t)in->length <= in->fast_path_max && !in->budget_tight;
    return hold ? PATH_WAIT : go(choice, PATH_FRAMED, true);
}

/* Unary, and nothing says that the bare form is refused. */
static enum path_verdict
decide_bare(const struct path_input *in, bool taken, struct path_choice *choice)
{
    if (!in->fast_share && !taken)
        return decide_framed_unary(in, choice);
    if (!in->fast_share)
        return go(choice, PATH_RELAY, true);
    if (in->ended)
        return go(choice, PATH_FAST, true);
    if (!taken)
        return PATH_WAIT; /* held once whatever its size: a refusal must be answered with a framed
                             try */
    if (in->length < 0)
        return go(choice, PATH_RELAY, true);
    if ((uint64_t)in->length > in->fast_path_max || in->budget_tight)
        return go(choice, PATH_CUT_THROUGH, true);
    return PATH_WAIT;
}

/* A message has begun, or none comes: path_needs_message() has been asked. */
static enum path_verdict
decide_unary(const struct path_input *in, struct path_choice *choice)
{
    bool insists = in->call == CALL_UNARY && in->wire == UPSTREAM_WIRE_BARE;
    bool refused = in->facts.endpoint_framed || in->facts.method_framed;
    if (in->wire == UPSTREAM_WIRE_FRAMED || (refused && !insists))
        return decide_framed_unary(in, choice);
    return decide_bare(in, insists || in->facts.method_bare, choice);
}

/* call = auto: a message that is followed by END_STREAM in the same turn is a unary call; anything
 * else is a stream. */
static enum path_verdict
decide_auto(const struct path_input *in, struct path_choice *choice)
{
    bool refused = in->facts.endpoint_framed || in->facts.method_framed;
    if (in->wire == UPSTREAM_WIRE_FRAMED || refused || in->several)
        return go(choice, PATH_FRAMED, false);
    if (!in->fast_share && !(in->facts.method_bare && in->facts.method_unary))
        return go(choice, PATH_FRAMED, false);
    if (in->facts.method_unary && (in->first_known || in->ended))
        return decide_unary(in, choice);
    if (in->ended && !in->complete)
        return go(choice, PATH_FRAMED, false); /* no message at all: legal for a client stream */
    if (in->complete)
        return in->ended       ? decide_unary(in, choice)
               : in->turn_over ? go(choice, PATH_FRAMED, false)
                               : PATH_WAIT_TURN;
    /* A method that was seen to be unary is worth waiting for: its message comes when it comes. */
    if (in->head_alone && !in->first_known && !in->facts.method_unary)
        return go(choice, PATH_FRAMED, false);
    return PATH_WAIT;
}

enum path_verdict
path_decide(const struct path_input *in, struct path_choice *choice)
{
    if (in->source_bare) {
        struct path_input unary = *in;
        unary.call = CALL_UNARY;
        return decide_unary(&unary, choice);
    }
    if (in->call == CALL_STREAM)
        return go(choice, PATH_FRAMED, false);
    if (in->call == CALL_AUTO)
        return decide_auto(in, choice);
    return path_needs_message(in->call, in->first_known, in->ended) ? PATH_WAIT
                                                                    : decide_unary(in, choice);
}
