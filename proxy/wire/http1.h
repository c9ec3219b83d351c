/*
 * HTTP/1.1 messages (RFC 9112), strict: an incremental reader for requests and responses, and
 * writers.
 *
 * Refused, where lenient readers would guess: two lengths, length with chunked, any transfer-coding
 * but a lone final chunked, folded lines, bare CR or LF line ends, space before a colon, control
 * bytes, over-long heads. A reader uses its input up to the end of one message and stops there
 * (pipelining is the caller's).
 */
#ifndef TRIBUTARY_WIRE_HTTP1_H
#define TRIBUTARY_WIRE_HTTP1_H

#include "proxy/base/fields.h"
#include "proxy/base/strbuf.h"

enum http1_role { HTTP1_REQUEST, HTTP1_RESPONSE };

enum http1_event {
    HTTP1_NEED_MORE, /* all input used */
    HTTP1_HEAD,      /* the head is complete: reader fields below are valid */
    HTTP1_BODY,      /* *body and *body_len: body bytes, decoded from chunked */
    HTTP1_END,       /* the message is complete; trailers (chunked) are in reader->trailers */
    HTTP1_BAD, /* refused: reader->error says why (constant text), reader->error_status the answer
                  (400, 431, 505, 501) */
};

struct http1_reader {
    /* set by http1_reader_init */
    enum http1_role role;
    size_t max_head;     /* bytes of start line + fields */
    struct arena *arena; /* where head and trailer text goes */
    /* valid after HTTP1_HEAD */
    struct text method, target; /* request */
    int status; /* response; 1xx heads are reported as HTTP1_HEAD with interim set and no body */
    bool interim;
    int minor;                 /* HTTP/1.minor: 0 or 1 */
    struct fields fields;      /* names lower-cased */
    int64_t content_length;    /* -1: none */
    bool chunked, until_close; /* until_close: a response delimited by the end of the connection */
    bool keep_alive;           /* the connection may be used again after this message */
    bool expect_continue;
    struct fields trailers;
    const char *error; /* after HTTP1_BAD */
    int error_status;
    /* private */
    int state;
    uint64_t remaining;
    size_t line_len, head_len;
    char *line;
    size_t line_cap;
    bool head_request_reply;            /* set by http1_reader_expect_head */
    uint8_t lengths, codings, hosts;    /* how many fields of that name the head has (saturated) */
    bool close_asked, keep_alive_asked; /* tokens of the connection field */
};

void http1_reader_init(struct http1_reader *reader, enum http1_role role, size_t max_head,
                       struct arena *arena);
void http1_reader_fini(struct http1_reader *reader); /* frees what it holds; not the arena */
/* Ready for the next message on the same connection, with a fresh arena. */
void http1_reader_restart(struct http1_reader *reader, struct arena *arena);
/* The next response answers a HEAD request: no body whatever its length says. Call after init or
 * restart. */
void http1_reader_expect_head(struct http1_reader *reader);
/*
 * Step over input as prefix_next() does. After HTTP1_END and HTTP1_BAD nothing more is used and the
 * event repeats. All 1xx heads and the final one share max_head, so that a flood of 1xx ends;
 * fields of a 1xx head are valid until the next step. Text of the head is in the arena; *body
 * points into the input.
 */
enum http1_event http1_reader_next(struct http1_reader *reader, const uint8_t **data, size_t *len,
                                   const uint8_t **body, size_t *body_len);
/* The peer closed: HTTP1_END when the message ended there legally (until_close), else HTTP1_BAD /
 * NEED_MORE between messages. */
enum http1_event http1_reader_eof(struct http1_reader *reader);
/* True while no byte of a message has been read. */
bool http1_reader_idle(const struct http1_reader *reader);

/*
 * Writers append to a buffer. Fields with names that start with ':' are skipped, and so are those
 * whose name or value would break the message (line ends, control bytes); the caller adds host,
 * length, … Bytes that a request target must not have are percent-encoded.
 */
void http1_write_request(struct strbuf *out, struct text method, struct text target,
                         const struct fields *fields);
void http1_write_response(struct strbuf *out, int status, const struct fields *fields);
void http1_write_chunk_head(struct strbuf *out, uint64_t bytes); /* "1f\r\n" */
const char *http1_reason(int status);                            /* "Not Found"; "" when unknown */

#endif
