/*
 * Content types of requests and replies: which wire form and which message codec they name.
 * application/grpc, application/grpc+X (framed), application/X with X in proto, json, hessian2,
 * msgpack, … (bare).
 */
#ifndef TRIBUTARY_WIRE_CONTENT_TYPE_H
#define TRIBUTARY_WIRE_CONTENT_TYPE_H

#include "proxy/base/arena.h"

enum content_kind {
    CONTENT_GRPC,  /* framed; codec "proto" when there is no suffix */
    CONTENT_BARE,  /* application/X with a codec we may take as Triple unary */
    CONTENT_OTHER, /* text/html, application/grpc-web, application/grpcfoo, … */
    CONTENT_ABSENT,
};

struct content_type {
    enum content_kind kind;
    struct text codec; /* "proto", "json", "hessian2", … lower case; view into value, a constant or
                          the arena */
    bool charset;      /* had parameters (dubbo-go refuses them on proto) */
};

/* Case-insensitive, parameters ignored. Bare codecs: any application/token that is not grpc*, and
 * not one of the types no RPC uses (octet-stream, x-www-form-urlencoded, xml, javascript, pdf, zip
 * …). */
struct content_type content_type_parse(struct arena *arena, struct text value);
/* "application/grpc+json" ("application/grpc" for proto) / "application/json". Constants for known
 * codecs. */
struct text content_type_framed(struct arena *arena, struct text codec);
struct text content_type_bare(struct arena *arena, struct text codec);

#endif
