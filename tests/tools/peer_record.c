/* See peer_record.h. */
#include "peer_record.h"

#include <stdlib.h>
#include <string.h>
#include <uv.h>

static const char *const frame_names[] = {
    "DATA",         "HEADERS", "PRIORITY", "RST_STREAM",    "SETTINGS",
    "PUSH_PROMISE", "PING",    "GOAWAY",   "WINDOW_UPDATE", "CONTINUATION",
};

static const char *const setting_names[] = {
    "0",
    "HEADER_TABLE_SIZE",
    "ENABLE_PUSH",
    "MAX_CONCURRENT_STREAMS",
    "INITIAL_WINDOW_SIZE",
    "MAX_FRAME_SIZE",
    "MAX_HEADER_LIST_SIZE",
};

struct peer_record *
peer_record_open(const char *path)
{
    FILE *file = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    if (!file)
        return NULL;
    setvbuf(file, NULL, _IOLBF, 0); /* a reader beside us sees whole lines at once */
    struct peer_record *record = peer_alloc(sizeof *record);
    *record = (struct peer_record){.file = file, .start_ns = uv_hrtime()};
    return record;
}

void
peer_record_close(struct peer_record *record)
{
    if (!record)
        return;
    if (record->file != stdout)
        fclose(record->file);
    free(record);
}

static void
put_start(struct peer_record *record, bool sent, unsigned connection)
{
    fprintf(record->file, "%.3f %s c%u ", (double)(uv_hrtime() - record->start_ns) / 1e6,
            sent ? "send" : "recv", connection);
}

static void
put_hex(FILE *file, const uint8_t *data, size_t len_bytes, size_t whole_bytes)
{
    size_t shown = len_bytes < PEER_RECORD_DATA_BYTES ? len_bytes : PEER_RECORD_DATA_BYTES;
    if (shown)
        fputs(" |", file);
    for (size_t i = 0; i < shown; i++)
        fprintf(file, " %02x", data[i]);
    if (shown && shown < whole_bytes)
        fputs(" ...", file);
    if (shown)
        fputs(" | ", file);
    for (size_t i = 0; i < shown; i++)
        fputc(data[i] >= 0x20 && data[i] < 0x7f ? data[i] : '.', file);
}

/* Printable as it is, the rest as \xNN: a line stays a line. */
static void
put_printable(FILE *file, const uint8_t *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (text[i] >= 0x20 && text[i] < 0x7f)
            fputc(text[i], file);
        else
            fprintf(file, "\\x%02x", text[i]);
    }
}

static void
put_flags(FILE *file, const nghttp2_frame_hd *hd)
{
    bool ack = hd->type == NGHTTP2_SETTINGS || hd->type == NGHTTP2_PING;
    if (hd->flags & NGHTTP2_FLAG_ACK)
        fputs(ack ? " ACK" : " END_STREAM", file); /* the same bit */
    if (hd->type == NGHTTP2_HEADERS && hd->flags & NGHTTP2_FLAG_END_HEADERS)
        fputs(" END_HEADERS", file);
    if (!ack && hd->flags & NGHTTP2_FLAG_PADDED)
        fputs(" PADDED", file);
}

static void
put_settings(FILE *file, const nghttp2_settings *settings)
{
    for (size_t i = 0; i < settings->niv; i++) {
        int32_t id = settings->iv[i].settings_id;
        const char *name = id > 0 && id <= 6 ? setting_names[id] : NULL;
        fputs(" | ", file);
        if (name)
            fputs(name, file);
        else
            fprintf(file, "%d", id);
        fprintf(file, "=%u", settings->iv[i].value);
    }
}

void
peer_record_frame(struct peer_record *record, bool sent, unsigned connection,
                  const nghttp2_frame *frame, const nghttp2_nv *fields, size_t field_count,
                  const uint8_t *data, size_t data_len)
{
    FILE *file = record->file;
    const nghttp2_frame_hd *hd = &frame->hd;
    put_start(record, sent, connection);
    if (hd->type < sizeof frame_names / sizeof *frame_names)
        fprintf(file, "s%d %s", hd->stream_id, frame_names[hd->type]);
    else
        fprintf(file, "s%d TYPE_%u", hd->stream_id, hd->type);
    put_flags(file, hd);
    fprintf(file, " len=%zu", hd->length);
    for (size_t i = 0; i < field_count; i++) {
        fputs(" | ", file);
        put_printable(file, fields[i].name, fields[i].namelen);
        fputs(": ", file);
        put_printable(file, fields[i].value, fields[i].valuelen);
    }
    if (hd->type == NGHTTP2_DATA)
        put_hex(file, data, data_len, hd->length);
    else if (hd->type == NGHTTP2_SETTINGS)
        put_settings(file, &frame->settings);
    else if (hd->type == NGHTTP2_WINDOW_UPDATE)
        fprintf(file, " | increment=%d", frame->window_update.window_size_increment);
    else if (hd->type == NGHTTP2_RST_STREAM)
        fprintf(file, " | error=%s", nghttp2_http2_strerror(frame->rst_stream.error_code));
    else if (hd->type == NGHTTP2_GOAWAY)
        fprintf(file, " | last=%d error=%s", frame->goaway.last_stream_id,
                nghttp2_http2_strerror(frame->goaway.error_code));
    fputc('\n', file);
}

void
peer_record_text(struct peer_record *record, bool sent, unsigned connection, const char *what,
                 const char *text, size_t text_len)
{
    put_start(record, sent, connection);
    fprintf(record->file, "%s", what);
    while (text_len) {
        const char *end = memchr(text, '\n', text_len);
        size_t line = end ? (size_t)(end - text) : text_len;
        size_t shown = line && text[line - 1] == '\r' ? line - 1 : line;
        if (shown) {
            fputs(" | ", record->file);
            put_printable(record->file, (const uint8_t *)text, shown);
        }
        text += end ? line + 1 : line;
        text_len -= end ? line + 1 : line;
    }
    fputc('\n', record->file);
}

void
peer_record_bytes(struct peer_record *record, bool sent, unsigned connection, const char *what,
                  const uint8_t *data, size_t len_bytes)
{
    put_start(record, sent, connection);
    fprintf(record->file, "%s len=%zu", what, len_bytes);
    put_hex(record->file, data, len_bytes, len_bytes);
    fputc('\n', record->file);
}
