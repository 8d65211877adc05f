#ifndef KML_TESTS_UNIT_JOB_COMMON_H
#define KML_TESTS_UNIT_JOB_COMMON_H

#include <string.h>

#include "base/mem.h"
#include "job/job.h"
#include "job/table.h"

/* The smallest manifest, to which the tests add overrides, several in one text with '|' between them. */
static const char SMALLEST[] = "apiVersion: kunal.ml/v1alpha1\n"
                               "kind: KunalJob\n"
                               "metadata: {name: small}\n"
                               "spec:\n"
                               "  model: {kind: Softmax}\n"
                               "  dataset: {storageUri: \"file:///data\"}\n";

#define MAX_OVERRIDES 16

struct loaded {
    struct kml_job job;
    struct kml_job_notes notes;
    struct kml_err err;
    int result;
};

static inline void load_text(struct loaded *l, const char *text, const char *overrides,
                             enum kml_job_driver driver)
{
    char *copy = kml_strdup(overrides);
    const char *list[MAX_OVERRIDES];
    uint32_t count = 0;
    char *rest = NULL;
    for (char *one = strtok_r(copy, "|", &rest); one != NULL; one = strtok_r(NULL, "|", &rest)) {
        KML_BUG_ON(count >= MAX_OVERRIDES);
        list[count++] = one;
    }
    l->err = (struct kml_err){0};
    kml_job_init(&l->job);
    kml_job_notes_init(&l->notes);
    l->result = kml_job_load(&l->job, "t.yaml", kml_view_str(text), list, count, driver, &l->notes, &l->err);
    kml_free(copy);
}

static inline void load(struct loaded *l, const char *overrides, enum kml_job_driver driver)
{
    load_text(l, SMALLEST, overrides, driver);
}

static inline void unload(struct loaded *l)
{
    kml_job_finish(&l->job);
    kml_job_notes_finish(&l->notes);
}

static inline bool any_contains(char *const *lines, uint32_t count, const char *piece)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strstr(lines[i], piece) != NULL) {
            return true;
        }
    }
    return false;
}

#endif
