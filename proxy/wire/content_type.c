/*
 * Content types to (wire form, codec) and back.
 *
 * Owns the list of what is taken for a message codec. Does not own what happens to other types
 * (415, an error page). Happy path: the handful of types that peers really send are compared as
 * they are; everything else takes the general way: cut parameters, check the token, lower-case it
 * in the arena only where needed.
 */
#include "proxy/wire/content_type.h"

#define APPLICATION "application/"
#define GRPC "application/grpc"

/* Codecs whose content types are constants. */
static const struct {
    struct text codec, framed, bare;
} known[] = {
    {TEXT("proto"), TEXT(GRPC), TEXT(APPLICATION "proto")},
    {TEXT("json"), TEXT(GRPC "+json"), TEXT(APPLICATION "json")},
    {TEXT("hessian2"), TEXT(GRPC "+hessian2"), TEXT(APPLICATION "hessian2")},
    {TEXT("msgpack"), TEXT(GRPC "+msgpack"), TEXT(APPLICATION "msgpack")},
    {TEXT("thrift"), TEXT(GRPC "+thrift"), TEXT(APPLICATION "thrift")},
};

enum { KNOWN = sizeof(known) / sizeof(known[0]) };

/* Types under application/ that are files, forms or pages, never an RPC message. */
static const struct text foreign[] = {
    TEXT("octet-stream"), TEXT("x-www-form-urlencoded"),
    TEXT("xml"),          TEXT("javascript"),
    TEXT("x-javascript"), TEXT("ecmascript"),
    TEXT("pdf"),          TEXT("zip"),
    TEXT("gzip"),         TEXT("x-gzip"),
    TEXT("x-tar"),        TEXT("wasm"),
    TEXT("rtf"),          TEXT("postscript"),
    TEXT("msword"),       TEXT("yaml"),
    TEXT("x-yaml"),       TEXT("graphql"),
    TEXT("x-ndjson"),
};

static bool
is_foreign(struct text codec)
{
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
        if (text_eq(foreign[i], codec))
            return true;
    return false;
}

/* A byte of an RFC 9110 token, letters in either case. */
static bool
is_token_byte(char byte)
{
    if ((byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
        (byte >= '0' && byte <= '9'))
        return true;
    return byte != '\0' && strchr("!#$%&'*+-.^_`|~", byte) != NULL;
}

static bool
is_token(struct text text)
{
    for (size_t i = 0; i < text.len; i++)
        if (!is_token_byte(text.ptr[i]))
            return false;
    return text.len > 0;
}

/* The text itself when it has no capital, else a lower-case copy. */
static struct text
lower(struct arena *arena, struct text text)
{
    size_t i = 0;

    while (i < text.len && !(text.ptr[i] >= 'A' && text.ptr[i] <= 'Z'))
        i++;
    if (i == text.len)
        return text;

    char *copy = arena_alloc(arena, text.len);

    for (i = 0; i < text.len; i++) {
        char byte = text.ptr[i];

        copy[i] = byte >= 'A' && byte <= 'Z' ? (char)(byte + 'a' - 'A') : byte;
    }
    return text_make(copy, text.len);
}

/* What stands behind "application/", lower-cased, without parameters. */
static struct content_type
subtype_parse(struct text subtype)
{
    const struct text grpc = TEXT("grpc");
    struct content_type type = {.kind = CONTENT_OTHER};

    if (!text_starts(subtype, grpc)) {
        /* A '+' names a structure inside another type: problem+json is an error page, connect+proto
         * a stream. */
        if (is_foreign(subtype) || text_find(subtype, '+', 0) >= 0)
            return type;
        type.kind = CONTENT_BARE;
        type.codec = subtype;
    } else if (subtype.len == grpc.len) {
        type.kind = CONTENT_GRPC;
        type.codec = known[0].codec;
    } else if (subtype.ptr[grpc.len] == '+' && subtype.len > grpc.len + 1) {
        type.kind = CONTENT_GRPC;
        type.codec = text_from(subtype, grpc.len + 1);
    }
    return type;
}

static struct content_type
general_parse(struct arena *arena, struct text value)
{
    struct content_type type = {.kind = CONTENT_OTHER};
    ptrdiff_t parameters = text_find(value, ';', 0);
    struct text essence = value;

    if (parameters >= 0)
        essence.len = (size_t)parameters;
    essence = text_trim(essence);
    if (text_starts_nocase(essence, TEXT(APPLICATION))) {
        struct text subtype = text_from(essence, sizeof(APPLICATION) - 1);

        if (is_token(subtype))
            type = subtype_parse(lower(arena, subtype));
    }
    type.charset = parameters >= 0;
    return type;
}

struct content_type
content_type_parse(struct arena *arena, struct text value)
{
    if (value.len == 0)
        return (struct content_type){.kind = CONTENT_ABSENT};
    for (int i = 0; i < KNOWN; i++) {
        if (text_eq(value, known[i].framed))
            return (struct content_type){.kind = CONTENT_GRPC, .codec = known[i].codec};
        if (text_eq(value, known[i].bare))
            return (struct content_type){.kind = CONTENT_BARE, .codec = known[i].codec};
    }
    return general_parse(arena, value);
}

struct text
content_type_framed(struct arena *arena, struct text codec)
{
    for (int i = 0; i < KNOWN; i++)
        if (text_eq(known[i].codec, codec))
            return known[i].framed;
    return arena_printf(arena, GRPC "+%.*s", TEXT_ARGS(codec));
}

struct text
content_type_bare(struct arena *arena, struct text codec)
{
    for (int i = 0; i < KNOWN; i++)
        if (text_eq(known[i].codec, codec))
            return known[i].bare;
    return arena_printf(arena, APPLICATION "%.*s", TEXT_ARGS(codec));
}
