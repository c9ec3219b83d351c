/* The heap. Out of memory aborts: sizes from the network are bounded before they get here. */
#ifndef TRIBUTARY_BASE_MEM_H
#define TRIBUTARY_BASE_MEM_H

#include <stddef.h>

/* Each returns memory that the caller owns and gives back with mem_free(); never NULL. */
__attribute__((malloc, alloc_size(1))) void *mem_alloc(size_t bytes);
__attribute__((malloc, alloc_size(1))) void *mem_zalloc(size_t bytes); /* zeroed */
void *mem_realloc(void *memory, size_t bytes);
char *mem_strdup(const char *text);
char *mem_strndup(const char *text, size_t bytes); /* NUL added */
void mem_free(void *memory);                       /* NULL is allowed */
void mem_trim(void); /* free pages go back to the system; takes long: only when nothing happens */

#define mem_new(type) ((type *)mem_zalloc(sizeof(type)))
#define container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

#endif
