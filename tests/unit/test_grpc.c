/* The gRPC server codec: requests as clients send them, replies as they take them. */
#include "call_stand.h"

#include "downstream/grpc.h"
#include "proxy/wire/status_proto.h"

#define HEAD                                                                                       \
    ":method: POST\n:scheme: http\n:path: /greet.Greeter/SayHello?x=1\n:authority: "               \
    "sidecar:17000\n"

static void
a_request_is_read_field_by_field(void **state)
{
    (void)state;
    assert_true(stand_read_request(&grpc_codec, HEAD
                                   "te: trailers\ncontent-type: application/grpc+json\n"
                                   "grpc-timeout: 250m\ngrpc-encoding: gzip\n"
                                   "grpc-accept-encoding: gzip, identity\nuser-agent: grpc-go/1\n"
                                   "x-a: 1\nx-a: 2\nx-b-bin: AQI=\ntri-service-version: 1.0\n"
                                   "tri-service-group: g\ngrpc-trace-bin: AA\nconnection: close\n"
                                   "accept-encoding: identity\ncontent-length: 9\n"));
    const struct call_request *request = &stand_call->request;
    expect_text(request->path, "/greet.Greeter/SayHello");
    expect_text(request->authority, "sidecar:17000");
    expect_text(request->encoding_name, "gzip");
    expect_text(request->accept_encoding, "gzip, identity");
    expect_text(request->service_version, "1.0");
    expect_text(request->service_group, "g");
    assert_int_equal(request->encoding, ENCODING_GZIP);
    assert_int_equal(request->form, FORM_FRAMED);
    assert_int_equal(request->timeout_ns, 250000000);
    assert_int_equal(request->content_length, -1);
    assert_string_equal(stand_lines(&request->metadata),
                        "user-agent: grpc-go/1\nx-a: 1\nx-a: 2\nx-b-bin: AQI=\n"
                        "grpc-trace-bin: AA\n");
}

static void
a_host_stands_in_for_a_missing_authority_only(void **state)
{
    (void)state;
    assert_true(stand_read_request(&grpc_codec, ":path: /a/b\nhost: one\n"));
    expect_text(stand_call->request.authority, "one");
    assert_true(stand_read_request(&grpc_codec, ":authority: two\nhost: three\n"));
    expect_text(stand_call->request.authority, "two");
}

static void
refuses_timeout(const char *lines)
{
    assert_false(stand_read_request(&grpc_codec, lines));
    assert_int_equal(stand_call->status.code, RPC_INTERNAL);
    assert_int_equal(stand_call->reason, REASON_BAD_TIMEOUT);
}

static void
malformed_timeouts_are_internal(void **state)
{
    static const char *const values[] = {"100000000n", "1",    "S",   "-1S",  "+5S", "1s",
                                         "1 S",        "1.5S", "1SS", "0x1S", ""};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        char lines[64];
        snprintf(lines, sizeof(lines), "grpc-timeout: %s\n", values[i]);
        refuses_timeout(lines);
        stand_teardown(state);
        stand_setup(state);
    }
    refuses_timeout("grpc-timeout: 1S\ngrpc-timeout: 9S\n");
}

static bool
is_dubbo(const char *lines)
{
    void *none = NULL;
    stand_teardown(&none);
    stand_setup(&none);
    assert_true(stand_read_request(&grpc_codec, lines));
    return stand_call->request.dubbo_client;
}

static void
dubbo_clients_are_known_by_their_fields(void **state)
{
    (void)state;
    assert_true(is_dubbo("user-agent: grpc-go-triple/0.1.0 (go1.26.8)\n"));
    assert_true(is_dubbo("tri-consumer-appname: app\n"));
    assert_true(is_dubbo("interface: a.B\nuser-agent: other\n"));
    assert_false(is_dubbo("user-agent: grpc-java-netty/1.85\ntri-service-version: 1.0\n"));
    assert_false(is_dubbo("user-agent: grpc-go/1.85\n"));
    assert_false(is_dubbo("x-a: 1\n"));
}

static void
a_head_carries_what_the_reply_has(void **state)
{
    (void)state;
    stand_add(&stand_call->reply.metadata, "x-a: 1\n");
    assert_string_equal(stand_head(&grpc_codec),
                        ":status: 200\ncontent-type: application/grpc\nx-a: 1\n");
    stand_call->request.codec = TEXT("hessian2");
    stand_call->reply.encoding_name = TEXT("gzip");
    assert_string_equal(stand_head(&grpc_codec),
                        ":status: 200\ncontent-type: application/grpc+hessian2\n"
                        "grpc-encoding: gzip\nx-a: 1\n");
}

static void
success_ends_in_a_status_and_the_trailers(void **state)
{
    (void)state;
    stand_add(&stand_call->reply.trailers, "x-cost: 9\n");
    assert_string_equal(stand_end(&grpc_codec, true), "grpc-status: 0\nx-cost: 9\n");
}

static void
an_error_without_a_head_is_trailers_only_with_all_metadata(void **state)
{
    (void)state;
    stand_call->status.code = RPC_NOT_FOUND;
    stand_call->status.message = TEXT("no \xc3\xbc, 100%");
    stand_add(&stand_call->reply.metadata, "x-lead: a\n");
    stand_add(&stand_call->reply.trailers, "x-trail: b\n");
    assert_string_equal(stand_end(&grpc_codec, false),
                        ":status: 200\ncontent-type: application/grpc\ngrpc-status: 5\n"
                        "grpc-message: no %C3%BC, 100%25\nx-lead: a\nx-trail: b\n");
}

static void
dubbo_clients_get_a_plus_escaped(void **state)
{
    (void)state;
    stand_call->status.code = RPC_NOT_FOUND;
    stand_call->status.message = TEXT("a+b");
    assert_string_equal(stand_end(&grpc_codec, true), "grpc-status: 5\ngrpc-message: a+b\n");
    stand_call->request.dubbo_client = true;
    assert_string_equal(stand_end(&grpc_codec, true), "grpc-status: 5\ngrpc-message: a%2Bb\n");
}

static void
details_as_received_pass_untouched(void **state)
{
    (void)state;
    stand_call->status.code = RPC_NOT_FOUND;
    stand_call->status.details_bin = TEXT("CAMSAW0="); /* code 3, padded: not ours to mend */
    assert_string_equal(stand_end(&grpc_codec, true),
                        "grpc-status: 5\ngrpc-status-details-bin: CAMSAW0=\n");
}

static void
dubbo_java_gets_the_message_inside_the_details_escaped_too(void **state)
{
    (void)state;
    /* Status{5, "a%b"} and Status{5, "a%25b"} */
    stand_call->status.code = RPC_NOT_FOUND;
    stand_call->status.message = TEXT("a%b");
    stand_call->status.details_bin = TEXT("CAUSA2ElYg");
    stand_call->request.dubbo_client = true; /* dubbo-go does not decode there */
    assert_string_equal(stand_end(&grpc_codec, true), "grpc-status: 5\ngrpc-message: a%25b\n"
                                                      "grpc-status-details-bin: CAUSA2ElYg\n");
    stand_call->request.java_client = true;
    assert_string_equal(stand_end(&grpc_codec, true), "grpc-status: 5\ngrpc-message: a%25b\n"
                                                      "grpc-status-details-bin: CAUSBWElMjVi\n");
    stand_call->status.message = TEXT("ab"); /* nothing to escape: untouched */
    assert_string_equal(stand_end(&grpc_codec, true), "grpc-status: 5\ngrpc-message: ab\n"
                                                      "grpc-status-details-bin: CAUSA2ElYg\n");
}

static void
an_unknown_encoding_is_answered_with_those_that_are_known(void **state)
{
    (void)state;
    stand_call->status.code = RPC_UNIMPLEMENTED;
    stand_call->reason = REASON_ENCODING;
    assert_string_equal(stand_end(&grpc_codec, true),
                        "grpc-status: 12\ngrpc-accept-encoding: identity,gzip\n");
}

static void
code_17_is_unknown_with_its_number_kept_for_grpc_clients(void **state)
{
    (void)state;
    static const struct rpc_detail own = {{"type.googleapis.com/a.B", 23}, {"\1\2", 2}};
    stand_call->status.code = RPC_BIZ;
    stand_call->status.message = TEXT("biz");
    stand_call->status.details = &own;
    stand_call->status.detail_count = 1;
    struct fields out;
    fields_init(&out, &stand_call->arena);
    grpc_codec.write_end(stand_call, &out, true);
    expect_text(fields_value(&out, TEXT("grpc-status")), "2");
    expect_text(fields_value(&out, TEXT("tri-status-code")), "17");
    struct rpc_status read = {0};
    assert_true(status_proto_read_details_bin(
        &stand_call->arena, fields_value(&out, TEXT("grpc-status-details-bin")), &read));
    assert_int_equal(read.detail_count, 2);
    expect_text(read.details[0].type_url, "type.googleapis.com/a.B");
    expect_text(read.details[1].type_url, "type.googleapis.com/google.rpc.ErrorInfo");
    assert_int_equal(stand_call->status.code, RPC_BIZ); /* the call's own status is untouched */
}

static void
code_17_stays_for_dubbo_clients(void **state)
{
    (void)state;
    stand_call->request.dubbo_client = true;
    stand_call->status.code = RPC_BIZ;
    assert_string_equal(stand_end(&grpc_codec, true), "grpc-status: 17\n");
}

static void
a_code_that_another_proxy_has_translated_is_not_told_twice(void **state)
{
    (void)state;
    stand_call->status.code = RPC_BIZ;
    stand_add(&stand_call->reply.trailers, "tri-status-code: 17\n");
    struct fields out;
    fields_init(&out, &stand_call->arena);
    grpc_codec.write_end(stand_call, &out, true);
    assert_int_equal(fields_count(&out, TEXT("tri-status-code")), 1);
}

static void
a_code_above_17_passes_as_its_number(void **state)
{
    (void)state;
    stand_call->status.code = 42;
    assert_string_equal(stand_end(&grpc_codec, true), "grpc-status: 42\n");
}

/* A message of `len` bytes of two each, with `detail_bytes` of details and so many of metadata. */
static void
check_fit(size_t len, size_t detail_bytes, size_t metadata, bool details_stay)
{
    void *none = NULL;
    stand_teardown(&none);
    stand_setup(&none);
    struct arena *arena = &stand_call->arena;
    char *message = arena_alloc(arena, len + 1), *value = arena_alloc(arena, detail_bytes + 1);
    for (size_t i = 0; i < len; i++)
        message[i] = i % 2 ? '\xbc' : '\xc3';
    memset(value, 'd', detail_bytes);
    struct rpc_detail detail = {TEXT("type.googleapis.com/a.B"), text_make(value, detail_bytes)};
    char *more = arena_alloc(arena, metadata + 1);
    memset(more, 'm', metadata);
    stand_call->status = (struct rpc_status){.code = RPC_INTERNAL,
                                             .message = text_make(message, len),
                                             .details = &detail,
                                             .detail_count = detail_bytes > 0};
    if (metadata > 0)
        fields_add(&stand_call->reply.trailers, TEXT("x"), text_make(more, metadata), 0);
    struct fields out;
    fields_init(&out, arena);
    grpc_codec.write_end(stand_call, &out, true);
    assert_true(fields_list_size(&out) <= 8192);
    struct text bin = fields_value(&out, TEXT("grpc-status-details-bin"));
    struct text encoded = fields_value(&out, TEXT("grpc-message"));
    assert_int_equal(encoded.len % 6, 0); /* whole characters of two escapes */
    assert_int_equal(bin.len > 0, details_stay);
}

static void
the_status_fits_into_8_kib_whatever_comes_with_it(void **state)
{
    (void)state;
    check_fit(100, 100, 0, true);
    check_fit(5000, 0, 0, false);
    check_fit(1000000, 0, 0, false);
    check_fit(5000, 1000, 0, true);
    check_fit(5000, 100, 5000, true);
    check_fit(100, 1000000, 0, false);
    check_fit(100000, 100000, 7000, false);
}

static void
a_cut_message_is_the_one_in_the_details(void **state)
{
    (void)state;
    static char message[9000];
    memset(message, 'a', sizeof(message));
    struct rpc_detail detail = {TEXT("type.googleapis.com/a.B"), TEXT("v")};
    stand_call->status = (struct rpc_status){.code = RPC_INTERNAL,
                                             .message = text_make(message, sizeof(message)),
                                             .details = &detail,
                                             .detail_count = 1};
    struct fields out;
    fields_init(&out, &stand_call->arena);
    grpc_codec.write_end(stand_call, &out, true);
    struct text cut = fields_value(&out, TEXT("grpc-message"));
    assert_in_range(cut.len, 1000, sizeof(message) - 1);
    struct rpc_status same = stand_call->status;
    same.message = cut;
    struct text expected = status_proto_details_bin(&stand_call->arena, &same);
    assert_true(text_eq(fields_value(&out, TEXT("grpc-status-details-bin")), expected));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        STAND_TEST(a_request_is_read_field_by_field),
        STAND_TEST(a_host_stands_in_for_a_missing_authority_only),
        STAND_TEST(malformed_timeouts_are_internal),
        STAND_TEST(dubbo_clients_are_known_by_their_fields),
        STAND_TEST(a_head_carries_what_the_reply_has),
        STAND_TEST(success_ends_in_a_status_and_the_trailers),
        STAND_TEST(an_error_without_a_head_is_trailers_only_with_all_metadata),
        STAND_TEST(dubbo_clients_get_a_plus_escaped),
        STAND_TEST(details_as_received_pass_untouched),
        STAND_TEST(dubbo_java_gets_the_message_inside_the_details_escaped_too),
        STAND_TEST(an_unknown_encoding_is_answered_with_those_that_are_known),
        STAND_TEST(code_17_is_unknown_with_its_number_kept_for_grpc_clients),
        STAND_TEST(code_17_stays_for_dubbo_clients),
        STAND_TEST(a_code_that_another_proxy_has_translated_is_not_told_twice),
        STAND_TEST(a_code_above_17_passes_as_its_number),
        STAND_TEST(the_status_fits_into_8_kib_whatever_comes_with_it),
        STAND_TEST(a_cut_message_is_the_one_in_the_details),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
