/*
 * The call: one RPC, the neutral middle between the protocol that a client speaks and the one that
 * a provider takes.
 *
 * Owns: both heads, the body on its way, the deadline, the outcome, the times. Does not own sockets
 * or HTTP streams (the ends do) and knows no protocol's field names (codecs do).
 *
 * Happy path of a unary call:
 *   downstream end: call_new, head → codec->read_request → call_start (route, filters, pick an
 * endpoint) → call_request_data … call_request_end → path.c decides (fast) → upstream open →
 * call_upstream_granted → head + body leave → call_reply_head, call_reply_data, call_reply_end →
 * downstream head + body + end → call_downstream_flushed → call_finish.
 *
 * Phases only move forward. Whatever happens, a call ends in call_finish(), once; then it lies in
 * the graveyard until the turn ends.
 */
#ifndef TRIBUTARY_CALL_CALL_H
#define TRIBUTARY_CALL_CALL_H

#include "proxy/call/codec.h"
#include "proxy/call/ends.h"
#include "proxy/call/flow.h"
#include "proxy/call/worker.h"
#include "proxy/net/stream.h"
#include "proxy/wire/encoding.h"

enum call_protocol { PROTOCOL_GRPC, PROTOCOL_TRIPLE, PROTOCOL_CONNECT };

enum call_phase {
    CALL_NEW,      /* the head is being read */
    CALL_DECIDING, /* routed; the path is not yet chosen (body is being held) */
    CALL_OPENING,  /* path chosen; waits for a connection and stream */
    CALL_SENT,     /* the request head is out; reply awaited */
    CALL_REPLYING, /* the reply's head was read */
    CALL_ENDING, /* everything was handed to the downstream end; waits for the kernel to take it */
    CALL_FINISHED,
};

struct call_request {
    struct fields head;    /* as received, pseudo-headers included */
    struct text path;      /* "/Service/Method", query cut off */
    struct text authority; /* as the client sent it (:authority, else Host); may be empty */
    struct text codec;     /* message codec: "proto", "json", … */
    enum body_form form;
    struct text encoding_name; /* of the messages; empty: identity */
    enum encoding encoding;
    struct text accept_encoding; /* the client's list, as sent */
    int64_t content_length;      /* of the body on the client's wire; -1: none */
    uint64_t timeout_ns;         /* the client's, from its header; UINT64_MAX: none */
    struct text service_group, service_version; /* tri-service-*; empty: none */
    struct fields metadata;                     /* custom fields in the client's order */
    bool dubbo_client; /* a Dubbo client in gRPC framing: code 17 stays 17, '+' is escaped in
                          messages */
    bool java_client;  /* dubbo-java: URL-decodes the message inside the details too */
};

/* Why a bare reply is a refusal of the bare form (the framed try follows). */
enum call_refusal { REFUSAL_NONE, REFUSAL_METHOD, REFUSAL_ENDPOINT };

struct call_reply {
    struct fields head;         /* as received, ":status" first */
    struct fields raw_trailers; /* as received */
    int http_status;
    enum body_form form;       /* of the reply's body */
    struct text codec;         /* message codec named by its content-type */
    struct text encoding_name; /* grpc-encoding or content-encoding; empty: identity */
    enum encoding encoding;
    int64_t content_length; /* -1: none */
    struct fields metadata; /* custom leading fields */
    struct fields trailers; /* custom trailing fields; a bare reply's "trailer-NAME" as NAME */
    bool body_is_error; /* the body is no message: hold it for codec->read_end (JSON error, page,
                           refusal) */
    uint64_t error_body_max;  /* bytes worth holding of it: 0 for pages; a longer body is dropped */
    bool bare_error_has_code; /* valid after read_end: a JSON error with a `code` */
    bool ends_with_head;      /* Trailers-Only and the like: read_end has everything */
    struct rpc_status status; /* valid after read_end */
    struct text provider_error; /* the JSON body of a bare error as received (in the arena), when
                                   the bare codec read one; else empty */
    enum call_refusal refusal;  /* valid after read_end */
    struct text error_body;     /* downstream triple codec: JSON for an error, set by write_end */
};

/* Nanoseconds, clock_now_ns; 0: not reached. See design.md, "Times". */
struct call_times {
    uint64_t head_read;       /* t0 */
    uint64_t request_read;    /* t1 */
    uint64_t granted;         /* t2 */
    uint64_t request_written; /* t3 */
    uint64_t reply_read;      /* t4 */
    uint64_t reply_written;   /* t5 */
    uint64_t request_stalled,
        reply_stalled; /* waiting for a peer's window or a full socket: not our cost */
    uint64_t earlier_queue, earlier_request,
        earlier_upstream; /* attempts before this one, added up */
};

enum { CALL_ARENA_BYTES = 2232 }; /* with the call all that the largest slab object can be */

struct call {
    struct grave grave;
    struct worker *worker;
    struct list node;           /* worker->calls */
    struct list undecided_node; /* worker->undecided while call = auto has seen HEADERS only */
    struct list starved_node;   /* worker->starved: credit kept back while the budget is tight */
    struct deferred turn_end;   /* decide at the end of the turn */
    struct snapshot *snapshot;  /* a reference */
    const struct route *route;  /* NULL until routed */
    struct route_cells *cells;  /* the route's, or no_route's; NULL until started */
    enum call_phase phase;
    enum call_protocol protocol;
    struct text listener; /* name, for routing; lives as long as the connection's snapshot */

    const struct downstream_ops *down_ops;
    void *down; /* the downstream end's state; NULL after detach */
    const struct codec *down_codec;
    const struct upstream_ops *up_ops;
    void *up;                     /* the upstream end's state; NULL before pick and after cancel */
    enum body_form upstream_form; /* of this attempt */
    const struct codec
        *up_codec; /* the client codec of this attempt: upstream's send_head sets it */

    struct call_request request;
    struct call_reply reply;
    struct rpc_status status;    /* the outcome, valid from CALL_ENDING on */
    enum stats_reason reason;    /* why the proxy itself ended it; REASON_NONE else */
    struct upstream_facts facts; /* of the picked endpoint */
    struct text up_peer; /* the last picked endpoint's address, for the access log; in the arena or
                            the snapshot */

    enum stats_path path; /* valid when path_chosen */
    bool path_chosen;
    bool unary;                /* known to be unary: counts for the unary histograms */
    bool fast_share;           /* this call is one of fast_path's share */
    bool request_ended;        /* END_STREAM of the client was read */
    bool head_sent;            /* the reply head was handed to the downstream end */
    bool turn_over;            /* the turn that read the first message's last byte is over */
    bool head_alone;           /* call = auto: nothing came for 10 ms after the head */
    bool granted;              /* a stream was granted in this attempt */
    bool request_end_sent;     /* END_STREAM was handed to the upstream end in this attempt */
    bool fell_back;            /* bare was refused: this is the framed try */
    enum call_refusal refusal; /* what the bare try was refused with */
    int refused_http;          /* and its HTTP status; 0: it was not */
    bool reported;             /* the report's trailers are among reply.trailers */
    unsigned attempts;         /* streams granted so far */
    unsigned filters_passed;   /* filters of the route whose request() let the call go on */
    uint64_t deadline_ns;      /* 0: none */
    struct timer deadline;
    struct call_times times;
    uint64_t bytes_in, bytes_out; /* message bytes, without framing */
    /* Bytes received whose stream window was not yet returned (credit.c). */
    uint64_t request_owed, reply_owed;

    struct arena arena;
    struct flow request_flow, reply_flow; /* call_new() zeroes what is above */
    char arena_memory[CALL_ARENA_BYTES];
};

/* --- events from the downstream end --- */

/* A request begins. The end sets call->down_codec and protocol before call_start. Times: head_read
 * is set by call_start. */
struct call *call_new(struct worker *worker, const struct downstream_ops *ops, void *down);
/* The head was read and understood by the codec. end: no body will come. */
void call_start(struct call *call, uint64_t head_ns, bool end);
/* The head was refused by the codec (call->status set), or there is no way to take it: answer and
 * end. */
void call_refuse(struct call *call, uint64_t head_ns);
void call_request_data(struct call *call, const uint8_t *data, size_t len);
void call_request_end(struct call *call);
/* The client is gone or reset the stream: upstream is cancelled, the call ends CANCELLED. */
void call_downstream_gone(struct call *call, uint32_t error);
void call_downstream_sent(struct call *call, size_t bytes);
void call_downstream_flushed(struct call *call, uint64_t now_ns, uint64_t stalled_ns);

/* --- events from the upstream end --- */

void call_upstream_granted(struct call *call);
/* No stream will come: call->status is set (by call_set_error). */
void call_upstream_unavailable(struct call *call);
void call_reply_head(struct call *call, bool end); /* call->reply.head is complete */
void call_reply_data(struct call *call, const uint8_t *data, size_t len);
void call_reply_end(struct call *call, const struct fields *trailers);
/* The exchange broke: an RST_STREAM code or STREAM_* (net/stream.h). */
void call_upstream_broken(struct call *call, uint32_t error);
void call_upstream_sent(struct call *call, size_t bytes);
void call_upstream_flushed(struct call *call, uint64_t now_ns, uint64_t stalled_ns);

/* --- outcome --- */

/* Set call->status to an error of the proxy's own: code, reason and a message ("route greet: …" is
 * put in front), with the ErrorInfo detail. Does not end the call. */
__attribute__((format(printf, 4, 5))) void
call_set_error(struct call *call, enum rpc_code code, enum stats_reason reason, const char *format,
               ...);
/* The same, and end it: cancels upstream, answers downstream. */
__attribute__((format(printf, 4, 5))) void
call_fail(struct call *call, enum rpc_code code, enum stats_reason reason, const char *format, ...);
/* The one exit: timer off, unlink, detach both ends, filters' done, stats, access log, graveyard.
 * Idempotent. */
void call_finish(struct call *call);
/* What remains until the deadline: UINT64_MAX without one, 0 when over. For codecs' timeout fields.
 */
uint64_t call_remaining_ns(const struct call *call);
/* End every running call of a worker UNAVAILABLE (drain_timeout, stop). */
void call_end_all(struct worker *worker);
/* The worker's lists and timers of the call floor. */
void call_worker_init(struct worker *worker);
void call_worker_fini(struct worker *worker);

#endif
