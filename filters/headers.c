/*
 * headers: removes metadata, of requests or of replies, by name.
 *
 *     [filter strip]
 *     type = headers
 *     remove_request = x-internal-user
 *     remove_response = x-debug
 *
 * Setting a request header is the route's own set_header.
 */
#include "filters/filter_types.h"

#include "proxy/call/call.h"
#include "proxy/wire/header_class.h"

enum { KEY_REQUEST, KEY_RESPONSE };

static const struct filter_key KEYS[] = {
    [KEY_REQUEST] = {"remove_request", FILTER_KEY_TEXT, "",
                     "request metadata that does not reach the provider", true},
    [KEY_RESPONSE] = {"remove_response", FILTER_KEY_TEXT, "",
                      "reply metadata that does not reach the client", true},
    {NULL, FILTER_KEY_TEXT, NULL, NULL, false},
};

struct settings {
    struct text *names[2];
    unsigned counts[2];
};

static bool
add_name(struct arena *arena, struct settings *settings, unsigned which, struct text name,
         struct strbuf *error)
{
    char *lower = arena_alloc(arena, name.len);
    for (size_t i = 0; i < name.len; i++)
        lower[i] =
            (char)(name.ptr[i] >= 'A' && name.ptr[i] <= 'Z' ? name.ptr[i] + 32 : name.ptr[i]);
    struct text text = text_make(lower, name.len);
    if (!header_name_valid(text) || header_class_of(text) != HEADER_CUSTOM) {
        strbuf_addf(error, "%.*s is no metadata name", TEXT_ARGS(name));
        return false;
    }
    settings->names[which][settings->counts[which]++] = text;
    return true;
}

static void *
compile(struct arena *arena, const struct filter_value *values, unsigned count,
        struct strbuf *error)
{
    struct settings *settings = arena_alloc(arena, sizeof(*settings));
    memset(settings, 0, sizeof(*settings));
    for (unsigned which = 0; which < 2; which++)
        settings->names[which] = arena_alloc(arena, (count + 1) * sizeof(struct text));
    for (unsigned i = 0; i < count; i++) {
        unsigned which = values[i].key == &KEYS[KEY_REQUEST] ? KEY_REQUEST : KEY_RESPONSE;
        if (values[i].text.len > 0 && !add_name(arena, settings, which, values[i].text, error))
            return NULL;
    }
    return settings;
}

static void
remove_all(const struct settings *settings, unsigned which, struct fields *fields)
{
    for (unsigned i = 0; i < settings->counts[which]; i++)
        fields_remove(fields, settings->names[which][i]);
}

static bool
on_request(struct call *call, void *settings, struct rpc_status *status)
{
    (void)status;
    remove_all(settings, KEY_REQUEST, &call->request.metadata);
    return true;
}

static void
on_response(struct call *call, void *settings)
{
    remove_all(settings, KEY_RESPONSE, &call->reply.metadata);
}

const struct filter_type headers_filter = {
    .name = "headers",
    .help = "removes metadata by name",
    .keys = KEYS,
    .compile = compile,
    .request = on_request,
    .response = on_response,
};
