#ifndef KML_CLI_USAGE_H
#define KML_CLI_USAGE_H

#include <stdint.h>

#include "base/flags.h"

/* What every verb does first: read its flags, answer --help, refuse what cannot be. */
struct kml_usage {
    const char *synopsis; /* "kunal validate MANIFEST... [flags]" */
    const char *story;    /* what the verb does; lines */
    const char *examples; /* lines, indented by two */
    const char *exits;    /* lines "  65  the data is bad" */
};

#define KML_USAGE_GO_ON (-1)

/*
 * Reads argv[1..] into the flags' targets and `rest`, which must hold `least`..`most` arguments. Returns
 * KML_USAGE_GO_ON, and the caller ends with kml_flags_finish; or the exit code to end with at once: help was
 * printed, or the error said.
 */
int kml_usage_parse(const struct kml_usage *usage, const struct kml_flag *flags, uint32_t count, int argc,
                    char **argv, uint32_t least, uint32_t most, struct kml_flag_list *rest);

#endif
