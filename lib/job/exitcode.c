#include "job/exitcode.h"

#include <stddef.h>

#include "base/mem.h"

/* Rows are looked up in order; the first range that holds the code decides. */
static const struct {
    unsigned from, to;
    enum kml_exit_class class;
    const char *meaning;
} table[] = {
    {0, 0, KML_EXIT_GOOD, "ended well"},
    {1, 1, KML_EXIT_PERMANENT, "failed"},
    {2, 2, KML_EXIT_PERMANENT, "wrong use"},
    {64, 64, KML_EXIT_PERMANENT, "wrong use"},
    {65, 65, KML_EXIT_PERMANENT, "bad data"},
    {66, 66, KML_EXIT_PERMANENT, "missing input"},
    {69, 69, KML_EXIT_RETRYABLE, "peer unreachable"},
    {70, 70, KML_EXIT_PERMANENT, "internal error"},
    {73, 73, KML_EXIT_PERMANENT, "cannot write"},
    {75, 75, KML_EXIT_RETRYABLE, "try again"},
    {76, 76, KML_EXIT_PERMANENT, "protocol mismatch"},
    {77, 77, KML_EXIT_PERMANENT, "refused"},
    {126, 126, KML_EXIT_PERMANENT, "not executable"},
    {127, 127, KML_EXIT_PERMANENT, "program not found"},
    {3, 127, KML_EXIT_PERMANENT, "failed"},
    {128, 128, KML_EXIT_PERMANENT, "failed"},
    {130, 130, KML_EXIT_RETRYABLE, "interrupted (signal 2)"},
    {132, 132, KML_EXIT_PERMANENT, "illegal instruction (signal 4)"},
    {134, 134, KML_EXIT_PERMANENT, "aborted (signal 6)"},
    {136, 136, KML_EXIT_PERMANENT, "arithmetic error (signal 8)"},
    {137, 137, KML_EXIT_RETRYABLE, "killed (signal 9)"},
    {138, 138, KML_EXIT_RETRYABLE, "signal 10"},
    {139, 139, KML_EXIT_PERMANENT, "segmentation fault (signal 11)"},
    {143, 143, KML_EXIT_RETRYABLE, "terminated (signal 15)"},
};

static const size_t rows = KML_COUNT(table);

static size_t row_of(unsigned code)
{
    size_t i = 0;
    while (i < rows && (code < table[i].from || code > table[i].to)) {
        i++;
    }
    return i;
}

enum kml_exit_class kml_exit_classify(unsigned code)
{
    size_t row = row_of(code);
    return row < rows ? table[row].class : KML_EXIT_RETRYABLE;
}

bool kml_exit_restarts(enum kml_job_restart policy, unsigned code)
{
    switch (policy) {
    case KML_JOB_RESTART_ALWAYS:
        return true;
    case KML_JOB_RESTART_ONFAILURE:
        return code != 0;
    case KML_JOB_RESTART_EXITCODE:
        return kml_exit_classify(code) == KML_EXIT_RETRYABLE;
    case KML_JOB_RESTART_NEVER:
    case KML_JOB_RESTART_COUNT:
        break;
    }
    return false;
}

const char *kml_exit_meaning(unsigned code)
{
    size_t row = row_of(code);
    return row < rows ? table[row].meaning : "ended by a signal";
}
