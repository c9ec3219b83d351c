/*
 * A whole worker for fuzz targets: the real listener, call path and pools on a loop of its own,
 * made anew for each input, between a client socket and a provider socket whose bytes are the
 * target's. Unix sockets, so that every byte is there at once; the loop is turned without waiting.
 *
 * Checked at the end of each input: everything closes, all calls are counted as ended, no stream,
 * no connection and no byte of a body is left.
 */
#ifndef TRIBUTARY_TESTS_FUZZ_SESSION_H
#define TRIBUTARY_TESTS_FUZZ_SESSION_H

#include "fuzz.h"

enum { SESSION_PROVIDERS = 16 };

struct session;

/* What the provider's side does; `state` is kept per accepted connection, NULL at first. */
struct session_provider {
    /* Bytes came from the proxy on connection `index`. May call session_reply(). */
    void (*on_bytes)(struct session *session, unsigned index, const uint8_t *bytes, size_t len);
    void (*on_closed)(struct session *session, unsigned index); /* also at the end of the input */
};

struct session {
    const struct session_provider *provider;
    void *states[SESSION_PROVIDERS];
    int fds[SESSION_PROVIDERS]; /* of the provider, in the order of accepting; -1: closed */
    unsigned fd_count;
    int client; /* -1: closed */
};

/* A proxy with routes /u.S/ (unary), /s.S/ (stream), /a.S/ (auto) and one connected client. */
void session_begin(struct session *session, const struct session_provider *provider);
/* Bytes from the client; then a few turns. What does not fit its socket is dropped. */
void session_send(struct session *session, const uint8_t *bytes, size_t len);
void session_reply(struct session *session, unsigned index, const uint8_t *bytes, size_t len);
void session_hang_up(struct session *session, unsigned index); /* the provider closes */
/* Turns the loop until nothing moves any more: at most `most` turns. */
void session_turn(struct session *session, unsigned most);
/* The client leaves, the worker stops; checks. */
void session_end(struct session *session);

#endif
