/* A fabricated call for tests of codecs. Owns one worker's pools and the call's memory. */
#include "call_stand.h"

#include "proxy/base/clock.h"
#include "proxy/base/mem.h"

struct call *stand_call;
struct route stand_route;
struct upstream_conf stand_upstream;
const char *const stand_peer = "10.0.0.9:20000";

static struct budget budget;
static struct worker worker;
static struct snapshot snapshot;

static struct text
op_peer(struct call *call)
{
    (void)call;
    return text_of(stand_peer);
}

/* The call floor names this table; nothing here opens a stream. */
const struct upstream_ops upstream_ops = {.peer = op_peer};

static void
make_snapshot(void)
{
    memset(&snapshot, 0, sizeof(snapshot));
    snapshot.max_message = 1 << 20;
    memset(&stand_upstream, 0, sizeof(stand_upstream));
    stand_upstream.name = TEXT("up");
    memset(&stand_route, 0, sizeof(stand_route));
    stand_route.name = TEXT("r");
    stand_route.upstream = &stand_upstream;
    stand_route.content_length = stand_route.replay = true;
}

static void
init_fields(struct call *call)
{
    fields_init(&call->request.head, &call->arena);
    fields_init(&call->request.metadata, &call->arena);
    fields_init(&call->reply.head, &call->arena);
    fields_init(&call->reply.raw_trailers, &call->arena);
    fields_init(&call->reply.metadata, &call->arena);
    fields_init(&call->reply.trailers, &call->arena);
}

int
stand_setup(void **state)
{
    (void)state;
    budget_init(&budget, (uint64_t)64 << 20);
    memset(&worker, 0, sizeof(worker));
    chunk_pool_init(&worker.ctx.chunks, &budget);
    make_snapshot();
    struct call *call = mem_new(struct call);
    arena_init(&call->arena, call->arena_memory, sizeof(call->arena_memory));
    init_fields(call);
    call->worker = &worker;
    call->snapshot = &snapshot;
    call->route = &stand_route;
    call->up_ops = &upstream_ops;
    call->path = PATH_FAST;
    call->path_chosen = true;
    call->times.head_read = clock_now_ns();
    call->request.codec = TEXT("proto");
    call->request.content_length = call->reply.content_length = -1;
    call->request.timeout_ns = UINT64_MAX;
    flow_init(&call->request_flow, &worker.ctx.chunks, snapshot.max_message);
    flow_init(&call->reply_flow, &worker.ctx.chunks, snapshot.max_message);
    stand_call = call;
    return 0;
}

int
stand_teardown(void **state)
{
    (void)state;
    flow_fini(&stand_call->request_flow);
    flow_fini(&stand_call->reply_flow);
    arena_fini(&stand_call->arena);
    mem_free(stand_call);
    chunk_pool_fini(&worker.ctx.chunks);
    return 0;
}

void
stand_add(struct fields *fields, const char *lines)
{
    struct text rest = text_of(lines);
    while (rest.len > 0) {
        ptrdiff_t end = text_find(rest, '\n', 0);
        struct text line = end < 0 ? rest : text_make(rest.ptr, (size_t)end);
        rest = end < 0 ? TEXT_NONE : text_from(rest, (size_t)end + 1);
        ptrdiff_t colon = text_find(line, ':', 1); /* behind a pseudo-header's own */
        assert_true(colon > 0);
        struct text value = text_from(line, (size_t)colon + 1);
        if (text_starts(value, TEXT(" ")))
            value = text_from(value, 1);
        fields_add(fields, text_make(line.ptr, (size_t)colon), value, 0);
    }
}

bool
stand_read_request(const struct codec *codec, const char *lines)
{
    stand_add(&stand_call->request.head, lines);
    return codec->read_request(stand_call);
}

void
stand_read_reply(const struct codec *codec, const char *head, const char *body,
                 const char *trailers)
{
    struct call *call = stand_call;
    bool ends = !body && !trailers;
    stand_add(&call->reply.head, head);
    codec->read_reply(call, ends);
    if (body && call->reply.body_is_error) {
        call->reply_flow.from = call->reply_flow.to = FORM_BARE;
        assert_int_equal(flow_feed(&call->reply_flow, (const uint8_t *)body, strlen(body)),
                         FLOW_OK);
    }
    if (trailers)
        stand_add(&call->reply.raw_trailers, trailers);
    codec->read_end(call, trailers ? &call->reply.raw_trailers : NULL);
}

const char *
stand_lines(const struct fields *fields)
{
    static char lines[64 * 1024];
    size_t len = 0;
    lines[0] = 0;
    fields_for_each (field, fields) {
        int more = snprintf(lines + len, sizeof(lines) - len, "%.*s: %.*s\n",
                            TEXT_ARGS(field->name), TEXT_ARGS(field->value));
        assert_in_range(more, 0, sizeof(lines) - len - 1);
        len += (size_t)more;
    }
    return lines;
}

const char *
stand_request(const struct codec *codec)
{
    struct fields out;
    fields_init(&out, &stand_call->arena);
    codec->write_request(stand_call, &out);
    return stand_lines(&out);
}

const char *
stand_head(const struct codec *codec)
{
    struct fields out;
    fields_init(&out, &stand_call->arena);
    codec->write_head(stand_call, &out);
    return stand_lines(&out);
}

const char *
stand_end(const struct codec *codec, bool head_is_out)
{
    struct fields out;
    fields_init(&out, &stand_call->arena);
    codec->write_end(stand_call, &out, head_is_out);
    return stand_lines(&out);
}
