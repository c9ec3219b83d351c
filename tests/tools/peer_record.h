/*
 * What was on the wire, one line per frame (HTTP/2) or head and body part (HTTP/1.1), for people
 * and for tests that read it:
 *
 *   12.345 recv c1 s1 HEADERS END_HEADERS len=71 | :method: POST | :path: /a.B/C
 *   12.351 recv c1 s1 DATA END_STREAM len=5 | 68 65 6c 6c 6f | hello
 *
 * milliseconds since the start, direction as the program sees it, connection and stream number,
 * frame type, flags, payload length, then header fields, or the first bytes in hexadecimal and as
 * text.
 *
 * Owns: the output file. A NULL record is a valid one that writes nothing; the callers test for
 * that before they prepare anything, so that measuring runs pay nothing.
 */
#ifndef TOOLS_PEER_RECORD_H
#define TOOLS_PEER_RECORD_H

#include <nghttp2/nghttp2.h>
#include <stdio.h>

#include "peer_bytes.h"

#define PEER_RECORD_DATA_BYTES 32u /* of each DATA frame that are shown */

struct peer_record {
    FILE *file;
    uint64_t start_ns;
};

/* path "-" is stdout. NULL when it cannot be written (errno says why). */
struct peer_record *peer_record_open(const char *path);
void peer_record_close(struct peer_record *record);

/* One frame; fields are the header fields of a block, data the first bytes of DATA. */
void peer_record_frame(struct peer_record *record, bool sent, unsigned connection,
                       const nghttp2_frame *frame, const nghttp2_nv *fields, size_t field_count,
                       const uint8_t *data, size_t data_len);
/* A free line: what it is, and text whose line ends become " | ". */
void peer_record_text(struct peer_record *record, bool sent, unsigned connection, const char *what,
                      const char *text, size_t text_len);
/* A free line with bytes. */
void peer_record_bytes(struct peer_record *record, bool sent, unsigned connection, const char *what,
                       const uint8_t *data, size_t len_bytes);

#endif
