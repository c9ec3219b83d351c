/* Intrusive doubly linked ring. A node on no list points at itself: unlinking twice is safe. */
#ifndef TRIBUTARY_BASE_LIST_H
#define TRIBUTARY_BASE_LIST_H

#include <stdbool.h>

#include "proxy/base/mem.h"

struct list {
    struct list *next, *prev;
};

static inline void
list_init(struct list *node)
{
    node->next = node->prev = node;
}

static inline bool
list_empty(const struct list *head)
{
    return head->next == head;
}

/* Whether the node is on some list (also: whether a head has members). */
static inline bool
list_linked(const struct list *node)
{
    return node->next != node;
}

static inline void
list_insert(struct list *prev, struct list *next, struct list *node)
{
    node->prev = prev;
    node->next = next;
    prev->next = node;
    next->prev = node;
}

static inline void
list_push_back(struct list *head, struct list *node)
{
    list_insert(head->prev, head, node);
}

static inline void
list_push_front(struct list *head, struct list *node)
{
    list_insert(head, head->next, node);
}

static inline void
list_unlink(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

/* Move all members of `from` to the end of `to`; `from` becomes empty. */
static inline void
list_splice(struct list *to, struct list *from)
{
    if (list_empty(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    list_init(from);
}

#define list_entry(node, type, member) container_of(node, type, member)
#define list_first(head, type, member) list_entry((head)->next, type, member)
#define list_for_each(node, head)                                                                  \
    for (struct list *node = (head)->next; node != (head); node = node->next)
/* The body may unlink `node` (but no other member). */
#define list_for_each_safe(node, head)                                                             \
    for (struct list *node = (head)->next, *node##_next = node->next; node != (head);              \
         node = node##_next, node##_next = node->next)

#endif
