#include "base/mem.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LARGE_PAGE ((uintptr_t)2 << 20)
#define LARGE ((size_t)8 << 20)

static _Atomic uint64_t countdown; /* allocations until one fails on purpose; 0: never */

void kml_bug(const char *what, const char *file, int line)
{
    (void)fprintf(stderr, "bug: %s at %s:%d\n", what, file, line);
    abort();
}

static void *or_abort(void *p)
{
    if (p == NULL) {
        (void)fputs("out of memory\n", stderr);
        abort();
    }
    return p;
}

void *kml_alloc(size_t bytes)
{
    return or_abort(calloc(1, bytes > 0 ? bytes : 1));
}

void *kml_alloc_array(size_t count, size_t bytes)
{
    return or_abort(calloc(count > 0 ? count : 1, bytes > 0 ? bytes : 1));
}

void *kml_realloc(void *old, size_t bytes)
{
    return or_abort(realloc(old, bytes > 0 ? bytes : 1));
}

/* Fewer page faults and fewer looks into the page table for what is read in random order. Only a wish. */
static void wish_large_pages(void *p, size_t bytes)
{
    uintptr_t begin = ((uintptr_t)p + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    uintptr_t end = ((uintptr_t)p + bytes) / LARGE_PAGE * LARGE_PAGE;
    if (begin < end) {
        (void)madvise((uint8_t *)p + (begin - (uintptr_t)p), end - begin, MADV_HUGEPAGE);
    }
}

void *kml_try_alloc(size_t bytes)
{
    if (countdown > 0 && --countdown == 0) {
        return NULL;
    }
    void *p = NULL;
    if (bytes >= SIZE_MAX - 64 || posix_memalign(&p, 64, bytes > 0 ? bytes : 1) != 0) {
        return NULL;
    }
    if (bytes >= LARGE) {
        wish_large_pages(p, bytes);
    }
    return p;
}

void kml_test_fail_alloc(uint64_t nth)
{
    countdown = nth;
}

char *kml_strdup(const char *text)
{
    return text == NULL ? NULL : or_abort(strdup(text));
}

char *kml_strndup(const char *text, size_t length)
{
    return or_abort(strndup(text, length));
}

char *kml_format(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = NULL;
    int length = vasprintf(&text, format, args);
    va_end(args);
    return or_abort(length < 0 ? NULL : text);
}

void kml_free(void *p)
{
    free(p);
}

void kml_free_at(void *p)
{
    void *block;
    memcpy(&block, p, sizeof block); /* p points at a pointer of any type */
    free(block);
}
