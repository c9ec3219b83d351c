/* status: names, and the maps between gRPC codes, JSON names, HTTP statuses and HTTP/2 errors. */
#include "wire_test.h"

#include "proxy/wire/status.h"

struct spelled {
    int code;
    const char *name, *json;
    int triple, connect;
};

static const struct spelled codes[] = {
    {1, "CANCELLED", "canceled", 408, 499},
    {2, "UNKNOWN", "unknown", 500, 500},
    {3, "INVALID_ARGUMENT", "invalid_argument", 400, 400},
    {4, "DEADLINE_EXCEEDED", "deadline_exceeded", 408, 504},
    {5, "NOT_FOUND", "not_found", 404, 404},
    {6, "ALREADY_EXISTS", "already_exists", 409, 409},
    {7, "PERMISSION_DENIED", "permission_denied", 403, 403},
    {8, "RESOURCE_EXHAUSTED", "resource_exhausted", 429, 429},
    {9, "FAILED_PRECONDITION", "failed_precondition", 412, 400},
    {10, "ABORTED", "aborted", 409, 409},
    {11, "OUT_OF_RANGE", "out_of_range", 400, 400},
    {12, "UNIMPLEMENTED", "unimplemented", 404, 501},
    {13, "INTERNAL", "internal", 500, 500},
    {14, "UNAVAILABLE", "unavailable", 503, 503},
    {15, "DATA_LOSS", "data_loss", 500, 500},
    {16, "UNAUTHENTICATED", "unauthenticated", 401, 401},
};

static void
every_code_has_its_names_and_http_statuses(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(codes); i++) {
        assert_str(status_name(codes[i].code), codes[i].name);
        assert_str(status_json_name(codes[i].code), codes[i].json);
        assert_int_equal(status_to_http(codes[i].code, DIALECT_TRIPLE), codes[i].triple);
        assert_int_equal(status_to_http(codes[i].code, DIALECT_CONNECT), codes[i].connect);
        for (int dialect = DIALECT_TRIPLE; dialect <= DIALECT_CONNECT; dialect++)
            assert_int_equal(status_from_json_name(text_of(codes[i].json), dialect), codes[i].code);
    }
    assert_int_equal(status_to_http(RPC_OK, DIALECT_TRIPLE), 200);
    assert_str(status_name(RPC_OK), "OK");
}

static void
code_17_exists_in_triple_only(void **state)
{
    (void)state;
    assert_str(status_json_name(17), "code_17");
    assert_str(status_name(17), "BIZ_ERROR");
    assert_int_equal(status_to_http(17, DIALECT_TRIPLE), 500);
    assert_int_equal(status_from_json_name(TEXT("code_17"), DIALECT_TRIPLE), 17);
    assert_int_equal(status_from_json_name(TEXT("code_17"), DIALECT_CONNECT), -1);
}

static void
illegal_spellings_are_no_codes(void **state)
{
    static const char *const bad[] = {
        "code_0",    "code_5", "code_99",   "code_-1",    "code_18446744073709551616",
        "CODE_17",   "code_",  "ok",        "OK",         "CANCELED",
        "cancelled", "",       "not found", "not_found ", "17"};

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(status_from_json_name(text_of(bad[i]), DIALECT_TRIPLE), -1);
}

static void
codes_out_of_range_read_as_unknown(void **state)
{
    (void)state;
    assert_str(status_name(18), "UNKNOWN");
    assert_str(status_name(-1), "UNKNOWN");
    assert_str(status_json_name(999), "unknown");
    assert_int_equal(status_to_http(18, DIALECT_TRIPLE), 500);
    assert_str(status_code_text(17), "17");
    assert_str(status_code_text(0), "0");
    assert_int_equal(status_code_text(18).len, 0);
    assert_int_equal(status_code_text(-1).len, 0);
}

/* Every status that is not in the list gives `otherwise`. */
static void
assert_http_map(int (*map)(int), const int (*rows)[2], size_t count, int otherwise)
{
    for (int status = 100; status < 600; status++) {
        int expected = otherwise;

        for (size_t i = 0; i < count; i++)
            if (rows[i][0] == status)
                expected = rows[i][1];
        assert_int_equal(map(status), expected);
    }
}

static int
from_http_triple(int status)
{
    return status_from_http(status, DIALECT_TRIPLE);
}

static int
from_http_connect(int status)
{
    return status_from_http(status, DIALECT_CONNECT);
}

static void
http_statuses_without_json_give_the_dialects_code(void **state)
{
    static const int triple[][2] = {{400, 3}, {401, 16}, {403, 7}, {404, 12}, {408, 4},  {412, 9},
                                    {413, 8}, {429, 14}, {431, 8}, {502, 14}, {503, 14}, {504, 14}};
    static const int connect[][2] = {{400, 13}, {401, 16}, {403, 7},  {404, 12},
                                     {429, 14}, {502, 14}, {503, 14}, {504, 14}};

    (void)state;
    assert_http_map(from_http_triple, triple, COUNT(triple), 2);
    assert_http_map(from_http_connect, connect, COUNT(connect), 2);
    assert_http_map(status_from_http_framed, connect, COUNT(connect), 2);
}

static void
h2_error_codes_follow_the_grpc_table(void **state)
{
    static const int codes_of_error[] = {13, 13, 13, 13, 13, 13, 13, 14, 1, 13, 13, 8, 7, 13};

    (void)state;
    for (unsigned i = 0; i < COUNT(codes_of_error); i++)
        assert_int_equal(status_from_h2_error(i), codes_of_error[i]);
    assert_int_equal(status_from_h2_error(0xff), 13);
    assert_int_equal(status_from_h2_error(0x1f4), 8);
    assert_int_equal(status_from_h2_error(UINT32_MAX), 13);
}

static void
grpc_status_field_is_one_to_three_digits(void **state)
{
    static const char *const bad[] = {"",     "-1", "+1",  " 1",  "1 ",
                                      "1000", "x",  "1.0", "0x1", "99999999999"};

    (void)state;
    assert_int_equal(status_from_field(TEXT("0")), 0);
    assert_int_equal(status_from_field(TEXT("17")), 17);
    assert_int_equal(status_from_field(TEXT("999")), 999);
    assert_int_equal(status_from_field(TEXT("05")), 5);
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(status_from_field(text_of(bad[i])), -1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_code_has_its_names_and_http_statuses),
        TEST(code_17_exists_in_triple_only),
        TEST(illegal_spellings_are_no_codes),
        TEST(codes_out_of_range_read_as_unknown),
        TEST(http_statuses_without_json_give_the_dialects_code),
        TEST(h2_error_codes_follow_the_grpc_table),
        TEST(grpc_status_field_is_one_to_three_digits),
    };

    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
