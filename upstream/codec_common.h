/*
 * What the client codecs share: the request fields that mean the same in every form, and the
 * sorting of reply fields.
 */
#ifndef TRIBUTARY_UPSTREAM_CODEC_COMMON_H
#define TRIBUTARY_UPSTREAM_CODEC_COMMON_H

#include "proxy/call/call.h"
#include "proxy/wire/header_class.h"

/* :method, :scheme, :path (service replaced by set_service), :authority (as the client sent it,
 * else the endpoint). */
void codec_common_pseudo(struct call *call, struct fields *out);
/* tri-service-*, custom metadata in the client's order, set_header. reserved: fields of grpc- names
 * pass (framed form only). */
void codec_common_metadata(struct call *call, struct fields *out, bool reserved);
/* Whether this reply field reaches the client as metadata. */
bool codec_common_passes(enum header_class class);
int codec_common_status(const struct fields *head); /* ":status"; 0 when it cannot be read */
/* A status for a reply that is no protocol's: code by table, a message of our own (the page's bytes
 * never pass). */
void codec_common_http_status(struct call *call, int code, const char *what);

#endif
