#ifndef KML_JOB_INTERNAL_H
#define KML_JOB_INTERNAL_H

#include "job/job.h"
#include "job/table.h"

/* What the files of lib/job share while one manifest is read. */
#define KML_JOB_MAX_ROWS 192

struct kml_job_reader {
    struct kml_job *job;
    const struct kml_doc *doc;
    enum kml_job_driver driver;
    struct kml_job_notes *notes; /* NULL: unwanted */
    struct kml_err *err;         /* the first problem; may be NULL */
    uint32_t problems;
    bool bad[KML_JOB_MAX_ROWS]; /* rows whose value is wrong: rules leave them alone */
};

/* One problem: "place: path: text". `node` gives the place (its key's with of_key); NULL: the document's
 * root. */
void kml_job_problem(struct kml_job_reader *r, const struct kml_node *node, bool of_key, const char *path,
                     enum kml_code code, const char *format, ...) KML_PRINTF(6, 7);
void kml_job_mark_bad(struct kml_job_reader *r,
                      const struct kml_job_field *field); /* kml_job_problem does it by path */
void kml_job_note(struct kml_job_reader *r, const struct kml_node *node, const char *path, const char *format,
                  ...) KML_PRINTF(4, 5);

/* "A, B, C" of the values in `mask` that are built (or all, with `later`). Cut when it does not fit. */
void kml_job_value_list(const struct kml_job_field *field, uint32_t mask, bool later, char *out, size_t size);

/* The nearest legal word, also one that differs only in case; NULL if none is near. */
const char *kml_job_suggest(const char *word, const char *const *names, uint32_t count);

static inline void *kml_job_target(const struct kml_job *job, const struct kml_job_field *field)
{
    return (char *)(uintptr_t)job + field->offset;
}

/* The row of which `path` is a child, or NULL; whether a row, with all above it, is active and not switched
 * off. */
const struct kml_job_field *kml_job_parent(const struct kml_job_field *field);
bool kml_job_is_child(const struct kml_job_field *field, const char *parent_path);
bool kml_job_active(const struct kml_job *job, const struct kml_job_field *field);

/* Puts the default of the row into the job; frees what was there. Maps do their children too. */
void kml_job_set_default(struct kml_job *job, const struct kml_job_field *field);

/* One value of a row that is no map: 0, or -1 after kml_job_problem. */
int kml_job_read_value(struct kml_job_reader *r, const struct kml_job_field *field,
                       const struct kml_node *node);
int kml_job_read_uri(struct kml_job_reader *r, const struct kml_job_field *field,
                     const struct kml_node *node);
int kml_job_read_file(struct kml_job_reader *r, const struct kml_job_field *field,
                      const struct kml_node *node);
int kml_job_read_template(struct kml_job_reader *r, const struct kml_job_field *field,
                          const struct kml_node *node);

/* "the text 'abc'", "the number -3", "a map": what stands there, for an error line. */
void kml_job_describe(const struct kml_node *node, char out[96]);

/* A copy of a text of the input; NULL after kml_job_problem. */
char *kml_job_text(struct kml_job_reader *r, const struct kml_job_field *field, const struct kml_node *node);
/* A node as JSON text; NULL after kml_job_problem. */
char *kml_job_json(struct kml_job_reader *r, const struct kml_job_field *field, const struct kml_node *node);
/* Puts such a text, which it takes, into the field; -1 for NULL. */
int kml_job_keep(struct kml_job_reader *r, const struct kml_job_field *field, char *text);

void kml_job_template_finish(struct kml_job_template *t);
void kml_job_file_finish(struct kml_job_file *f);
bool kml_job_is_label(const char *text, size_t max, bool digit_first);

/* The rules between fields. */
void kml_job_check_rules(struct kml_job_reader *r);

#endif
