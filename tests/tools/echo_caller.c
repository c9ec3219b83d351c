/*
 * echo-caller: calls echo-provider, or a proxy before it, and checks every reply.
 *
 * Owns: the command line, the closed loop (--concurrency calls in flight until --count are done),
 * the summary. Happy path: one line "ok calls=... ", exit 0. Failure: the first problems on
 * stderr, exit 1; 2 when the command line is wrong.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "caller_engine.h"
#include "peer_histogram.h"

#define PROBLEMS_SHOWN 5u

struct run {
    uint64_t wanted;
    uint64_t started;
    uint64_t ended;
    uint64_t failed;
    uint64_t bytes;
    uint64_t first_ns;
    uint64_t last_ns;
    struct peer_histogram latency_ns;
};

static struct caller_engine engine;
static struct run run;

static void
start_call(unsigned slot)
{
    run.started++;
    caller_engine_call(&engine, slot, 0);
}

static void
on_done(struct caller_engine *e, unsigned slot, const struct caller_outcome *outcome)
{
    run.ended++;
    run.bytes += outcome->bytes;
    peer_histogram_add(&run.latency_ns, outcome->end_ns - outcome->start_ns);
    if (outcome->problem && run.failed++ < PROBLEMS_SHOWN)
        fprintf(stderr, "echo-caller: status %d: %s%s%s\n", outcome->status, outcome->problem,
                outcome->message[0] ? ": " : "", outcome->message);
    if (run.started < run.wanted)
        start_call(slot);
    else if (run.ended == run.wanted)
        caller_engine_stop(e);
}

static void
print_summary(void)
{
    double wall_ms = (double)(run.last_ns - run.first_ns) / 1e6;
    const struct peer_histogram *h = &run.latency_ns;
    printf("%s calls=%llu failed=%llu bytes=%llu wall_ms=%.1f qps=%.0f mean_us=%.1f p50_us=%.1f "
           "p99_us=%.1f max_us=%.1f connects=%llu\n",
           run.failed ? "FAILED" : "ok", (unsigned long long)run.ended,
           (unsigned long long)run.failed, (unsigned long long)run.bytes, wall_ms,
           (double)run.ended / (wall_ms > 0 ? wall_ms / 1e3 : 1),
           h->count ? (double)h->sum / (double)h->count / 1e3 : 0,
           (double)peer_histogram_at(h, 0.5) / 1e3, (double)peer_histogram_at(h, 0.99) / 1e3,
           (double)h->max / 1e3, (unsigned long long)engine.connects);
}

int
main(int argc, char **argv)
{
    struct caller_config config = {
        .method = "/tributary.demo.Echo/Say",
        .size = 16,
        .messages = 3,
        .check_metadata = true,
        .reply_size = -1,
        .gzip_level = 1,
        .connections = 1,
        .window = 1 << 20,
    };
    long count = 1, concurrency = 1, expect_status = 0;
    const char *record = NULL, *error;
    const struct peer_option table[] = {
        {"target", PEER_OPTION_TEXT, &config.target, NULL, "IP:PORT, [IPV6]:PORT or unix:PATH"},
        {"method", PEER_OPTION_TEXT, &config.method, NULL, "default /tributary.demo.Echo/Say"},
        {"type", PEER_OPTION_CHOICE, &config.type, "unary|server|client|bidi", "kind of call"},
        {"wire", PEER_OPTION_CHOICE, &config.triple, "grpc|triple", "triple: unary calls go bare"},
        {"codec", PEER_OPTION_TEXT, &config.codec, NULL,
         "application/CODEC, application/grpc+CODEC"},
        {"size", PEER_OPTION_NUMBER, &config.size, NULL, "bytes of a message (16)"},
        {"proto-field", PEER_OPTION_NUMBER, &config.proto_field, NULL,
         "wrap it as this protobuf bytes field, for other providers"},
        {"text", PEER_OPTION_TEXT, &config.text, NULL, "the message, instead of --size"},
        {"messages", PEER_OPTION_NUMBER, &config.messages, NULL, "messages of a stream (3)"},
        {"lockstep", PEER_OPTION_FLAG, &config.lockstep, NULL, "bidi: wait for each echo"},
        {"count", PEER_OPTION_NUMBER, &count, NULL, "calls (1)"},
        {"concurrency", PEER_OPTION_NUMBER, &concurrency, NULL, "calls in flight (1)"},
        {"connections", PEER_OPTION_NUMBER, &config.connections, NULL, "connections (1)"},
        {"deadline-ms", PEER_OPTION_NUMBER, &config.deadline_ms, NULL, "deadline of each call"},
        {"cancel-ms", PEER_OPTION_NUMBER, &config.cancel_ms, NULL, "cancel each call after this"},
        {"metadata", PEER_OPTION_LIST, &config.metadata, NULL, "NAME=VALUE; may repeat"},
        {"check-metadata", PEER_OPTION_SWITCH, &config.check_metadata, NULL,
         "it must come back: NAME and tail-NAME (on)"},
        {"authority", PEER_OPTION_TEXT, &config.authority, NULL, "default: the target"},
        {"gzip", PEER_OPTION_FLAG, &config.gzip, NULL, "compress and offer gzip"},
        {"gzip-level", PEER_OPTION_NUMBER, &config.gzip_level, NULL, "1 (default, fastest) to 9"},
        {"random", PEER_OPTION_FLAG, &config.random, NULL, "messages that do not compress"},
        {"window", PEER_OPTION_NUMBER, &config.window, NULL, "stream window (1M)"},
        {"reply-size", PEER_OPTION_NUMBER, &config.reply_size, NULL, "the provider's --reply-size"},
        {"expect-status", PEER_OPTION_NUMBER, &expect_status, NULL, "gRPC code of every call (0)"},
        {"expect-text", PEER_OPTION_TEXT, &config.expect_text, NULL, "part of the error's message"},
        {"record", PEER_OPTION_TEXT, &record, NULL, "write what is on the wire; - is stdout"},
    };
    peer_options_parse("echo-caller", table, sizeof table / sizeof *table, argc, argv);
    config.expect_status = (int)expect_status;
    if (record && !(config.record = peer_record_open(record))) {
        perror(record);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    uv_loop_t *loop = uv_default_loop();
    if (caller_engine_init(&engine, loop, &config, &error) < 0 || count < 1 || concurrency < 1) {
        fprintf(stderr, "echo-caller: %s\n", error ? error : "cannot start");
        return 2;
    }
    engine.done = on_done;
    run.wanted = (uint64_t)count;
    run.first_ns = uv_hrtime();
    for (long i = 0; i < concurrency && run.started < run.wanted; i++)
        start_call((unsigned)(i % config.connections));
    uv_run(loop, UV_RUN_DEFAULT);
    run.last_ns = uv_hrtime();
    caller_engine_fini(&engine);
    uv_loop_close(loop);
    print_summary();
    peer_record_close(config.record);
    return run.failed || run.ended != run.wanted;
}
