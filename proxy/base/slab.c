/*
 * Fixed-size objects from free lists, with a header that remembers the class.
 *
 * Owns what lies on the free lists; live objects are their callers'. Happy path: alloc pops, free
 * pushes, neither branches on more than the class and an empty list. Failure: none (out of memory
 * aborts).
 */
#include "proxy/base/slab.h"

#include <stdbool.h>
#include <string.h>

#include "proxy/base/check.h"
#include "proxy/base/mem.h"
#include "proxy/base/poison.h"

enum {
    SLAB_LARGE = SLAB_CLASSES,   /* the class of what came from the heap directly */
    SLAB_FREE_BYTES = 1 << 20,   /* a free list's bound, bytes */
    SLAB_KEPT_BYTES = 16 * 1024, /* what trimming leaves of a class, bytes */
};

/* Before each object; while it lies on a free list, `next` stands where the object was. */
struct slab_header {
    size_t room; /* bytes behind the header */
    uint32_t size_class;
    uint32_t unused;
};

_Static_assert(sizeof(struct slab_header) == SLAB_HEADER && SLAB_HEADER % 16 == 0,
               "objects must stay 16-byte aligned");

static struct slab_header *
header_of(void *memory)
{
    return (struct slab_header *)memory - 1;
}

static uint32_t
class_bytes(unsigned size_class)
{
    return (size_class + 1) * SLAB_STEP; /* header included */
}

/* SLAB_CLASSES or more: too large for any. */
static size_t
class_of(size_t bytes)
{
    return bytes < SLAB_MAX ? (bytes + sizeof(struct slab_header) - 1) / SLAB_STEP : SLAB_CLASSES;
}

void
slab_init(struct slab *slab)
{
    memset(slab, 0, sizeof(*slab));
    for (unsigned i = 0; i < SLAB_CLASSES; i++)
        slab->free[i].most = SLAB_FREE_BYTES / class_bytes(i);
}

static void *
pop_free(struct slab_list *list)
{
    void **object = list->first;
    poison_live(object, header_of(object)->room);
    list->first = *object;
    uint32_t count = --list->count;
    if (count < list->low)
        list->low = count;
    return object;
}

static void
shrink_free(struct slab_list *list, uint32_t count)
{
    while (count-- > 0)
        mem_free(header_of(pop_free(list)));
    list->low = list->count;
}

void
slab_trim(struct slab *slab)
{
    for (unsigned i = 0; i < SLAB_CLASSES; i++) {
        struct slab_list *list = &slab->free[i];
        uint32_t kept = SLAB_KEPT_BYTES / class_bytes(i);
        shrink_free(list, list->low > kept ? list->low - kept : 0);
    }
}

void
slab_fini(struct slab *slab)
{
    for (unsigned i = 0; i < SLAB_CLASSES; i++)
        shrink_free(&slab->free[i], slab->free[i].count);
}

static __attribute__((noinline)) void *
new_object(size_t bytes)
{
    check(bytes < SIZE_MAX / 2);
    size_t size_class = class_of(bytes);
    bool large = size_class >= SLAB_CLASSES;
    size_t whole = large ? bytes + sizeof(struct slab_header) : class_bytes((unsigned)size_class);
    struct slab_header *header = mem_alloc(whole);
    *header = (struct slab_header){
        .room = whole - sizeof(*header),
        .size_class = large ? SLAB_LARGE : (uint32_t)size_class,
    };
    return header + 1;
}

void *
slab_alloc(struct slab *slab, size_t bytes)
{
    size_t size_class = class_of(bytes);
    if (__builtin_expect(size_class < SLAB_CLASSES && slab->free[size_class].first, 1))
        return pop_free(&slab->free[size_class]);
    return new_object(bytes);
}

void *
slab_zalloc(struct slab *slab, size_t bytes)
{
    return memset(slab_alloc(slab, bytes), 0, bytes);
}

void *
slab_realloc(struct slab *slab, void *memory, size_t bytes)
{
    if (!memory)
        return slab_alloc(slab, bytes);
    size_t room = header_of(memory)->room;
    if (bytes <= room)
        return memory;
    void *larger = slab_alloc(slab, bytes);
    memcpy(larger, memory, room);
    slab_free(slab, memory);
    return larger;
}

void
slab_free(struct slab *slab, void *memory)
{
    if (!memory)
        return;
    struct slab_header *header = header_of(memory);
    struct slab_list *list = &slab->free[header->size_class];
    if (__builtin_expect(list->count >= list->most, 0)) {
        mem_free(header);
        return;
    }
    void **object = memory;
    *object = list->first;
    list->first = object;
    list->count++;
    poison_free(object, header->room);
}
