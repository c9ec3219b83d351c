/*
 * Deadlines on the wire: reading and writing the three timeout fields.
 *
 * Owns the grammar and the arithmetic. Not here: when a deadline starts, and what happens when it
 * has passed. Rounding is always up: a hop must not make a deadline shorter than the client asked
 * for, and a value that became 0 or got lost would mean "at once" or "never".
 */
#include "proxy/wire/timeout.h"

#include "proxy/base/clock.h"

#define TIMEOUT_MAX_NS ((uint64_t)INT64_MAX)

enum { GRPC_DIGITS = 8, MS_DIGITS = 10 };

static const struct {
    char letter;
    uint64_t ns;
} units[] = {
    /* finest first */
    {'n', 1},        {'u', NS_PER_US},     {'m', NS_PER_MS},
    {'S', NS_PER_S}, {'M', 60 * NS_PER_S}, {'H', 3600 * NS_PER_S},
};

enum { UNITS = sizeof(units) / sizeof(units[0]) };

static uint64_t
multiply_saturated(uint64_t value, uint64_t ns)
{
    return value > TIMEOUT_MAX_NS / ns ? TIMEOUT_MAX_NS : value * ns;
}

/* Decimal digits only, at most 19 of them. */
static bool
digits_of(const char *from, size_t len, uint64_t *value)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < len; i++) {
        unsigned digit = (unsigned)(from[i] - '0');

        if (digit > 9)
            return false;
        sum = sum * 10 + digit;
    }
    *value = sum;
    return len > 0;
}

bool
timeout_from_grpc(struct text value, uint64_t *timeout_ns)
{
    uint64_t count;

    if (value.len < 2 || value.len > GRPC_DIGITS + 1)
        return false;
    for (int i = 0; i < UNITS; i++) {
        if (units[i].letter != value.ptr[value.len - 1])
            continue;
        if (!digits_of(value.ptr, value.len - 1, &count))
            return false;
        *timeout_ns = multiply_saturated(count, units[i].ns);
        return true;
    }
    return false;
}

enum timeout_ms
timeout_from_ms(struct text value, uint64_t *timeout_ns)
{
    bool negative = false;
    uint64_t count;

    if (value.len == 0) { /* dubbo-go takes an empty field for none */
        *timeout_ns = TIMEOUT_MAX_NS;
        return TIMEOUT_MS_OK;
    }
    if (value.len > MS_DIGITS)
        return TIMEOUT_MS_BAD;
    if (value.ptr[0] == '-' || value.ptr[0] == '+') {
        negative = value.ptr[0] == '-';
        value = text_from(value, 1);
    }
    if (!digits_of(value.ptr, value.len, &count))
        return TIMEOUT_MS_BAD;
    *timeout_ns = negative ? 0 : multiply_saturated(count, NS_PER_MS);
    return *timeout_ns == 0 ? TIMEOUT_MS_EXPIRED : TIMEOUT_MS_OK;
}

/* value / by, rounded up, without the overflow of (value + by - 1). */
static uint64_t
divide_up(uint64_t value, uint64_t by)
{
    return value / by + (value % by != 0);
}

/* The number and, unless it is NUL, the unit behind it. */
static struct text
write_number(struct arena *arena, uint64_t number, char unit)
{
    enum { MOST = 24 };
    char *text = arena_alloc(arena, MOST);
    char *from = text + MOST;

    if (unit != '\0')
        *--from = unit;
    do {
        *--from = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    return text_make(from, (size_t)(text + MOST - from));
}

struct text
timeout_to_grpc(struct arena *arena, uint64_t timeout_ns)
{
    const uint64_t most = 99999999;

    if (timeout_ns == 0)
        timeout_ns = 1; /* the grammar wants a positive number */
    for (int i = 0; i < UNITS; i++) {
        uint64_t count = divide_up(timeout_ns, units[i].ns);

        if (count <= most)
            return write_number(arena, count, units[i].letter);
    }
    return write_number(arena, most, 'H');
}

struct text
timeout_to_ms(struct arena *arena, uint64_t timeout_ns)
{
    const uint64_t most = 9999999999;
    uint64_t count = divide_up(timeout_ns, NS_PER_MS);

    if (count == 0)
        count = 1; /* 0 would be answered as expired */
    return write_number(arena, count < most ? count : most, '\0');
}
