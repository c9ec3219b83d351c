/*
 * The echo service itself. See echo_call.h for what the methods do.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "echo_call.h"
#include "peer_text.h"

static struct echo_call *
call_of_timer(struct peer_timer *timer)
{
    return (struct echo_call *)((char *)timer - offsetof(struct echo_call, timer));
}

static const char *
request_text(const struct echo_call *call, size_t *len)
{
    *len = call->request->len - call->request_at;
    return (const char *)call->request->data + call->request_at;
}

/* ---- unary ---- */

static void
fail(struct echo_call *call)
{
    char text[512] = "failed as asked";
    size_t len;
    const char *request = request_text(call, &len);
    long code = peer_text_number(request, len, "code", PEER_CODE_BUSINESS);
    bool details = peer_text_number(request, len, "details", 0) != 0;
    peer_text_option(request, len, "text", true, text, sizeof text);
    echo_reply_status(call, (int)code, text, details);
}

static void
answer(struct echo_call *call)
{
    struct echo_provider *provider = call->provider;
    if (call->method == ECHO_FAIL) {
        fail(call);
        return;
    }
    struct peer_body *body = call->request; /* the echo is the same bytes, prefix included */
    call->request = NULL;
    if (provider->fixed_reply) {
        peer_body_unref(body);
        const struct peer_body *fixed = provider->fixed_reply;
        body = call->framed ? peer_body_ref(provider->fixed_reply)
                            : peer_body_copy(fixed->data + PEER_PREFIX_BYTES,
                                             fixed->len - PEER_PREFIX_BYTES);
    }
    echo_reply_message(call, body);
}

static void
on_delay_over(struct peer_timer *timer)
{
    answer(call_of_timer(timer));
}

static void
on_timeout(struct peer_timer *timer)
{
    echo_reply_status(call_of_timer(timer), 4, "context deadline exceeded", false);
}

void
echo_method_unary(struct echo_call *call)
{
    if (call->delay_us <= 0) {
        answer(call);
        return;
    }
    bool late = call->timeout_ms >= 0 && call->timeout_ms < call->delay_us / 1000;
    uint64_t wait_ns =
        late ? (uint64_t)call->timeout_ms * 1000000u : (uint64_t)call->delay_us * 1000;
    call->timer.fired = late ? on_timeout : on_delay_over;
    peer_timer_start(&call->provider->timers, &call->timer, uv_hrtime() + wait_ns);
}

/* ---- Down ---- */

static void
push_down(struct echo_call *call)
{
    char head[24];
    size_t head_len = (size_t)snprintf(head, sizeof head, "%lu:", call->message_count);
    size_t size = (size_t)call->down_size;
    struct peer_body *body = peer_body_new(PEER_PREFIX_BYTES + size);
    peer_prefix_write(body->data, false, size);
    body->len = PEER_PREFIX_BYTES + size;
    head_len = head_len < size ? head_len : size;
    memcpy(body->data + PEER_PREFIX_BYTES, head, head_len);
    peer_pattern_fill(body->data + PEER_PREFIX_BYTES + head_len, head_len, size - head_len);
    call->message_count++;
    echo_reply_stream_message(call, body);
}

static void
end_down(struct echo_call *call)
{
    size_t len;
    const char *request = request_text(call, &len);
    int code = (int)peer_text_number(request, len, "code", 0);
    echo_reply_status(call, code, code ? "failed as asked" : "", false);
}

/* The queue is empty: the next message, so that a slow reader costs no memory. */
static void
more_down(struct peer_stream *stream)
{
    struct echo_call *call = (struct echo_call *)stream;
    if (!call->request || call->down_every_ms)
        return;
    if ((long)call->message_count < call->down_count)
        push_down(call);
    if ((long)call->message_count >= call->down_count)
        end_down(call);
}

static void
on_down_due(struct peer_timer *timer)
{
    struct echo_call *call = call_of_timer(timer);
    if ((long)call->message_count < call->down_count)
        push_down(call);
    if ((long)call->message_count >= call->down_count)
        end_down(call);
    else
        peer_timer_start(&call->provider->timers, timer,
                         timer->due_ns + (uint64_t)call->down_every_ms * 1000000u);
}

static void
start_down(struct echo_call *call)
{
    size_t len;
    const char *request = request_text(call, &len);
    call->down_count = peer_text_number(request, len, "count", 3);
    call->down_size = peer_text_number(request, len, "size", 10);
    call->down_every_ms = peer_text_number(request, len, "every_ms", 0);
    if (call->down_count < 0 || call->down_size < 0 || call->down_size > 64 * 1024 * 1024) {
        echo_reply_status(call, 3, "count or size out of range", false);
        return;
    }
    if (call->down_every_ms > 0) {
        call->timer.fired = on_down_due;
        peer_timer_start(&call->provider->timers, &call->timer, uv_hrtime());
        return;
    }
    call->stream.more = more_down;
    more_down(&call->stream);
}

/* ---- Up, Chat ---- */

static void
take_up(struct echo_call *call, struct peer_body *message)
{
    size_t len = message->len - PEER_PREFIX_BYTES;
    call->message_bytes += len;
    call->crc = (uint32_t)crc32(call->crc, message->data + PEER_PREFIX_BYTES, (uInt)len);
    call->message_count++;
    peer_body_unref(message);
}

static void
end_up(struct echo_call *call)
{
    struct peer_body *text =
        peer_text_add(peer_body_new(64), "count=%lu bytes=%llu crc=%08x", call->message_count,
                      (unsigned long long)call->message_bytes, call->crc);
    echo_reply_stream_head(call);
    echo_reply_stream_message(call, peer_body_message(false, text->data, text->len));
    peer_body_unref(text);
    echo_reply_status(call, 0, "", false);
}

/* Echoes are written: the client may send on. */
static void
more_chat(struct peer_stream *stream)
{
    struct echo_call *call = (struct echo_call *)stream;
    if (!call->uncredited_bytes)
        return;
    peer_stream_credit(stream, call->uncredited_bytes);
    call->uncredited_bytes = 0;
}

void
echo_method_message(struct echo_call *call, struct peer_body *message)
{
    if (call->method == ECHO_UP) {
        take_up(call, message);
    } else if (call->method == ECHO_CHAT) {
        call->stream.more = more_chat;
        echo_reply_stream_message(call, message);
    } else if (call->request) {
        peer_body_unref(message);
        echo_reply_status(call, 12, "Down takes one message", false);
    } else {
        call->request = message;
        start_down(call);
    }
}

void
echo_method_end(struct echo_call *call)
{
    if (call->method == ECHO_UP)
        end_up(call);
    else if (call->method == ECHO_CHAT)
        echo_reply_status(call, 0, "", false);
    else if (!call->request)
        echo_reply_status(call, 12, "Down takes one message", false);
}
