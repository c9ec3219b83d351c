/*
 * What each header name means to a proxy, found by one table look-up (perfect hash or switch on
 * length): which fields never pass (hop-by-hop, RFC 9113 section 8.2.2), which belong to a protocol
 * and are translated, and which are custom metadata.
 */
#ifndef TRIBUTARY_WIRE_HEADER_CLASS_H
#define TRIBUTARY_WIRE_HEADER_CLASS_H

#include <stdbool.h>

#include "proxy/base/fields.h"

enum header_class {
    HEADER_CUSTOM = 0, /* metadata: passes */
    HEADER_HOP, /* connection, keep-alive, proxy-connection, transfer-encoding, upgrade; never
                   passes */
    HEADER_TE,
    HEADER_HOST,
    HEADER_CONTENT_TYPE,
    HEADER_CONTENT_LENGTH,
    HEADER_CONTENT_ENCODING,
    HEADER_ACCEPT_ENCODING,
    HEADER_EXPECT,
    HEADER_TRAILER, /* the "trailer" announcement field */
    HEADER_GRPC_TIMEOUT,
    HEADER_GRPC_ENCODING,
    HEADER_GRPC_ACCEPT_ENCODING,
    HEADER_GRPC_STATUS,
    HEADER_GRPC_MESSAGE,
    HEADER_GRPC_STATUS_DETAILS,
    HEADER_GRPC_OTHER,     /* grpc-foo: reserved. (grpc-trace-bin, grpc-tags-bin and
                              grpc-previous-rpc-attempts are here too) */
    HEADER_TRIPLE_VERSION, /* triple-protocol-version */
    HEADER_TRIPLE_TIMEOUT, /* triple-timeout-ms */
    HEADER_CONNECT_VERSION,
    HEADER_CONNECT_TIMEOUT,
    HEADER_TRI_SERVICE_GROUP,
    HEADER_TRI_SERVICE_VERSION,
    HEADER_TRI_STATUS_CODE,  /* tri-status-code: our own trailer that keeps code 17 */
    HEADER_TRAILER_PREFIXED, /* "trailer-NAME" with a non-empty NAME: a trailer of the bare form */
    HEADER_TRAILER_EMPTY,    /* "trailer-" */
    HEADER_ACCEPT,
    HEADER_USER_AGENT,        /* passes like metadata */
    HEADER_DATE_SERVER_NOISE, /* alt-svc, accept-post, date, server, allow: replies only, not
                                 metadata */
    /* Pseudo-header fields, RFC 9113 section 8.3: from here on. */
    HEADER_METHOD,
    HEADER_SCHEME,
    HEADER_PATH,
    HEADER_AUTHORITY,
    HEADER_STATUS,
    HEADER_PSEUDO_OTHER, /* any other that starts with ':' */
};

static inline bool header_is_pseudo(enum header_class class)
{
    return class >= HEADER_METHOD;
}

/* name in lower case. */
enum header_class header_class_of(struct text name);
/* Of a field's name; a transport may have left the answer in it. */
static inline enum header_class
header_class_of_field(const struct field *field)
{
    return field->kind ? (enum header_class)(field->kind - 1) : header_class_of(field->name);
}
/* Leaves it there. */
static inline void
header_class_keep(struct field *field, enum header_class class)
{
    field->kind = (uint8_t)(class + 1);
}

static inline bool
header_is(const struct field *field, enum header_class class)
{
    return field->kind ? field->kind == class + 1 : header_class_of(field->name) == class;
}

/* The first field of that class, which must be one name's; NULL: none. */
static inline const struct field *
header_find(const struct fields *fields, enum header_class class)
{
    fields_for_each (field, fields)
        if (header_is(field, class))
            return field;
    return NULL;
}
/* Its value, or TEXT_NONE. */
static inline struct text
header_value(const struct fields *fields, enum header_class class)
{
    const struct field *field = header_find(fields, class);
    return field ? field->value : TEXT_NONE;
}
/* How often it stands there. */
static inline unsigned
header_count(const struct fields *fields, enum header_class class)
{
    unsigned count = 0;
    fields_for_each (field, fields)
        count += header_is(field, class);
    return count;
}

/* A legal field name for metadata (lower-case token, RFC 9110) / value (visible ASCII, spaces,
 * tabs, obs-text; no CR LF NUL). */
bool header_name_valid(struct text name);
bool header_value_valid(struct text value);
/* A token of RFC 9110 section 5.6.2 (a method). */
bool header_token_valid(struct text token);
/* No space, no control character: what a request target may be made of. */
bool header_visible(struct text text);

#endif
