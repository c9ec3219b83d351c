/* A call between two fake ends. Owns the loop, the worker and the story. */
#include "call_lab.h"

#include <stdio.h>
#include <string.h>

#include "proxy/base/clock.h"
#include "proxy/call/routes.h"
#include "proxy/net/h2.h"

struct call_lab lab;

__attribute__((format(printf, 1, 2))) static void
tell(const char *format, ...)
{
    size_t len = strlen(lab.story);
    va_list args;
    va_start(args, format);
    if (len > 0)
        lab.story[len++] = ' ';
    vsnprintf(lab.story + len, sizeof(lab.story) - len, format, args);
    va_end(args);
}

/* Payload bytes as text; prefixes show as "[len]". */
static void
tell_body(const char *word, struct slices *body)
{
    char bytes[512], text[1024];
    size_t out = 0, len = body->bytes < sizeof(bytes) ? (size_t)body->bytes : sizeof(bytes);
    slices_peek(body, bytes, len);
    for (size_t i = 0; i < len && out + 8 < sizeof(text);) {
        if (bytes[i] == 0 && i + PREFIX_BYTES <= len && bytes[i + 1] == 0) {
            out += (size_t)snprintf(text + out, sizeof(text) - out, "[%d]", bytes[i + 4]);
            i += PREFIX_BYTES;
        } else {
            text[out++] = bytes[i++];
        }
    }
    text[out] = 0;
    if (body->bytes > 64)
        tell("%s(%llu bytes)", word, (unsigned long long)body->bytes);
    else
        tell("%s(%s)", word, text);
    slices_clear(body);
}

/* --- the fake client codec --- */

static void
read_reply(struct call *call, bool end)
{
    struct call_reply *reply = &call->reply;
    reply->form = lab.reply_form;
    reply->http_status = lab.http_status;
    reply->body_is_error = lab.body_is_error;
    reply->error_body_max = 1000;
    reply->content_length = lab.reply_length;
    reply->ends_with_head = end && lab.ends_with_head;
}

static void
read_end(struct call *call, const struct fields *trailers)
{
    struct call_reply *reply = &call->reply;
    (void)trailers;
    reply->status.code = lab.code;
    reply->refusal = lab.refusal;
    reply->bare_error_has_code = lab.has_code;
}

static const struct codec bare_client = {
    .name = "bare", .form = FORM_BARE, .read_reply = read_reply, .read_end = read_end};
static const struct codec framed_client = {
    .name = "framed", .form = FORM_FRAMED, .read_reply = read_reply, .read_end = read_end};
static const struct codec grpc_server = {.name = "grpc", .form = FORM_FRAMED};
static const struct codec triple_server = {.name = "triple", .form = FORM_BARE};

/* --- the fake upstream --- */

static int upstream_state; /* any address: call->up is not NULL while there is an attempt */

static bool
up_pick(struct call *call, struct upstream_facts *facts)
{
    tell("pick");
    if (lab.no_endpoint) {
        call_set_error(call, RPC_UNAVAILABLE, REASON_NO_ENDPOINT, "no endpoint");
        return false;
    }
    *facts = lab.facts;
    call->up = &upstream_state;
    return true;
}

static void
up_open(struct call *call)
{
    tell("open");
    if (!lab.wait)
        call_upstream_granted(call);
}

static void
up_send_head(struct call *call, bool end)
{
    assert_false(end); /* never END_STREAM on HEADERS */
    bool bare = call->upstream_form == FORM_BARE;
    call->up_codec = bare ? &bare_client : &framed_client;
    tell("head(%s)", bare ? "bare" : "framed");
}

static void
up_send_body(struct call *call, struct slices *body, bool end)
{
    (void)call;
    if (body->bytes > 0)
        tell_body("body", body);
    if (end)
        tell("end");
}

static void
up_credit(struct call *call, uint64_t bytes)
{
    (void)call;
    lab.up_credit += bytes;
}

static void
up_learn(struct call *call, enum upstream_lesson lesson)
{
    static const char *const names[] = {"bare", "unary", "method-framed", "endpoint-framed",
                                        "forget"};
    (void)call;
    tell("learn(%s)", names[lesson]);
}

static void
up_cancel(struct call *call, uint32_t h2_error, bool keep_endpoint)
{
    tell("cancel(%u%s)", h2_error, keep_endpoint ? ",keep" : "");
    if (!keep_endpoint)
        call->up = NULL;
}

static struct text
up_peer(struct call *call)
{
    (void)call;
    return TEXT("provider");
}

const struct upstream_ops upstream_ops = {
    .pick = up_pick,
    .open = up_open,
    .send_head = up_send_head,
    .send_body = up_send_body,
    .credit = up_credit,
    .learn = up_learn,
    .cancel = up_cancel,
    .peer = up_peer,
};

/* --- the fake downstream --- */

static void
down_send_head(struct call *call)
{
    (void)call;
    tell("HEAD");
}

static void
down_send_body(struct call *call, struct slices *body)
{
    (void)call;
    tell_body("BODY", body);
}

static void
down_send_end(struct call *call)
{
    tell("END(%d)", call->status.code);
}

static void
down_credit(struct call *call, uint64_t bytes)
{
    (void)call;
    lab.down_credit += bytes;
}

static void
down_reset(struct call *call, uint32_t h2_error)
{
    tell("RESET(%u)", h2_error);
    call->down = NULL;
}

static void
down_detach(struct call *call)
{
    tell("DETACH");
    call->down = NULL;
}

static struct text
down_peer(struct call *call)
{
    (void)call;
    return TEXT("client");
}

static const struct downstream_ops DOWN = {
    .send_head = down_send_head,
    .send_body = down_send_body,
    .send_end = down_send_end,
    .credit = down_credit,
    .reset = down_reset,
    .detach = down_detach,
    .peer = down_peer,
};

/* --- setup --- */

static void
on_tick(uv_timer_t *timer)
{
    (void)timer;
}

static void
make_snapshot(void)
{
    struct snapshot *snapshot = snapshot_new();
    static struct text match = {"*", 1};
    lab.snapshot = snapshot;
    snapshot->max_message = 1 << 20;
    lab.upstream.name = TEXT("up");
    lab.route = (struct route){.name = TEXT("r"),
                               .matches = &match,
                               .match_count = 1,
                               .upstream = &lab.upstream,
                               .call = CALL_UNARY,
                               .fast_path_share = 10000,
                               .fast_path_max = 1000,
                               .content_length = true,
                               .replay = true,
                               .filters = lab.filters,
                               .filter_settings = lab.filter_settings};
    lab.route.stats = stats_register(&lab.stats, STATS_ROUTE, TEXT("r"), TEXT_NONE);
    snapshot->routes = &lab.route;
    snapshot->route_count = 1;
    snapshot->upstreams = &lab.upstream;
    snapshot->upstream_count = 1;
    routes_build(snapshot);
}

int
lab_setup(void **state)
{
    static int downstream_state;
    (void)state;
    memset(&lab, 0, sizeof(lab));
    lab.reply_length = -1;
    lab.http_status = 200;
    lab.reply_form = FORM_BARE;
    assert_int_equal(uv_loop_init(&lab.loop), 0);
    uv_timer_init(&lab.loop, &lab.tick);
    uv_timer_start(&lab.tick, on_tick, 1, 1);
    budget_init(&lab.budget, (uint64_t)8 << 20);
    stats_init(&lab.stats, 1);
    assert_int_equal(ctx_init(&lab.worker.ctx, &lab.loop, 0, &lab.budget), 0);
    lab.worker.stats = &lab.stats;
    make_snapshot();
    lab.worker.snapshot = lab.snapshot;
    call_worker_init(&lab.worker);
    lab.call = call_new(&lab.worker, &DOWN, &downstream_state);
    return 0;
}

static void
on_closed(uv_handle_t *handle)
{
    (void)handle;
}

int
lab_teardown(void **state)
{
    (void)state;
    lab_turn();
    assert_true(list_empty(&lab.worker.calls));
    assert_int_equal(lab.worker.call_count, 0);
    assert_int_equal(lab.worker.ctx.chunks.lease.used, 0);
    call_worker_fini(&lab.worker);
    uv_close((uv_handle_t *)&lab.tick, on_closed);
    ctx_close(&lab.worker.ctx);
    uv_run(&lab.loop, UV_RUN_DEFAULT);
    ctx_fini(&lab.worker.ctx);
    assert_int_equal(uv_loop_close(&lab.loop), 0);
    snapshot_unref(lab.snapshot);
    stats_fini(&lab.stats);
    return 0;
}

void
lab_start(enum call_protocol protocol, unsigned timeout_ms)
{
    struct call *call = lab.call;
    ctx_touch(&lab.worker.ctx);
    fields_add(&call->request.head, TEXT(":path"), TEXT("/a.B/C"), FIELD_STATIC);
    call->request.path = TEXT("/a.B/C");
    call->request.codec = TEXT("proto");
    call->protocol = protocol;
    call->request.form = protocol == PROTOCOL_GRPC ? FORM_FRAMED : FORM_BARE;
    call->down_codec = protocol == PROTOCOL_GRPC ? &grpc_server : &triple_server;
    if (timeout_ms > 0)
        call->request.timeout_ns = timeout_ms * NS_PER_MS;
    call_start(call, lab.worker.ctx.turn_ns, false);
}

void
lab_send_bytes(const void *bytes, size_t len)
{
    ctx_touch(&lab.worker.ctx);
    call_request_data(lab.call, bytes, len);
}

void
lab_send(const char *payload)
{
    uint8_t message[256];
    size_t len = strlen(payload);
    prefix_write(message, false, (uint32_t)len);
    memcpy(message + PREFIX_BYTES, payload, len);
    lab_send_bytes(message, PREFIX_BYTES + len);
}

void
lab_end(void)
{
    ctx_touch(&lab.worker.ctx);
    call_request_end(lab.call);
}

void
lab_reply(const char *body, int code)
{
    ctx_touch(&lab.worker.ctx);
    lab.code = code;
    call_reply_head(lab.call, false);
    if (body[0])
        call_reply_data(lab.call, (const uint8_t *)body, strlen(body));
    call_reply_end(lab.call, NULL);
}

void
lab_flushed(void)
{
    ctx_touch(&lab.worker.ctx);
    call_downstream_flushed(lab.call, lab.worker.ctx.turn_ns, 0);
}

void
lab_turn(void)
{
    ctx_flush(&lab.worker.ctx);
}

void
lab_run_ms(unsigned ms)
{
    uint64_t end = clock_now_ns() + ms * NS_PER_MS;
    while (clock_now_ns() < end)
        uv_run(&lab.loop, UV_RUN_ONCE);
}

void
lab_expect(const char *story)
{
    if (strcmp(lab.story, story) != 0)
        fail_msg("it went \"%s\", not \"%s\"", lab.story, story);
    lab.story[0] = 0;
}

uint64_t
lab_status(const char *name)
{
    const struct route_cells *cells = stats_route(lab.route.stats, 0);
    for (int code = 0; code < STATS_CODES; code++)
        if (text_eq(status_name(code), text_of(name)))
            return stats_get(&cells->status[code]);
    fail_msg("no status %s", name);
    return 0;
}
