/*
 * Error bodies and grpc-status-details-bin. The first byte picks HTTP status and dialect. No input
 * is a success, what was read is the same when it is written and read again, and also by way of the
 * protobuf form.
 */
#include "fuzz.h"

#include "proxy/wire/error_json.h"
#include "proxy/wire/percent.h"
#include "proxy/wire/status_proto.h"

static bool
is_utf8(struct arena *arena, struct text text)
{
    return percent_utf8(arena, text).ptr == text.ptr;
}

static void
check_details(const struct rpc_status *a, const struct rpc_status *b)
{
    check(a->detail_count == b->detail_count);
    for (unsigned i = 0; i < a->detail_count; i++) {
        check(text_eq(a->details[i].type_url, b->details[i].type_url));
        check(text_eq(a->details[i].value, b->details[i].value));
    }
}

static void
check_written(struct arena *arena, const struct rpc_status *status)
{
    struct rpc_status again = {.code = 0}, packed = {.code = 0};
    struct text body = error_json_write(arena, status);

    check(error_json_read(arena, body, 500, DIALECT_TRIPLE, &again) == ERROR_JSON_OK);
    check(again.code == status->code && text_eq(again.message, status->message));
    check_details(status, &again);
    check(status_proto_read_details_bin(arena, status_proto_details_bin(arena, status), &packed));
    check_details(status, &packed);
}

static void
read_body(struct arena *arena, const uint8_t *data, size_t size)
{
    static const int http[] = {200, 400, 401, 404, 415, 429, 500, 503};
    enum dialect dialect = data[0] & 8 ? DIALECT_CONNECT : DIALECT_TRIPLE;
    struct rpc_status status;
    enum error_json result =
        error_json_read(arena, text_make(data + 1, size - 1), http[data[0] & 7], dialect, &status);

    check(status.code > RPC_OK && status.code < RPC_CODES);
    check(status.code != RPC_BIZ || dialect == DIALECT_TRIPLE);
    check(is_utf8(arena, status.message));
    check(result != ERROR_JSON_UNREADABLE || (status.message.len == 0 && status.detail_count == 0));
    check_written(arena, &status);
}

/* The same bytes as a field value of the framed form. */
static void
read_details_bin(struct arena *arena, const uint8_t *data, size_t size)
{
    struct rpc_status status = {.code = RPC_UNKNOWN, .message = TEXT("m")}, again = {.code = 0};

    if (!status_proto_read_details_bin(arena, text_make(data, size), &status)) {
        check(status.detail_count == 0 && status.code == RPC_UNKNOWN);
        return;
    }
    for (unsigned i = 0; i < status.detail_count; i++)
        if (!is_utf8(arena, status.details[i].type_url))
            return; /* repaired when written, so not the same */
    check(status_proto_read_details_bin(arena, status_proto_details_bin(arena, &status), &again));
    check_details(&status, &again);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;

    if (size == 0)
        return 0;
    arena_init(&arena, NULL, 0);
    read_body(&arena, data, size);
    read_details_bin(&arena, data + 1, size - 1);
    arena_fini(&arena);
    return 0;
}
