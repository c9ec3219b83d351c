/* The bare client codec: requests with their length, replies, JSON errors, refusals. */
#include "call_stand.h"

#include "proxy/base/clock.h"
#include "upstream/client_codecs.h"

static void
request(const char *path, const char *metadata)
{
    stand_call->request.path = text_of(path);
    stand_call->upstream_form = stand_call->request_flow.to = FORM_BARE;
    stand_add(&stand_call->request.metadata, metadata);
}

static void
hold_message(const char *body)
{
    struct flow *flow = &stand_call->request_flow;
    uint8_t prefix[PREFIX_BYTES];
    prefix_write(prefix, false, (uint32_t)strlen(body));
    assert_int_equal(flow_feed(flow, prefix, sizeof(prefix)), FLOW_OK);
    assert_int_equal(flow_feed(flow, (const uint8_t *)body, strlen(body)), FLOW_OK);
    assert_int_equal(flow_end(flow), FLOW_OK);
    assert_int_equal(flow_release(flow, true), FLOW_OK);
}

static void
a_request_is_what_a_recording_provider_should_see(void **state)
{
    (void)state;
    request("/greet.Greeter/SayHello", "x-a: 1\ngrpc-trace-bin: AA\nx-a: 2\n");
    stand_call->request.authority = TEXT("sidecar:17000");
    stand_call->request.service_version = TEXT("1.0");
    stand_call->request.accept_encoding = TEXT("gzip");
    hold_message("hello");
    assert_string_equal(stand_request(&bare_codec),
                        ":method: POST\n:scheme: http\n:path: /greet.Greeter/SayHello\n"
                        ":authority: sidecar:17000\ncontent-type: application/proto\n"
                        "content-length: 5\ntriple-protocol-version: 0.1.0\n"
                        "tri-service-version: 1.0\nx-a: 1\nx-a: 2\n");
}

static void
a_route_changes_service_selectors_and_headers(void **state)
{
    (void)state;
    struct field set = {TEXT("x-a"), TEXT("mine"), FIELD_STATIC, 0};
    request("/greet.Greeter/SayHello", "x-a: 1\nx-b: 2\n");
    stand_call->request.service_group = TEXT("theirs");
    stand_route.set_service = TEXT("org.Other");
    stand_route.set_group = TEXT("g");
    stand_route.set_headers = &set;
    stand_route.set_header_count = 1;
    hold_message("");
    assert_string_equal(stand_request(&bare_codec),
                        ":method: POST\n:scheme: http\n:path: /org.Other/SayHello\n"
                        ":authority: 10.0.0.9:20000\ncontent-type: application/proto\n"
                        "content-length: 0\ntriple-protocol-version: 0.1.0\n"
                        "tri-service-group: g\nx-b: 2\nx-a: mine\n");
}

static void
no_length_leaves_on_the_relay_path_and_with_content_length_off(void **state)
{
    (void)state;
    request("/a/b", "");
    hold_message("hello");
    stand_route.content_length = false;
    assert_null(strstr(stand_request(&bare_codec), "content-length"));
    stand_route.content_length = true;
    stand_call->path = PATH_RELAY;
    assert_null(strstr(stand_request(&bare_codec), "content-length"));
    stand_call->path = PATH_CUT_THROUGH;
    assert_non_null(strstr(stand_request(&bare_codec), "content-length: 5\n"));
}

static void
connect_has_its_own_names(void **state)
{
    (void)state;
    request("/a/b", "");
    hold_message("x");
    stand_upstream.dialect = DIALECT_CONNECT;
    stand_call->deadline_ns = clock_now_ns() + 2 * NS_PER_S;
    const char *lines = stand_request(&bare_codec);
    assert_non_null(strstr(lines, "connect-protocol-version: 1\n"));
    assert_non_null(strstr(lines, "connect-timeout-ms: "));
    assert_null(strstr(lines, "triple-"));
}

static void
what_is_left_of_the_deadline_travels_rounded_up_and_never_zero(void **state)
{
    (void)state;
    request("/a/b", "");
    hold_message("x");
    stand_call->deadline_ns = clock_now_ns() + 60 * NS_PER_S;
    assert_non_null(strstr(stand_request(&bare_codec), "triple-timeout-ms: 60000\n"));
    stand_call->deadline_ns = 1; /* long over */
    assert_non_null(strstr(stand_request(&bare_codec), "triple-timeout-ms: 1\n"));
}

static void
the_gzip_offer_is_passed_on_only_where_asked_for(void **state)
{
    (void)state;
    request("/a/b", "");
    hold_message("x");
    stand_call->request.accept_encoding = TEXT("gzip");
    assert_null(strstr(stand_request(&bare_codec), "accept-encoding"));
    stand_upstream.forward_accept_encoding = true;
    assert_non_null(strstr(stand_request(&bare_codec), "accept-encoding: gzip\n"));
    stand_call->request.accept_encoding = TEXT("br");
    assert_null(strstr(stand_request(&bare_codec), "accept-encoding"));
}

/* --- replies --- */

#define OK_HEAD ":status: 200\ncontent-type: application/proto\n"

static void
a_message_is_a_message_and_its_fields_are_sorted(void **state)
{
    (void)state;
    stand_read_reply(&bare_codec,
                     OK_HEAD "content-length: 24\nx-a: 1\ntrailer-x-b: 2\ntrailer-: 3\n"
                             "trailer: x\ngrpc-status: 13\ntrailer-grpc-status: 13\n"
                             "accept-encoding: gzip\ndate: now\nalt-svc: x\n",
                     "", NULL);
    const struct call_reply *reply = &stand_call->reply;
    assert_false(reply->body_is_error);
    assert_int_equal(reply->content_length, 24);
    assert_int_equal(reply->status.code, RPC_OK);
    assert_string_equal(stand_lines(&reply->metadata), "x-a: 1\n");
    assert_string_equal(stand_lines(&reply->trailers), "x-b: 2\n");
}

struct answer {
    const char *head, *body;
    int code;
    const char *message; /* NULL: one of the proxy's own */
    enum call_refusal refusal;
    bool has_code;
};

#define JSON(status) ":status: " status "\ncontent-type: application/json\n"

static const struct answer ANSWERS[] = {
    /* as dubbo-go sends them */
    {JSON("404"), "{\"code\":\"not_found\",\"message\":\"m\"}", RPC_NOT_FOUND, "m", REFUSAL_NONE,
     true},
    {JSON("500"), "{\"code\":\"code_17\",\"message\":\"biz\"}", RPC_BIZ, "biz", REFUSAL_NONE, true},
    {JSON("404"), "{\"code\":\"unimplemented\",\"message\":\"m\"}", RPC_UNIMPLEMENTED, "m",
     REFUSAL_NONE, true},
    {":status: 404\ncontent-type: text/plain; charset=utf-8\n", "404 page not found\n",
     RPC_UNIMPLEMENTED, NULL, REFUSAL_NONE, false},
    {":status: 415\naccept-post: application/grpc\n", "", RPC_UNKNOWN, NULL, REFUSAL_METHOD, false},
    {":status: 405\n", "", RPC_UNKNOWN, NULL, REFUSAL_NONE, false},
    /* as dubbo-java refuses */
    {":status: 415\ngrpc-status: 13\ncontent-type: text/plain\n", "not supported", RPC_UNKNOWN,
     NULL, REFUSAL_ENDPOINT, false},
    {":status: 415\ngrpc-status: 13\ncontent-type: application/grpc\n", "", RPC_UNKNOWN, NULL,
     REFUSAL_ENDPOINT, false},
    {JSON("404"), "{\"message\":\"Invoker not found\",\"status\":\"404\"}", RPC_UNIMPLEMENTED,
     "Invoker not found", REFUSAL_ENDPOINT, false},
    /* codes that are none */
    {JSON("404"), "{\"code\":\"bogus\",\"message\":\"m\"}", RPC_UNIMPLEMENTED, "m", REFUSAL_NONE,
     false},
    {JSON("500"), "{\"code\":\"ok\"}", RPC_UNKNOWN, "", REFUSAL_NONE, false},
    {JSON("503"), "not json", RPC_UNAVAILABLE, NULL, REFUSAL_NONE, false},
    /* pages, and a 200 that is no answer to this request */
    {":status: 502\ncontent-type: text/html\n", "<html>", RPC_UNAVAILABLE, NULL, REFUSAL_NONE,
     false},
    {":status: 200\ncontent-type: text/html\n", "<html>", RPC_INTERNAL, NULL, REFUSAL_NONE, false},
    {JSON("200"), "{}", RPC_INTERNAL, NULL, REFUSAL_NONE, false},
    {OK_HEAD "content-type: application/json\n", "", RPC_INTERNAL, NULL, REFUSAL_NONE, false},
    {":status: 302\nlocation: /\n", "", RPC_UNKNOWN, NULL, REFUSAL_NONE, false},
};

static void
each_kind_of_answer_is_told_from_the_others(void **state)
{
    for (size_t i = 0; i < sizeof(ANSWERS) / sizeof(ANSWERS[0]); i++) {
        const struct answer *answer = &ANSWERS[i];
        stand_teardown(state);
        stand_setup(state);
        stand_call->upstream_form = FORM_BARE;
        stand_read_reply(&bare_codec, answer->head, answer->body, NULL);
        const struct call_reply *reply = &stand_call->reply;
        if (reply->status.code != answer->code || reply->refusal != answer->refusal ||
            reply->bare_error_has_code != answer->has_code)
            fail_msg("%s%s: code %d, refusal %d, has code %d", answer->head, answer->body,
                     reply->status.code, reply->refusal, reply->bare_error_has_code);
        if (answer->message)
            expect_text(reply->status.message, answer->message);
        else
            assert_null(memmem(reply->status.message.ptr, reply->status.message.len, "<", 1));
    }
}

static void
javas_404_is_an_error_for_a_json_call(void **state)
{
    (void)state;
    stand_call->request.codec = TEXT("json");
    stand_read_reply(&bare_codec, JSON("404"), "{\"message\":\"no\",\"status\":\"404\"}", NULL);
    assert_int_equal(stand_call->reply.refusal, REFUSAL_NONE);
    assert_int_equal(stand_call->reply.status.code, RPC_UNIMPLEMENTED);
}

static void
pages_are_not_worth_holding_and_json_is(void **state)
{
    (void)state;
    stand_add(&stand_call->reply.head, ":status: 502\ncontent-type: text/html\n");
    bare_codec.read_reply(stand_call, false);
    assert_int_equal(stand_call->reply.error_body_max, 0);
    stand_teardown(state);
    stand_setup(state);
    stand_add(&stand_call->reply.head, JSON("502"));
    bare_codec.read_reply(stand_call, false);
    assert_true(stand_call->reply.error_body_max > 1000000);
}

static void
a_framed_answer_is_read_as_one(void **state)
{
    (void)state;
    stand_call->upstream_form = FORM_BARE;
    stand_read_reply(&bare_codec, ":status: 200\ncontent-type: application/grpc\n", "",
                     "grpc-status: 12\ngrpc-message: no\n");
    assert_int_equal(stand_call->reply.form, FORM_FRAMED);
    assert_int_equal(stand_call->reply.status.code, RPC_UNIMPLEMENTED);
    stand_teardown(state);
    stand_setup(state);
    stand_call->upstream_form = FORM_BARE;
    stand_read_reply(&bare_codec, ":status: 200\ncontent-type: application/grpc\n", "", NULL);
    assert_int_equal(stand_call->reply.status.code, RPC_INTERNAL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        STAND_TEST(a_request_is_what_a_recording_provider_should_see),
        STAND_TEST(a_route_changes_service_selectors_and_headers),
        STAND_TEST(no_length_leaves_on_the_relay_path_and_with_content_length_off),
        STAND_TEST(connect_has_its_own_names),
        STAND_TEST(what_is_left_of_the_deadline_travels_rounded_up_and_never_zero),
        STAND_TEST(the_gzip_offer_is_passed_on_only_where_asked_for),
        STAND_TEST(a_message_is_a_message_and_its_fields_are_sorted),
        STAND_TEST(each_kind_of_answer_is_told_from_the_others),
        STAND_TEST(javas_404_is_an_error_for_a_json_call),
        STAND_TEST(pages_are_not_worth_holding_and_json_is),
        STAND_TEST(a_framed_answer_is_read_as_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
