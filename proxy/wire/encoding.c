/*
 * gzip of whole messages, and the names of encodings.
 *
 * Owns the zlib states: one inflate and one deflate per thread, kept from call to call (their
 * set-up costs more than a small message) and freed when the thread ends. Does not own when
 * something is compressed, nor the limits.
 *
 * Happy path of a gunzip: take the state, inflate straight into chunks until the last member ends
 * and the input is used up, move the chunks to the caller's queue. Several members in a row are one
 * message (RFC 1952 section 2.2). Failure modes: one byte over the limit, no whole stream, no
 * budget; each leaves the caller's queue as it was.
 */
#include "proxy/wire/encoding.h"

#include <errno.h>
#include <pthread.h>
#include <zlib.h>

#include "proxy/base/check.h"
#include "proxy/base/mem.h"

enum {
    WINDOW_GZIP = MAX_WBITS + 16, /* zlib: gzip wrapping only, 32K window */
    MEMORY_LEVEL = 8,
    DEFAULT_LEVEL = 6,
    BEST_RATIO = 1032, /* deflate cannot make more than this many bytes out of one */
    LARGEST_STEP = 64 * 1024,
};

struct coder {
    z_stream inflate, deflate;
    bool inflate_ready;
    int deflate_level; /* 0: not set up */
};

static pthread_once_t coder_once = PTHREAD_ONCE_INIT;
static pthread_key_t coder_key; /* only for its destructor at the end of a thread */
static _Thread_local struct coder *coder_of_thread;

enum encoding
encoding_of(struct text name)
{
    if (name.len == 0 || text_eq(name, TEXT("identity")))
        return ENCODING_IDENTITY;
    return text_eq(name, TEXT("gzip")) ? ENCODING_GZIP : ENCODING_OTHER;
}

/* Whether a parameter list such as "q=0.000" or "a=b;q=0" says no. */
static bool
weight_is_zero(struct text parameters)
{
    struct text parameter;

    while (text_next(&parameters, ';', &parameter)) {
        if (!text_starts_nocase(parameter, TEXT("q=")))
            continue;

        struct text weight = text_from(parameter, 2);
        size_t i = 0;

        while (i < weight.len && (weight.ptr[i] == '0' || weight.ptr[i] == '.'))
            i++;
        return i == weight.len;
    }
    return false;
}

bool
encoding_offered(struct text list, struct text name)
{
    struct text item;

    while (text_next(&list, ',', &item)) {
        ptrdiff_t semicolon = text_find(item, ';', 0);
        struct text offered = item, parameters = TEXT_NONE;

        if (semicolon >= 0) {
            offered.len = (size_t)semicolon;
            parameters = text_from(item, (size_t)semicolon + 1);
        }
        if (text_eq_nocase(text_trim(offered), name))
            return !weight_is_zero(parameters);
    }
    return false;
}

static void *
on_zlib_alloc(void *opaque, unsigned items, unsigned size)
{
    (void)opaque;
    return mem_alloc((size_t)items * size);
}

static void
on_zlib_free(void *opaque, void *memory)
{
    (void)opaque;
    mem_free(memory);
}

static void
on_thread_end(void *memory)
{
    struct coder *coder = memory;

    if (coder->inflate_ready)
        inflateEnd(&coder->inflate);
    if (coder->deflate_level != 0)
        deflateEnd(&coder->deflate);
    mem_free(coder);
}

static void
on_first_use(void)
{
    check(pthread_key_create(&coder_key, on_thread_end) == 0);
}

static struct coder *
coder_get(void)
{
    struct coder *coder = coder_of_thread;

    if (coder != NULL)
        return coder;
    coder = mem_new(struct coder);
    coder->inflate.zalloc = coder->deflate.zalloc = on_zlib_alloc;
    coder->inflate.zfree = coder->deflate.zfree = on_zlib_free;
    pthread_once(&coder_once, on_first_use);
    check(pthread_setspecific(coder_key, coder) == 0);
    coder_of_thread = coder;
    return coder;
}

static z_stream *
inflate_get(void)
{
    struct coder *coder = coder_get();

    if (coder->inflate_ready) {
        check(inflateReset(&coder->inflate) == Z_OK);
    } else {
        check(inflateInit2(&coder->inflate, WINDOW_GZIP) == Z_OK);
        coder->inflate_ready = true;
    }
    return &coder->inflate;
}

static z_stream *
deflate_get(int level)
{
    struct coder *coder = coder_get();

    if (coder->deflate_level == level) {
        check(deflateReset(&coder->deflate) == Z_OK);
        return &coder->deflate;
    }
    if (coder->deflate_level != 0)
        deflateEnd(&coder->deflate);
    check(deflateInit2(&coder->deflate, level, Z_DEFLATED, WINDOW_GZIP, MEMORY_LEVEL,
                       Z_DEFAULT_STRATEGY) == Z_OK);
    coder->deflate_level = level;
    return &coder->deflate;
}

/* Where a stream's bytes go: a queue that grows by chunks. */
struct output {
    struct chunk_pool *pool;
    struct slices made;
    struct chunk *chunk; /* being filled; NULL before the first and after it was queued */
    uint64_t bytes;      /* written so far, the current chunk included */
    uint64_t limit;      /* most bytes that may be written */
    uint64_t expected;   /* bytes of the whole, a guess that only picks chunk sizes; 0: unknown */
};

/* The filled part of the current chunk becomes a slice. */
static void
output_queue(struct output *output)
{
    struct chunk *chunk = output->chunk;

    output->chunk = NULL;
    if (chunk == NULL)
        return;
    if (chunk->used == 0) {
        chunk_put(chunk);
        return;
    }
    slices_push(&output->made, (struct slice){chunk, chunk->data, chunk->used});
}

/* Room in the current chunk, or in a new one. 0 or -ENOBUFS. */
static int
output_room(struct output *output, z_stream *stream)
{
    uint64_t guess = output->expected > output->bytes ? output->expected - output->bytes : 0;

    if (output->chunk != NULL && output->chunk->used == output->chunk->cap)
        output_queue(output);
    if (output->chunk == NULL) {
        if (guess == 0) /* the guess was too low: grow by as much as there is */
            guess = output->bytes;
        output->chunk = chunk_get(output->pool, guess < LARGEST_STEP ? guess : LARGEST_STEP,
                                  output->bytes + guess);
        if (output->chunk == NULL)
            return -ENOBUFS;
    }

    uint64_t room = output->chunk->cap - output->chunk->used;
    uint64_t allowed = output->limit - output->bytes;

    stream->next_out = output->chunk->data + output->chunk->used;
    stream->avail_out = (unsigned)(room < allowed ? room : allowed);
    return 0;
}

static void
output_wrote(struct output *output, const z_stream *stream)
{
    uint32_t used = (uint32_t)(stream->next_out - output->chunk->data);

    output->bytes += used - output->chunk->used;
    output->chunk->used = used;
}

/* Hands the result over, or forgets it. */
static int
output_end(struct output *output, struct slices *out, int result)
{
    output_queue(output);
    if (result == 0)
        slices_move(out, &output->made, output->made.bytes);
    slices_fini(&output->made);
    return result;
}

/* Everything that one slice gives. *ended: the last member is complete. */
static int
gunzip_slice(z_stream *stream, struct output *output, const struct slice *slice, bool *ended)
{
    /* zlib reads through a pointer without const but does not write there. */
    stream->next_in = (Bytef *)(uintptr_t)slice->data;
    stream->avail_in = slice->len;
    do {
        if (*ended) {
            if (stream->avail_in == 0)
                return 0;
            *ended = false; /* another member, or garbage, which its header check finds */
            check(inflateReset(stream) == Z_OK);
        }
        if (output_room(output, stream) != 0)
            return -ENOBUFS;

        int status = inflate(stream, Z_NO_FLUSH);

        output_wrote(output, stream);
        if (output->bytes == output->limit)
            return -EFBIG;
        if (status != Z_OK && status != Z_BUF_ERROR && status != Z_STREAM_END)
            return -EINVAL;
        *ended = status == Z_STREAM_END;
    } while (stream->avail_in > 0 || stream->avail_out == 0);
    return 0;
}

/* The length that the last member's trailer states, as far as it can be true; a guess only. */
static uint64_t
stated_length(const struct slices *in, uint64_t most)
{
    const struct slice *last = &in->items[in->head + in->count - 1];
    const uint8_t *end = last->data + last->len;
    uint64_t length = 0;

    if (last->len < 4)
        return 0;
    for (int i = 1; i <= 4; i++)
        length = length << 8 | end[-i];
    if (length / BEST_RATIO > in->bytes || length > most)
        return 0;
    return length;
}

int
encoding_gunzip(struct chunk_pool *pool, const struct slices *in, struct slices *out,
                uint64_t max_bytes)
{
    if (in->bytes == 0)
        return 0;

    struct output output = {.pool = pool, .limit = max_bytes + (max_bytes < UINT64_MAX)};
    z_stream *stream = inflate_get();
    bool ended = false;
    int result = 0;

    slices_init(&output.made);
    output.expected = stated_length(in, max_bytes);
    for (uint32_t i = 0; i < in->count && result == 0; i++)
        result = gunzip_slice(stream, &output, &in->items[in->head + i], &ended);
    if (result == 0 && !ended)
        result = -EINVAL;
    return output_end(&output, out, result);
}

static int
gzip_slice(z_stream *stream, struct output *output, const struct slice *slice, int flush)
{
    int status = Z_OK;

    stream->next_in = (Bytef *)(uintptr_t)(slice != NULL ? slice->data : NULL);
    stream->avail_in = slice != NULL ? slice->len : 0;
    do {
        if (output_room(output, stream) != 0)
            return -ENOBUFS;
        status = deflate(stream, flush);
        check(status != Z_STREAM_ERROR);
        output_wrote(output, stream);
    } while (stream->avail_out == 0 && status != Z_STREAM_END);
    return 0;
}

int
encoding_gzip(struct chunk_pool *pool, const struct slices *in, struct slices *out, int level)
{
    struct output output = {.pool = pool, .limit = UINT64_MAX};
    z_stream *stream = deflate_get(level == 0 ? DEFAULT_LEVEL : level);
    int result = 0;

    slices_init(&output.made);
    output.expected = in->bytes / 2 + 32; /* text halves; the header and trailer are 18 bytes */
    for (uint32_t i = 0; i < in->count && result == 0; i++)
        result = gzip_slice(stream, &output, &in->items[in->head + i], Z_NO_FLUSH);
    if (result == 0)
        result = gzip_slice(stream, &output, NULL, Z_FINISH);
    return output_end(&output, out, result);
}
