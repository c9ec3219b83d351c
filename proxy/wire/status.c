/*
 * RPC status tables: one row per code, two short lists per direction of the HTTP maps.
 *
 * Owns the numbers and names of codes in every protocol that this proxy speaks. Does not own what a
 * call does with them (retry, fallback, the details). Every function is total: whatever a peer
 * sends gets an answer, and no input that isn't a success becomes RPC_OK.
 */
#include "proxy/wire/status.h"

struct code_row {
    struct text name;      /* statuscodes.md; BIZ_ERROR is dubbo-go's word for 17 */
    struct text json_name; /* Connect protocol, "Error codes"; Triple adds code_17 */
    struct text decimal;
    uint16_t triple_http, connect_http;
};

#define ROW(number, upper, lower, triple, connect)                                                 \
    [number] = {TEXT(upper), TEXT(lower), TEXT(#number), triple, connect}

/* Row 0 has no JSON name of its own: an error body never says "ok". */
static const struct code_row code_rows[RPC_CODES] = {
    ROW(0, "OK", "unknown", 200, 200),
    ROW(1, "CANCELLED", "canceled", 408, 499),
    ROW(2, "UNKNOWN", "unknown", 500, 500),
    ROW(3, "INVALID_ARGUMENT", "invalid_argument", 400, 400),
    ROW(4, "DEADLINE_EXCEEDED", "deadline_exceeded", 408, 504),
    ROW(5, "NOT_FOUND", "not_found", 404, 404),
    ROW(6, "ALREADY_EXISTS", "already_exists", 409, 409),
    ROW(7, "PERMISSION_DENIED", "permission_denied", 403, 403),
    ROW(8, "RESOURCE_EXHAUSTED", "resource_exhausted", 429, 429),
    ROW(9, "FAILED_PRECONDITION", "failed_precondition", 412, 400),
    ROW(10, "ABORTED", "aborted", 409, 409),
    ROW(11, "OUT_OF_RANGE", "out_of_range", 400, 400),
    ROW(12, "UNIMPLEMENTED", "unimplemented", 404, 501),
    ROW(13, "INTERNAL", "internal", 500, 500),
    ROW(14, "UNAVAILABLE", "unavailable", 503, 503),
    ROW(15, "DATA_LOSS", "data_loss", 500, 500),
    ROW(16, "UNAUTHENTICATED", "unauthenticated", 401, 401),
    ROW(17, "BIZ_ERROR", "code_17", 500, 500),
};

/* Whatever is not a known code reads as UNKNOWN. */
static const struct code_row *
row_of(int code)
{
    return &code_rows[code >= 0 && code < RPC_CODES ? code : RPC_UNKNOWN];
}

struct text
status_name(int code)
{
    return row_of(code)->name;
}

struct text
status_json_name(int code)
{
    return row_of(code)->json_name;
}

int
status_from_json_name(struct text name, enum dialect dialect)
{
    int last = dialect == DIALECT_TRIPLE ? RPC_BIZ : RPC_UNAUTHENTICATED;

    for (int code = RPC_CANCELLED; code <= last; code++)
        if (text_eq(code_rows[code].json_name, name))
            return code;
    return -1;
}

int
status_to_http(int code, enum dialect dialect)
{
    const struct code_row *row = row_of(code);

    return dialect == DIALECT_TRIPLE ? row->triple_http : row->connect_http;
}

struct map_row {
    uint32_t from;
    int code;
};

static int
map_look_up(const struct map_row *rows, size_t count, uint32_t from, int otherwise)
{
    for (size_t i = 0; i < count; i++)
        if (rows[i].from == from)
            return rows[i].code;
    return otherwise;
}

#define MAP_LOOK_UP(rows, from, otherwise)                                                         \
    map_look_up(rows, sizeof(rows) / sizeof((rows)[0]), (uint32_t)(from), otherwise)

int
status_from_http(int http_status, enum dialect dialect)
{
    static const struct map_row triple[] = {
        {400, RPC_INVALID_ARGUMENT},   {401, RPC_UNAUTHENTICATED},   {403, RPC_PERMISSION_DENIED},
        {404, RPC_UNIMPLEMENTED},      {408, RPC_DEADLINE_EXCEEDED}, {412, RPC_FAILED_PRECONDITION},
        {413, RPC_RESOURCE_EXHAUSTED}, {429, RPC_UNAVAILABLE},       {431, RPC_RESOURCE_EXHAUSTED},
        {502, RPC_UNAVAILABLE},        {503, RPC_UNAVAILABLE},       {504, RPC_UNAVAILABLE},
    };

    if (dialect == DIALECT_TRIPLE)
        return MAP_LOOK_UP(triple, http_status, RPC_UNKNOWN);
    return status_from_http_framed(http_status); /* Connect took gRPC's table over */
}

int
status_from_http_framed(int http_status)
{
    static const struct map_row framed[] = {
        {400, RPC_INTERNAL},      {401, RPC_UNAUTHENTICATED}, {403, RPC_PERMISSION_DENIED},
        {404, RPC_UNIMPLEMENTED}, {429, RPC_UNAVAILABLE},     {502, RPC_UNAVAILABLE},
        {503, RPC_UNAVAILABLE},   {504, RPC_UNAVAILABLE},
    };

    return MAP_LOOK_UP(framed, http_status, RPC_UNKNOWN);
}

int
status_from_h2_error(uint32_t h2_error)
{
    static const struct map_row errors[] = {
        {0x7, RPC_UNAVAILABLE},          /* REFUSED_STREAM: nothing was processed */
        {0x8, RPC_CANCELLED},            /* CANCEL */
        {0xb, RPC_RESOURCE_EXHAUSTED},   /* ENHANCE_YOUR_CALM */
        {0xc, RPC_PERMISSION_DENIED},    /* INADEQUATE_SECURITY */
        {0x1f4, RPC_RESOURCE_EXHAUSTED}, /* dubbo-java 3.3: the thread pool is full */
    };

    return MAP_LOOK_UP(errors, h2_error, RPC_INTERNAL);
}

int
status_from_field(struct text value)
{
    int code = 0;

    if (value.len < 1 || value.len > 3)
        return -1;
    for (size_t i = 0; i < value.len; i++) {
        if (value.ptr[i] < '0' || value.ptr[i] > '9')
            return -1;
        code = code * 10 + (value.ptr[i] - '0');
    }
    return code;
}

struct text
status_code_text(int code)
{
    return code >= 0 && code < RPC_CODES ? code_rows[code].decimal : TEXT_NONE;
}
