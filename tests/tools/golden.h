#ifndef KML_TESTS_GOLDEN_H
#define KML_TESTS_GOLDEN_H

#include <fcntl.h>
#include <ftw.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"

/*
 * Temporary folders, plain files, and a Python script that writes golden numbers into them at run time.
 * Tests run from the root of the source tree. A failure of these helpers is a bug of the test: they abort.
 */
#define GOLDEN_UNUSED __attribute__((unused))
extern char **environ;

GOLDEN_UNUSED static char *golden_folder(void)
{
    const char *base = getenv("TMPDIR");
    char *path = kml_format("%s/kml-test-XXXXXX", base == NULL ? "/tmp" : base);
    KML_BUG_ON(mkdtemp(path) == NULL);
    return path;
}

GOLDEN_UNUSED static int golden_remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

/* Removes the folder with all in it and frees the path. */
GOLDEN_UNUSED static void golden_remove(char *folder)
{
    (void)chmod(folder, 0700);
    KML_BUG_ON(nftw(folder, golden_remove_one, 8, FTW_DEPTH | FTW_PHYS) != 0);
    kml_free(folder);
}

GOLDEN_UNUSED static void golden_write(const char *folder, const char *name, const void *data, size_t size)
{
    kml_auto_free char *path = kml_format("%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    KML_BUG_ON(file == NULL);
    KML_BUG_ON(fwrite(data, 1, size, file) != size);
    KML_BUG_ON(fclose(file) != 0);
}

/* Reads a file that must have exactly this size. */
GOLDEN_UNUSED static void golden_read(const char *folder, const char *name, void *data, size_t size)
{
    kml_auto_free char *path = kml_format("%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    KML_BUG_ON(file == NULL);
    KML_BUG_ON(fread(data, 1, size, file) != size);
    KML_BUG_ON(fgetc(file) != EOF);
    KML_BUG_ON(fclose(file) != 0);
}

/* Runs "python3 script what folder" and returns its exit code. PYTHON names another interpreter. */
GOLDEN_UNUSED static int golden_python(const char *script, const char *what, const char *folder)
{
    const char *python = getenv("PYTHON");
    python = python == NULL ? "/usr/bin/python3" : python;
    char *argv[] = {kml_strdup(python), kml_strdup(script), kml_strdup(what), kml_strdup(folder), NULL};
    pid_t child;
    KML_BUG_ON(posix_spawn(&child, python, NULL, NULL, argv, environ) != 0);
    int status;
    KML_BUG_ON(waitpid(child, &status, 0) != child);
    for (int i = 0; i < 4; i++) {
        kml_free(argv[i]);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

#endif
