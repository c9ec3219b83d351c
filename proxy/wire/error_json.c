/*
 * Error bodies of the bare form, by jansson.
 *
 * Owns the reading of what a provider, a REST layer or a middlebox sends as an error, and the
 * writing of ours. Does not own what follows from the kind (refusal and fallback are the codec's),
 * nor code 17's translation. Happy path: object with a known code, a message, details whose bytes
 * stay opaque; everything is copied into the arena and jansson's tree is gone on return. Failure
 * modes: every body has an answer, and none of them is RPC_OK. Too long is over
 * ERROR_JSON_MAX_BYTES.
 */
#include "proxy/wire/error_json.h"

#include <jansson.h>

#include "proxy/base/check.h"
#include "proxy/base/strbuf.h"
#include "proxy/wire/base64.h"
#include "proxy/wire/percent.h"

#define TYPE_PREFIX "type.googleapis.com/"

/* A view of a string member's text, in jansson's tree; TEXT_NONE for anything else. */
static struct text
string_view(const json_t *value)
{
    if (!json_is_string(value))
        return TEXT_NONE;
    return text_make(json_string_value(value), json_string_length(value));
}

static struct text
type_url_of(struct arena *arena, struct text type)
{
    if (text_find(type, '/', 0) >= 0)
        return arena_copy(arena, type);

    char *url = arena_alloc(arena, sizeof(TYPE_PREFIX) - 1 + type.len);

    memcpy(url, TYPE_PREFIX, sizeof(TYPE_PREFIX) - 1);
    memcpy(url + sizeof(TYPE_PREFIX) - 1, type.ptr, type.len);
    return text_make(url, sizeof(TYPE_PREFIX) - 1 + type.len);
}

/* False: the detail can't be used. A value that is not there is an empty message, as Go's reader
 * takes it. */
static bool
detail_read(struct arena *arena, const json_t *item, struct rpc_detail *detail)
{
    const json_t *value = json_object_get(item, "value");
    struct text type = string_view(json_object_get(item, "type"));

    if (type.len == 0 || (value != NULL && !json_is_string(value)))
        return false;
    if (!base64_decode(arena, string_view(value), &detail->value))
        return false;
    detail->type_url = type_url_of(arena, type);
    return true;
}

static void
details_read(struct arena *arena, const json_t *array, struct rpc_status *status)
{
    size_t most = json_array_size(array); /* 0 for anything but an array */
    struct rpc_detail *details;
    unsigned count = 0;

    if (most == 0)
        return;
    details = arena_alloc(arena, most * sizeof(details[0]));
    for (size_t i = 0; i < most; i++)
        if (detail_read(arena, json_array_get(array, i), &details[count]))
            count++;
    status->details = details;
    status->detail_count = count;
}

static enum error_json
object_read(struct arena *arena, const json_t *object, enum dialect dialect,
            struct rpc_status *status)
{
    const json_t *code = json_object_get(object, "code");
    int known = status_from_json_name(string_view(code), dialect);

    status->message = arena_copy(arena, string_view(json_object_get(object, "message")));
    details_read(arena, json_object_get(object, "details"), status);
    if (code == NULL || json_is_null(code))
        return ERROR_JSON_NO_CODE;
    if (known < 0)
        return ERROR_JSON_BAD_CODE;
    status->code = known;
    return ERROR_JSON_OK;
}

enum error_json
error_json_read(struct arena *arena, struct text body, int http_status, enum dialect dialect,
                struct rpc_status *status)
{
    /* Members that nobody reads must not make the rest unreadable: NULs and large integers are let
     * through. */
    const size_t flags = JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL;
    enum error_json result = ERROR_JSON_UNREADABLE;
    json_t *root;

    *status = (struct rpc_status){.code = status_from_http(http_status, dialect)};
    if (body.len == 0 || body.len > ERROR_JSON_MAX_BYTES)
        return result;
    root = json_loadb(body.ptr, body.len, flags, NULL);
    if (json_is_object(root))
        result = object_read(arena, root, dialect, status);
    json_decref(root);
    return result;
}

static json_t *
json_text(struct arena *arena, struct text text)
{
    text = percent_utf8(arena, text); /* jansson refuses anything else */

    json_t *string = json_stringn(text.len ? text.ptr : "", text.len);

    check(string != NULL);
    return string;
}

/* The bare name where a reader puts the same prefix back; else the whole URL. */
static struct text
type_name_of(struct text url)
{
    struct text name = text_from(url, sizeof(TYPE_PREFIX) - 1);

    if (text_starts(url, TEXT(TYPE_PREFIX)) && name.len > 0 && text_find(name, '/', 0) < 0)
        return name;
    return url;
}

static json_t *
detail_write(struct arena *arena, const struct rpc_detail *detail)
{
    json_t *object = json_object();
    struct text type = type_name_of(detail->type_url);

    check(json_object_set_new(object, "type", json_text(arena, type)) == 0);
    check(json_object_set_new(object, "value",
                              json_text(arena, base64_encode(arena, detail->value))) == 0);
    return object;
}

static json_t *
status_write(struct arena *arena, const struct rpc_status *status)
{
    json_t *object = json_object();

    check(json_object_set_new(object, "code", json_text(arena, status_json_name(status->code))) ==
          0);
    if (status->message.len > 0)
        check(json_object_set_new(object, "message", json_text(arena, status->message)) == 0);
    if (status->detail_count > 0) {
        json_t *details = json_array();

        for (unsigned i = 0; i < status->detail_count; i++)
            check(json_array_append_new(details, detail_write(arena, &status->details[i])) == 0);
        check(json_object_set_new(object, "details", details) == 0);
    }
    return object;
}

static int
on_json_bytes(const char *bytes, size_t len, void *buffer)
{
    strbuf_add(buffer, bytes, len);
    return 0;
}

struct text
error_json_write(struct arena *arena, const struct rpc_status *status)
{
    struct strbuf buffer = STRBUF_INIT;
    json_t *object = status_write(arena, status);
    struct text body;

    check(json_dump_callback(object, on_json_bytes, &buffer, JSON_COMPACT) == 0);
    json_decref(object);
    body = arena_copy(arena, strbuf_text(&buffer));
    strbuf_fini(&buffer);
    return body;
}
