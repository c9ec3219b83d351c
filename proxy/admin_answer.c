/*
 * Which path of the endpoints gives what: one table. Methods are checked here: GET and HEAD for
 * what shows something, POST for what changes something.
 *
 * Failure modes: an unknown path is 404, a wrong method 405, a POST that a page of another origin
 * sends through somebody's browser 403; all with a line of text.
 */
#include "proxy/admin_answer.h"

#include "proxy/admin_page.h"
#include "proxy/exports.h"
#include "proxy/wire/percent.h"

#define TEXT_TYPE "text/plain; charset=utf-8"

/* One thing that is served. `query` is what stands behind the question mark. */
struct place {
    const char *path;
    bool probe; /* at `probe` too */
    bool post;  /* changes something */
    void (*answer)(const struct server *server, struct text query, struct admin_answer *answer);
};

/* --- single pages --- */

static void
show_page(const struct server *server, struct text query, struct admin_answer *answer)
{
    (void)server;
    (void)query;
    answer->content_type = "text/html; charset=utf-8";
    answer->page = true;
    strbuf_add_text(&answer->body, admin_page_html());
}

static void
show_script(const struct server *server, struct text query, struct admin_answer *answer)
{
    (void)server;
    (void)query;
    answer->content_type = "text/javascript; charset=utf-8";
    strbuf_add_text(&answer->body, admin_page_script());
}

static void
show_style(const struct server *server, struct text query, struct admin_answer *answer)
{
    (void)server;
    (void)query;
    answer->content_type = "text/css; charset=utf-8";
    strbuf_add_text(&answer->body, admin_page_style());
}

static void
show_stats(const struct server *server, struct text query, struct admin_answer *answer)
{
    (void)query;
    answer->content_type = "application/json";
    exports_stats_json(server, &answer->body);
}

static void
show_metrics(const struct server *server, struct text query, struct admin_answer *answer)
{
    (void)query;
    answer->content_type = "text/plain; version=0.0.4; charset=utf-8";
    exports_metrics(server, &answer->body);
}

static void
show_live(const struct server *server, struct text query, struct admin_answer *answer)
{
    (void)server;
    (void)query;
    strbuf_add_str(&answer->body, "live\n");
}

/* Value of a key in a query, as it stands there. False when the key is not in it. */
static bool
find_key(struct text query, struct text key, struct text *value)
{
    struct text part;
    while (text_next(&query, '&', &part)) {
        ptrdiff_t equals = text_find(part, '=', 0);
        struct text name = equals < 0 ? part : text_make(part.ptr, (size_t)equals);
        if (!text_eq(name, key))
            continue;
        *value = equals < 0 ? TEXT_NONE : text_from(part, (size_t)equals + 1);
        return true;
    }
    return false;
}

static void
show_ready(const struct server *server, struct text query, struct admin_answer *answer)
{
    struct text value;
    answer->status = 503;
    if (server->state != SERVER_READY)
        strbuf_addf(&answer->body, "%s\n", server_state_name(server->state));
    else if (!find_key(query, TEXT("upstreams"), &value) ||
             exports_upstreams_ready(server, &answer->body))
        answer->status = 200;
    if (answer->status == 200)
        strbuf_add_str(&answer->body, "ready\n");
}

static void
show_config(const struct server *server, struct text query, struct admin_answer *answer)
{
    (void)query;
    exports_config(server, &answer->body);
}

/* What the running process has learnt about a path; asked by `tributary --explain`. */
static void
show_explain(const struct server *server, struct text query, struct admin_answer *answer)
{
    struct text value;
    struct arena arena;
    if (!find_key(query, TEXT("path"), &value) || value.len == 0) {
        answer->status = 400;
        strbuf_add_str(&answer->body, "say which: /explain?path=/SERVICE/METHOD\n");
        return;
    }
    arena_init(&arena, NULL, 0);
    if (server->workers)
        workers_report(server->workers, percent_decode(&arena, value), &answer->body);
    arena_fini(&arena);
}

static void
do_reset(const struct server *server, struct text query, struct admin_answer *answer)
{
    (void)query;
    if (server->workers)
        workers_reset_histograms(server->workers);
    strbuf_add_str(&answer->body, "histograms of /stats begin again\n");
}

/* --- the table --- */

static const struct place PLACES[] = {
    {"/", false, false, show_page},
    {"/admin_page.js", false, false, show_script},
    {"/admin_page.css", false, false, show_style},
    {"/stats", false, false, show_stats},
    {"/metrics", true, false, show_metrics},
    {"/live", true, false, show_live},
    {"/ready", true, false, show_ready},
    {"/config", false, false, show_config},
    {"/explain", false, false, show_explain},
    {"/reset", false, true, do_reset},
};
enum { PLACES_COUNT = sizeof(PLACES) / sizeof(PLACES[0]) };

static const struct place *
find_place(struct text path, bool probe_only)
{
    for (unsigned i = 0; i < PLACES_COUNT; i++)
        if (text_eq(text_of(PLACES[i].path), path) && (PLACES[i].probe || !probe_only))
            return &PLACES[i];
    return NULL;
}

static void
refuse(struct admin_answer *answer, int status, const char *text)
{
    answer->status = status;
    strbuf_addf(&answer->body, "%s\n", text);
}

static void
refuse_method(struct admin_answer *answer, bool post)
{
    answer->allow = post ? "POST" : "GET, HEAD";
    refuse(answer, 405, post ? "use POST" : "use GET");
}

/* A browser says where a POST comes from: pages of other sites must not reach in through it. */
static bool
foreign(const struct admin_request *request)
{
    struct text origin = request->origin;
    if (origin.len == 0)
        return false;
    return !text_starts(origin, TEXT("http://")) ||
           !text_eq(text_from(origin, strlen("http://")), request->authority);
}

static bool
is_method(const struct admin_request *request, bool post)
{
    if (post)
        return text_eq(request->method, TEXT("POST"));
    return text_eq(request->method, TEXT("GET")) || text_eq(request->method, TEXT("HEAD"));
}

void
admin_answer(const struct server *server, const struct admin_request *request,
             struct admin_answer *answer)
{
    ptrdiff_t question = text_find(request->target, '?', 0);
    struct text path = request->target, query = TEXT_NONE;
    if (question >= 0) {
        path.len = (size_t)question;
        query = text_from(request->target, (size_t)question + 1);
    }
    *answer = (struct admin_answer){.status = 200, .content_type = TEXT_TYPE};
    const struct place *place = find_place(path, request->probe_only);
    if (!place)
        refuse(answer, 404,
               request->probe_only ? "not here; try /live /ready /metrics"
                                   : "not here; try / /stats /metrics /live /ready /config");
    else if (!is_method(request, place->post))
        refuse_method(answer, place->post);
    else if (place->post && foreign(request))
        refuse(answer, 403, "not from another site");
    else
        place->answer(server, query, answer);
}
