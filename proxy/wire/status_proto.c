/*
 * google.rpc.Status and ErrorInfo by protobuf-c, with the arena as its allocator.
 *
 * Owns the byte form only. Texts go in and out with their lengths (see proto/rpc_status.proto) and
 * are made valid UTF-8 on the way out, because Go's readers refuse a Status whose strings are not.
 * Failure modes: reading refuses what is not base64 or not a Status and then leaves *status alone.
 * Writing has none.
 */
#include "proxy/wire/status_proto.h"

#include "proxy/base/check.h"
#include "proxy/wire/base64.h"
#include "proxy/wire/percent.h"
#include "rpc_status.pb-c.h"

typedef Google__Rpc__Status pb_status;
typedef Google__Rpc__Status__Detail pb_detail;
typedef Google__Rpc__ErrorInfo pb_info;
typedef Google__Rpc__ErrorInfo__Pair pb_pair;

static void *
on_pb_alloc(void *arena, size_t bytes)
{
    return arena_alloc(arena, bytes);
}

static void
on_pb_free(void *arena, void *memory)
{
    (void)arena; /* goes with the arena */
    (void)memory;
}

static ProtobufCBinaryData
bytes_of(struct text text)
{
    return (ProtobufCBinaryData){text.len, (uint8_t *)(uintptr_t)text.ptr};
}

static ProtobufCBinaryData
string_of(struct arena *arena, struct text text)
{
    return bytes_of(percent_utf8(arena, text));
}

static struct text
text_of_bytes(ProtobufCBinaryData bytes)
{
    return text_make(bytes.data, bytes.len);
}

static struct text
pack(struct arena *arena, const ProtobufCMessage *message)
{
    size_t len = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = arena_alloc(arena, len);

    check(protobuf_c_message_pack(message, bytes) == len);
    return text_make(bytes, len);
}

struct text
status_proto_details_bin(struct arena *arena, const struct rpc_status *status)
{
    pb_status packed = GOOGLE__RPC__STATUS__INIT;
    pb_detail *details = arena_alloc(arena, status->detail_count * sizeof(details[0]));
    pb_detail **pointers = arena_alloc(arena, status->detail_count * sizeof(pointers[0]));

    for (unsigned i = 0; i < status->detail_count; i++) {
        details[i] = (pb_detail)GOOGLE__RPC__STATUS__DETAIL__INIT;
        details[i].type_url = string_of(arena, status->details[i].type_url);
        details[i].value = bytes_of(status->details[i].value);
        pointers[i] = &details[i];
    }
    packed.code = status->code;
    packed.message = string_of(arena, status->message);
    packed.details = pointers;
    packed.n_details = status->detail_count;
    return base64_encode(arena, pack(arena, &packed.base));
}

static pb_status *
unpack(struct arena *arena, struct text details_bin)
{
    ProtobufCAllocator allocator = {on_pb_alloc, on_pb_free, arena};
    struct text bytes;

    if (!base64_decode(arena, details_bin, &bytes))
        return NULL;
    return google__rpc__status__unpack(&allocator, bytes.len, (const uint8_t *)bytes.ptr);
}

bool
status_proto_read_details_message(struct arena *arena, struct text details_bin,
                                  struct text *message)
{
    pb_status *packed = unpack(arena, details_bin);

    if (packed == NULL)
        return false;
    *message = text_of_bytes(packed->message);
    return true;
}

bool
status_proto_read_details_bin(struct arena *arena, struct text details_bin,
                              struct rpc_status *status)
{
    pb_status *packed = unpack(arena, details_bin);

    if (packed == NULL)
        return false;

    struct rpc_detail *details = arena_alloc(arena, packed->n_details * sizeof(details[0]));

    for (size_t i = 0; i < packed->n_details; i++) {
        details[i].type_url = text_of_bytes(packed->details[i]->type_url);
        details[i].value = text_of_bytes(packed->details[i]->value);
    }
    status->details = details;
    status->detail_count = (unsigned)packed->n_details;
    return true;
}

struct rpc_detail
status_proto_error_info(struct arena *arena, struct text reason, struct text domain,
                        const struct text *pairs, unsigned pair_count)
{
    pb_info info = GOOGLE__RPC__ERROR_INFO__INIT;
    pb_pair *entries = arena_alloc(arena, pair_count * sizeof(entries[0]));
    pb_pair **pointers = arena_alloc(arena, pair_count * sizeof(pointers[0]));

    for (unsigned i = 0; i < pair_count; i++) {
        entries[i] = (pb_pair)GOOGLE__RPC__ERROR_INFO__PAIR__INIT;
        entries[i].key = string_of(arena, pairs[2 * i]);
        entries[i].value = string_of(arena, pairs[2 * i + 1]);
        pointers[i] = &entries[i];
    }
    info.reason = string_of(arena, reason);
    info.domain = string_of(arena, domain);
    info.metadata = pointers;
    info.n_metadata = pair_count;
    return (struct rpc_detail){TEXT("type.googleapis.com/google.rpc.ErrorInfo"),
                               pack(arena, &info.base)};
}
