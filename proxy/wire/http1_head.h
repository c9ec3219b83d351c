/* Private to http1_reader.c: one line of a head or trailer at a time, and what the finished head
 * says about the body. */
#ifndef TRIBUTARY_WIRE_HTTP1_HEAD_H
#define TRIBUTARY_WIRE_HTTP1_HEAD_H

#include "proxy/wire/http1.h"

/*
 * Each takes a line without its CRLF, copies what it keeps into the reader's arena, and returns
 * true; or false with reader->error and error_status set.
 */
bool http1_head_start(struct http1_reader *reader, struct text line);
bool http1_head_field(struct http1_reader *reader, struct text line);
bool http1_head_trailer(struct http1_reader *reader, struct text line);
/* After the last field: checks what fields say together, sets content_length, chunked, until_close,
 * keep_alive. */
bool http1_head_finish(struct http1_reader *reader);
/* Sets the error; always false. */
bool http1_head_refuse(struct http1_reader *reader, int status, const char *error);
/* Whether a start line may begin with this byte; a TLS hello and other noise is told at once. */
bool http1_head_can_start(enum http1_role role, uint8_t byte);

#endif
