/* content_type: which wire form and codec a type names. */
#include "wire_test.h"

#include "proxy/wire/content_type.h"

static void
assert_type(const char *value, enum content_kind kind, const char *codec, bool charset)
{
    struct content_type type = content_type_parse(&arena, text_of(value));

    assert_int_equal(type.kind, kind);
    assert_str(type.codec, codec);
    assert_int_equal(type.charset, charset);
}

static void
grpc_with_suffix_parameters_and_capitals_is_framed(void **state)
{
    (void)state;
    assert_type("application/grpc", CONTENT_GRPC, "proto", false);
    assert_type("application/grpc+proto", CONTENT_GRPC, "proto", false);
    assert_type("application/grpc+json", CONTENT_GRPC, "json", false);
    assert_type("application/grpc+thrift", CONTENT_GRPC, "thrift", false);
    assert_type("application/grpc+hessian2", CONTENT_GRPC, "hessian2", false);
    assert_type("application/grpc;charset=utf-8", CONTENT_GRPC, "proto", true);
    assert_type("application/grpc+proto; v=1", CONTENT_GRPC, "proto", true);
    assert_type("application/grpc ; v=1", CONTENT_GRPC, "proto", true);
    assert_type("Application/GRPC", CONTENT_GRPC, "proto", false);
    assert_type("APPLICATION/grpc+JSON", CONTENT_GRPC, "json", false);
    assert_type("application/grpc+x.y+z", CONTENT_GRPC, "x.y+z", false);
}

static void
other_application_types_are_bare_codecs(void **state)
{
    (void)state;
    assert_type("application/proto", CONTENT_BARE, "proto", false);
    assert_type("application/proto; charset=utf-8", CONTENT_BARE, "proto", true);
    assert_type("application/json", CONTENT_BARE, "json", false);
    assert_type("application/JSON;charset=UTF-8", CONTENT_BARE, "json", true);
    assert_type(" application/json ", CONTENT_BARE, "json", false);
    assert_type("application/hessian2", CONTENT_BARE, "hessian2", false);
    assert_type("application/msgpack", CONTENT_BARE, "msgpack", false);
    assert_type("application/cbor", CONTENT_BARE, "cbor", false);
}

static void
what_no_rpc_speaks_is_other(void **state)
{
    static const char *const foreign[] = {
        "text/plain",
        "text/html",
        "application/grpc-web",
        "application/grpc-web+proto",
        "application/grpcfoo",
        "application/grpc+",
        "application/",
        "application",
        "grpc",
        "application/octet-stream",
        "application/x-www-form-urlencoded",
        "application/xml",
        "application/problem+json",
        "application/soap+xml",
        "application/connect+proto",
        "application/js on",
        "application/json, application/json",
        "application/json/x",
        "multipart/form-data; boundary=x",
        "application /json",
        "*/*",
        "application/\xc3\xa9",
    };

    (void)state;
    for (size_t i = 0; i < COUNT(foreign); i++)
        assert_int_equal(content_type_parse(&arena, text_of(foreign[i])).kind, CONTENT_OTHER);
}

static void
nothing_is_absent(void **state)
{
    (void)state;
    assert_type("", CONTENT_ABSENT, "", false);
    assert_int_equal(content_type_parse(&arena, TEXT("application/gr\0c")).kind, CONTENT_OTHER);
}

static void
codecs_give_their_types_back(void **state)
{
    static const char *const codecs[][3] = {
        {"proto", "application/grpc", "application/proto"},
        {"json", "application/grpc+json", "application/json"},
        {"hessian2", "application/grpc+hessian2", "application/hessian2"},
        {"x.y", "application/grpc+x.y", "application/x.y"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(codecs); i++) {
        assert_str(content_type_framed(&arena, text_of(codecs[i][0])), codecs[i][1]);
        assert_str(content_type_bare(&arena, text_of(codecs[i][0])), codecs[i][2]);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(grpc_with_suffix_parameters_and_capitals_is_framed),
        TEST(other_application_types_are_bare_codecs),
        TEST(what_no_rpc_speaks_is_other),
        TEST(nothing_is_absent),
        TEST(codecs_give_their_types_back),
    };

    return cmocka_run_group_tests_name("content_type", tests, NULL, NULL);
}
