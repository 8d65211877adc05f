#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "doc/doc.h"
#include "job/job.h"

/*
 * Any bytes as a manifest. Nothing may crash; a tree that was read must survive writing and reading; a job
 * that was accepted must survive its normalised form; a refusal must say why.
 */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition, const char *what)
{
    if (!condition) {
        kml_bug(what, __FILE__, __LINE__);
    }
}

static void try_tree(struct kml_view text)
{
    struct kml_doc doc, again;
    struct kml_buf out;
    struct kml_err err = {0};
    kml_doc_init(&doc);
    kml_doc_init(&again);
    kml_buf_init(&out, KML_DOC_MAX_BYTES);
    if (kml_doc_read(&doc, "fuzz", text, &err) != 0) {
        require(err.text[0] != '\0' && doc.root == NULL, "a refusal says why and leaves nothing");
    } else if (kml_node_write(doc.root, &out, &err) == 0) {
        int result = kml_doc_read(&again, "again", kml_buf_view(&out), &err);
        require(result == 0 && kml_node_equal(doc.root, again.root), "what is written reads back equal");
    }
    kml_buf_finish(&out);
    kml_doc_finish(&doc);
    kml_doc_finish(&again);
}

static void try_job(struct kml_view text, enum kml_job_driver driver)
{
    struct kml_job job, again;
    struct kml_job_notes notes;
    struct kml_buf out;
    struct kml_err err = {0};
    kml_job_init(&job);
    kml_job_init(&again);
    kml_job_notes_init(&notes);
    kml_buf_init(&out, KML_DOC_MAX_BYTES);
    if (kml_job_load(&job, "fuzz", text, NULL, 0, driver, &notes, &err) != 0) {
        require(notes.problems > 0 && strcmp(notes.problem[0], err.text) == 0,
                "the first problem is the error");
    } else if (kml_job_to_json(&job, &out, &err) == 0) {
        int result = kml_job_load(&again, "again", kml_buf_view(&out), NULL, 0, KML_JOB_PROCESS, NULL, &err);
        require(result == 0 && kml_job_equal(&job, &again), "an accepted job survives its normalised form");
    }
    kml_buf_finish(&out);
    kml_job_notes_finish(&notes);
    kml_job_finish(&job);
    kml_job_finish(&again);
}

/* "path=value" up to the first line end, on a tree that has a little of everything. */
static void try_assignment(struct kml_view text)
{
    struct kml_doc doc;
    kml_doc_init(&doc);
    char *assignment = kml_strndup((const char *)text.data, text.size < 4096 ? text.size : 4096);
    assignment[strcspn(assignment, "\n")] = '\0';
    if (kml_doc_read(&doc, "base", kml_view_str("{a: {b: [1, {c: d}]}, e: null}"), NULL) == 0) {
        int result = kml_doc_assign(&doc, assignment, NULL);
        (void)result; /* a refusal is fine */
    }
    kml_free(assignment);
    kml_doc_finish(&doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kml_view text = kml_view_of(data, size);
    try_tree(text);
    try_job(text, KML_JOB_LOCAL);
    try_job(text, KML_JOB_CLUSTER);
    if (size > 0) {
        try_assignment(text);
    }
    return 0;
}
