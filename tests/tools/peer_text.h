/*
 * Text of the protocols, for peers: status codes and their names, JSON and base64 writing,
 * grpc-message escaping, timeouts. Pure functions, no I/O.
 */
#ifndef TOOLS_PEER_TEXT_H
#define TOOLS_PEER_TEXT_H

#include "peer_bytes.h"

#define PEER_CODE_BUSINESS 17 /* Triple's own: any plain error of a handler */

/* The Triple name ("not_found", "code_17") and HTTP status of a code; unknown ones read as 2. */
const char *peer_code_name(int code);
int peer_code_http(int code);
/* The code of a Triple name; -1 for none. */
int peer_code_of_name(const char *name, size_t len);

/* Printf that appends. */
struct peer_body *
peer_text_add(struct peer_body *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends a JSON string, quotes included. */
struct peer_body *peer_text_json(struct peer_body *out, const char *text, size_t len);
/* Appends standard base64 without padding. */
struct peer_body *peer_text_base64(struct peer_body *out, const uint8_t *data, size_t len);
/* Appends a grpc-message: percent-encoded outside printable ASCII, and '%'. */
struct peer_body *peer_text_percent(struct peer_body *out, const char *text, size_t len);

/* Milliseconds of a grpc-timeout value, rounded up; -1 when it is none. */
int64_t peer_text_grpc_timeout_ms(const char *text, size_t len);

/* Decimal digits as a number; -1 when it is none or has more than 18 of them. */
long peer_text_number_of(const uint8_t *text, size_t len);

/* Finds "name=" as a word in text of words "name=value name=value"; copies the value up to the
 * next space (to the end of text when to_end). False when absent. */
bool peer_text_option(const char *text, size_t len, const char *name, bool to_end, char *value,
                      size_t value_cap);
/* The same as a number, fallback when absent or no number. */
long peer_text_number(const char *text, size_t len, const char *name, long fallback);

#endif
