/* The framed client codec: requests, and replies of Go and Java providers. */
#include "call_stand.h"

#include "proxy/base/clock.h"
#include "upstream/client_codecs.h"

static void
a_request_has_te_the_time_left_and_reserved_metadata(void **state)
{
    (void)state;
    stand_call->request.path = TEXT("/greet.Greeter/Chat");
    stand_call->request.codec = TEXT("json");
    stand_call->deadline_ns = clock_now_ns() + 3600 * NS_PER_S;
    stand_add(&stand_call->request.metadata, "x-a: 1\ngrpc-trace-bin: AA\n");
    const char *lines = stand_request(&framed_codec);
    const char *start = ":method: POST\n:scheme: http\n:path: /greet.Greeter/Chat\n"
                        ":authority: 10.0.0.9:20000\ncontent-type: application/grpc+json\n"
                        "te: trailers\ngrpc-timeout: 3";
    assert_memory_equal(lines, start, strlen(start));
    assert_non_null(strstr(lines, "\nx-a: 1\ngrpc-trace-bin: AA\n"));
    assert_null(strstr(lines, "triple-"));
    assert_null(strstr(lines, "content-length"));
}

static void
an_encoding_is_named_unless_it_is_taken_off(void **state)
{
    (void)state;
    stand_call->request.path = TEXT("/a/b");
    stand_call->request.encoding = ENCODING_GZIP;
    stand_call->request.encoding_name = TEXT("gzip");
    assert_non_null(strstr(stand_request(&framed_codec), "grpc-encoding: gzip\n"));
    stand_call->request_flow.inflate = true;
    assert_null(strstr(stand_request(&framed_codec), "grpc-encoding"));
}

static void
the_gzip_offer_is_passed_on_only_where_asked_for(void **state)
{
    (void)state;
    stand_call->request.path = TEXT("/a/b");
    stand_call->request.accept_encoding = TEXT("identity,gzip");
    assert_null(strstr(stand_request(&framed_codec), "grpc-accept-encoding"));
    stand_upstream.forward_accept_encoding = true;
    assert_non_null(strstr(stand_request(&framed_codec), "grpc-accept-encoding: gzip\n"));
}

#define HEAD ":status: 200\ncontent-type: application/grpc\n"

struct answer {
    const char *head, *body, *trailers;
    int code;
    const char *message; /* NULL: one of the proxy's own */
};

static const struct answer ANSWERS[] = {
    {HEAD, "", "grpc-status: 0\ngrpc-message: \n", RPC_OK, ""},
    {HEAD, "", "grpc-status: 7\ngrpc-message: no%20way\n", RPC_PERMISSION_DENIED, "no way"},
    {HEAD "grpc-status: 7\ngrpc-message: nope\n", NULL, NULL, RPC_PERMISSION_DENIED, "nope"},
    {HEAD "grpc-status: 0\n", NULL, NULL, RPC_OK, ""},
    {HEAD, "", NULL, RPC_UNKNOWN, NULL},
    {HEAD, NULL, NULL, RPC_UNKNOWN, NULL},
    {HEAD, "", "x-only: 1\n", RPC_UNKNOWN, NULL},
    {HEAD, "", "grpc-status: x\n", RPC_UNKNOWN, NULL},
    {HEAD, "", "grpc-status: 0\ngrpc-status: 5\n", RPC_UNKNOWN, NULL},
    {HEAD, "", "grpc-status: 17\ngrpc-message: biz\n", RPC_BIZ, "biz"},
    /* a status beside messages is no end */
    {HEAD "grpc-status: 0\n", "", NULL, RPC_UNKNOWN, NULL},
    /* dubbo-java 3.3: a status other than 200 and a raw message; also with a body behind */
    {":status: 500\ncontent-type: application/grpc\ngrpc-status: 5\n"
     "grpc-message: NOT_FOUND : 100% of %41 caf\xe9\n",
     NULL, NULL, RPC_NOT_FOUND, "NOT_FOUND : 100% of %41 caf\xc3\xa9"},
    {":status: 500\ncontent-type: application/grpc\ngrpc-status: 2\ngrpc-message: 100% of %41\n",
     NULL, NULL, RPC_UNKNOWN, "100% of %41"},
    {":status: 408\ncontent-type: application/grpc\ngrpc-status: 4\n", "", NULL,
     RPC_DEADLINE_EXCEEDED, ""},
    {":status: 404\ncontent-type: application/grpc\ngrpc-status: 12\n", NULL, NULL,
     RPC_UNIMPLEMENTED, ""},
    /* raw by its bytes though the status is 200; valid UTF-8 stays */
    {HEAD, "", "grpc-status: 2\ngrpc-message: caf\xc3\xa9 %41\n", RPC_UNKNOWN, "caf\xc3\xa9 %41"},
    {HEAD, "", "grpc-status: 2\ngrpc-message: caf%C3%A9 %41 %zz\n", RPC_UNKNOWN,
     "caf\xc3\xa9 A %zz"},
    /* pages */
    {":status: 502\ncontent-type: text/html\n", "<html>", NULL, RPC_UNAVAILABLE, NULL},
    {":status: 404\ncontent-type: text/plain\n", "404 page not found\n", NULL, RPC_UNIMPLEMENTED,
     NULL},
    {":status: 401\n", NULL, NULL, RPC_UNAUTHENTICATED, NULL},
    {":status: 200\ncontent-type: text/html\n", "<html>", NULL, RPC_UNKNOWN, NULL},
};

static void
each_kind_of_reply_has_its_status(void **state)
{
    for (size_t i = 0; i < sizeof(ANSWERS) / sizeof(ANSWERS[0]); i++) {
        const struct answer *answer = &ANSWERS[i];
        stand_teardown(state);
        stand_setup(state);
        stand_call->upstream_form = FORM_FRAMED;
        stand_read_reply(&framed_codec, answer->head, answer->body, answer->trailers);
        const struct call_reply *reply = &stand_call->reply;
        if (reply->status.code != answer->code)
            fail_msg("%s...%s: code %d", answer->head, answer->trailers ? answer->trailers : "",
                     reply->status.code);
        if (answer->message)
            expect_text(reply->status.message, answer->message);
        else
            assert_true(text_starts(reply->status.message, TEXT("tributary: ")));
    }
}

static void
metadata_is_leading_or_trailing_as_it_came(void **state)
{
    (void)state;
    stand_read_reply(&framed_codec,
                     HEAD "x-lead: 1\ngrpc-accept-encoding: gzip\nte: trailers\ndate: now\n"
                          "tri-service-version: 1\n",
                     "",
                     "grpc-status: 5\nx-trail: 2\ngrpc-foo: 3\ntri-exception-code: 4\n"
                     "tri-status-code: 17\n");
    assert_string_equal(stand_lines(&stand_call->reply.metadata),
                        "x-lead: 1\ntri-service-version: 1\n");
    assert_string_equal(stand_lines(&stand_call->reply.trailers),
                        "x-trail: 2\ntri-exception-code: 4\ntri-status-code: 17\n");
}

static void
the_fields_of_a_head_that_ends_are_trailers(void **state)
{
    (void)state;
    stand_read_reply(&framed_codec, HEAD "grpc-status: 5\nx-a: 1\n", NULL, NULL);
    assert_int_equal(stand_call->reply.metadata.count, 0);
    assert_string_equal(stand_lines(&stand_call->reply.trailers), "x-a: 1\n");
    assert_true(stand_call->reply.ends_with_head);
}

static void
details_stay_as_they_came(void **state)
{
    (void)state;
    stand_read_reply(&framed_codec, HEAD, "",
                     "grpc-status: 5\ngrpc-status-details-bin: CAMSAW0=\n");
    expect_text(stand_call->reply.status.details_bin, "CAMSAW0=");
}

static void
a_message_that_java_has_encoded_inside_the_details_is_decoded(void **state)
{
    (void)state;
    /* Status{5, "a%20b", [Any{"type.googleapis.com/a.B", 0x01}]} */
    stand_read_reply(
        &framed_codec, HEAD, "",
        "grpc-status: 5\ngrpc-message: a%20b\n"
        "grpc-status-details-bin: CAUSBWElMjBiGhwKF3R5cGUuZ29vZ2xlYXBpcy5jb20vYS5CEgEB\n");
    const struct rpc_status *status = &stand_call->reply.status;
    expect_text(status->message, "a b");
    assert_int_equal(status->details_bin.len, 0);
    assert_int_equal(status->detail_count, 1);
    expect_text(status->details[0].type_url, "type.googleapis.com/a.B");
}

static void
details_with_another_message_stay_as_they_came(void **state)
{
    (void)state;
    stand_read_reply(
        &framed_codec, HEAD, "",
        "grpc-status: 5\ngrpc-message: other\ngrpc-status-details-bin: CAUSBWElMjBi\n");
    expect_text(stand_call->reply.status.details_bin, "CAUSBWElMjBi");
}

static void
an_identity_encoding_is_none(void **state)
{
    (void)state;
    stand_read_reply(&framed_codec, HEAD "grpc-encoding: identity\n", "", "grpc-status: 0\n");
    assert_int_equal(stand_call->reply.encoding, ENCODING_IDENTITY);
    assert_int_equal(stand_call->reply.encoding_name.len, 0);
}

static void
a_wrapper_service_is_explained_to_grpc_clients_only(void **state)
{
    static const char head[] = HEAD "tri-exception-code: 3\n";
    stand_read_reply(&framed_codec, head, "", "grpc-status: 0\n");
    assert_int_equal(stand_call->reply.status.code, RPC_UNKNOWN);
    assert_non_null(memmem(stand_call->reply.status.message.ptr,
                           stand_call->reply.status.message.len, "wrapper", 7));
    stand_teardown(state);
    stand_setup(state);
    stand_call->request.dubbo_client = true;
    stand_read_reply(&framed_codec, head, "", "grpc-status: 0\n");
    assert_int_equal(stand_call->reply.status.code, RPC_OK);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        STAND_TEST(a_request_has_te_the_time_left_and_reserved_metadata),
        STAND_TEST(an_encoding_is_named_unless_it_is_taken_off),
        STAND_TEST(the_gzip_offer_is_passed_on_only_where_asked_for),
        STAND_TEST(each_kind_of_reply_has_its_status),
        STAND_TEST(metadata_is_leading_or_trailing_as_it_came),
        STAND_TEST(the_fields_of_a_head_that_ends_are_trailers),
        STAND_TEST(details_stay_as_they_came),
        STAND_TEST(a_message_that_java_has_encoded_inside_the_details_is_decoded),
        STAND_TEST(details_with_another_message_stay_as_they_came),
        STAND_TEST(an_identity_encoding_is_none),
        STAND_TEST(a_wrapper_service_is_explained_to_grpc_clients_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
