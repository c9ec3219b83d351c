/*
 * What the endpoints answer to a request: a page, a text or a refusal. Knows no connection;
 * admin_session.c carries it.
 */
#ifndef TRIBUTARY_ADMIN_ANSWER_H
#define TRIBUTARY_ADMIN_ANSWER_H

#include "proxy/server_state.h"

/* Views, valid during the call. */
struct admin_request {
    struct text method, target; /* target: path and query */
    struct text authority;      /* the Host field */
    struct text origin;         /* the Origin field: set by browsers, empty otherwise */
    bool probe_only;            /* asked at `probe`: /live, /ready and /metrics only */
};

struct admin_answer {
    int status;               /* HTTP */
    const char *content_type; /* constants */
    const char *allow;        /* 405: the methods that would do; NULL otherwise */
    bool page;                /* a browser shows it: say what it may load */
    struct strbuf body;       /* the caller's to free */
};

/* Fills `answer`, which need not be initialised. Main thread; may wait for worker 0 (/explain), one
 * second at most. */
void admin_answer(const struct server *server, const struct admin_request *request,
                  struct admin_answer *answer);

#endif
