/*
 * A worker with a loop, and a call between two fake ends that write down what is asked of them.
 *
 * The story is text, a word a request: "pick open head(bare) body(hi) end" are the upstream's,
 * "HEAD BODY(hi) END(0)" the downstream's, so that the order between the two sides shows.
 */
#ifndef TESTS_LOOP_CALL_LAB_H
#define TESTS_LOOP_CALL_LAB_H

#include "loop_fixture.h"

#include "proxy/call/call.h"
#include "proxy/call/filter.h"

struct call_lab {
    uv_loop_t loop;
    uv_timer_t tick;
    struct budget budget;
    struct stats stats;
    struct worker worker;
    struct snapshot *snapshot;
    struct route route; /* snapshot memory: change it before lab_start() */
    struct upstream_conf upstream;
    const struct filter_type *filters[2];
    void *filter_settings[2];
    struct call *call;
    char story[4096];
    /* what the fake upstream does */
    struct upstream_facts facts;
    bool no_endpoint; /* pick finds none */
    bool wait;        /* open does not grant: the test calls call_upstream_granted() */
    /* what the fake client codec reads */
    enum body_form reply_form;
    int http_status, code;
    bool body_is_error, has_code, ends_with_head;
    enum call_refusal refusal;
    int64_t reply_length;
    uint64_t down_credit, up_credit; /* window returned so far, in bytes */
};

extern struct call_lab lab;

int lab_setup(void **state);    /* a loop, a route with call = unary, a call in its first phase */
int lab_teardown(void **state); /* everything is back, the call has ended: no chunk, no handle */

/* The head is read: PROTOCOL_GRPC or (bare) PROTOCOL_TRIPLE. timeout_ms 0: none. */
void lab_start(enum call_protocol protocol, unsigned timeout_ms);
void lab_send(const char *payload); /* a gRPC message from the client */
void lab_send_bytes(const void *bytes, size_t len);
void lab_end(void);                         /* the client's END_STREAM */
void lab_reply(const char *body, int code); /* head, body (raw bytes), end */
void lab_flushed(void);                     /* the kernel has the last byte */
void lab_turn(void);                        /* the turn's end: deferred work, graveyard */
void lab_run_ms(unsigned ms);
/* The story so far is this; it begins anew. */
void lab_expect(const char *story);
uint64_t lab_status(const char *name); /* how many calls ended so, e.g. "OK" */

#define LAB_TEST(name) cmocka_unit_test_setup_teardown(name, lab_setup, lab_teardown)

#endif
