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

#include "proxy/net/h2.h"
#include "upstream/client_codecs.h"
#include "upstream/cluster.h"
#include "upstream/upstreams.h"

/* --- stream events --- */

static void
on_head(struct stream *stream, bool end)
{
    struct upstream_call *up = stream->owner;
    call_reply_head(up->call, end);
}

static void
on_data(struct stream *stream, const uint8_t *data, size_t len)
{
    struct upstream_call *up = stream->owner;
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

/* --- choosing an endpoint --- */

static void
take_endpoint(struct upstream_call *up, struct endpoint *endpoint)
{
    if (up->endpoint)
        up->endpoint->active--;
    up->endpoint = endpoint;
    endpoint->active++;
    up->call->up_peer = facts_address(endpoint->facts); /* outlives the endpoint */
}

static void
look_up_facts(struct upstream_call *up, struct upstream_facts *facts)
{
    facts_look_up(up->endpoint->facts, up->call->request.codec, up->call->request.path, facts);
}

static void
none_usable(struct call *call, struct cluster *cluster)
{
    call_set_error(call, RPC_UNAVAILABLE, REASON_NO_ENDPOINT,
                   "no usable endpoint in upstream %.*s: %s",
                   TEXT_ARGS(call->route->upstream->name),
                   cluster ? cluster_last_error(cluster) : "it is gone");
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
endpoint_to_avoid(const struct call *call, struct cluster *cluster)
{
    if (call->attempts == 0)
        return NULL;
    list_for_each (node, &cluster->endpoints) {
        struct endpoint *endpoint = list_entry(node, struct endpoint, node);
        if (text_eq(text_of(endpoint->name), call->up_peer))
            return endpoint;
    }
    return NULL;
}

static bool
op_pick(struct call *call, struct upstream_facts *facts)
{
    struct cluster *cluster = upstreams_find(call->worker, call->snapshot, call->route->upstream);
    struct endpoint *endpoint =
        cluster ? cluster_pick(cluster, endpoint_to_avoid(call, cluster)) : NULL;
    if (!endpoint) {
        none_usable(call, cluster);
        return false;
    }
    struct upstream_call *up = slab_zalloc(&call->worker->ctx.slab, sizeof(*up));
    up->call = call;
    list_init(&up->node);
    list_init(&up->lost.node);
    up->lost.run = on_lost;
    call->up = up;
    take_endpoint(up, endpoint);
    look_up_facts(up, facts);
    return true;
}

/* --- getting a stream --- */

static void
op_open(struct call *call)
{
    struct upstream_call *up = call->up;
    struct cluster *cluster = up->endpoint->cluster;
    if (!endpoint_usable(up->endpoint)) {
        upstream_call_endpoint_failed(up);
    } else if (cluster->waiting >= cluster->conf->max_pending) {
        call_set_error(call, RPC_RESOURCE_EXHAUSTED, REASON_QUEUE_FULL,
                       "%u calls wait for upstream %s already (max_pending)", cluster->waiting,
                       cluster->name);
        call_upstream_unavailable(call);
    } else {
        endpoint_enqueue(up->endpoint, up);
    }
}

void
upstream_call_endpoint_failed(struct upstream_call *up)
{
    struct call *call = up->call;
    struct cluster *cluster = up->endpoint->cluster;
    struct endpoint *other = cluster_pick(cluster, up->endpoint);
    if (other && other != up->endpoint && ++up->dials <= cluster->endpoint_count) {
        take_endpoint(up, other);
        endpoint_enqueue(other, up);
        return;
    }
    call_set_error(call, RPC_UNAVAILABLE, REASON_CONNECT_FAILED,
                   "cannot connect to %s of upstream %s: %s", up->endpoint->name, cluster->name,
                   up->endpoint->error);
    call_upstream_unavailable(call);
}

void
upstream_call_grant(struct upstream_call *up, struct client_conn *conn)
{
    up->conn = conn;
    call_upstream_granted(up->call);
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
    up->stream = client_conn_request(up->conn, &fields, &EVENTS, up, &call->reply.head,
                                     &call->reply.raw_trailers);
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
    facts_learn(up->endpoint->facts, call->request.codec, call->request.path, lesson);
    endpoint_show_state(up->endpoint);
}

/* --- the end --- */

static void
leave_stream(struct upstream_call *up, uint32_t h2_error)
{
    struct stream *stream = up->stream;
    up->stream = NULL;
    up->conn = NULL;
    if (!stream)
        return;
    if (stream->in_end && stream->out_closed)
        stream_detach(stream);
    else
        stream_reset(stream, h2_error);
}

static void
leave_queue(struct upstream_call *up)
{
    if (list_linked(&up->node))
        up->endpoint->cluster->waiting--;
    list_unlink(&up->node);
    list_unlink(&up->lost.node);
}

static void
record(const struct upstream_call *up)
{
    const struct call_times *times = &up->call->times;
    if (times->reply_read > times->request_written && times->request_written > 0)
        histogram_record(&up->endpoint->cells->upstream,
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
    up->endpoint->active--;
    if (up->endpoint->leaving)
        cluster_sweep_later(up->endpoint->cluster);
    slab_free(&call->worker->ctx.slab, up);
}

static struct text
op_peer(struct call *call)
{
    struct upstream_call *up = call->up;
    return up ? text_of(up->endpoint->name) : TEXT_NONE;
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
