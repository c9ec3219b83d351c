/*
 * What every loop test stands on: a loop with a worker's context, bounded waiting, raw peers, and
 * the checks at the end that nothing was leaked (uv_loop_close() is 0, every chunk is back, as many
 * descriptors as before).
 */
#ifndef TESTS_LOOP_FIXTURE_H
#define TESTS_LOOP_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h> /* needs those above */

#include "proxy/net/conn.h"
#include "proxy/net/ctx.h"

struct loop_fixture {
    uv_loop_t loop;
    struct budget budget;
    struct ctx ctx;
    uv_timer_t tick; /* wakes the loop while waiting */
    int descriptors; /* open before the test */
};

/* cmocka setup and teardown; *state is the struct loop_fixture. */
int loop_setup(void **state);
int loop_teardown(void **state);
/* Turns the loop until *done (or, NULL, `count` reaches `want`); fails the test after 5 s. */
void loop_until(struct loop_fixture *fixture, const bool *done);
void loop_until_count(struct loop_fixture *fixture, const unsigned *count, unsigned want);
void loop_run_ms(struct loop_fixture *fixture, unsigned ms);
void loop_turn(struct loop_fixture *fixture); /* one turn that does not wait */

/* Raw peers: plain sockets of the test itself, non-blocking. */
int raw_listen(struct address *address); /* on 127.0.0.1, any port; the descriptor */
int raw_accept(struct loop_fixture *fixture, int listener); /* turns the loop until one is there */
int raw_connect(const struct address *address);
void raw_send(struct loop_fixture *fixture, int fd, const void *bytes,
              size_t len); /* all of it, turning the loop */
/* Reads exactly len bytes, turning the loop; fails the test at EOF. */
void raw_recv(struct loop_fixture *fixture, int fd, void *into, size_t len);
/* Reads to EOF (0) or an error (negative errno), at most cap bytes; *len is what came. */
int raw_recv_all(struct loop_fixture *fixture, int fd, void *into, size_t cap, size_t *len);
void raw_reset(int fd); /* closes with RST */

#endif
