/*
 * Request heads towards providers, as design.md ("Headers") orders them, and replies sorted by the
 * meaning of their fields.
 */
#include "upstream/codec_common.h"

/* "/pkg.Service/Method" with another service name. */
static struct text
provider_path(struct call *call)
{
    struct text path = call->request.path, service = call->route->set_service;
    if (service.len == 0)
        return path;
    ptrdiff_t slash = text_find(path, '/', 1);
    struct text method = slash < 0 ? TEXT_NONE : text_from(path, (size_t)slash);
    return arena_printf(&call->arena, "/%.*s%.*s", TEXT_ARGS(service), TEXT_ARGS(method));
}

void
codec_common_pseudo(struct call *call, struct fields *out)
{
    bool tls = call->route->upstream->tls_on;
    struct text authority = call->request.authority;
    fields_add(out, TEXT(":method"), TEXT("POST"), FIELD_STATIC);
    fields_add(out, TEXT(":scheme"), tls ? TEXT("https") : TEXT("http"), FIELD_STATIC);
    fields_add(out, TEXT(":path"), provider_path(call), FIELD_STATIC_NAME);
    fields_add(out, TEXT(":authority"), authority.len > 0 ? authority : call->up_ops->peer(call),
               FIELD_STATIC_NAME);
}

static bool
is_set(const struct route *route, struct text name)
{
    for (unsigned i = 0; i < route->set_header_count; i++)
        if (text_eq(route->set_headers[i].name, name))
            return true;
    return false;
}

static void
add_selector(struct fields *out, struct text name, struct text configured, struct text received)
{
    if (configured.len > 0)
        fields_add(out, name, configured, FIELD_STATIC);
    else if (received.len > 0)
        fields_add(out, name, received, FIELD_STATIC_NAME);
}

void
codec_common_metadata(struct call *call, struct fields *out, bool reserved)
{
    const struct route *route = call->route;
    add_selector(out, TEXT("tri-service-group"), route->set_group, call->request.service_group);
    add_selector(out, TEXT("tri-service-version"), route->set_version,
                 call->request.service_version);
    fields_for_each (field, &call->request.metadata) {
        bool grpc = text_starts(field->name, TEXT("grpc-"));
        if ((grpc && !reserved) || (route->set_header_count > 0 && is_set(route, field->name)))
            continue;
        fields_add(out, field->name, field->value, field->flags);
    }
    for (unsigned i = 0; i < route->set_header_count; i++)
        fields_add(out, route->set_headers[i].name, route->set_headers[i].value, FIELD_STATIC);
}

bool codec_common_passes(enum header_class class)
{
    return class == HEADER_CUSTOM || class == HEADER_TRI_SERVICE_GROUP ||
           class == HEADER_TRI_SERVICE_VERSION || class == HEADER_TRI_STATUS_CODE;
}

int
codec_common_status(const struct fields *head)
{
    struct text value = header_value(head, HEADER_STATUS);
    uint64_t status;
    if (text_eq(value, TEXT("200"))) /* nearly all */
        return 200;
    return text_to_u64(value, &status) && status < 1000 ? (int)status : 0;
}

void
codec_common_http_status(struct call *call, int code, const char *what)
{
    call_set_error(call, (enum rpc_code)code, REASON_HTTP_STATUS, "provider answered HTTP %d %s",
                   call->reply.http_status, what);
    call->reply.status = call->status;
}
