/* The bare server codec: Triple's requests and errors as dubbo-go has them, and Connect's. */
#include "call_stand.h"

#include "downstream/triple.h"

#define HEAD ":method: POST\n:scheme: http\n:path: /greet.Greeter/SayHello\n:authority: sidecar\n"

static void
a_request_is_read_field_by_field(void **state)
{
    (void)state;
    assert_true(stand_read_request(&triple_codec, HEAD
                                   "content-type: application/hessian2\ncontent-length: 21\n"
                                   "triple-protocol-version: 0.1.0\ntriple-timeout-ms: 299\n"
                                   "content-encoding: gzip\naccept-encoding: gzip\nx-att: one\n"
                                   "grpc-timeout: 1n\nuser-agent: triple-go/0.1.0\n"));
    const struct call_request *request = &stand_call->request;
    expect_text(request->accept_encoding, "gzip");
    assert_int_equal(request->form, FORM_BARE);
    assert_int_equal(request->encoding, ENCODING_GZIP);
    assert_int_equal(request->content_length, 21);
    assert_int_equal(request->timeout_ns, 299000000);
    assert_string_equal(stand_lines(&request->metadata),
                        "x-att: one\nuser-agent: triple-go/0.1.0\n");
}

struct refusal {
    const char *lines;
    enum rpc_code code;
};

static const struct refusal REFUSALS[] = {
    {"triple-protocol-version: 0.2.0\n", RPC_INVALID_ARGUMENT},
    {"triple-protocol-version: 1\n", RPC_INVALID_ARGUMENT},
    {"connect-protocol-version: 2\n", RPC_INVALID_ARGUMENT},
    {"triple-timeout-ms: abc\n", RPC_INVALID_ARGUMENT},
    {"triple-timeout-ms: 99999999999\n", RPC_INVALID_ARGUMENT},
    {"connect-timeout-ms: 1.5\n", RPC_INVALID_ARGUMENT},
    {"content-encoding: br\n", RPC_UNIMPLEMENTED},
};

static void
what_dubbo_go_refuses_is_refused(void **state)
{
    for (size_t i = 0; i < sizeof(REFUSALS) / sizeof(REFUSALS[0]); i++) {
        assert_false(stand_read_request(&triple_codec, REFUSALS[i].lines));
        assert_int_equal(stand_call->status.code, REFUSALS[i].code);
        stand_teardown(state);
        stand_setup(state);
    }
}

static void
empty_fields_are_as_good_as_none(void **state)
{
    (void)state;
    assert_true(
        stand_read_request(&triple_codec, "triple-protocol-version: \ntriple-timeout-ms: \n"));
    assert_true(stand_call->request.timeout_ns == UINT64_MAX);
}

static void
a_timeout_of_nothing_is_already_over(void **state)
{
    (void)state;
    assert_true(stand_read_request(&triple_codec, "triple-timeout-ms: 0\n"));
    assert_int_equal(stand_call->request.timeout_ns, 0);
    assert_true(stand_read_request(&triple_codec, "triple-timeout-ms: -5\n"));
    assert_int_equal(stand_call->request.timeout_ns, 0);
}

static void
a_head_has_the_length_and_the_trailers(void **state)
{
    (void)state;
    stand_call->reply_flow.from = stand_call->reply_flow.to = FORM_BARE;
    stand_call->reply_flow.bare_length = 12;
    stand_add(&stand_call->reply.metadata, "x-a: 1\n");
    stand_add(&stand_call->reply.trailers, "x-b: 2\nx-b: 3\n");
    assert_string_equal(stand_head(&triple_codec),
                        ":status: 200\ncontent-type: application/proto\ncontent-length: 12\n"
                        "x-a: 1\ntrailer-x-b: 2\ntrailer-x-b: 3\n");
}

static void
a_head_without_a_known_length_has_none(void **state)
{
    (void)state;
    stand_call->reply_flow.from = stand_call->reply_flow.to = FORM_BARE;
    stand_call->reply.encoding_name = TEXT("gzip");
    assert_string_equal(stand_head(&triple_codec),
                        ":status: 200\ncontent-type: application/proto\ncontent-encoding: gzip\n");
}

static void
expect_error(const char *head, const char *body)
{
    assert_string_equal(stand_end(&triple_codec, false), head);
    expect_text(stand_call->reply.error_body, body);
}

static void
an_error_is_json_with_its_http_status(void **state)
{
    (void)state;
    stand_call->protocol = PROTOCOL_TRIPLE;
    stand_call->status.code = RPC_NOT_FOUND;
    stand_call->status.message = TEXT("no \"such\" thing");
    stand_add(&stand_call->reply.trailers, "x-b: 2\n");
    expect_error(":status: 404\ncontent-type: application/json\ncontent-length: 50\n"
                 "trailer-x-b: 2\n",
                 "{\"code\":\"not_found\",\"message\":\"no \\\"such\\\" thing\"}");
}

static void
each_dialect_has_its_own_http_statuses_and_code_17(void **state)
{
    (void)state;
    stand_call->status.code = RPC_BIZ;
    stand_call->protocol = PROTOCOL_TRIPLE;
    expect_error(":status: 500\ncontent-type: application/json\ncontent-length: 18\n",
                 "{\"code\":\"code_17\"}");
    stand_call->protocol = PROTOCOL_CONNECT;
    expect_error(":status: 500\ncontent-type: application/json\ncontent-length: 18\n",
                 "{\"code\":\"unknown\"}");
    stand_call->status.code = RPC_UNIMPLEMENTED;
    assert_non_null(strstr(stand_end(&triple_codec, false), ":status: 501\n"));
    stand_call->protocol = PROTOCOL_TRIPLE;
    assert_non_null(strstr(stand_end(&triple_codec, false), ":status: 404\n"));
}

static void
the_providers_own_json_passes_in_its_own_dialect_only(void **state)
{
    (void)state;
    stand_call->protocol = PROTOCOL_TRIPLE;
    stand_call->status.code = RPC_NOT_FOUND;
    stand_call->reply.provider_error = TEXT("{\"code\":\"not_found\",\"more\":1}");
    stand_end(&triple_codec, false);
    expect_text(stand_call->reply.error_body, "{\"code\":\"not_found\",\"more\":1}");
    stand_call->protocol = PROTOCOL_CONNECT;
    stand_end(&triple_codec, false);
    expect_text(stand_call->reply.error_body, "{\"code\":\"not_found\"}");
}

static void
an_error_of_the_proxys_own_replaces_the_providers(void **state)
{
    (void)state;
    stand_call->protocol = PROTOCOL_TRIPLE;
    stand_call->reply.provider_error = TEXT("{\"code\":\"code_17\"}");
    call_set_error(stand_call, RPC_DEADLINE_EXCEEDED, REASON_DEADLINE_EXCEEDED, "too late");
    stand_end(&triple_codec, false);
    assert_non_null(memmem(stand_call->reply.error_body.ptr, stand_call->reply.error_body.len,
                           "deadline_exceeded", 17));
}

static void
framed_details_become_json_details(void **state)
{
    (void)state;
    stand_call->protocol = PROTOCOL_TRIPLE;
    stand_call->status.code = RPC_NOT_FOUND;
    /* Status{5, "b", [Any{"type.googleapis.com/a.B", 0x01}]} */
    stand_call->status.details_bin = TEXT("CAUSAWIaHAoXdHlwZS5nb29nbGVhcGlzLmNvbS9hLkISAQE");
    stand_end(&triple_codec, false);
    expect_text(stand_call->reply.error_body,
                "{\"code\":\"not_found\",\"details\":[{\"type\":\"a.B\",\"value\":\"AQ\"}]}");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        STAND_TEST(a_request_is_read_field_by_field),
        STAND_TEST(what_dubbo_go_refuses_is_refused),
        STAND_TEST(empty_fields_are_as_good_as_none),
        STAND_TEST(a_timeout_of_nothing_is_already_over),
        STAND_TEST(a_head_has_the_length_and_the_trailers),
        STAND_TEST(a_head_without_a_known_length_has_none),
        STAND_TEST(an_error_is_json_with_its_http_status),
        STAND_TEST(each_dialect_has_its_own_http_statuses_and_code_17),
        STAND_TEST(the_providers_own_json_passes_in_its_own_dialect_only),
        STAND_TEST(an_error_of_the_proxys_own_replaces_the_providers),
        STAND_TEST(framed_details_become_json_details),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
