/*
 * Learnt facts. Owns all tables of the process (a list under a mutex).
 *
 * Reading: entries are immutable but for their atomic flags and are only ever added; a table that
 * is full is replaced by a larger one that holds the same entries, and the old one stays allocated
 * (readers may be in it; there are at most seven per endpoint).
 */
#include "upstream/facts.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "proxy/base/log.h"
#include "proxy/base/mem.h"
#include "proxy/wire/swar.h"

enum {
    FACTS_MAX = 4096, /* methods of an endpoint, for all codecs together */
    CODECS_MAX = 64,  /* facts of an endpoint as a whole, one a codec */
    FIRST_SLOTS = 64,
};
enum { FLAG_BARE = 1, FLAG_FRAMED = 2, FLAG_UNARY = 4 };

struct fact {
    uint32_t hash;
    _Atomic unsigned flags;
    _Atomic int refused_http; /* what the last refusal of the bare form was; 0: none */
    struct text codec, path;  /* path empty: the endpoint itself, for this codec */
};

struct fact_table {
    uint32_t slots; /* a power of two */
    struct fact_table *older;
    _Atomic(struct fact *) entries[];
};

struct facts {
    struct facts *next;
    char *upstream;
    struct text address; /* owned, NUL behind it */
    _Atomic(struct fact_table *) table;
    uint32_t methods, codecs; /* entries; under the lock */
    _Atomic unsigned wire;    /* enum endpoint_wire: what was learnt last, for people */
    /* Something was learnt, and of the endpoint itself, that it takes nothing bare: looking it up
     * is worth while. */
    _Atomic bool any, any_framed;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct facts *all;

static struct fact_table *
new_table(uint32_t slots, struct fact_table *older)
{
    struct fact_table *table = mem_zalloc(sizeof(*table) + slots * sizeof(table->entries[0]));
    table->slots = slots;
    table->older = older;
    return table;
}

struct facts *
facts_of(struct text upstream, struct text address)
{
    pthread_mutex_lock(&lock);
    struct facts *facts = all;
    while (facts &&
           !(text_eq(text_of(facts->upstream), upstream) && text_eq(facts->address, address)))
        facts = facts->next;
    if (!facts) {
        facts = mem_new(struct facts);
        facts->upstream = text_dup(upstream);
        facts->address = text_make(text_dup(address), address.len);
        atomic_init(&facts->table, new_table(FIRST_SLOTS, NULL));
        facts->next = all;
        all = facts;
    }
    pthread_mutex_unlock(&lock);
    return facts;
}

struct text
facts_address(const struct facts *facts)
{
    return facts->address;
}

/* Eight bytes at a time: this runs in every call. Codec names are short, paths long. */
static uint64_t
mix(uint64_t hash, struct text text)
{
    for (; text.len >= SWAR_BYTES; text = text_from(text, SWAR_BYTES)) {
        hash = (hash ^ swar_load(text.ptr)) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return (hash ^ swar_load_short(text.ptr, text.len) ^ text.len) * 0x9e3779b97f4a7c15u;
}

static uint32_t
hash_of(struct text codec, struct text path)
{
    return (uint32_t)(mix(mix(0, codec), path) >> 32);
}

static struct fact *
find(const struct fact_table *table, uint32_t hash, struct text codec, struct text path)
{
    for (uint32_t i = hash;; i++) {
        struct fact *fact =
            atomic_load_explicit(&table->entries[i & (table->slots - 1)], memory_order_acquire);
        if (!fact)
            return NULL;
        if (fact->hash == hash && text_eq(fact->path, path) && text_eq(fact->codec, codec))
            return fact;
    }
}

static void
put(struct fact_table *table, struct fact *fact)
{
    uint32_t i = fact->hash;
    while (atomic_load_explicit(&table->entries[i & (table->slots - 1)], memory_order_relaxed))
        i++;
    atomic_store_explicit(&table->entries[i & (table->slots - 1)], fact, memory_order_release);
}

static void
grow(struct facts *facts)
{
    struct fact_table *old = atomic_load(&facts->table);
    struct fact_table *table = new_table(old->slots * 2, old);
    for (uint32_t i = 0; i < old->slots; i++) {
        struct fact *fact = atomic_load(&old->entries[i]);
        if (fact)
            put(table, fact);
    }
    atomic_store_explicit(&facts->table, table, memory_order_release);
}

/* Under the lock. NULL when the endpoint has as many facts as it may have: then nothing is learnt,
 * the call goes its way all the same. */
static struct fact *
find_or_add(struct facts *facts, struct text codec, struct text path)
{
    uint32_t hash = hash_of(codec, path);
    struct fact *fact = find(atomic_load(&facts->table), hash, codec, path);
    uint32_t *count = path.len ? &facts->methods : &facts->codecs;
    if (fact || *count >= (path.len ? FACTS_MAX : CODECS_MAX))
        return fact;
    ++*count;
    if ((facts->methods + facts->codecs) * 2 > atomic_load(&facts->table)->slots)
        grow(facts);
    fact = mem_new(struct fact);
    fact->hash = hash;
    fact->codec = text_make(text_dup(codec), codec.len);
    fact->path = text_make(text_dup(path), path.len);
    put(atomic_load(&facts->table), fact);
    return fact;
}

static unsigned
flags_of(struct facts *facts, struct text codec, struct text path)
{
    const struct fact_table *table = atomic_load_explicit(&facts->table, memory_order_acquire);
    struct fact *fact = find(table, hash_of(codec, path), codec, path);
    return fact ? atomic_load_explicit(&fact->flags, memory_order_relaxed) : 0;
}

void
facts_look_up(struct facts *facts, struct text codec, struct text path, struct upstream_facts *out)
{
    memset(out, 0, sizeof(*out));
    if (!atomic_load_explicit(&facts->any, memory_order_relaxed))
        return;
    unsigned flags = flags_of(facts, codec, path);
    out->method_bare = flags & FLAG_BARE;
    out->method_framed = flags & FLAG_FRAMED;
    out->method_unary = flags & FLAG_UNARY;
    if (atomic_load_explicit(&facts->any_framed, memory_order_relaxed))
        out->endpoint_framed = flags_of(facts, codec, TEXT_NONE) & FLAG_FRAMED;
}

static void
set(struct fact *fact, unsigned add, unsigned remove)
{
    if (fact)
        atomic_store(&fact->flags, (atomic_load(&fact->flags) | add) & ~remove);
}

/* What the lesson says of the method and of the endpoint, for this codec. */
static enum endpoint_wire
apply(struct fact *method, struct fact *endpoint, enum endpoint_wire wire,
      enum upstream_lesson lesson)
{
    switch (lesson) {
    case LESSON_METHOD_UNARY:
    case LESSON_METHOD_BARE:
        set(method, lesson == LESSON_METHOD_UNARY ? FLAG_BARE | FLAG_UNARY : FLAG_BARE,
            FLAG_FRAMED);
        set(endpoint, FLAG_BARE, FLAG_FRAMED);
        return WIRE_BARE;
    case LESSON_METHOD_FRAMED:
        set(method, FLAG_FRAMED, FLAG_BARE | FLAG_UNARY);
        /* A server that tells methods apart takes the bare form. */
        return wire == WIRE_UNKNOWN ? WIRE_BARE : wire;
    case LESSON_ENDPOINT_FRAMED:
        set(endpoint, FLAG_FRAMED, FLAG_BARE);
        set(method, 0, FLAG_BARE);
        return WIRE_FRAMED;
    case LESSON_FORGET:
        set(method, 0, FLAG_BARE | FLAG_FRAMED | FLAG_UNARY);
        set(endpoint, 0, FLAG_BARE | FLAG_FRAMED);
        return wire;
    }
    return wire;
}

static void
log_lesson(const struct facts *facts, struct text codec, struct text path,
           enum upstream_lesson lesson, int refused_http)
{
    if (lesson == LESSON_ENDPOINT_FRAMED)
        log_info("facts",
                 "upstream %s: %s takes nothing bare: framed from now on (answered %d to "
                 "application/%.*s)",
                 facts->upstream, facts->address.ptr, refused_http, TEXT_ARGS(codec));
    else if (lesson == LESSON_METHOD_FRAMED)
        log_info(
            "facts", "upstream %s: %s takes %.*s framed only (answered %d to application/%.*s)",
            facts->upstream, facts->address.ptr, TEXT_ARGS(path), refused_http, TEXT_ARGS(codec));
    else if (lesson == LESSON_FORGET)
        log_info("facts", "upstream %s: %s no longer takes %.*s as it did", facts->upstream,
                 facts->address.ptr, TEXT_ARGS(path));
    else
        log_info("facts", "upstream %s: %s takes the bare form (application/%.*s)", facts->upstream,
                 facts->address.ptr, TEXT_ARGS(codec));
}

void
facts_learn(struct facts *facts, struct text codec, struct text path, enum upstream_lesson lesson,
            int refused_http)
{
    pthread_mutex_lock(&lock);
    struct fact *method = find_or_add(facts, codec, path);
    struct fact *endpoint = find_or_add(facts, codec, TEXT_NONE);
    struct fact *refused = lesson == LESSON_ENDPOINT_FRAMED ? endpoint : method;
    unsigned before = endpoint ? atomic_load(&endpoint->flags) : 0;
    atomic_store(&facts->wire, apply(method, endpoint, atomic_load(&facts->wire), lesson));
    atomic_store(&facts->any, true);
    if (lesson == LESSON_ENDPOINT_FRAMED)
        atomic_store(&facts->any_framed, true);
    if (refused && refused_http)
        atomic_store(&refused->refused_http, refused_http);
    bool news = endpoint && atomic_load(&endpoint->flags) != before;
    pthread_mutex_unlock(&lock);
    if (news || lesson == LESSON_METHOD_FRAMED)
        log_lesson(facts, codec, path, lesson, refused_http);
}

enum endpoint_wire
facts_wire(const struct facts *facts)
{
    return (enum endpoint_wire)atomic_load_explicit(&((struct facts *)facts)->wire,
                                                    memory_order_relaxed);
}

static int
refusal_of(struct facts *facts, struct text path)
{
    const struct fact_table *table = atomic_load_explicit(&facts->table, memory_order_acquire);
    struct fact *fact = find(table, hash_of(TEXT("proto"), path), TEXT("proto"), path);
    return fact ? atomic_load(&fact->refused_http) : 0;
}

void
facts_report(struct facts *facts, struct text address, struct text path, struct strbuf *out)
{
    static const char *const words[] = {"nothing is known yet", "takes the bare form",
                                        "takes nothing bare: framed"};
    enum endpoint_wire wire = facts_wire(facts);
    int refused = wire == WIRE_FRAMED ? refusal_of(facts, TEXT_NONE) : 0;
    strbuf_addf(out, "endpoint %.*s: %s", TEXT_ARGS(address), words[wire]);
    if (refused)
        strbuf_addf(out, " (answered %d to application/proto)", refused);
    strbuf_add_char(out, '\n');
    struct upstream_facts known;
    facts_look_up(facts, TEXT("proto"), path, &known);
    if (known.method_bare)
        strbuf_addf(out, "endpoint %.*s: this method was taken bare%s\n", TEXT_ARGS(address),
                    known.method_unary ? " and is unary" : "");
    if (known.method_framed)
        strbuf_addf(out,
                    "endpoint %.*s: this method was refused bare (answered %d) and taken framed\n",
                    TEXT_ARGS(address), refusal_of(facts, path));
}
