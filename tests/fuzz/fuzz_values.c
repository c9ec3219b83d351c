/* Field values: timeouts, percent-encoding, base64, content types, offers, names. Each on the whole
 * input. */
#include "fuzz.h"

#include "proxy/wire/base64.h"
#include "proxy/wire/content_type.h"
#include "proxy/wire/encoding.h"
#include "proxy/wire/header_class.h"
#include "proxy/wire/percent.h"
#include "proxy/wire/status.h"
#include "proxy/wire/timeout.h"

static void
check_timeouts(struct arena *arena, struct text value)
{
    uint64_t ns, back;

    if (timeout_from_grpc(value, &ns)) {
        check(ns <= INT64_MAX && value.len <= 9);
        check(timeout_from_grpc(timeout_to_grpc(arena, ns), &back) && back >= ns);
    }
    if (timeout_from_ms(value, &ns) != TIMEOUT_MS_BAD) {
        check(ns <= INT64_MAX && value.len <= 10);
        check(timeout_from_ms(timeout_to_ms(arena, ns), &back) == TIMEOUT_MS_OK);
        check(value.len == 0 || back >= ns);
    }
}

static void
check_percent(struct arena *arena, struct text value)
{
    struct text decoded = percent_decode(arena, value), valid = percent_utf8(arena, value);

    check(percent_utf8(arena, decoded).ptr == decoded.ptr);
    for (int plus = 0; plus < 2; plus++) {
        struct text encoded = percent_encode(arena, value, plus);

        check(header_value_valid(encoded) && text_find(encoded, '\t', 0) < 0);
        check(!plus || text_find(encoded, '+', 0) < 0);
        check(text_eq(percent_decode(arena, encoded), valid));
    }
    for (size_t max = 0; max < valid.len + 2 && max < 64; max++) {
        size_t cut = percent_utf8_cut(valid, max);
        struct text part = {valid.ptr, cut};

        check(cut <= max && cut + 3 >= (max < valid.len ? max : valid.len));
        check(percent_utf8(arena, part).ptr == part.ptr);
    }
}

static void
check_base64(struct arena *arena, struct text value)
{
    struct text encoded = base64_encode(arena, value), bytes, again;

    check(base64_decode(arena, encoded, &bytes) && text_eq(bytes, value));
    if (base64_decode(arena, value, &bytes)) {
        encoded = base64_encode(arena, bytes);
        check(encoded.len <= value.len && base64_decode(arena, encoded, &again));
        check(text_eq(bytes, again));
    }
}

static void
check_content_type(struct arena *arena, struct text value)
{
    struct content_type type = content_type_parse(arena, value), again;

    check((type.kind == CONTENT_ABSENT) == (value.len == 0));
    check((type.codec.len > 0) == (type.kind == CONTENT_GRPC || type.kind == CONTENT_BARE));
    if (type.codec.len == 0)
        return;
    check(header_name_valid(type.codec));
    again = content_type_parse(arena, content_type_framed(arena, type.codec));
    check(again.kind == CONTENT_GRPC && text_eq(again.codec, type.codec));
    if (type.kind == CONTENT_BARE) {
        again = content_type_parse(arena, content_type_bare(arena, type.codec));
        check(again.kind == CONTENT_BARE && text_eq(again.codec, type.codec) && !again.charset);
    }
}

static void
check_names(struct text value)
{
    int code = status_from_field(value);

    check(code >= -1 && code <= 999);
    check(header_class_of(value) <= HEADER_PSEUDO_OTHER);
    check(!header_name_valid(value) || header_value_valid(value));
    code = status_from_json_name(value, DIALECT_TRIPLE);
    check(code == -1 || text_eq(status_json_name(code), value));
    check(code != RPC_OK);
    encoding_offered(value, TEXT("gzip"));
    check(encoding_of(value) != ENCODING_GZIP || encoding_offered(value, TEXT("gzip")));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct text value = text_make(data, size);
    struct arena arena;

    arena_init(&arena, NULL, 0);
    check_timeouts(&arena, value);
    check_percent(&arena, value);
    check_base64(&arena, value);
    check_content_type(&arena, value);
    check_names(value);
    arena_fini(&arena);
    return 0;
}
