/*
 * The rules for HTTP messages in HTTP/2: RFC 9113 sections 8.1 to 8.3, and RFC 9110 for what a
 * name, a value, a method may look like.
 *
 * Happy path: h2_message_take() for each field of a block, h2_message_head() behind the head,
 * h2_message_data() for each piece of body, h2_message_whole() at the end. Failure modes: false;
 * nothing is remembered of it here.
 */
#include "proxy/net/h2_message.h"

enum { CONTINUE = 100, SWITCHING_PROTOCOLS = 101, NO_CONTENT = 204, NOT_MODIFIED = 304 };

/* --- values --- */

static bool
is_alpha(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

static bool
is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

/* RFC 3986 section 3.1. */
static bool
is_scheme(struct text value)
{
    for (size_t i = 0; i < value.len; i++)
        if (!is_alpha(value.ptr[i]) &&
            (i == 0 || (!is_digit(value.ptr[i]) && !memchr("+-.", value.ptr[i], 3))))
            return false;
    return true;
}

/* RFC 3986 section 3.2: what host, port and userinfo are made of. */
static bool
is_authority(struct text value)
{
    static const bool allowed[256] = {
        ['!'] = 1, ['$'] = 1, ['%'] = 1,         ['&'] = 1,         ['\''] = 1,        ['('] = 1,
        [')'] = 1, ['*'] = 1, ['+'] = 1,         [','] = 1,         ['-'] = 1,         ['.'] = 1,
        [':'] = 1, [';'] = 1, ['='] = 1,         ['@'] = 1,         ['['] = 1,         [']'] = 1,
        ['_'] = 1, ['~'] = 1, ['0' ... '9'] = 1, ['A' ... 'Z'] = 1, ['a' ... 'z'] = 1,
    };
    for (size_t i = 0; i < value.len; i++)
        if (!allowed[(uint8_t)value.ptr[i]])
            return false;
    return true;
}

static bool
is_space(char byte)
{
    return byte == ' ' || byte == '\t';
}

/* RFC 9113 section 8.2.1: no space at either end. */
static bool
is_value(struct text value)
{
    return value.len == 0 || (!is_space(value.ptr[0]) && !is_space(value.ptr[value.len - 1]) &&
                              header_value_valid(value));
}

/* --- pseudo-header fields --- */

static bool
take_method(struct h2_message *message, const struct h2_message_field *field)
{
    if (text_eq(field->value, TEXT("CONNECT")))
        message->seen |= H2_SEEN_CONNECT;
    else if (text_eq(field->value, TEXT("OPTIONS")))
        message->seen |= H2_SEEN_OPTIONS;
    return field->constant_value || header_token_valid(field->value);
}

static bool
take_path(struct h2_message *message, struct text value)
{
    if (text_eq(value, TEXT("*")))
        message->seen |= H2_SEEN_ASTERISK;
    else if (value.ptr[0] != '/')
        return false;
    return header_visible(value);
}

/* Whether it is the first of its kind, and says something. */
static bool
is_first(struct h2_message *message, enum h2_seen kind, struct text value)
{
    bool first = !(message->seen & kind);
    message->seen |= kind;
    return first && value.len > 0;
}

static bool
take_request_pseudo(struct h2_message *message, const struct h2_message_field *field)
{
    struct text value = field->value;
    switch (field->class) {
    case HEADER_PATH:
        return is_first(message, H2_SEEN_PATH, value) && take_path(message, value);
    case HEADER_METHOD:
        return is_first(message, H2_SEEN_METHOD, value) && take_method(message, field);
    case HEADER_SCHEME:
        return is_first(message, H2_SEEN_SCHEME, value) &&
               (field->constant_value || is_scheme(value));
    case HEADER_AUTHORITY:
        return is_first(message, H2_SEEN_AUTHORITY, value) && is_authority(value);
    default:
        return false;
    }
}

static bool
take_status(struct h2_message *message, const struct h2_message_field *field)
{
    const char *digit = field->value.ptr;
    if (message->status || field->value.len != 3 || field->class != HEADER_STATUS)
        return false;
    if (!is_digit(digit[0]) || !is_digit(digit[1]) || !is_digit(digit[2]))
        return false;
    message->status = (uint16_t)((digit[0] - '0') * 100 + (digit[1] - '0') * 10 + (digit[2] - '0'));
    return message->status >= CONTINUE && message->status != SWITCHING_PROTOCOLS;
}

static bool
take_pseudo(struct h2_message *message, enum h2_message_block block,
            const struct h2_message_field *field)
{
    if (message->seen & H2_SEEN_REGULAR)
        return false;
    switch (block) {
    case H2_MESSAGE_REQUEST:
        return take_request_pseudo(message, field);
    case H2_MESSAGE_RESPONSE:
        return take_status(message, field);
    default: /* trailers: RFC 9113 section 8.1 */
        return false;
    }
}

/* --- the others --- */

static bool
take_length(struct h2_message *message, struct text value)
{
    return is_first(message, H2_SEEN_LENGTH, value) && text_to_u64(value, &message->length) &&
           message->length <= INT64_MAX;
}

static bool
take_regular(struct h2_message *message, enum h2_message_block block,
             const struct h2_message_field *field)
{
    message->seen |= H2_SEEN_REGULAR;
    switch (field->class) {
    case HEADER_HOP:
        return false;
    case HEADER_TE:
        return text_eq_nocase(field->value, TEXT("trailers"));
    case HEADER_CONTENT_LENGTH:
        return take_length(message, field->value);
    case HEADER_HOST:
        if (block == H2_MESSAGE_REQUEST)
            return is_first(message, H2_SEEN_HOST, field->value) && is_authority(field->value);
        break;
    case HEADER_CUSTOM:
    case HEADER_GRPC_OTHER:
    case HEADER_TRAILER_PREFIXED:
        if (!field->constant_name && !header_name_valid(field->name))
            return false;
        break;
    case HEADER_GRPC_MESSAGE: /* dubbo-java sends it raw, with line feeds: the call keeps its status
                               */
        if (block == H2_MESSAGE_RESPONSE || block == H2_MESSAGE_RESPONSE_TRAILERS)
            return true;
        break;
    default: /* names that are known to be well-formed */
        break;
    }
    return field->constant_value || is_value(field->value);
}

bool
h2_message_take(struct h2_message *message, enum h2_message_block block,
                const struct h2_message_field *field)
{
    return header_is_pseudo(field->class) ? take_pseudo(message, block, field)
                                          : take_regular(message, block, field);
}

/* --- the whole --- */

/* RFC 9113 sections 8.3.1 and 8.5. */
static bool
request_head(const struct h2_message *message)
{
    const uint16_t seen = message->seen, target = H2_SEEN_SCHEME | H2_SEEN_PATH,
                   all = target | H2_SEEN_METHOD;
    if (seen & H2_SEEN_CONNECT)
        return !(seen & target) && (seen & H2_SEEN_AUTHORITY);
    if ((seen & H2_SEEN_ASTERISK) && !(seen & H2_SEEN_OPTIONS))
        return false;
    return (seen & all) == all && (seen & (H2_SEEN_AUTHORITY | H2_SEEN_HOST));
}

/* Replies without content whatever their length says (RFC 9110 section 6.4.1); to HEAD there is
 * none here. */
static bool
response_head(struct h2_message *message)
{
    if (message->status == NO_CONTENT || message->status == NOT_MODIFIED) {
        message->seen |= H2_SEEN_LENGTH;
        message->length = 0;
    }
    return message->status > 0;
}

bool
h2_message_head(struct h2_message *message, enum h2_message_block block)
{
    return block == H2_MESSAGE_REQUEST ? request_head(message) : response_head(message);
}

void
h2_message_interim(struct h2_message *message)
{
    *message = (struct h2_message){0};
}

bool
h2_message_data(struct h2_message *message, uint64_t bytes)
{
    message->received += bytes;
    return !(message->seen & H2_SEEN_LENGTH) || message->received <= message->length;
}

bool
h2_message_whole(const struct h2_message *message)
{
    return !(message->seen & H2_SEEN_LENGTH) || message->received == message->length;
}
