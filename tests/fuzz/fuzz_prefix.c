/* The reader of length-prefixed messages: the same events however the bytes are split. */
#include "fuzz.h"

#include "proxy/wire/prefix.h"

struct digest {
    uint64_t events; /* a hash of events, lengths and body bytes; pieces of one body are one */
    size_t used;
};

static void
mix(struct digest *digest, uint64_t value)
{
    digest->events = (digest->events ^ value) * 0x100000001b3 + 1;
}

/* False after a bad flag. */
static bool
feed(struct prefix_reader *reader, struct digest *digest, const uint8_t *data, size_t len)
{
    uint8_t *copy = fuzz_copy(data, len);
    const uint8_t *next = copy, *body = NULL;
    size_t left = len, body_len = 0;
    enum prefix_event event;

    do {
        uint32_t before = reader->remaining;

        event = prefix_next(reader, &next, &left, &body, &body_len);
        check(left <= len && next == copy + (len - left));
        if (event == PREFIX_BODY) {
            check(body_len > 0 && body_len <= before && body + body_len == next);
            for (size_t i = 0; i < body_len; i++)
                mix(digest, body[i]);
        } else if (event != PREFIX_NEED_MORE) {
            mix(digest, 1000 + event);
            mix(digest, reader->current.length + ((uint64_t)reader->current.compressed << 40));
        }
    } while (event != PREFIX_NEED_MORE && event != PREFIX_BAD_FLAG);
    check(event == PREFIX_BAD_FLAG || left == 0);
    digest->used += len - left;
    free(copy);
    return event != PREFIX_BAD_FLAG;
}

static struct digest
digest_of(const uint8_t *data, size_t size, size_t step)
{
    struct prefix_reader reader = {.have = 0};
    struct digest digest = {0, 0};

    for (size_t at = 0; at < size; at += step)
        if (!feed(&reader, &digest, data + at, size - at < step ? size - at : step))
            break;
    mix(&digest, prefix_at_boundary(&reader));
    mix(&digest, reader.messages);
    return digest;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct digest whole = digest_of(data, size, size ? size : 1);

    for (size_t step = 1; step <= 7; step += 2) {
        struct digest split = digest_of(data, size, step);

        check(split.events == whole.events && split.used == whole.used);
    }
    return 0;
}
