/* One table of units serves reading and writing, so that what is written reads back the same. */
#include "proxy/config/values.h"

#include "proxy/base/clock.h"

struct unit {
    const char *name;
    uint64_t factor;
};

/* Largest first: that is the order in which writing tries them. */
static const struct unit TIME_UNITS[] = {
    {"h", 3600 * NS_PER_S}, {"m", 60 * NS_PER_S}, {"s", NS_PER_S},
    {"ms", NS_PER_MS},      {"us", NS_PER_US},    {"ns", 1},
};
static const struct unit SIZE_UNITS[] = {
    {"G", (uint64_t)1 << 30}, {"M", (uint64_t)1 << 20}, {"K", (uint64_t)1 << 10}, {"", 1}};

enum { TIME_UNIT_COUNT = sizeof(TIME_UNITS) / sizeof(*TIME_UNITS) };
enum { SIZE_UNIT_COUNT = sizeof(SIZE_UNITS) / sizeof(*SIZE_UNITS) };

static const uint64_t DURATION_MAX_NS = (uint64_t)10 * 365 * 86400 * NS_PER_S;

bool
values_number(struct text text, uint64_t *number)
{
    if (text.len > 1 && text.ptr[0] == '0')
        return false;
    return text_to_u64(text, number);
}

static size_t
digits(struct text text)
{
    size_t count = 0;
    while (count < text.len && text.ptr[count] >= '0' && text.ptr[count] <= '9')
        count++;
    return count;
}

static bool
with_unit(struct text text, const struct unit *units, unsigned count, uint64_t *value)
{
    size_t split = digits(text);
    uint64_t number, product;
    if (!values_number(text_make(text.ptr, split), &number))
        return false;
    for (unsigned i = 0; i < count; i++) {
        if (!text_eq(text_from(text, split), text_of(units[i].name)))
            continue;
        if (__builtin_mul_overflow(number, units[i].factor, &product))
            return false;
        *value = product;
        return true;
    }
    return false;
}

static void
add_with_unit(struct strbuf *out, uint64_t value, const struct unit *units, unsigned count)
{
    unsigned i = 0;
    while (i + 1 < count && value % units[i].factor != 0)
        i++;
    strbuf_addf(out, "%llu%s", (unsigned long long)(value / units[i].factor), units[i].name);
}

bool
values_duration(struct text text, uint64_t *ns)
{
    uint64_t value;
    if (!with_unit(text, TIME_UNITS, TIME_UNIT_COUNT, &value) || value > DURATION_MAX_NS)
        return false;
    *ns = value;
    return true;
}

void
values_add_duration(struct strbuf *out, uint64_t ns)
{
    if (ns == 0)
        strbuf_add_str(out, "0s");
    else
        add_with_unit(out, ns, TIME_UNITS, TIME_UNIT_COUNT);
}

bool
values_size(struct text text, uint64_t *bytes)
{
    return with_unit(text, SIZE_UNITS, SIZE_UNIT_COUNT, bytes);
}

void
values_add_size(struct strbuf *out, uint64_t bytes)
{
    if (bytes == 0)
        strbuf_add_str(out, "0");
    else
        add_with_unit(out, bytes, SIZE_UNITS, SIZE_UNIT_COUNT);
}

bool
values_bool(struct text text, bool *on)
{
    if (!text_eq(text, TEXT("on")) && !text_eq(text, TEXT("off")))
        return false;
    *on = text.len == 2;
    return true;
}

bool
values_rate(struct text text, uint64_t *count, uint64_t *window_ns)
{
    uint64_t number, ns;
    ptrdiff_t slash = text_find(text, '/', 0);
    if (text_eq(text, TEXT("off"))) {
        *count = 0;
        *window_ns = NS_PER_S;
        return true;
    }
    if (slash < 0 || !values_number(text_make(text.ptr, (size_t)slash), &number) ||
        !values_duration(text_from(text, (size_t)slash + 1), &ns) || number == 0 || ns == 0)
        return false;
    *count = number;
    *window_ns = ns;
    return true;
}

void
values_add_rate(struct strbuf *out, uint64_t count, uint64_t window_ns)
{
    if (count == 0) {
        strbuf_add_str(out, "off");
        return;
    }
    strbuf_addf(out, "%llu/", (unsigned long long)count);
    values_add_duration(out, window_ns);
}

/* The digits behind the point of a percentage, as hundredths; false over two digits. */
static bool
hundredths(struct text text, uint64_t *value)
{
    if (text.len == 0 || text.len > 2 || !text_to_u64(text, value))
        return false;
    if (text.len == 1)
        *value *= 10;
    return true;
}

bool
values_share(struct text text, uint32_t *share)
{
    uint64_t whole, part = 0;
    bool on;
    if (values_bool(text, &on)) {
        *share = on ? VALUES_SHARE_ALL : 0;
        return true;
    }
    if (!text_ends(text, TEXT("%")))
        return false;
    text.len--;
    ptrdiff_t point = text_find(text, '.', 0);
    if (point >= 0 && !hundredths(text_from(text, (size_t)point + 1), &part))
        return false;
    if (!values_number(text_make(text.ptr, point < 0 ? text.len : (size_t)point), &whole) ||
        whole > 100 || whole * 100 + part > VALUES_SHARE_ALL)
        return false;
    *share = (uint32_t)(whole * 100 + part);
    return true;
}

void
values_add_share(struct strbuf *out, uint32_t share)
{
    uint32_t part = share % 100;
    if (share == 0 || share == VALUES_SHARE_ALL)
        strbuf_add_str(out, share ? "on" : "off");
    else if (part == 0)
        strbuf_addf(out, "%u%%", share / 100);
    else if (part % 10 == 0)
        strbuf_addf(out, "%u.%u%%", share / 100, part / 10);
    else
        strbuf_addf(out, "%u.%02u%%", share / 100, part);
}

bool
values_mode(struct text text, uint32_t *mode)
{
    uint32_t bits = 0;
    if (text.len < 3 || text.len > 4 || (text.len == 4 && text.ptr[0] != '0'))
        return false;
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '7')
            return false;
        bits = bits * 8 + (uint32_t)(text.ptr[i] - '0');
    }
    *mode = bits;
    return true;
}
