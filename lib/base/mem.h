#ifndef KML_BASE_MEM_H
#define KML_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

/*
 * Memory. Small allocations (structs, names, tables bounded by configuration) abort when memory is out; a
 * size that a peer or a file decides goes through kml_try_alloc, whose NULL the caller turns into
 * KML_NO_MEMORY.
 */

/* A condition that only a bug makes true: prints it with its place and aborts. Always compiled in, out of
 * input's reach. */
#define KML_BUG_ON(cond) ((cond) ? kml_bug(#cond, __FILE__, __LINE__) : (void)0)
void kml_bug(const char *what, const char *file, int line) __attribute__((noreturn));

void *kml_alloc(size_t bytes); /* zeroed, aborts when out of memory; 0 gives a unique pointer */
void *kml_alloc_array(size_t count, size_t bytes); /* the same, refuses to overflow (aborts) */
void *kml_realloc(void *old, size_t bytes);        /* aborts when out of memory; new bytes are not zeroed */
void *kml_try_alloc(size_t bytes);                 /* not zeroed, NULL when out of memory, 64-byte aligned */
char *kml_strdup(const char *text);                /* NULL stays NULL */
char *kml_strndup(const char *text, size_t length);
void kml_free(void *p); /* of all of the above; NULL accepted */

/* Formatted text; the caller frees. */
char *kml_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* `kml_auto_free char *p = ...;` frees p at the end of the block. */
#define kml_auto_free __attribute__((cleanup(kml_free_at)))
void kml_free_at(void *p);

#define KML_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define KML_NEW(type) ((type *)kml_alloc(sizeof(type)))
#define KML_NEW_ARRAY(count, type) ((type *)kml_alloc_array((count), sizeof(type)))

/* Tests only: the n-th kml_try_alloc from now fails (0: none). Allocation-failure torture uses it. */
void kml_test_fail_alloc(uint64_t nth);

#endif
