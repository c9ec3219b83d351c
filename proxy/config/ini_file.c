/*
 * Reads an INI file through inih, and sees to it that inih neither cuts nor swallows anything.
 *
 * inih as Debian builds it cuts lines at 199 bytes and section names at 49, takes an indented line
 * as a continuation, accepts `key: value` and ignores what follows a `]`. Its run-time variables
 * lift the first and the third; for the rest our reader looks at each line before inih gets it:
 * headings are kept here in full length, and a line that inih would misread becomes a complaint and
 * reaches inih empty. One call of the reader is one physical line, so the reader's count is the
 * line number.
 *
 * Failures: complaints only; the caller decides. Not reentrant across threads (inih's variables are
 * global, but always set to the same values).
 */
#include "proxy/config/ini_file.h"

#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proxy/base/mem.h"

enum { READ_STEP = 65536 };

struct reader {
    struct ini_file *file;
    struct complaints *complaints;
    struct text rest;
    unsigned line;
    struct ini_section *section; /* where entries go; NULL: before any, or after a bad heading */
    bool heading_seen; /* whether any heading came: a bad one must not blame all its keys */
};

void
ini_file_init(struct ini_file *file)
{
    *file = (struct ini_file){.sections = NULL};
    arena_init(&file->arena, NULL, 0);
}

void
ini_file_fini(struct ini_file *file)
{
    for (unsigned i = 0; i < file->count; i++)
        mem_free(file->sections[i].entries);
    mem_free(file->sections);
    arena_fini(&file->arena);
    *file = (struct ini_file){.sections = NULL};
}

static const char *
not_readable(const struct stat *info)
{
    if (S_ISDIR(info->st_mode))
        return "this is a directory; name the file in it, for example tributary.ini";
    if (!S_ISREG(info->st_mode))
        return "not a regular file, which is what a configuration has to be";
    if (info->st_size > INI_FILE_MAX)
        return "longer than 16M; a configuration is shorter";
    return NULL;
}

/* 0, or a negative errno. The file may grow while it is read: the limit is checked here too. */
static int
read_all(int fd, struct strbuf *bytes)
{
    for (;;) {
        ssize_t got = read(fd, strbuf_reserve(bytes, READ_STEP), READ_STEP);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            return 0;
        bytes->len += (size_t)got;
        if (bytes->len > INI_FILE_MAX)
            return -EFBIG;
    }
}

bool
ini_file_read(const char *path, struct strbuf *bytes, struct complaints *complaints)
{
    /* O_NONBLOCK: opening a FIFO must not hang the reload. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) < 0) {
        int error = errno;
        complaints_add(complaints, 0, TEXT_NONE, TEXT_NONE,
                       "cannot be read: %s; -c names another file", strerror(error));
        if (fd >= 0)
            close(fd);
        return false;
    }
    const char *why = not_readable(&info);
    int status = why ? 0 : read_all(fd, bytes);
    close(fd);
    if (!why && status < 0)
        why = strerror(-status);
    if (why)
        complaints_add(complaints, 0, TEXT_NONE, TEXT_NONE, "%s", why);
    return !why;
}

static struct text
section_label(const struct reader *reader)
{
    return reader->section ? reader->section->label : TEXT_NONE;
}

#define complain(reader, ...)                                                                      \
    complaints_add((reader)->complaints, (reader)->line, section_label(reader), TEXT_NONE,         \
                   __VA_ARGS__)

static bool
blank(char byte)
{
    return byte == ' ' || byte == '\t';
}

/* Without a comment behind it: from the first `;` that follows a blank. inih cuts at the same
 * place. */
static struct text
without_comment(struct text line)
{
    for (ptrdiff_t at = text_find(line, ';', 0); at >= 0; at = text_find(line, ';', (size_t)at + 1))
        if (at > 0 && blank(line.ptr[at - 1]))
            return text_trim(text_make(line.ptr, (size_t)at));
    return text_trim(line);
}

static bool
all_of(struct text text, const char *extra)
{
    for (size_t i = 0; i < text.len; i++) {
        char byte = text.ptr[i];
        bool plain =
            (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') || strchr(extra, byte);
        if (!plain || byte == '\0')
            return false;
    }
    return text.len > 0;
}

static const char UPPER_AND_MARKS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ._-";

static struct ini_section *
find_section(const struct ini_file *file, struct text kind, struct text name)
{
    for (unsigned i = 0; i < file->count; i++)
        if (text_eq(file->sections[i].kind, kind) && text_eq(file->sections[i].name, name))
            return &file->sections[i];
    return NULL;
}

static struct ini_section *
add_section(struct reader *reader, struct text kind, struct text name)
{
    struct ini_file *file = reader->file;
    if (file->count == file->cap) {
        file->cap = file->cap ? file->cap * 2 : 16;
        file->sections = mem_realloc(file->sections, file->cap * sizeof(*file->sections));
    }
    struct ini_section *section = &file->sections[file->count++];
    *section = (struct ini_section){.line = reader->line};
    section->label = name.len
                         ? arena_printf(&file->arena, "%.*s %.*s", TEXT_ARGS(kind), TEXT_ARGS(name))
                         : arena_copy(&file->arena, kind);
    section->kind = text_make(section->label.ptr, kind.len);
    section->name = name.len ? text_from(section->label, kind.len + 1) : TEXT_NONE;
    return section;
}

/* "[kind]", "[kind NAME]"; `line` is trimmed and starts with the bracket. */
static void
heading(struct reader *reader, struct text line)
{
    reader->section = NULL;
    reader->heading_seen = true;
    ptrdiff_t end = text_find(line, ']', 0);
    struct text inside = end < 0 ? TEXT_NONE : text_trim(text_make(line.ptr + 1, (size_t)end - 1));
    struct text behind = end < 0 ? TEXT_NONE : text_trim(text_from(line, (size_t)end + 1));
    if (end < 0) {
        complain(reader, "'%.*s' has no ']' that closes the section's name",
                 (int)(line.len > 60 ? 60 : line.len), line.ptr);
        return;
    }
    if (behind.len && behind.ptr[0] != ';') {
        complain(reader, "text behind ']'; a section's name stands alone on its line");
        return;
    }
    size_t split = 0;
    while (split < inside.len && !blank(inside.ptr[split]))
        split++;
    struct text kind = text_make(inside.ptr, split), name = text_trim(text_from(inside, split));
    if (!all_of(kind, "_-") || (name.len && !all_of(name, UPPER_AND_MARKS)) ||
        name.len > INI_NAME_MAX) {
        complain(
            reader,
            "'[%.*s]' is no section; write [proxy], or [upstream NAME] with a name of letters, "
            "digits, '.', '_' and '-', at most %d",
            (int)(inside.len > 80 ? 80 : inside.len), inside.len ? inside.ptr : "", INI_NAME_MAX);
        return;
    }
    const struct ini_section *first = find_section(reader->file, kind, name);
    if (first)
        complain(reader,
                 "[%.*s] is there already, in line %u; merge the two or give one another name",
                 TEXT_ARGS(first->label), first->line);
    else if (reader->file->count >= INI_SECTIONS_MAX)
        complain(reader, "more than %d sections", INI_SECTIONS_MAX);
    else
        reader->section = add_section(reader, kind, name);
}

static bool
has_control(struct text line)
{
    for (size_t i = 0; i < line.len; i++)
        if (((unsigned char)line.ptr[i] < 0x20 && line.ptr[i] != '\t') || line.ptr[i] == 0x7f)
            return true;
    return false;
}

/* Whether inih may see the line as "key = value"; complains otherwise. */
static bool
entry_ok(struct reader *reader, struct text line)
{
    struct text bare = without_comment(line);
    ptrdiff_t equals = text_find(bare, '=', 0);
    struct text key = equals < 0 ? bare : text_trim(text_make(bare.ptr, (size_t)equals));
    if (equals < 0 || !all_of(key, UPPER_AND_MARKS)) {
        complain(reader, "'%.*s' is neither [section] nor key = value nor a comment%s",
                 (int)(bare.len > 60 ? 60 : bare.len), bare.ptr,
                 equals < 0 && blank(line.ptr[0])
                     ? "; an indented line does not continue the one above"
                     : "");
        return false;
    }
    if (reader->section)
        return true;
    if (!reader->heading_seen)
        complain(reader, "'%.*s' stands before any section; put it below [proxy] or another",
                 TEXT_ARGS(key));
    return false;
}

/* Complains about what no documented line looks like; true when inih may read it as an entry. */
static bool
look_at(struct reader *reader, struct text line)
{
    struct text trimmed = text_trim(line);
    if (has_control(line)) {
        complain(reader, "a control character or NUL byte; a configuration is text");
        return false;
    }
    if (trimmed.len == 0 || trimmed.ptr[0] == ';' || trimmed.ptr[0] == '#')
        return false;
    if (line.len > INI_LINE_MAX) {
        complain(reader, "longer than %d bytes; repeat the key to spread a list over lines",
                 INI_LINE_MAX);
        return false;
    }
    if (trimmed.ptr[0] == '[') {
        heading(reader, trimmed);
        return false;
    }
    return entry_ok(reader, line);
}

static struct text
take_line(struct reader *reader)
{
    ptrdiff_t end = text_find(reader->rest, '\n', 0);
    struct text line = end < 0 ? reader->rest : text_make(reader->rest.ptr, (size_t)end);
    reader->rest = end < 0 ? TEXT_NONE : text_from(reader->rest, (size_t)end + 1);
    if (line.len && line.ptr[line.len - 1] == '\r')
        line.len--;
    if (reader->line++ == 0 && text_starts(line, TEXT("\xef\xbb\xbf")))
        line = text_from(line, 3);
    return line;
}

/* inih's fgets: always a whole line, or none of it. inih is given room for INI_LINE_MAX. */
static char *
next_line(char *out, int room, void *stream)
{
    struct reader *reader = stream;
    if (reader->rest.len == 0)
        return NULL;
    struct text line = take_line(reader);
    if (!look_at(reader, line) || line.len + 2 > (size_t)room)
        line.len = 0;
    if (line.len)
        memcpy(out, line.ptr, line.len);
    out[line.len] = '\n';
    out[line.len + 1] = '\0';
    return out;
}

/* inih's handler. Its section is cut at 49 bytes, ours is not. */
static int
on_entry(void *user, const char *section, const char *key, const char *value)
{
    struct reader *reader = user;
    struct ini_section *into = reader->section;
    (void)section;
    if (!into)
        return 0;
    if (into->count == into->cap) {
        into->cap = into->cap ? into->cap * 2 : 8;
        into->entries = mem_realloc(into->entries, into->cap * sizeof(*into->entries));
    }
    into->entries[into->count++] =
        (struct ini_entry){.key = arena_copy(&reader->file->arena, text_of(key)),
                           .value = arena_copy(&reader->file->arena, text_of(value)),
                           .line = reader->line};
    return 1;
}

static void
set_up_inih(void)
{
    static char inline_prefix[] = ";", start_prefixes[] = ";#";
    ini_use_stack = false;
    ini_allow_realloc = true;
    ini_max_line = ini_initial_alloc = INI_LINE_MAX + 3;
    ini_allow_multiline = false;
    ini_allow_bom = true;
    ini_allow_no_value = false;
    ini_stop_on_first_error = false;
    ini_allow_inline_comments = true;
    ini_inline_comment_prefixes = inline_prefix;
    ini_start_comment_prefixes = start_prefixes;
}

void
ini_file_parse(struct ini_file *file, struct text bytes, struct complaints *complaints)
{
    struct reader reader = {.file = file, .complaints = complaints, .rest = bytes};
    set_up_inih();
    int line = ini_parse_stream(next_line, &reader, on_entry, &reader);
    /* look_at() should have seen it first: whatever inih refuses on its own is an error too. */
    if (line != 0)
        complaints_add(complaints, line > 0 ? (unsigned)line : 0, TEXT_NONE, TEXT_NONE,
                       "not understood; write key = value");
}

const struct ini_entry *
ini_section_find(const struct ini_section *section, const char *key)
{
    for (unsigned i = 0; i < section->count; i++)
        if (text_eq(section->entries[i].key, text_of(key)))
            return &section->entries[i];
    return NULL;
}
