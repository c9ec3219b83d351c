/*
 * One connection to an endpoint. Owns its requests (struct exchange) from head to last byte out;
 * what they are answered with is admin_answer.c's.
 *
 * Happy path: open → h1 → on_stream → on_head (→ on_data, on_end) → queued → answered in one piece
 * → on_flushed → the next request, or idle until the timeout. One request is answered a loop turn,
 * so that many that ask for much at once do not keep the main loop from its signals.
 *
 * Failure modes: bytes that are no HTTP/1.1 (HTTP/2's preface too) are refused by net/h1; a body
 * over BODY_MAX gets 413; a client that sends or reads too slowly is cut off after STALL_S; when
 * the endpoint's memory is used up by such clients, others get 503.
 */
#include "proxy/admin_session.h"

#include "proxy/admin_answer.h"
#include "proxy/base/clock.h"
#include "proxy/net/h1.h"

enum {
    IDLE_S = 60,      /* between requests: Prometheus comes every 15 or 30 */
    HEAD_S = 5,       /* a begun head */
    STALL_S = 20,     /* a request that neither comes nor goes on */
    HEAD_MAX = 16384, /* bytes */
    SEND_BYTES = 128 * 1024,
    BODY_MAX = 64 * 1024
};

struct admin_session {
    struct list node; /* sessions->list */
    struct admin_sessions *sessions;
    struct h1 *h1;
    struct timer stall; /* running while there is an exchange */
    unsigned exchanges; /* more than one when a client sends ahead */
};

struct exchange {
    struct list node; /* sessions->queue while it waits for its answer */
    struct admin_session *session;
    struct stream *stream;
    uint64_t body_bytes; /* read and dropped: no request of ours means anything by its body */
    bool answered;
    struct fields fields;
    struct arena arena;
    char memory[1024]; /* the arena's first */
};

static struct timers *
timers_of(struct admin_session *session)
{
    return &session->sessions->ctx->timers;
}

static void
watch(struct admin_session *session)
{
    uint64_t now_ns = session->sessions->ctx->turn_ns;
    if (session->exchanges > 0)
        timers_start(timers_of(session), &session->stall, now_ns + STALL_S * NS_PER_S);
    else
        timers_stop(timers_of(session), &session->stall);
}

static void
free_exchange(struct exchange *exchange)
{
    struct admin_session *session = exchange->session;
    list_unlink(&exchange->node);
    if (list_empty(&session->sessions->queue))
        timers_stop(timers_of(session), &session->sessions->turn);
    stream_detach(exchange->stream);
    arena_fini(&exchange->arena);
    mem_free(exchange);
    session->exchanges--;
    watch(session);
    session->sessions->on_change(session->sessions);
}

/* --- answering --- */

static void
add_field(struct fields *fields, const char *name, const char *value)
{
    fields_add(fields, text_of(name), text_of(value), FIELD_STATIC);
}

static void
fill_head(struct fields *head, const struct admin_answer *answer)
{
    fields_add(head, TEXT(":status"), arena_printf(head->arena, "%d", answer->status), 0);
    add_field(head, "content-type", answer->content_type);
    fields_add(head, TEXT("content-length"), arena_printf(head->arena, "%zu", answer->body.len), 0);
    add_field(head, "cache-control", "no-store");
    add_field(head, "x-content-type-options", "nosniff");
    if (answer->allow)
        add_field(head, "allow", answer->allow);
    if (answer->page)
        add_field(head, "content-security-policy",
                  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
                  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
}

static void
reply(struct exchange *exchange, struct admin_answer *answer)
{
    struct ctx *ctx = exchange->session->sessions->ctx;
    struct slices body;
    struct fields head;
    slices_init(&body);
    if (!slices_append(&body, &ctx->chunks, answer->body.data, answer->body.len,
                       answer->body.len)) {
        slices_clear(&body);
        strbuf_clear(&answer->body);
        answer->status = 503;
    }
    fields_init(&head, &exchange->arena);
    fill_head(&head, answer);
    stream_send_head(exchange->stream, &head, body.bytes == 0);
    if (body.bytes > 0)
        stream_send_data(exchange->stream, &body, true);
    slices_fini(&body);
    exchange->answered = true;
}

static void
answer_request(struct exchange *exchange)
{
    struct admin_sessions *sessions = exchange->session->sessions;
    struct admin_request request = {
        .method = fields_value(&exchange->fields, TEXT(":method")),
        .target = fields_value(&exchange->fields, TEXT(":path")),
        .authority = fields_value(&exchange->fields, TEXT(":authority")),
        .origin = fields_value(&exchange->fields, TEXT("origin")),
        .probe_only = sessions->probe_only,
    };
    struct admin_answer answer;
    admin_answer(sessions->server, &request, &answer);
    reply(exchange, &answer);
    strbuf_fini(&answer.body);
}

static void
on_turn(struct timer *timer)
{
    struct admin_sessions *sessions = container_of(timer, struct admin_sessions, turn);
    struct exchange *exchange = list_first(&sessions->queue, struct exchange, node);
    list_unlink(&exchange->node);
    answer_request(exchange);
    if (!list_empty(&sessions->queue))
        timers_start(&sessions->ctx->timers, timer, sessions->ctx->turn_ns);
}

static void
queue_request(struct exchange *exchange)
{
    struct admin_sessions *sessions = exchange->session->sessions;
    list_push_back(&sessions->queue, &exchange->node);
    if (!timer_running(&sessions->turn))
        timers_start(&sessions->ctx->timers, &sessions->turn, sessions->ctx->turn_ns);
}

static void
refuse_body(struct exchange *exchange)
{
    struct admin_answer answer = {.status = 413, .content_type = "text/plain; charset=utf-8"};
    strbuf_add_str(&answer.body, "no body is wanted\n");
    reply(exchange, &answer);
    strbuf_fini(&answer.body);
}

/* --- the stream's events --- */

static void
on_head(struct stream *stream, bool end)
{
    if (end)
        queue_request(stream->owner);
}

static void
on_data(struct stream *stream, const uint8_t *data, size_t len)
{
    struct exchange *exchange = stream->owner;
    (void)data;
    stream_credit(stream, len);
    exchange->body_bytes += len;
    if (exchange->body_bytes > BODY_MAX && !exchange->answered)
        refuse_body(exchange);
}

static void
on_end(struct stream *stream, const struct fields *trailers)
{
    struct exchange *exchange = stream->owner;
    (void)trailers;
    if (!exchange->answered)
        queue_request(exchange);
}

static void
on_reset(struct stream *stream, uint32_t error)
{
    (void)error;
    free_exchange(stream->owner);
}

static void
on_sent(struct stream *stream, size_t bytes)
{
    (void)stream;
    (void)bytes;
}

static void
on_flushed(struct stream *stream, uint64_t now_ns, uint64_t stalled_ns)
{
    (void)now_ns;
    (void)stalled_ns;
    free_exchange(stream->owner);
}

static const struct stream_events STREAM_EVENTS = {
    .on_head = on_head,
    .on_data = on_data,
    .on_end = on_end,
    .on_reset = on_reset,
    .on_sent = on_sent,
    .on_flushed = on_flushed,
};

/* --- the connection's events --- */

static void
on_stream(struct h1 *h1, struct stream *stream)
{
    struct admin_session *session = h1_owner(h1);
    struct exchange *exchange = mem_new(struct exchange);
    exchange->session = session;
    exchange->stream = stream;
    list_init(&exchange->node);
    arena_init(&exchange->arena, exchange->memory, sizeof(exchange->memory));
    fields_init(&exchange->fields, &exchange->arena);
    stream->owner = exchange;
    stream->events = &STREAM_EVENTS;
    stream->fields = &exchange->fields;
    session->exchanges++;
    watch(session);
    list_unlink(&session->node);
    list_push_back(&session->sessions->list, &session->node);
}

static void
on_closed(struct h1 *h1)
{
    struct admin_session *session = h1_owner(h1);
    struct admin_sessions *sessions = session->sessions;
    timers_stop(timers_of(session), &session->stall);
    list_unlink(&session->node);
    mem_free(session);
    sessions->count--;
    sessions->on_change(sessions);
}

static const struct h1_events H1_EVENTS = {.on_stream = on_stream, .on_closed = on_closed};

static void
on_stalled(struct timer *timer)
{
    struct admin_session *session = container_of(timer, struct admin_session, stall);
    h1_shutdown(session->h1);
}

void
admin_session_init(struct admin_sessions *sessions)
{
    list_init(&sessions->list);
    list_init(&sessions->queue);
    sessions->turn.on_due = on_turn;
}

/* Between accepting and h1_server_open nothing is read. */
static const struct conn_events NO_EVENTS;

int
admin_session_open(struct admin_sessions *sessions, uv_stream_t *listening)
{
    static const struct h1_options options = {
        .max_head = HEAD_MAX,
        .idle_timeout_ns = IDLE_S * NS_PER_S,
        .head_timeout_ns = HEAD_S * NS_PER_S,
    };
    struct conn *conn;
    int error = conn_accept(sessions->ctx, listening, NULL, &NO_EVENTS, NULL, &conn);
    if (error)
        return error;
    int bytes = SEND_BYTES;
    uv_send_buffer_size(&conn->handle, &bytes); /* a wish: less is made for who does not read */
    struct admin_session *session = mem_new(struct admin_session);
    session->sessions = sessions;
    session->stall.on_due = on_stalled;
    list_push_back(&sessions->list, &session->node);
    sessions->count++;
    session->h1 = h1_server_open(conn, &options, &H1_EVENTS, session, NULL, 0);
    return 0;
}

void
admin_session_end_idle(struct admin_sessions *sessions)
{
    list_for_each (node, &sessions->list) {
        struct admin_session *session = list_entry(node, struct admin_session, node);
        if (session->exchanges > 0)
            continue;
        h1_shutdown(session->h1);
        return;
    }
}

void
admin_session_end_all(struct admin_sessions *sessions)
{
    list_for_each_safe (node, &sessions->list)
        h1_shutdown(list_entry(node, struct admin_session, node)->h1);
}
