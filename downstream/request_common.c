/*
 * Reading what gRPC and Triple requests have in common. Owns no state; views into the request head.
 */
#include "downstream/request_common.h"

bool request_common_passes(enum header_class class)
{
    return class == HEADER_CUSTOM || class == HEADER_USER_AGENT || class == HEADER_TRI_STATUS_CODE;
}

struct text
request_common_path(struct text target)
{
    ptrdiff_t query = text_find(target, '?', 0);
    return query < 0 ? target : text_make(target.ptr, (size_t)query);
}

/* The transport has checked that it is a number and agrees with the body. */
static void
read_length(struct call *call, struct text value)
{
    uint64_t length;
    if (text_to_u64(value, &length) && length <= INT64_MAX)
        call->request.content_length = (int64_t)length;
}

bool
request_common_read(struct call *call, bool (*special)(struct call *call, enum header_class class,
                                                       const struct field *field))
{
    struct call_request *request = &call->request;
    fields_for_each (field, &request->head) {
        enum header_class class = header_class_of_field(field);
        switch (class) {
        case HEADER_METHOD:
        case HEADER_SCHEME:
        case HEADER_STATUS:
        case HEADER_PSEUDO_OTHER:
        case HEADER_CONTENT_TYPE: /* it chose the codec that asks */
            break;
        case HEADER_PATH:
            request->path = request_common_path(field->value);
            break;
        case HEADER_AUTHORITY:
            request->authority = field->value;
            break;
        case HEADER_HOST:
            if (request->authority.len == 0)
                request->authority = field->value;
            break;
        case HEADER_CONTENT_LENGTH:
            read_length(call, field->value);
            break;
        case HEADER_TRI_SERVICE_GROUP:
            request->service_group = field->value;
            break;
        case HEADER_TRI_SERVICE_VERSION:
            request->service_version = field->value;
            break;
        default:
            if (request_common_passes(class))
                fields_add(&request->metadata, field->name, field->value, field->flags);
            else if (!special(call, class, field))
                return false;
        }
    }
    return true;
}
