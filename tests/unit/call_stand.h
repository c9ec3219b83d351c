/*
 * A fabricated call for tests of codecs: a snapshot with one route and one upstream, no loop, no
 * ends. Heads are written and compared as text, "name: value" a line.
 */
#ifndef TRIBUTARY_TESTS_UNIT_CALL_STAND_H
#define TRIBUTARY_TESTS_UNIT_CALL_STAND_H

#include "unit.h"

#include "proxy/call/call.h"

extern struct call *stand_call;  /* made by stand_setup() */
extern struct route stand_route; /* its route; change it before the codec is called */
extern struct upstream_conf stand_upstream;
extern const char *const stand_peer; /* the endpoint's address */

int
stand_setup(void **state); /* cmocka setup: a new call, gRPC, unrouted values at their defaults */
int stand_teardown(void **state);

/* Adds "name: value" lines. */
void stand_add(struct fields *fields, const char *lines);
/* The request's head, read by a server codec: what it says. */
bool stand_read_request(const struct codec *codec, const char *lines);
/* The reply's head and (NULL: none) body and trailers, read by a client codec to the end. */
void stand_read_reply(const struct codec *codec, const char *head, const char *body,
                      const char *trailers);
/* As lines; valid until the next call. */
const char *stand_lines(const struct fields *fields);
const char *stand_request(const struct codec *codec);               /* write_request */
const char *stand_head(const struct codec *codec);                  /* write_head */
const char *stand_end(const struct codec *codec, bool head_is_out); /* write_end */

#define STAND_TEST(name) cmocka_unit_test_setup_teardown(name, stand_setup, stand_teardown)

#endif
