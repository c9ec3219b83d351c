/* status_proto: google.rpc.Status as grpc-status-details-bin, and ErrorInfo. */
#include "wire_test.h"

#include "proxy/wire/base64.h"
#include "proxy/wire/status_proto.h"

/* ErrorInfo{INTEROP, peers.example, {code: 17, detail: 1}} inside Status{17, "business error"}, as
 * dubbo-go sent it. */
#define CAPTURED                                                                                   \
    "CBESDmJ1c2luZXNzIGVycm9yGl0KKHR5cGUuZ29vZ2xlYXBpcy5jb20vZ29vZ2xlLnJwYy5FcnJvckluZm8SMQoHSU5U" \
    "RVJPUBINcGVlcnMuZXhhb"                                                                        \
    "XBsZRoKCgRjb2RlEgIxNxoLCgZkZXRhaWwSATE"
#define ERROR_INFO "type.googleapis.com/google.rpc.ErrorInfo"

static void
a_captured_status_is_written_byte_for_byte(void **state)
{
    const struct text pairs[] = {TEXT("code"), TEXT("17"), TEXT("detail"), TEXT("1")};
    struct rpc_detail detail =
        status_proto_error_info(&arena, TEXT("INTEROP"), TEXT("peers.example"), pairs, 2);
    struct rpc_status status = {
        .code = 17, .message = TEXT("business error"), .details = &detail, .detail_count = 1};

    (void)state;
    assert_str(detail.type_url, ERROR_INFO);
    assert_str(status_proto_details_bin(&arena, &status), CAPTURED);
}

static void
a_status_without_details_is_written(void **state)
{
    struct rpc_status status = {.code = 4, .message = TEXT("context deadline exceeded")};
    struct rpc_status bare = {.code = 5};

    (void)state;
    assert_str(status_proto_details_bin(&arena, &status),
               "CAQSGWNvbnRleHQgZGVhZGxpbmUgZXhjZWVkZWQ");
    assert_str(status_proto_details_bin(&arena, &bare), "CAU");
}

static void
only_details_are_read_from_a_captured_status(void **state)
{
    struct rpc_status status = {.code = 2, .message = TEXT("mine")};

    (void)state;
    assert_true(status_proto_read_details_bin(&arena, TEXT(CAPTURED), &status));
    assert_int_equal(status.code, 2);
    assert_str(status.message, "mine");
    assert_int_equal(status.detail_count, 1);
    assert_str(status.details[0].type_url, ERROR_INFO);
    assert_int_equal(status.details[0].value.len, 49);
    assert_memory_equal(status.details[0].value.ptr, "\x0a\x07INTEROP\x12\x0dpeers.example", 24);
}

static void
a_status_without_details_reads_as_none(void **state)
{
    struct rpc_status status = {.code = 2, .detail_count = 7};

    (void)state;
    assert_true(status_proto_read_details_bin(
        &arena,
        TEXT("CAwSP25vIGltcGxlbWVudGF0aW9uIGZvdW5kIGZvciBzZXJ2aWNlIGdyb3Vw"
             "ICBhbmQgc2VydmljZSB2ZXJzaW9uIA"),
        &status));
    assert_int_equal(status.detail_count, 0);
    assert_true(status_proto_read_details_bin(&arena, TEXT_NONE, &status));
    assert_int_equal(status.detail_count, 0);
}

static void
what_is_no_status_leaves_everything_alone(void **state)
{
    static const char *const bad[] = {"!!!", "CBE,CBE", "CA", "GgUKAg", "Gv____8P", "-_8", "A"};
    struct rpc_status status = {.code = 2, .detail_count = 7};

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_false(status_proto_read_details_bin(&arena, text_of(bad[i]), &status));
    assert_int_equal(status.detail_count, 7);
}

static void
a_status_cut_anywhere_never_reads_past_its_end(void **state)
{
    struct rpc_status status;
    struct text bytes;

    (void)state;
    assert_true(base64_decode(&arena, TEXT(CAPTURED), &bytes));
    for (size_t len = 0; len < bytes.len; len++) {
        struct text cut = base64_encode(&arena, text_make(bytes.ptr, len));

        status = (struct rpc_status){.code = 0};
        if (status_proto_read_details_bin(&arena, cut, &status))
            assert_int_equal(status.detail_count, 0); /* cut between two fields */
    }
}

static void
unknown_fields_are_skipped(void **state)
{
    struct rpc_status status = {.code = 0};
    struct text bytes = TEXT("\x08\x05\x12\x01m\x22\x01x\x98\x06\x01\x1a\x05\x0a\x03"
                             "a/b");

    (void)state;
    assert_true(status_proto_read_details_bin(&arena, base64_encode(&arena, bytes), &status));
    assert_int_equal(status.detail_count, 1);
    assert_str(status.details[0].type_url, "a/b");
    assert_int_equal(status.details[0].value.len, 0);
}

static void
texts_are_written_with_their_length_and_as_utf8(void **state)
{
    struct rpc_status status = {.code = 13, .message = TEXT("a\0b\xe9")};
    struct text bytes;

    (void)state;
    assert_true(base64_decode(&arena, status_proto_details_bin(&arena, &status), &bytes));
    assert_text(bytes, TEXT("\x08\x0d\x12\x06"
                            "a\0b\xef\xbf\xbd"));
}

static void
details_come_back_in_order(void **state)
{
    struct rpc_detail details[100];
    struct rpc_status status = {.code = 9, .details = details, .detail_count = COUNT(details)},
                      back = {.code = 0};

    (void)state;
    for (unsigned i = 0; i < COUNT(details); i++) {
        details[i].type_url = arena_printf(&arena, "t/%u", i);
        details[i].value = arena_printf(&arena, "%.*s", (int)i,
                                        "0123456789012345678901234567890123456789012345678901234"
                                        "567890123456789012345678901234567890123456789");
    }
    assert_true(
        status_proto_read_details_bin(&arena, status_proto_details_bin(&arena, &status), &back));
    assert_int_equal(back.detail_count, COUNT(details));
    for (unsigned i = 0; i < COUNT(details); i++) {
        assert_text(back.details[i].type_url, details[i].type_url);
        assert_text(back.details[i].value, details[i].value);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_captured_status_is_written_byte_for_byte),
        TEST(a_status_without_details_is_written),
        TEST(only_details_are_read_from_a_captured_status),
        TEST(a_status_without_details_reads_as_none),
        TEST(what_is_no_status_leaves_everything_alone),
        TEST(a_status_cut_anywhere_never_reads_past_its_end),
        TEST(unknown_fields_are_skipped),
        TEST(texts_are_written_with_their_length_and_as_utf8),
        TEST(details_come_back_in_order),
    };

    return cmocka_run_group_tests_name("status_proto", tests, NULL, NULL);
}
