/*
 * Header names to their meaning.
 *
 * Owns the list of names that are anything but metadata. Does not own what a codec does with a
 * class. A look-up is one switch on the length and at most four comparisons; most metadata names
 * meet none.
 */
#include "proxy/wire/header_class.h"

#include "proxy/wire/swar.h"

struct named_class {
    const char *name; /* as long as the group says */
    enum header_class class;
};

enum { LONGEST = 3 * SWAR_BYTES, GROUP = 7 };

/* By length of the name; unused rows end a group. */
static const struct named_class classes[LONGEST + 1][GROUP] = {
    [2] = {{"te", HEADER_TE}},
    [4] = {{"host", HEADER_HOST}, {"date", HEADER_DATE_SERVER_NOISE}},
    [5] = {{":path", HEADER_PATH}, {"allow", HEADER_DATE_SERVER_NOISE}},
    [6] = {{"accept", HEADER_ACCEPT},
           {"expect", HEADER_EXPECT},
           {"server", HEADER_DATE_SERVER_NOISE}},
    [7] = {{":method", HEADER_METHOD},
           {":scheme", HEADER_SCHEME},
           {":status", HEADER_STATUS},
           {"trailer", HEADER_TRAILER},
           {"upgrade", HEADER_HOP},
           {"alt-svc", HEADER_DATE_SERVER_NOISE}},
    [8] = {{"trailer-", HEADER_TRAILER_EMPTY}},
    [10] = {{":authority", HEADER_AUTHORITY},
            {"user-agent", HEADER_USER_AGENT},
            {"connection", HEADER_HOP},
            {"keep-alive", HEADER_HOP}},
    [11] = {{"grpc-status", HEADER_GRPC_STATUS}, {"accept-post", HEADER_DATE_SERVER_NOISE}},
    [12] = {{"content-type", HEADER_CONTENT_TYPE},
            {"grpc-timeout", HEADER_GRPC_TIMEOUT},
            {"grpc-message", HEADER_GRPC_MESSAGE}},
    [13] = {{"grpc-encoding", HEADER_GRPC_ENCODING}},
    [14] = {{"content-length", HEADER_CONTENT_LENGTH}},
    [15] = {{"accept-encoding", HEADER_ACCEPT_ENCODING},
            {"tri-status-code", HEADER_TRI_STATUS_CODE}},
    [16] = {{"content-encoding", HEADER_CONTENT_ENCODING}, {"proxy-connection", HEADER_HOP}},
    [17] = {{"triple-timeout-ms", HEADER_TRIPLE_TIMEOUT},
            {"tri-service-group", HEADER_TRI_SERVICE_GROUP},
            {"transfer-encoding", HEADER_HOP}},
    [18] = {{"connect-timeout-ms", HEADER_CONNECT_TIMEOUT}},
    [19] = {{"tri-service-version", HEADER_TRI_SERVICE_VERSION}},
    [20] = {{"grpc-accept-encoding", HEADER_GRPC_ACCEPT_ENCODING}},
    [23] = {{"grpc-status-details-bin", HEADER_GRPC_STATUS_DETAILS},
            {"triple-protocol-version", HEADER_TRIPLE_VERSION}},
    [24] = {{"connect-protocol-version", HEADER_CONNECT_VERSION}},
};

/* Two names of the same length, from the group of that length: words that overlap in the middle. */
static bool
same(const char *a, const char *b, size_t len)
{
    if (len < SWAR_BYTES)
        return memcmp(a, b, len) == 0;
    return swar_load(a) == swar_load(b) &&
           swar_load(a + len - SWAR_BYTES) == swar_load(b + len - SWAR_BYTES) &&
           (len <= 2 * SWAR_BYTES || swar_load(a + SWAR_BYTES) == swar_load(b + SWAR_BYTES));
}

/* Apart: most names never come here, and the look-up itself needs no stack frame. */
static __attribute__((noinline)) enum header_class
prefix_class(struct text name)
{
    if (name.ptr[0] == ':')
        return HEADER_PSEUDO_OTHER;
    if (name.ptr[0] == 'g' && text_starts(name, TEXT("grpc-")))
        return HEADER_GRPC_OTHER;
    if (name.ptr[0] == 't' && text_starts(name, TEXT("trailer-")))
        return HEADER_TRAILER_PREFIXED;
    return HEADER_CUSTOM;
}

enum header_class
header_class_of(struct text name)
{
    if (name.len == 0)
        return HEADER_CUSTOM;
    if (name.len <= LONGEST) {
        const struct named_class *group = classes[name.len];

        for (; group->name != NULL; group++)
            if (group->name[0] == name.ptr[0] && same(group->name, name.ptr, name.len))
                return group->class;
    }
    return prefix_class(name);
}

/* RFC 9110 section 5.6.2, without capitals. */
static const bool name_bytes[256] = {
    ['!'] = 1, ['#'] = 1, ['$'] = 1, ['%'] = 1,         ['&'] = 1,         ['\''] = 1,
    ['*'] = 1, ['+'] = 1, ['-'] = 1, ['.'] = 1,         ['^'] = 1,         ['_'] = 1,
    ['`'] = 1, ['|'] = 1, ['~'] = 1, ['0' ... '9'] = 1, ['a' ... 'z'] = 1,
};

bool
header_name_valid(struct text name)
{
    for (size_t i = 0; i < name.len; i++)
        if (!name_bytes[(uint8_t)name.ptr[i]])
            return false;
    return name.len > 0;
}

bool
header_token_valid(struct text token)
{
    for (size_t i = 0; i < token.len; i++)
        if (!name_bytes[(uint8_t)token.ptr[i]] && (token.ptr[i] < 'A' || token.ptr[i] > 'Z'))
            return false;
    return token.len > 0;
}

/* Every word of the text passes; the last one overlaps the one before, or is filled up. */
static inline __attribute__((always_inline)) bool
all_words(struct text text, bool (*passes)(uint64_t word))
{
    if (text.len < SWAR_BYTES)
        return passes(swar_load_short(text.ptr, text.len));
    for (size_t at = 0; at + SWAR_BYTES < text.len; at += SWAR_BYTES)
        if (!passes(swar_load(text.ptr + at)))
            return false;
    return passes(swar_load(text.ptr + text.len - SWAR_BYTES));
}

static inline bool
is_visible(uint64_t word)
{
    return !swar_has_less(word, 0x21) && !swar_has(word, 0x7f);
}

bool
header_visible(struct text text)
{
    return all_words(text, is_visible);
}

/* A tab is legal but rare. */
static __attribute__((noinline)) bool
is_legal_by_byte(uint64_t word)
{
    for (int i = 0; i < SWAR_BYTES; i++, word >>= 8)
        if (((word & 0xff) < 0x20 && (word & 0xff) != '\t') || (word & 0xff) == 0x7f)
            return false;
    return true;
}

static inline bool
is_legal(uint64_t word)
{
    return (!swar_has_less(word, 0x20) && !swar_has(word, 0x7f)) || is_legal_by_byte(word);
}

bool
header_value_valid(struct text value)
{
    return all_words(value, is_legal);
}
