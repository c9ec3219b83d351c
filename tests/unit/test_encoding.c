/* encoding: names, offers, gzip of whole messages over slices: bombs, cuts, garbage, several
 * members. */
#include "wire_test.h"

#include <errno.h>
#include <pthread.h>

#include "proxy/base/mem.h"
#include "proxy/wire/encoding.h"

/* gzip of the text below. */
static const uint8_t hello_gz[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03,
                                   0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0xd7, 0x51, 0xc8, 0x40, 0xa2,
                                   0xb8, 0x00, 0xe7, 0x42, 0x6e, 0x52, 0x14, 0x00, 0x00, 0x00};
static const char hello[] = "hello, hello, hello\n";
/* gzip of nothing. */
static const uint8_t nothing_gz[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03,
                                     0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
/* As dubbo-go sent it over HTTP/1.1: a reply of 20004 bytes in 65, with an empty stored block
 * before the end. */
static const uint8_t captured_gz[] = {
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0xec, 0xc0, 0x21,
    0x11, 0x00, 0x00, 0x08, 0x04, 0xb0, 0xc3, 0x92, 0x96, 0x40, 0x08, 0xa2, 0x52,
    0xe3, 0xc5, 0xd6, 0xb7, 0x35, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x44, 0xf8,
    0x00, 0x00, 0x00, 0xff, 0xff, 0x1f, 0xba, 0x8f, 0xbf, 0x24, 0x4e, 0x00, 0x00};

static struct budget budget;
static struct chunk_pool pool;
static struct slices in, out;

static int
pool_setup(void **state)
{
    (void)state;
    budget_init(&budget, (uint64_t)64 << 20);
    chunk_pool_init(&pool, &budget);
    slices_init(&in);
    slices_init(&out);
    return 0;
}

static int
pool_teardown(void **state)
{
    (void)state;
    slices_fini(&in);
    slices_fini(&out);
    chunk_pool_fini(&pool); /* checks that no chunk is lost */
    return 0;
}

static void
append(struct slices *queue, const void *bytes, size_t len)
{
    assert_true(slices_append(queue, &pool, bytes, len, 0));
}

/* The bytes as slices of `step` each; the bytes must outlive the queue. */
static void
append_split(struct slices *queue, const uint8_t *bytes, size_t len, size_t step)
{
    for (size_t i = 0; i < len; i += step)
        slices_push(queue,
                    (struct slice){NULL, bytes + i, (uint32_t)(len - i < step ? len - i : step)});
}

static void
assert_out(const void *bytes, size_t len)
{
    char *copy = mem_alloc(len + 1);

    assert_int_equal(out.bytes, len);
    slices_peek(&out, copy, len);
    assert_memory_equal(copy, bytes, len);
    mem_free(copy);
    slices_clear(&out);
}

static void
names_of_encodings_are_exact(void **state)
{
    (void)state;
    assert_int_equal(encoding_of(TEXT_NONE), ENCODING_IDENTITY);
    assert_int_equal(encoding_of(TEXT("identity")), ENCODING_IDENTITY);
    assert_int_equal(encoding_of(TEXT("gzip")), ENCODING_GZIP);
    assert_int_equal(encoding_of(TEXT("GZIP")), ENCODING_OTHER);
    assert_int_equal(encoding_of(TEXT("gzip,gzip")), ENCODING_OTHER);
    assert_int_equal(encoding_of(TEXT("snappy")), ENCODING_OTHER);
}

static void
offers_are_lists_with_weights(void **state)
{
    static const char *const yes[] = {
        "gzip",         " gzip , identity ", "identity,gzip", "br;q=1, gzip;q=0.5",
        "gzip;q=0.001", "gzip; q=1.0",       "GZIP",          ",,gzip,"};
    static const char *const no[] = {
        "",      "identity", "br,snappy", "gzip;q=0", "gzip ; q=0.000",  "gzip;Q=0",
        "xgzip", "gzipx",    "x-gzip",    "*",        "identity;q=gzip", "gz ip"};

    (void)state;
    for (size_t i = 0; i < COUNT(yes); i++)
        assert_true(encoding_offered(text_of(yes[i]), TEXT("gzip")));
    for (size_t i = 0; i < COUNT(no); i++)
        assert_false(encoding_offered(text_of(no[i]), TEXT("gzip")));
}

static void
a_stream_is_inflated_on_every_split(void **state)
{
    (void)state;
    for (size_t step = 1; step <= sizeof(hello_gz); step++) {
        append_split(&in, hello_gz, sizeof(hello_gz), step);
        assert_int_equal(encoding_gunzip(&pool, &in, &out, 1000), 0);
        assert_int_equal(in.bytes, sizeof(hello_gz));
        assert_out(hello, sizeof(hello) - 1);
        slices_clear(&in);
    }
}

static void
nothing_in_is_nothing_out(void **state)
{
    (void)state;
    assert_int_equal(encoding_gunzip(&pool, &in, &out, 0), 0);
    assert_int_equal(out.bytes, 0);
    append(&in, nothing_gz, sizeof(nothing_gz));
    assert_int_equal(encoding_gunzip(&pool, &in, &out, 0), 0);
    assert_int_equal(out.bytes, 0);
}

static void
a_cut_stream_is_refused_at_every_length(void **state)
{
    (void)state;
    for (size_t len = 1; len < sizeof(hello_gz); len++) {
        append_split(&in, hello_gz, len, 7);
        assert_int_equal(encoding_gunzip(&pool, &in, &out, 1000), -EINVAL);
        assert_int_equal(out.bytes, 0);
        slices_clear(&in);
    }
}

static void
any_changed_byte_of_data_or_trailer_is_noticed(void **state)
{
    uint8_t changed[sizeof(hello_gz)];

    (void)state;
    for (size_t i = 10; i < sizeof(hello_gz); i++) {
        memcpy(changed, hello_gz, sizeof(changed));
        changed[i] ^= 0x41;
        append(&in, changed, sizeof(changed));
        assert_int_equal(encoding_gunzip(&pool, &in, &out, 1000), -EINVAL);
        slices_clear(&in);
    }
}

static void
garbage_behind_the_stream_is_refused(void **state)
{
    static const char *const tails[] = {"x", "\x1f", "\x1f\x8b", "hello"};

    (void)state;
    for (size_t i = 0; i < COUNT(tails); i++) {
        append(&in, hello_gz, sizeof(hello_gz));
        append(&in, tails[i], strlen(tails[i]));
        assert_int_equal(encoding_gunzip(&pool, &in, &out, 1000), -EINVAL);
        slices_clear(&in);
    }
    append(&in, hello_gz, sizeof(hello_gz));
    append(&in, "\0", 1);
    assert_int_equal(encoding_gunzip(&pool, &in, &out, 1000), -EINVAL);
    assert_int_equal(out.bytes, 0);
}

static void
other_formats_are_refused(void **state)
{
    /* zlib and raw deflate of "a", a plain message */
    static const char *const others[] = {"x\x9cK\x04\x00\x00"
                                         "b\x00"
                                         "b",
                                         "K\x04\x00", "\x0a\x05hello"};
    static const size_t lengths[] = {9, 3, 7};

    (void)state;
    for (size_t i = 0; i < COUNT(others); i++) {
        append(&in, others[i], lengths[i]);
        assert_int_equal(encoding_gunzip(&pool, &in, &out, 1000), -EINVAL);
        slices_clear(&in);
    }
}

static void
several_members_are_one_message(void **state)
{
    (void)state;
    for (size_t step = 1; step < 100; step += 9) {
        uint8_t members[2 * sizeof(hello_gz) + sizeof(nothing_gz)];

        memcpy(members, hello_gz, sizeof(hello_gz));
        memcpy(members + sizeof(hello_gz), nothing_gz, sizeof(nothing_gz));
        memcpy(members + sizeof(hello_gz) + sizeof(nothing_gz), hello_gz, sizeof(hello_gz));
        append_split(&in, members, sizeof(members), step);
        assert_int_equal(encoding_gunzip(&pool, &in, &out, 40), 0);
        assert_out("hello, hello, hello\nhello, hello, hello\n", 40);
        assert_int_equal(encoding_gunzip(&pool, &in, &out, 39), -EFBIG);
        slices_clear(&in);
    }
}

static void
the_limit_is_exact(void **state)
{
    (void)state;
    append(&in, hello_gz, sizeof(hello_gz));
    assert_int_equal(encoding_gunzip(&pool, &in, &out, 20), 0);
    assert_out(hello, 20);
    assert_int_equal(encoding_gunzip(&pool, &in, &out, 19), -EFBIG);
    assert_int_equal(encoding_gunzip(&pool, &in, &out, 0), -EFBIG);
    assert_int_equal(encoding_gunzip(&pool, &in, &out, UINT64_MAX), 0);
    assert_out(hello, 20);
}

/* 32 MiB of zeros in about 32 KiB. */
static void
make_bomb(void)
{
    static const uint8_t zeros[1 << 16];
    struct slices plain;

    slices_init(&plain);
    for (int i = 0; i < 512; i++)
        slices_push(&plain, (struct slice){NULL, zeros, sizeof(zeros)});
    assert_int_equal(encoding_gzip(&pool, &plain, &in, 9), 0);
    slices_fini(&plain);
}

static void
a_bomb_stops_one_byte_after_the_limit(void **state)
{
    (void)state;
    make_bomb();
    assert_true(in.bytes < 64 * 1024);

    uint64_t before = pool.lease.used;

    assert_int_equal(encoding_gunzip(&pool, &in, &out, 1 << 20), -EFBIG);
    assert_int_equal(out.bytes, 0);
    assert_int_equal(pool.lease.used, before);
    assert_true(pool.lease.peak < before + (2 << 20));
    assert_int_equal(encoding_gunzip(&pool, &in, &out, 32 << 20), 0);
    assert_int_equal(out.bytes, 32 << 20);
}

static void
a_budget_that_runs_out_is_said_and_given_back(void **state)
{
    struct budget small;
    struct chunk_pool tight;

    (void)state;
    budget_init(&small, 4 << 20);
    chunk_pool_init(&tight, &small);
    make_bomb();
    assert_int_equal(encoding_gunzip(&tight, &in, &out, 64 << 20), -ENOBUFS);
    assert_int_equal(out.bytes, 0);
    assert_int_equal(tight.lease.used, 0);
    chunk_pool_fini(&tight);
}

static void
a_failure_leaves_what_was_in_the_queue(void **state)
{
    (void)state;
    append(&out, "before", 6);
    append(&in, hello_gz, sizeof(hello_gz) - 1);
    assert_int_equal(encoding_gunzip(&pool, &in, &out, 1000), -EINVAL);
    append(&in, hello_gz + sizeof(hello_gz) - 1, 1);
    assert_int_equal(encoding_gunzip(&pool, &in, &out, 1000), 0);
    assert_out("beforehello, hello, hello\n", 26);
}

/* Its data ends in an empty stored block, as Go flushes. */
static void
a_captured_reply_is_inflated(void **state)
{
    uint8_t expected[20004];

    (void)state;
    memset(expected, 'p', sizeof(expected));
    memcpy(expected, "\x0a\xa0\x9c\x01", 4);
    append_split(&in, captured_gz, sizeof(captured_gz), 9);
    assert_int_equal(encoding_gunzip(&pool, &in, &out, sizeof(expected)), 0);
    assert_out(expected, sizeof(expected));
    assert_int_equal(encoding_gunzip(&pool, &in, &out, sizeof(expected) - 1), -EFBIG);
}

/* That length only picks chunk sizes: a false one is an error as any wrong trailer, and takes no
 * memory. */
static void
a_false_length_in_the_trailer_is_refused_cheaply(void **state)
{
    static const uint32_t lies[] = {0, 1, 19, 21, 30000, 60000, 1 << 20, UINT32_MAX};
    uint8_t lie[sizeof(hello_gz)];

    (void)state;
    memcpy(lie, hello_gz, sizeof(lie));
    for (size_t i = 0; i < COUNT(lies); i++) {
        memcpy(lie + sizeof(lie) - 4, &lies[i], 4);
        append(&in, lie, sizeof(lie));
        assert_int_equal(encoding_gunzip(&pool, &in, &out, 1 << 20), -EINVAL);
        assert_int_equal(out.bytes, 0);
        slices_clear(&in);
    }
    assert_true(pool.lease.peak <= 2 << 16);
}

static void
what_is_compressed_is_inflated_back_at_every_level_and_size(void **state)
{
    enum { MOST = 300000 };
    uint8_t *bytes = mem_alloc(MOST);
    uint32_t random = 1;

    (void)state;
    for (size_t i = 0; i < MOST; i++) {
        random = random * 1664525 + 1013904223;
        bytes[i] = (uint8_t)(i % 3 == 0 ? random >> 24 : i >> 4);
    }
    for (size_t len = 0; len <= MOST; len = len * 5 + 1)
        for (int level = 0; level <= 9; level += 3) {
            struct slices packed;

            slices_init(&packed);
            append(&in, bytes, len);
            assert_int_equal(encoding_gzip(&pool, &in, &packed, level), 0);
            assert_true(packed.bytes >= 20);
            assert_int_equal(encoding_gunzip(&pool, &packed, &out, len), 0);
            assert_out(bytes, len);
            slices_fini(&packed);
            slices_clear(&in);
        }
    mem_free(bytes);
}

static void
compressing_without_budget_says_so(void **state)
{
    static const uint8_t zeros[1 << 16];
    struct budget none;
    struct chunk_pool empty;

    (void)state;
    budget_init(&none, 100);
    chunk_pool_init(&empty, &none);
    slices_push(&in, (struct slice){NULL, zeros, sizeof(zeros)});
    assert_int_equal(encoding_gzip(&empty, &in, &out, 1), -ENOBUFS);
    assert_int_equal(out.bytes, 0);
    chunk_pool_fini(&empty);
}

static void *
use_and_end(void *unused)
{
    struct chunk_pool mine;
    struct slices from, to;

    (void)unused;
    chunk_pool_init(&mine, &budget);
    slices_init(&from);
    slices_init(&to);
    append_split(&from, hello_gz, sizeof(hello_gz), 5);
    int result = encoding_gunzip(&mine, &from, &to, 100);
    slices_clear(&from);
    result |= encoding_gzip(&mine, &to, &from, 0);
    slices_fini(&from);
    slices_fini(&to);
    chunk_pool_fini(&mine);
    return result == 0 ? &budget : NULL;
}

/* The leak checker of the address sanitizer is what would fail here. */
static void
threads_take_their_zlib_states_with_them(void **state)
{
    pthread_t threads[4];
    void *result;

    (void)state;
    for (size_t i = 0; i < COUNT(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_and_end, NULL), 0);
    for (size_t i = 0; i < COUNT(threads); i++) {
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_non_null(result);
    }
}

#undef TEST
#define TEST(name) cmocka_unit_test_setup_teardown(name, pool_setup, pool_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(names_of_encodings_are_exact),
        TEST(offers_are_lists_with_weights),
        TEST(a_stream_is_inflated_on_every_split),
        TEST(nothing_in_is_nothing_out),
        TEST(a_cut_stream_is_refused_at_every_length),
        TEST(any_changed_byte_of_data_or_trailer_is_noticed),
        TEST(garbage_behind_the_stream_is_refused),
        TEST(other_formats_are_refused),
        TEST(several_members_are_one_message),
        TEST(the_limit_is_exact),
        TEST(a_bomb_stops_one_byte_after_the_limit),
        TEST(a_budget_that_runs_out_is_said_and_given_back),
        TEST(a_failure_leaves_what_was_in_the_queue),
        TEST(a_captured_reply_is_inflated),
        TEST(a_false_length_in_the_trailer_is_refused_cheaply),
        TEST(what_is_compressed_is_inflated_back_at_every_level_and_size),
        TEST(compressing_without_budget_says_so),
        TEST(threads_take_their_zlib_states_with_them),
    };

    return cmocka_run_group_tests_name("encoding", tests, NULL, NULL);
}
