#include "job/internal.h"

#include <string.h>

#include "base/mem.h"
#include "base/parse.h"

/* Defaults, activity, and the life of a job. */

_Static_assert(sizeof(enum kml_job_model) == sizeof(uint32_t), "enums are read and written as uint32_t");
_Static_assert(offsetof(struct kml_job, model.hidden_count) ==
                   offsetof(struct kml_job, model.hidden) + KML_JOB_MAX_LAYERS * sizeof(uint32_t),
               "the count of a WIDTHS row stands behind its elements");

bool kml_job_is_child(const struct kml_job_field *field, const char *parent_path)
{
    size_t size = strlen(parent_path);
    if (size == 0) {
        return strchr(field->path, '.') == NULL;
    }
    return strncmp(field->path, parent_path, size) == 0 && field->path[size] == '.' &&
           strchr(field->path + size + 1, '.') == NULL;
}

const struct kml_job_field *kml_job_parent(const struct kml_job_field *field)
{
    uint32_t count;
    const struct kml_job_field *rows = kml_job_fields(&count);
    for (const struct kml_job_field *row = field; row-- > rows;) { /* parents stand before their children */
        if (kml_job_is_child(field, row->path)) {
            return row;
        }
    }
    return NULL;
}

bool kml_job_active(const struct kml_job *job, const struct kml_job_field *field)
{
    if (field->when != NULL) {
        const struct kml_job_field *selector = kml_job_field_of(field->when);
        uint32_t value;
        memcpy(&value, kml_job_target(job, selector), sizeof(value));
        if ((field->when_mask & (1U << value)) == 0) {
            return false;
        }
    }
    const struct kml_job_field *parent = kml_job_parent(field);
    if (parent == NULL) {
        return true;
    }
    if (parent->kind == KML_JOB_KIND_OPTION && !*(const bool *)kml_job_target(job, parent)) {
        return false;
    }
    return kml_job_active(job, parent);
}

static uint32_t value_of(const struct kml_job_field *field, const char *name)
{
    for (uint32_t i = 0; i < field->value_count; i++) {
        if (strcmp(field->values[i].name, name) == 0) {
            return i;
        }
    }
    kml_bug("a default of the manifest's table is one of its values", __FILE__, __LINE__);
}

static void default_number(void *target, const struct kml_job_field *field)
{
    double number = field->unset;
    if (field->fallback != NULL) {
        KML_BUG_ON(kml_parse_real(field->fallback, &number, NULL) != 0);
    }
    if (field->kind == KML_JOB_KIND_REAL) {
        *(double *)target = number;
    } else if (field->kind == KML_JOB_KIND_U64) {
        *(uint64_t *)target = number < 0 ? KML_JOB_UNSET : (uint64_t)number;
    } else {
        *(uint32_t *)target = (uint32_t)number;
    }
}

static void default_file(struct kml_job_file *file)
{
    kml_job_file_finish(file);
    *file = (struct kml_job_file){.label_index = KML_JOB_AUTO};
}

static void free_text(char **text)
{
    kml_free(*text);
    *text = NULL;
}

static void default_children(struct kml_job *job, const struct kml_job_field *field)
{
    uint32_t count;
    const struct kml_job_field *rows = kml_job_fields(&count);
    for (const struct kml_job_field *row = field + 1; row < rows + count; row++) {
        if (kml_job_is_child(row, field->path)) {
            kml_job_set_default(job, row);
        }
    }
}

void kml_job_set_default(struct kml_job *job, const struct kml_job_field *field)
{
    void *target = kml_job_target(job, field);
    switch (field->kind) {
    case KML_JOB_KIND_MAP:
        default_children(job, field);
        break;
    case KML_JOB_KIND_OPTION:
        *(bool *)target = false;
        default_children(job, field);
        break;
    case KML_JOB_KIND_BOOL:
        *(bool *)target = strcmp(field->fallback, "true") == 0;
        break;
    case KML_JOB_KIND_U32:
    case KML_JOB_KIND_U64:
    case KML_JOB_KIND_REAL:
        default_number(target, field);
        break;
    case KML_JOB_KIND_U32_AUTO:
        *(uint32_t *)target = KML_JOB_AUTO;
        break;
    case KML_JOB_KIND_ENUM:
        *(uint32_t *)target = field->fallback == NULL ? 0 : value_of(field, field->fallback);
        break;
    case KML_JOB_KIND_OUTPUTS:
        *(uint32_t *)target = 1U << value_of(field, field->fallback);
        break;
    case KML_JOB_KIND_WIDTHS:
        memset(target, 0, (KML_JOB_MAX_LAYERS + 1) * sizeof(uint32_t));
        break;
    case KML_JOB_KIND_TEXT:
    case KML_JOB_KIND_NAME:
    case KML_JOB_KIND_URI:
    case KML_JOB_KIND_JSON_MAP:
    case KML_JOB_KIND_JSON_LIST:
        free_text(target);
        break;
    case KML_JOB_KIND_FILE:
        default_file(target);
        break;
    case KML_JOB_KIND_TEMPLATE:
        kml_job_template_finish(target);
        break;
    case KML_JOB_KIND_FIXED:
    case KML_JOB_KIND_IGNORED:
        break;
    }
}

/* What stands at the top, and through it every row. */
static void set_all_defaults(struct kml_job *job)
{
    uint32_t count;
    const struct kml_job_field *rows = kml_job_fields(&count);
    KML_BUG_ON(count > KML_JOB_MAX_ROWS);
    for (uint32_t i = 0; i < count; i++) {
        if (strchr(rows[i].path, '.') == NULL) {
            kml_job_set_default(job, &rows[i]);
        }
    }
}

void kml_job_init(struct kml_job *job)
{
    *job = (struct kml_job){0};
    set_all_defaults(job);
}

/* The defaults own no memory, so going back to them frees everything. */
void kml_job_finish(struct kml_job *job)
{
    set_all_defaults(job);
}

void kml_job_file_finish(struct kml_job_file *f)
{
    kml_free(f->file);
    kml_free(f->label_column);
    *f = (struct kml_job_file){0};
}

static void free_list(char **list, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        kml_free(list[i]);
    }
    kml_free(list);
}

void kml_job_template_finish(struct kml_job_template *t)
{
    kml_free(t->json);
    kml_free(t->image);
    free_list(t->command, t->command_count);
    free_list(t->args, t->args_count);
    for (uint32_t i = 0; i < t->env_count; i++) {
        kml_free(t->env[i].name);
        kml_free(t->env[i].value);
    }
    kml_free(t->env);
    *t = (struct kml_job_template){0};
}
