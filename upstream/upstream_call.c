/*
 * The upstream end of one call. Owns its place in an endpoint's queue and its stream until cancel;
 * the call owns the decision what to send.
 *
 * Happy path: pick → open (waits, or is granted at once) → send_head (h2 request) → send_body … →
 * stream events → cancel (detach).
 *
 * Failure modes: no usable endpoint, a full queue → the call's status is set and
 * call_upstream_unavailable follows; a refused dial → the next usable endpoint, once each; a broken
 * stream → call_upstream_broken.
 */
#include "upstream/upstream_call.h"

#include "upstream/client_codecs.h"
#include "upstream/cluster.h"
#include "upstream/upstreams.h"

/* --- stream events --- */

static void
on_head(struct stream *stream, bool end)
{
    struct upstream_call *up = stream->owner;
    pool_heard(up->conn);
    call_reply_head(up->call, end);
}

static void
on_data(struct stream *stream, const uint8_t *data, size_t len)
{
    struct upstream_call *up = stream->owner;
    pool_heard(up->conn);
    call_reply_data(up->call, data, len);
}

static void
on_end(struct stream *stream, const struct fields *trailers)
{
    struct upstream_call *up = stream->owner;
    call_reply_end(up->call, trailers);
}

static void
on_reset(struct stream *stream, uint32_t error)
{
    struct upstream_call *up = stream->owner;
    pool_broken(up->conn);
    up->broken = true;
    call_upstream_broken(up->call, error);
}

static void
on_sent(struct stream *stream, size_t bytes)
{
    struct upstream_call *up = stream->owner;
    call_upstream_sent(up->call, bytes);
}

static void
on_flushed(struct stream *stream, uint64_t now_ns, uint64_t stalled_ns)
{
    struct upstream_call *up = stream->owner;
    call_upstream_flushed(up->call, now_ns, stalled_ns);
}

static const struct stream_events EVENTS = {
    .on_head = on_head,
    .on_data = on_data,
    .on_end = on_end,
    .on_reset = on_reset,
    .on_sent = on_sent,
    .on_flushed = on_flushed,
};

static void on_granted(struct pool_waiter *waiter, struct pool_conn *conn);
static void on_failed(struct pool_waiter *waiter);

/* --- choosing an endpoint --- */

/* *facts are those of the endpoint from here on. */
static void
take_endpoint(struct upstream_call *up, struct endpoint *endpoint, struct upstream_facts *facts)
{
    const struct call_request *request = &up->call->request;
    if (up->endpoint)
        cluster_leave(up->endpoint->cluster, up->endpoint);
    up->endpoint = endpoint;
    endpoint->active++;
    up->call->up_peer = facts_address(endpoint->facts); /* outlives the endpoint */
    facts_look_up(endpoint->facts, request->codec, request->path, facts);
}

static void
none_usable(struct call *call, const struct cluster *cluster)
{
    call_set_error(call, RPC_UNAVAILABLE, REASON_NO_ENDPOINT,
                   "no usable endpoint in upstream %s: %s", cluster->name,
                   cluster_last_error(cluster));
}

static void
on_lost(struct deferred *deferred)
{
    struct upstream_call *up = container_of(deferred, struct upstream_call, lost);
    call_upstream_broken(up->call, STREAM_NOT_PROCESSED);
}

/* The endpoint of an attempt that failed without being processed: another one is better, if there
 * is one. */
static struct endpoint *
endpoint_to_avoid(const struct call *call, const struct cluster *cluster)
{
    if (call->attempts == 0)
        return NULL;
    for (uint32_t i = 0; i < cluster->endpoint_count; i++)
        if (text_eq(cluster->endpoints[i]->target.name, call->up_peer))
            return cluster->endpoints[i];
    return NULL;
}

static bool
op_pick(struct call *call, struct upstream_facts *facts)
{
    struct cluster *cluster = upstreams_find(call->worker, call->snapshot, call->route->upstream);
    struct endpoint *endpoint = cluster_pick(cluster, endpoint_to_avoid(call, cluster));
    if (!endpoint) {
        none_usable(call, cluster);
        return false;
    }
    struct upstream_call *up = slab_zalloc(&call->worker->ctx.slab, sizeof(*up));
    up->call = call;
    list_init(&up->waiter.node);
    up->waiter.on_granted = on_granted;
    up->waiter.on_failed = on_failed;
    list_init(&up->lost.node);
    up->lost.run = on_lost;
    call->up = up;
    take_endpoint(up, endpoint, facts);
    return true;
}

/* --- getting a stream --- */

static void
enter(struct upstream_call *up)
{
    struct call *call = up->call;
    const struct cluster *cluster = up->endpoint->cluster;
    up->pool = endpoint_pool(up->endpoint, call->upstream_form);
    if (!pool_usable(up->pool)) {
        on_failed(&up->waiter);
    } else if (!pool_enter(up->pool, &up->waiter)) {
        call_set_error(call, RPC_RESOURCE_EXHAUSTED, REASON_QUEUE_FULL,
                       "%u calls wait for upstream %s already (max_pending)", cluster->waiting,
                       cluster->name);
        call_upstream_unavailable(call);
    }
}

static void
on_granted(struct pool_waiter *waiter, struct pool_conn *conn)
{
    struct upstream_call *up = container_of(waiter, struct upstream_call, waiter);
    up->conn = conn;
    call_upstream_granted(up->call);
}

/* The endpoint has no connection for this call: another one may, each is asked at most once. */
static void
on_failed(struct pool_waiter *waiter)
{
    struct upstream_call *up = container_of(waiter, struct upstream_call, waiter);
    struct call *call = up->call;
    struct cluster *cluster = up->endpoint->cluster;
    struct endpoint *other = cluster_pick(cluster, up->endpoint);
    if (other && other != up->endpoint && ++up->moves < cluster->endpoint_count) {
        take_endpoint(up, other, &call->facts);
        enter(up);
        return;
    }
    call_set_error(call, RPC_UNAVAILABLE, REASON_CONNECT_FAILED,
                   "cannot connect to %.*s of upstream %s: %s",
                   TEXT_ARGS(up->endpoint->target.name), cluster->name, up->pool->error);
    call_upstream_unavailable(call);
}

static void
op_open(struct call *call)
{
    struct upstream_call *up = call->up;
    struct cluster *cluster = up->endpoint->cluster;
    if (up->endpoint->leaving && !cluster->gone) { /* a reload took it away since pick */
        struct endpoint *other = cluster_pick(cluster, NULL);
        if (other)
            take_endpoint(up, other, &call->facts);
    }
    enter(up);
}

/* --- sending --- */

static void
op_send_head(struct call *call, bool end)
{
    struct upstream_call *up = call->up;
    struct fields fields;
    (void)end; /* never END_STREAM on HEADERS: dubbo-java 3.2 does not answer such a request */
    call->up_codec = call->upstream_form == FORM_BARE ? &bare_codec : &framed_codec;
    fields_init(&fields, &call->arena);
    call->up_codec->write_request(call, &fields);
    up->stream =
        pool_request(up->conn, &fields, &EVENTS, up, &call->reply.head, &call->reply.raw_trailers);
    if (!up->stream)
        ctx_defer(&call->worker->ctx, &up->lost);
}

static void
op_send_body(struct call *call, struct slices *body, bool end)
{
    struct upstream_call *up = call->up;
    if (up->stream)
        stream_send_data(up->stream, body, end);
    else
        slices_clear(body);
}

static void
op_credit(struct call *call, uint64_t bytes)
{
    struct upstream_call *up = call->up;
    if (up->stream)
        stream_credit(up->stream, bytes);
}

static void
op_learn(struct call *call, enum upstream_lesson lesson)
{
    struct upstream_call *up = call->up;
    facts_learn(up->endpoint->facts, call->request.codec, call->request.path, lesson,
                call->refused_http);
    endpoint_show(up->endpoint);
}

/* --- the end --- */

/* dubbo-java closes a connection on which it was sent many resets; who takes the bare form is not
 * one. */
static bool
counts_resets(const struct endpoint *endpoint)
{
    const struct upstream_conf *conf = endpoint->target.conf;
    return conf->dialect == DIALECT_TRIPLE && conf->wire != UPSTREAM_WIRE_BARE &&
           facts_wire(endpoint->facts) != WIRE_BARE;
}

static void
leave_stream(struct upstream_call *up, uint32_t h2_error)
{
    struct stream *stream = up->stream;
    struct pool_conn *conn = up->conn;
    enum pool_end end = POOL_END_OVER;
    up->stream = NULL;
    up->conn = NULL;
    if (!stream)
        return;
    /* A peer's reset is not answered by one: RFC 9113 section 5.4.2. */
    if (!up->broken && !(stream->in_end && stream->out_closed))
        end = counts_resets(up->endpoint) ? POOL_END_RESET_COUNTED : POOL_END_RESET;
    up->broken = false;
    pool_release(conn, stream, end, h2_error);
}

static void
leave_queue(struct upstream_call *up)
{
    if (up->pool)
        pool_leave(up->pool, &up->waiter);
    list_unlink(&up->lost.node);
}

static void
record(const struct upstream_call *up)
{
    const struct call_times *times = &up->call->times;
    if (times->reply_read > times->request_written && times->request_written > 0)
        histogram_record(&up->endpoint->target.cells->upstream,
                         times->reply_read - times->request_written);
}

static void
op_cancel(struct call *call, uint32_t h2_error, bool keep_endpoint)
{
    struct upstream_call *up = call->up;
    if (!up)
        return;
    leave_queue(up);
    leave_stream(up, h2_error);
    record(up);
    if (keep_endpoint)
        return;
    call->up = NULL;
    cluster_leave(up->endpoint->cluster, up->endpoint);
    slab_free(&call->worker->ctx.slab, up);
}

static struct text
op_peer(struct call *call)
{
    struct upstream_call *up = call->up;
    return up ? up->endpoint->target.name : TEXT_NONE;
}

const struct upstream_ops upstream_ops = {
    .pick = op_pick,
    .open = op_open,
    .send_head = op_send_head,
    .send_body = op_send_body,
    .credit = op_credit,
    .learn = op_learn,
    .cancel = op_cancel,
    .peer = op_peer,
};
