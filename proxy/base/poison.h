/*
 * Tells the address sanitizer which memory on a free list must not be touched: without it our own
 * free lists would hide every use after free. Costs nothing in other builds.
 */
#ifndef TRIBUTARY_BASE_POISON_H
#define TRIBUTARY_BASE_POISON_H

#if defined(__SANITIZE_ADDRESS__)
#define POISON_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POISON_ASAN 1
#endif
#endif

#ifdef POISON_ASAN
#include <sanitizer/asan_interface.h>
#define poison_free(memory, bytes) ASAN_POISON_MEMORY_REGION(memory, bytes)
#define poison_live(memory, bytes) ASAN_UNPOISON_MEMORY_REGION(memory, bytes)
#else
#define poison_free(memory, bytes) ((void)0)
#define poison_live(memory, bytes) ((void)0)
#endif

#endif
