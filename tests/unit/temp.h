#ifndef KML_TESTS_UNIT_TEMP_H
#define KML_TESTS_UNIT_TEMP_H

/* Test helper: a folder of the test's own under TMPDIR, and its removal with all that is in it. */
#include <ftw.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEMP_ROOM 512

/* Makes the folder; the path is in `out`. Ends the test program when that is impossible. */
static inline void temp_make(char out[TEMP_ROOM])
{
    const char *base = getenv("TMPDIR");
    (void)snprintf(out, TEMP_ROOM, "%s/kunal-test-XXXXXX", base == NULL ? "/tmp" : base);
    if (mkdtemp(out) == NULL) {
        perror(out);
        exit(1);
    }
}

static inline int temp_remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)kind;
    (void)at;
    return remove(path);
}

static inline void temp_remove(const char *folder)
{
    (void)nftw(folder, temp_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* "folder/name" into one of eight buffers in turn. */
static inline const char *temp_path(const char *folder, const char *name)
{
    static char ring[8][TEMP_ROOM * 2];
    static unsigned next;
    char *out = ring[next++ % 8];
    (void)snprintf(out, sizeof ring[0], "%s/%s", folder, name);
    return out;
}

/* Writes a text file, with the folders on its way; ends the test program when that is impossible. */
static inline void temp_write(const char *folder, const char *name, const char *text)
{
    char path[TEMP_ROOM * 2];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *c = path + strlen(folder) + 1; *c != '\0'; c++) {
        if (*c == '/') {
            *c = '\0';
            (void)mkdir(path, 0755);
            *c = '/';
        }
    }
    FILE *f = fopen(path, "we");
    if (f == NULL || fputs(text, f) < 0 || fclose(f) != 0) {
        perror(path);
        exit(1);
    }
}

#endif
