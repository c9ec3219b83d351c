/*
 * loadgen: load whose every reply is checked, and what it cost the processes named by --pid.
 *
 * Owns: when calls start, the measured window, the report. The calls are the caller engine's.
 *
 * Closed loop (default): --in-flight calls on each of --connections; the next starts when one ends.
 * Open loop (--rate N): a call is due every 1/N s whether or not the last has ended, and its
 * latency counts from when it was due, so that a stall shows in every call it delayed (no
 * coordinated omission). Calls that are due while --max-open are under way wait, and count from
 * their due time too.
 *
 * Happy path: connect, --warmup, [--duration or --count calls measured], drain, report as JSON.
 * Failure modes: exit 1 when a measured call failed or nothing was measured, 2 for a wrong
 * command line. Calls of an open loop that have not ended 5 s after the window are failures; a
 * closed loop's are waited for as long, so that the next run does not meet them, and not counted.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "caller_engine.h"
#include "load_process.h"
#include "peer_histogram.h"

#define PIDS_MAX 8
#define DRAIN_NS 5000000000u
#define PROBLEMS_SHOWN 5u
#define LEAST_WAIT_NS 60000000000u
#define LEAST_STEP_NS 20000000u

enum phase { PHASE_WARMUP, PHASE_MEASURE, PHASE_DRAIN };

struct watched {
    const char *name; /* "NAME=PID", as on the command line */
    int name_len;
    pid_t pid;
    struct load_process before;
    struct load_process after;
};

struct load {
    struct caller_engine engine;
    struct caller_config config;
    /* command line */
    long in_flight, count, warmup_count, max_open, least;
    double warmup_s, duration_s, rate;
    const char *json, *label;
    bool progress;
    struct peer_option_list pids;
    /* state */
    enum phase phase;
    struct peer_timer phase_timer;
    struct peer_timer due_timer;
    struct peer_timer progress_timer;
    uint64_t due_ns; /* open loop: when the next call is due */
    unsigned next_slot;
    uint64_t phase_ended; /* calls ended in this phase */
    uint64_t window_start_ns, window_end_ns;
    /* result */
    struct watched watched[PIDS_MAX];
    int watched_count;
    uint64_t ok, failed, unfinished, bytes, shown;
    uint64_t messages;       /* received in the window, also of streams that go on after it */
    uint64_t open_in_window; /* open loop: started in the window, not yet ended */
    struct peer_histogram latency_ns;
    double own_cpu_s;
};

static struct load load;

static double
own_cpu_s(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6 +
           (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec / 1e6;
}

/* ---- phases ---- */

static void
stop(void)
{
    peer_timer_stop(&load.phase_timer);
    peer_timer_stop(&load.due_timer);
    peer_timer_stop(&load.progress_timer);
    load.unfinished = load.rate > 0 ? load.open_in_window : 0;
    caller_engine_stop(&load.engine);
}

static void
on_drain_over(struct peer_timer *timer)
{
    (void)timer;
    stop();
}

static void
end_measure(void)
{
    load.window_end_ns = uv_hrtime();
    load.messages = load.engine.replies - load.messages;
    for (int i = 0; i < load.watched_count; i++)
        load_process_read(load.watched[i].pid, &load.watched[i].after);
    load.own_cpu_s = own_cpu_s() - load.own_cpu_s;
    load.phase = PHASE_DRAIN;
    if (load.rate > 0 ? load.open_in_window == 0 : load.engine.in_flight == 0) {
        stop();
        return;
    }
    peer_timer_stop(&load.due_timer);
    load.phase_timer.fired = on_drain_over;
    peer_timer_start(&load.engine.timers, &load.phase_timer, load.window_end_ns + DRAIN_NS);
}

/* --least: slow calls get more time, so that a short window is not an empty one. */
static void
on_measure_over(struct peer_timer *timer)
{
    uint64_t now_ns = uv_hrtime();
    if (load.phase_ended < (uint64_t)load.least && now_ns - load.window_start_ns < LEAST_WAIT_NS)
        peer_timer_start(&load.engine.timers, timer, now_ns + LEAST_STEP_NS);
    else
        end_measure();
}

static void
start_measure(void)
{
    load.phase = PHASE_MEASURE;
    load.phase_ended = 0;
    for (int i = 0; i < load.watched_count; i++)
        load_process_reset_peak(load.watched[i].pid);
    for (int i = 0; i < load.watched_count; i++)
        load_process_read(load.watched[i].pid, &load.watched[i].before);
    load.own_cpu_s = own_cpu_s();
    load.window_start_ns = uv_hrtime();
    load.messages = load.engine.replies;
    peer_timer_stop(&load.phase_timer);
    load.phase_timer.fired = on_measure_over;
    if (load.count == 0)
        peer_timer_start(&load.engine.timers, &load.phase_timer,
                         load.window_start_ns + (uint64_t)(load.duration_s * 1e9));
}

static void
on_warmup_over(struct peer_timer *timer)
{
    (void)timer;
    start_measure();
}

/* ---- calls ---- */

static void
start_due(struct peer_timer *timer)
{
    uint64_t now_ns = uv_hrtime();
    uint64_t step_ns = (uint64_t)(1e9 / load.rate);
    while (load.due_ns <= now_ns && load.engine.in_flight < (uint64_t)load.max_open) {
        if (load.phase == PHASE_MEASURE && load.due_ns >= load.window_start_ns)
            load.open_in_window++;
        caller_engine_call(&load.engine, load.next_slot, load.due_ns);
        load.next_slot = (load.next_slot + 1) % (unsigned)load.config.connections;
        load.due_ns += step_ns;
    }
    /* full: on_done() starts the late ones */
    if (load.engine.in_flight < (uint64_t)load.max_open)
        peer_timer_start(&load.engine.timers, timer, load.due_ns);
}

static void
count_call(const struct caller_outcome *outcome)
{
    load.bytes += outcome->bytes;
    peer_histogram_add(&load.latency_ns, outcome->end_ns - outcome->start_ns);
    if (!outcome->problem) {
        load.ok++;
        return;
    }
    load.failed++;
    if (load.shown++ < PROBLEMS_SHOWN)
        fprintf(stderr, "loadgen: status %d: %s%s%s\n", outcome->status, outcome->problem,
                outcome->message[0] ? ": " : "", outcome->message);
}

static void
done_open(const struct caller_outcome *outcome)
{
    bool counted = load.phase != PHASE_WARMUP && outcome->start_ns >= load.window_start_ns;
    if (counted) {
        count_call(outcome);
        load.open_in_window--;
    }
    if (load.phase == PHASE_DRAIN && load.open_in_window == 0)
        stop();
    else if (load.phase != PHASE_DRAIN && !load.due_timer.prev)
        peer_timer_start(&load.engine.timers, &load.due_timer, load.due_ns);
}

static void
on_done(struct caller_engine *engine, unsigned slot, const struct caller_outcome *outcome)
{
    load.phase_ended++;
    if (load.rate > 0) {
        done_open(outcome);
        return;
    }
    if (load.phase == PHASE_MEASURE)
        count_call(outcome);
    if (load.phase == PHASE_WARMUP && load.warmup_count > 0 &&
        load.phase_ended == (uint64_t)load.warmup_count)
        start_measure();
    else if (load.phase == PHASE_MEASURE && load.count > 0 &&
             load.phase_ended == (uint64_t)load.count)
        end_measure();
    if (load.phase != PHASE_DRAIN)
        caller_engine_call(engine, slot, 0);
    else if (engine->in_flight == 0)
        stop();
}

static void
on_progress(struct peer_timer *timer)
{
    static const char *const names[] = {"warmup", "measure", "drain"};
    static uint64_t last;
    uint64_t calls = load.ok + load.failed;
    fprintf(stderr, "loadgen: %s: %llu calls (+%llu), %llu failed, %llu in flight\n",
            names[load.phase], (unsigned long long)calls, (unsigned long long)(calls - last),
            (unsigned long long)load.failed, (unsigned long long)load.engine.in_flight);
    last = calls;
    peer_timer_start(&load.engine.timers, timer, timer->due_ns + 1000000000u);
}

static void
start(void)
{
    uint64_t now_ns = uv_hrtime();
    caller_engine_connect(&load.engine);
    if (load.progress) {
        load.progress_timer.fired = on_progress;
        peer_timer_start(&load.engine.timers, &load.progress_timer, now_ns + 1000000000u);
    }
    load.phase_timer.fired = on_warmup_over;
    if (load.warmup_count == 0)
        peer_timer_start(&load.engine.timers, &load.phase_timer,
                         now_ns + (uint64_t)(load.warmup_s * 1e9));
    if (load.rate > 0) {
        load.due_ns = now_ns;
        load.due_timer.fired = start_due;
        peer_timer_start(&load.engine.timers, &load.due_timer, now_ns);
        return;
    }
    for (long i = 0; i < load.in_flight * load.config.connections; i++)
        caller_engine_call(&load.engine, (unsigned)(i % load.config.connections), 0);
}

/* ---- report ---- */

static double
latency_ms(double share)
{
    return (double)peer_histogram_at(&load.latency_ns, share) / 1e6;
}

static void
report_process(FILE *out, const struct watched *watched, double window_s, double calls)
{
    const struct load_process *before = &watched->before, *after = &watched->after;
    double cpu_s = (double)(after->cpu_ns - before->cpu_ns) / 1e9;
    fprintf(out,
            "%s\n    \"%.*s\": {\"cpu_us_per_call\": %.3f, \"cpu_us_per_message\": %.3f, "
            "\"cpu_s\": %.4f, \"user_s\": %.2f, "
            "\"system_s\": %.2f, \"cpu_avg_percent\": %.1f, \"rss_start_kb\": %ld, "
            "\"rss_end_kb\": %ld, \"memory_peak_mb\": %.2f, \"threads\": %ld}",
            watched == load.watched ? "" : ",", watched->name_len, watched->name,
            calls > 0 ? cpu_s * 1e6 / calls : 0,
            load.messages ? cpu_s * 1e6 / (double)load.messages : 0, cpu_s,
            after->user_s - before->user_s, after->system_s - before->system_s,
            window_s > 0 ? 100 * cpu_s / window_s : 0, before->rss_kb, after->rss_kb,
            (double)after->peak_kb / 1024, after->threads);
}

static void
report(FILE *out)
{
    static const char *const types[] = {"unary", "server", "client", "bidi"};
    const struct caller_config *c = &load.config;
    double window_s = (double)(load.window_end_ns - load.window_start_ns) / 1e9;
    double calls = (double)(load.ok + load.failed);
    double all = calls + (double)load.unfinished;
    fprintf(out,
            "{\n  \"label\": \"%s\", \"call_mode\": \"%s\", \"wire\": \"%s\", "
            "\"payload_size\": %ld,\n  \"connections\": %ld, \"in_flight\": %ld, "
            "\"concurrency\": %ld, \"loop\": \"%s\", \"rate\": %.1f,\n",
            load.label, types[c->type], c->triple ? "triple" : "grpc", c->size, c->connections,
            load.in_flight, load.in_flight * c->connections, load.rate > 0 ? "open" : "closed",
            load.rate);
    fprintf(out,
            "  \"duration_s\": %.3f, \"calls\": %.0f, \"failed\": %llu, \"unfinished\": %llu,\n"
            "  \"qps\": %.1f, \"success_rate\": %.6f, \"messages\": %llu, \"messages_per_s\": "
            "%.1f, \"bytes\": %llu, \"connects\": %llu,\n",
            window_s, calls, (unsigned long long)load.failed, (unsigned long long)load.unfinished,
            window_s > 0 ? calls / window_s : 0, all > 0 ? (double)load.ok / all : 0,
            (unsigned long long)load.messages, window_s > 0 ? (double)load.messages / window_s : 0,
            (unsigned long long)load.bytes, (unsigned long long)load.engine.connects);
    fprintf(out,
            "  \"latency_mean_ms\": %.4f, \"latency_p50_ms\": %.4f, \"latency_p90_ms\": %.4f, "
            "\"latency_p95_ms\": %.4f,\n  \"latency_p99_ms\": %.4f, \"latency_p999_ms\": %.4f, "
            "\"latency_max_ms\": %.4f,\n",
            load.latency_ns.count
                ? (double)load.latency_ns.sum / (double)load.latency_ns.count / 1e6
                : 0,
            latency_ms(0.5), latency_ms(0.9), latency_ms(0.95), latency_ms(0.99), latency_ms(0.999),
            (double)load.latency_ns.max / 1e6);
    fprintf(out, "  \"load_cpu_us_per_call\": %.3f,\n  \"processes\": {",
            calls > 0 ? load.own_cpu_s * 1e6 / calls : 0);
    for (int i = 0; i < load.watched_count; i++)
        report_process(out, &load.watched[i], window_s, calls);
    fprintf(out, "%s}\n}\n", load.watched_count ? "\n  " : "");
}

/* ---- start ---- */

static bool
take_pids(void)
{
    for (int i = 0; i < load.pids.count; i++) {
        const char *text = load.pids.items[i];
        const char *equals = strchr(text, '=');
        if (!equals || load.watched_count == PIDS_MAX)
            return false;
        load.watched[load.watched_count++] = (struct watched){
            .name = text, .name_len = (int)(equals - text), .pid = (pid_t)atol(equals + 1)};
    }
    return true;
}

static void
read_command_line(int argc, char **argv)
{
    struct caller_config *c = &load.config;
    const struct peer_option table[] = {
        {"target", PEER_OPTION_TEXT, &c->target, NULL, "IP:PORT, [IPV6]:PORT or unix:PATH"},
        {"method", PEER_OPTION_TEXT, &c->method, NULL, "default /tributary.demo.Echo/Say"},
        {"type", PEER_OPTION_CHOICE, &c->type, "unary|server|client|bidi", "kind of call"},
        {"wire", PEER_OPTION_CHOICE, &c->triple, "grpc|triple", "triple: unary calls go bare"},
        {"codec", PEER_OPTION_TEXT, &c->codec, NULL, "application/CODEC, application/grpc+CODEC"},
        {"size", PEER_OPTION_NUMBER, &c->size, NULL, "bytes of a message (128)"},
        {"proto-field", PEER_OPTION_NUMBER, &c->proto_field, NULL,
         "wrap it as this protobuf bytes field, for other providers"},
        {"reply-size", PEER_OPTION_NUMBER, &c->reply_size, NULL, "the provider's --reply-size"},
        {"body", PEER_OPTION_TEXT, &c->body, NULL, "file with the request's message"},
        {"expect", PEER_OPTION_TEXT, &c->expect, NULL, "file with the reply's message"},
        {"reply-tail", PEER_OPTION_TEXT, &c->reply_tail, NULL, "hex; stands behind each echo"},
        {"reply-index", PEER_OPTION_NUMBER, &c->reply_index, NULL,
         "behind that, a protobuf field with the message's number in its stream"},
        {"messages", PEER_OPTION_NUMBER, &c->messages, NULL, "messages of a stream (10)"},
        {"lockstep", PEER_OPTION_FLAG, &c->lockstep, NULL, "bidi: wait for each echo"},
        {"metadata", PEER_OPTION_LIST, &c->metadata, NULL, "NAME=VALUE; may repeat; not checked"},
        {"authority", PEER_OPTION_TEXT, &c->authority, NULL, "default: the target"},
        {"gzip", PEER_OPTION_FLAG, &c->gzip, NULL, "compress and offer gzip"},
        {"gzip-level", PEER_OPTION_NUMBER, &c->gzip_level, NULL, "1 (default, fastest) to 9"},
        {"random", PEER_OPTION_FLAG, &c->random, NULL, "messages that do not compress"},
        {"deadline-ms", PEER_OPTION_NUMBER, &c->deadline_ms, NULL, "deadline of each call"},
        {"connections", PEER_OPTION_NUMBER, &c->connections, NULL, "connections (10)"},
        {"in-flight", PEER_OPTION_NUMBER, &load.in_flight, NULL, "calls on each (10)"},
        {"rate", PEER_OPTION_REAL, &load.rate, NULL, "open loop: calls per second"},
        {"max-open", PEER_OPTION_NUMBER, &load.max_open, NULL,
         "open loop: calls under way (10000)"},
        {"warmup", PEER_OPTION_REAL, &load.warmup_s, NULL, "seconds before measuring (1)"},
        {"duration", PEER_OPTION_REAL, &load.duration_s, NULL, "seconds measured (5)"},
        {"warmup-count", PEER_OPTION_NUMBER, &load.warmup_count, NULL, "calls instead of seconds"},
        {"count", PEER_OPTION_NUMBER, &load.count, NULL, "calls measured, instead of seconds"},
        {"least", PEER_OPTION_NUMBER, &load.least, NULL,
         "go on after --duration until so many calls have ended, for a minute at most"},
        {"pid", PEER_OPTION_LIST, &load.pids, NULL, "NAME=PID whose cost is measured; may repeat"},
        {"label", PEER_OPTION_TEXT, &load.label, NULL, "goes into the report"},
        {"json", PEER_OPTION_TEXT, &load.json, NULL, "file for the report; default stdout"},
        {"progress", PEER_OPTION_FLAG, &load.progress, NULL, "a line each second on stderr"},
    };
    peer_options_parse("loadgen", table, sizeof table / sizeof *table, argc, argv);
}

static bool
command_line_is_sound(void)
{
    bool counted = load.count > 0 || load.warmup_count > 0;
    return load.in_flight >= 1 && load.max_open >= 1 && load.rate >= 0 && load.duration_s > 0 &&
           load.warmup_s >= 0 && !(load.rate > 0 && counted);
}

int
main(int argc, char **argv)
{
    load.config = (struct caller_config){
        .method = "/tributary.demo.Echo/Say",
        .size = 128,
        .messages = 10,
        .reply_size = -1,
        .gzip_level = 1,
        .connections = 10,
        .window = 4 << 20,
    };
    load.in_flight = 10;
    load.max_open = 10000;
    load.warmup_s = 1;
    load.duration_s = 5;
    load.label = "";
    read_command_line(argc, argv);
    const char *error = NULL;
    uv_loop_t *loop = uv_default_loop();
    signal(SIGPIPE, SIG_IGN);
    if (!take_pids())
        error = "--pid must be NAME=PID, at most 8 times";
    else if (!command_line_is_sound())
        error = "numbers out of range, or --rate together with --count";
    if (error || caller_engine_init(&load.engine, loop, &load.config, &error) < 0) {
        fprintf(stderr, "loadgen: %s\n", error ? error : "cannot start");
        return 2;
    }
    load.engine.done = on_done;
    start();
    uv_run(loop, UV_RUN_DEFAULT);
    caller_engine_fini(&load.engine);
    FILE *out = load.json ? fopen(load.json, "w") : stdout;
    if (!out) {
        perror(load.json);
        return 2;
    }
    report(out);
    if (out != stdout)
        fclose(out);
    return load.failed || load.unfinished || load.ok == 0;
}
