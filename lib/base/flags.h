#ifndef KML_BASE_FLAGS_H
#define KML_BASE_FLAGS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/*
 * Command-line flags as a table, so that the help text and the parser cannot disagree.
 * "--name value" and "--name=value"; "--" ends the flags; an unknown flag is KML_USAGE with "did you mean
 * --x?".
 */
enum kml_flag_kind {
    KML_FLAG_TEXT,
    KML_FLAG_LIST,
    KML_FLAG_BOOL,
    KML_FLAG_UINT,
    KML_FLAG_REAL,
    KML_FLAG_DURATION
};

struct kml_flag_list {
    const char **values; /* borrowed from argv; the array is freed by kml_flags_finish */
    uint32_t count;
};

struct kml_flag {
    const char *name; /* without the dashes */
    char letter;      /* one-letter form, 0: none */
    enum kml_flag_kind kind;
    void *target;      /* const char *, struct kml_flag_list, bool, uint64_t, double, uint64_t (ns) */
    const char *value; /* placeholder in the help: "FILE" */
    const char *help;  /* one sentence */
};

/* Reads argv[1..]; positional arguments go to `rest` in order. "-h" and "--help" set *help and stop. */
int kml_flags_parse(const struct kml_flag *flags, uint32_t count, int argc, char **argv,
                    struct kml_flag_list *rest, bool *help, struct kml_err *err) KML_MUST_CHECK;
void kml_flags_print(const struct kml_flag *flags,
                     uint32_t count); /* the flags' part of a help text, to stdout */
void kml_flags_finish(const struct kml_flag *flags, uint32_t count, struct kml_flag_list *rest);

#endif
