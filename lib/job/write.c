#include "job/job.h"

#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "doc/json.h"
#include "job/internal.h"

/* The normalised manifest: the active rows of the table with their values. */

static bool is_default_file(const struct kml_job_file *file)
{
    return file->file == NULL && file->label_column == NULL && file->label_index == KML_JOB_AUTO &&
           file->fraction == 0;
}

static void write_file(struct kml_json *w, const char *key, const struct kml_job_file *file)
{
    if (is_default_file(file)) {
        return;
    }
    if (file->fraction > 0) {
        kml_json_real(w, key, file->fraction);
        return;
    }
    if (file->label_column == NULL && file->label_index == KML_JOB_AUTO) {
        kml_json_text(w, key, file->file);
        return;
    }
    kml_json_map(w, key);
    if (file->file != NULL) {
        kml_json_text(w, "file", file->file);
    }
    if (file->label_column != NULL) {
        kml_json_text(w, "labelColumn", file->label_column);
    } else {
        kml_json_uint(w, "labelColumn", file->label_index);
    }
    kml_json_close(w);
}

static void write_widths(struct kml_json *w, const char *key, const uint32_t *width)
{
    kml_json_list(w, key);
    for (uint32_t i = 0; i < width[KML_JOB_MAX_LAYERS]; i++) {
        kml_json_uint(w, NULL, width[i]);
    }
    kml_json_close(w);
}

static void write_outputs(struct kml_json *w, const struct kml_job_field *field, uint32_t set)
{
    kml_json_list(w, kml_job_field_key(field));
    for (uint32_t i = 0; i < field->value_count; i++) {
        if ((set & (1U << i)) != 0) {
            kml_json_text(w, NULL, field->values[i].name);
        }
    }
    kml_json_close(w);
}

/* Numbers without a default are written when they hold more than the value for "absent". */
static bool is_unset(const struct kml_job_field *field, double number)
{
    return field->fallback == NULL && !field->required && number == field->unset;
}

static void write_number(struct kml_json *w, const struct kml_job_field *field, const void *target)
{
    const char *key = kml_job_field_key(field);
    if (field->kind == KML_JOB_KIND_REAL) {
        double number = *(const double *)target;
        if (!is_unset(field, number)) {
            kml_json_real(w, key, number);
        }
        return;
    }
    bool wide = field->kind == KML_JOB_KIND_U64;
    uint64_t number = wide ? *(const uint64_t *)target : *(const uint32_t *)target;
    if (wide && number == KML_JOB_UNSET) {
        return;
    }
    if (!is_unset(field, (double)number)) {
        kml_json_uint(w, key, number);
    }
}

static void write_children(struct kml_json *w, const struct kml_job *job, const char *path);

static void write_map(struct kml_json *w, const struct kml_job *job, const struct kml_job_field *field)
{
    kml_json_map(w, kml_job_field_key(field));
    write_children(w, job, field->path);
    kml_json_close(w);
}

static void write_auto(struct kml_json *w, const char *key, uint32_t number)
{
    if (number == KML_JOB_AUTO) {
        kml_json_text(w, key, "auto");
    } else {
        kml_json_uint(w, key, number);
    }
}

/* JSON that was kept as it stood; NULL: absent. */
static void write_kept(struct kml_json *w, const char *key, const char *json)
{
    if (json != NULL) {
        kml_json_raw(w, key, json);
    }
}

static void write_row(struct kml_json *w, const struct kml_job *job, const struct kml_job_field *field)
{
    const char *key = kml_job_field_key(field);
    const void *target = kml_job_target(job, field);
    switch (field->kind) {
    case KML_JOB_KIND_MAP:
        write_map(w, job, field);
        break;
    case KML_JOB_KIND_OPTION:
        if (*(const bool *)target) {
            write_map(w, job, field);
        }
        break;
    case KML_JOB_KIND_FIXED:
        kml_json_text(w, key, field->fallback);
        break;
    case KML_JOB_KIND_BOOL:
        kml_json_bool(w, key, *(const bool *)target);
        break;
    case KML_JOB_KIND_U32_AUTO:
        write_auto(w, key, *(const uint32_t *)target);
        break;
    case KML_JOB_KIND_U32:
    case KML_JOB_KIND_U64:
    case KML_JOB_KIND_REAL:
        write_number(w, field, target);
        break;
    case KML_JOB_KIND_ENUM:
        kml_json_text(w, key, field->values[*(const uint32_t *)target].name);
        break;
    case KML_JOB_KIND_TEXT:
    case KML_JOB_KIND_NAME:
    case KML_JOB_KIND_URI:
        if (*(char *const *)target != NULL) {
            kml_json_text(w, key, *(char *const *)target);
        }
        break;
    case KML_JOB_KIND_WIDTHS:
        write_widths(w, key, target);
        break;
    case KML_JOB_KIND_OUTPUTS:
        write_outputs(w, field, *(const uint32_t *)target);
        break;
    case KML_JOB_KIND_FILE:
        write_file(w, key, target);
        break;
    case KML_JOB_KIND_JSON_MAP:
    case KML_JOB_KIND_JSON_LIST:
        write_kept(w, key, *(char *const *)target);
        break;
    case KML_JOB_KIND_TEMPLATE:
        write_kept(w, key, ((const struct kml_job_template *)target)->json);
        break;
    case KML_JOB_KIND_IGNORED:
        break;
    }
}

static void write_children(struct kml_json *w, const struct kml_job *job, const char *path)
{
    uint32_t count;
    const struct kml_job_field *rows = kml_job_fields(&count);
    for (uint32_t i = 0; i < count; i++) {
        if (kml_job_is_child(&rows[i], path) && kml_job_active(job, &rows[i])) {
            write_row(w, job, &rows[i]);
        }
    }
}

int kml_job_to_json(const struct kml_job *job, struct kml_buf *out, struct kml_err *err)
{
    struct kml_json w;
    kml_json_begin(&w, out);
    write_children(&w, job, "");
    return kml_json_end_bare(&w, err);
}

/* The normalised form tells everything that counts, so two jobs are equal when their forms are. */
bool kml_job_equal(const struct kml_job *a, const struct kml_job *b)
{
    struct kml_buf left, right;
    kml_buf_init(&left, (size_t)8 << 20);
    kml_buf_init(&right, (size_t)8 << 20);
    bool written = kml_job_to_json(a, &left, NULL) == 0 && kml_job_to_json(b, &right, NULL) == 0;
    bool equal = written && strcmp(kml_buf_text(&left), kml_buf_text(&right)) == 0;
    kml_buf_finish(&left);
    kml_buf_finish(&right);
    return equal;
}
