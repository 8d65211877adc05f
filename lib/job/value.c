#include "job/internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "doc/json.h"

/* Reading one value of each kind of row. */

#define MAX_JSON                                                                                             \
    ((size_t)1 << 20) /* of one opaque sub-tree: what an object of the API server may hold at most */

char *kml_job_text(struct kml_job_reader *r, const struct kml_job_field *field, const struct kml_node *node)
{
    size_t size = strlen(node->text) + 1;
    char *copy = kml_try_alloc(size);
    if (copy == NULL) {
        kml_job_problem(r, node, false, field->path, KML_NO_MEMORY, "no memory for a text of %zu bytes",
                        size);
        return NULL;
    }
    memcpy(copy, node->text, size);
    return copy;
}

char *kml_job_json(struct kml_job_reader *r, const struct kml_job_field *field, const struct kml_node *node)
{
    struct kml_buf buf;
    kml_buf_init(&buf, MAX_JSON);
    struct kml_err err = {0};
    if (kml_node_write(node, &buf, &err) != 0) {
        kml_job_problem(r, node, false, field->path, err.code, "%s", err.text);
        kml_buf_finish(&buf);
        return NULL;
    }
    size_t size;
    return (char *)kml_buf_take(&buf, &size);
}

int kml_job_keep(struct kml_job_reader *r, const struct kml_job_field *field, char *text)
{
    if (text == NULL) {
        return -1;
    }
    char **target = kml_job_target(r->job, field);
    kml_free(*target);
    *target = text;
    return 0;
}

void kml_job_describe(const struct kml_node *node, char out[96])
{
    char number[KML_JSON_REAL];
    switch (node->kind) {
    case KML_NODE_TEXT:
        snprintf(out, 96, "the text '%.64s'", node->text);
        break;
    case KML_NODE_INT:
        snprintf(out, 96, "the number %" PRId64, node->value.integer);
        break;
    case KML_NODE_REAL:
        kml_format_real(node->value.real, number);
        snprintf(out, 96, "the number %s", number);
        break;
    case KML_NODE_BOOL:
        snprintf(out, 96, "%s", node->value.yes ? "true" : "false");
        break;
    case KML_NODE_NULL:
    case KML_NODE_LIST:
    case KML_NODE_MAP:
        snprintf(out, 96, "a %s", kml_node_kind_name(node->kind));
        break;
    }
}

static int wrong_type(struct kml_job_reader *r, const struct kml_job_field *field,
                      const struct kml_node *node, const char *path, const char *wanted)
{
    char what[96];
    kml_job_describe(node, what);
    kml_job_problem(r, node, false, path, KML_INVALID, "%s stands here; write %s", what, wanted);
    kml_job_mark_bad(r, field);
    return -1;
}

/* A bound as a person would write it. */
static void put_bound(double bound, char out[KML_JSON_REAL])
{
    if (bound == floor(bound) && fabs(bound) < 1e16) {
        snprintf(out, KML_JSON_REAL, "%.0f", bound);
    } else {
        kml_format_real(bound, out);
    }
}

static int check_range(struct kml_job_reader *r, const struct kml_job_field *field,
                       const struct kml_node *node, const char *path)
{
    double number = kml_node_number(node);
    bool low = field->above_min ? number <= field->min : number < field->min;
    bool high = field->below_max ? number >= field->max : number > field->max;
    if (!low && !high) {
        return 0;
    }
    char what[96], min[KML_JSON_REAL], max[KML_JSON_REAL];
    kml_job_describe(node, what);
    put_bound(field->min, min);
    put_bound(field->max, max);
    kml_job_problem(r, node, false, path, KML_INVALID, "%s is out of range; write %s %s and %s %s%s", what,
                    field->above_min ? "more than" : "at least", min,
                    field->below_max ? "less than" : "at most", max,
                    field->kind == KML_JOB_KIND_U32_AUTO ? ", or auto" : "");
    kml_job_mark_bad(r, field);
    return -1;
}

static int read_integer(struct kml_job_reader *r, const struct kml_job_field *field,
                        const struct kml_node *node)
{
    bool may_auto = field->kind == KML_JOB_KIND_U32_AUTO;
    if (may_auto && node->kind == KML_NODE_TEXT && strcmp(node->text, "auto") == 0) {
        *(uint32_t *)kml_job_target(r->job, field) = KML_JOB_AUTO;
        return 0;
    }
    if (node->kind != KML_NODE_INT) {
        return wrong_type(r, field, node, field->path, may_auto ? "an integer or auto" : "an integer");
    }
    if (check_range(r, field, node, field->path) != 0) {
        return -1;
    }
    if (field->kind == KML_JOB_KIND_U64) {
        *(uint64_t *)kml_job_target(r->job, field) = (uint64_t)node->value.integer;
    } else {
        *(uint32_t *)kml_job_target(r->job, field) = (uint32_t)node->value.integer;
    }
    return 0;
}

static int read_real(struct kml_job_reader *r, const struct kml_job_field *field, const struct kml_node *node)
{
    if (!kml_node_is_number(node)) {
        return wrong_type(r, field, node, field->path, "a number");
    }
    if (check_range(r, field, node, field->path) != 0) {
        return -1;
    }
    double number = kml_node_number(node);
    *(double *)kml_job_target(r->job, field) = number == 0 ? 0 : number; /* -0.0 becomes 0.0 */
    return 0;
}

static int read_bool(struct kml_job_reader *r, const struct kml_job_field *field, const struct kml_node *node)
{
    if (node->kind != KML_NODE_BOOL) {
        return wrong_type(r, field, node, field->path, "true or false");
    }
    *(bool *)kml_job_target(r->job, field) = node->value.yes;
    return 0;
}

static int unknown_value(struct kml_job_reader *r, const struct kml_job_field *field,
                         const struct kml_node *node, const char *path)
{
    const char *names[32];
    KML_BUG_ON(field->value_count > KML_COUNT(names));
    for (uint32_t i = 0; i < field->value_count; i++) {
        names[i] = field->values[i].name;
    }
    char list[256];
    kml_job_value_list(field, UINT32_MAX, false, list, sizeof(list));
    const char *near = kml_job_suggest(node->text, names, field->value_count);
    kml_job_problem(r, node, false, path, KML_INVALID, "'%.64s' is not known; write one of %s%s%s%s",
                    node->text, list, near != NULL ? " (did you mean " : "", near != NULL ? near : "",
                    near != NULL ? "?)" : "");
    kml_job_mark_bad(r, field);
    return -1;
}

/* The index of the value, or -1 after a problem. */
static int find_value(struct kml_job_reader *r, const struct kml_job_field *field,
                      const struct kml_node *node, const char *path)
{
    char list[256];
    kml_job_value_list(field, UINT32_MAX, false, list, sizeof(list));
    if (node->kind != KML_NODE_TEXT) {
        char wanted[300];
        snprintf(wanted, sizeof(wanted), "one of %s", list);
        return wrong_type(r, field, node, path, wanted);
    }
    for (uint32_t i = 0; i < field->value_count; i++) {
        if (strcmp(field->values[i].name, node->text) != 0) {
            continue;
        }
        if (field->values[i].later) {
            kml_job_problem(r, node, false, path, KML_UNSUPPORTED, "%s is not supported yet; write one of %s",
                            node->text, list);
            return -1;
        }
        return (int)i;
    }
    return unknown_value(r, field, node, path);
}

static int read_enum(struct kml_job_reader *r, const struct kml_job_field *field, const struct kml_node *node)
{
    int value = find_value(r, field, node, field->path);
    if (value < 0) {
        return -1;
    }
    *(uint32_t *)kml_job_target(r->job, field) = (uint32_t)value;
    return 0;
}

static int read_fixed(struct kml_job_reader *r, const struct kml_job_field *field,
                      const struct kml_node *node)
{
    if (node->kind == KML_NODE_TEXT && strcmp(node->text, field->fallback) == 0) {
        return 0;
    }
    char what[96];
    kml_job_describe(node, what);
    kml_job_problem(r, node, false, field->path, KML_INVALID, "%s is not known; write %s", what,
                    field->fallback);
    return -1;
}

bool kml_job_is_label(const char *text, size_t max, bool digit_first)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    static const char inner[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    size_t size = strlen(text);
    if (size == 0 || size > max || strspn(text, inner) != size || text[size - 1] == '-' || text[0] == '-') {
        return false;
    }
    return digit_first || strchr(letters, text[0]) != NULL;
}

static int read_text(struct kml_job_reader *r, const struct kml_job_field *field, const struct kml_node *node)
{
    if (node->kind != KML_NODE_TEXT) {
        return wrong_type(r, field, node, field->path, "a text (numbers and true or false need quotes)");
    }
    size_t max = (size_t)field->max;
    if (field->kind == KML_JOB_KIND_NAME && !kml_job_is_label(node->text, max, max == 63)) {
        kml_job_problem(
            r, node, false, field->path, KML_INVALID,
            "'%.80s' is no DNS label; write at most %zu of a-z, 0-9 and -, a letter first, no - last",
            node->text, max);
        return -1;
    }
    return kml_job_keep(r, field, kml_job_text(r, field, node));
}

static int read_json(struct kml_job_reader *r, const struct kml_job_field *field, const struct kml_node *node)
{
    bool map = field->kind == KML_JOB_KIND_JSON_MAP;
    if (node->kind != (map ? KML_NODE_MAP : KML_NODE_LIST)) {
        return wrong_type(r, field, node, field->path, map ? "a map" : "a list");
    }
    return kml_job_keep(r, field, kml_job_json(r, field, node));
}

static int read_widths(struct kml_job_reader *r, const struct kml_job_field *field,
                       const struct kml_node *node)
{
    if (node->kind != KML_NODE_LIST) {
        return wrong_type(r, field, node, field->path, "a list of widths such as [128]");
    }
    if (node->count == 0 || node->count > KML_JOB_MAX_LAYERS) {
        kml_job_problem(r, node, false, field->path, KML_INVALID,
                        "%" PRIu32 " widths stand here; write 1 to %d", node->count, KML_JOB_MAX_LAYERS);
        return -1;
    }
    uint32_t *width = kml_job_target(r->job, field);
    int result = 0;
    for (uint32_t i = 0; i < node->count; i++) {
        const struct kml_node *child = node->child[i];
        char path[KML_DOC_PATH];
        kml_node_path(child, path);
        if (child->kind != KML_NODE_INT) {
            result = wrong_type(r, field, child, path, "an integer");
        } else if (check_range(r, field, child, path) != 0) {
            result = -1;
        } else {
            width[i] = (uint32_t)child->value.integer;
        }
    }
    width[KML_JOB_MAX_LAYERS] = node->count;
    return result;
}

static int read_outputs(struct kml_job_reader *r, const struct kml_job_field *field,
                        const struct kml_node *node)
{
    if (node->kind != KML_NODE_LIST || node->count == 0) {
        return wrong_type(r, field, node, field->path, "a list such as [Safetensors]");
    }
    uint32_t set = 0;
    int result = 0;
    for (uint32_t i = 0; i < node->count; i++) {
        char path[KML_DOC_PATH];
        kml_node_path(node->child[i], path);
        int value = find_value(r, field, node->child[i], path);
        if (value < 0) {
            result = -1;
        } else if ((set & (1U << value)) != 0) {
            kml_job_problem(r, node->child[i], false, path, KML_INVALID, "%s stands twice; remove one",
                            node->child[i]->text);
            result = -1;
        } else {
            set |= 1U << value;
        }
    }
    if (result == 0) {
        *(uint32_t *)kml_job_target(r->job, field) = set;
    }
    return result;
}

int kml_job_read_value(struct kml_job_reader *r, const struct kml_job_field *field,
                       const struct kml_node *node)
{
    switch (field->kind) {
    case KML_JOB_KIND_FIXED:
        return read_fixed(r, field, node);
    case KML_JOB_KIND_BOOL:
        return read_bool(r, field, node);
    case KML_JOB_KIND_U32:
    case KML_JOB_KIND_U32_AUTO:
    case KML_JOB_KIND_U64:
        return read_integer(r, field, node);
    case KML_JOB_KIND_REAL:
        return read_real(r, field, node);
    case KML_JOB_KIND_ENUM:
        return read_enum(r, field, node);
    case KML_JOB_KIND_TEXT:
    case KML_JOB_KIND_NAME:
        return read_text(r, field, node);
    case KML_JOB_KIND_URI:
        return kml_job_read_uri(r, field, node);
    case KML_JOB_KIND_WIDTHS:
        return read_widths(r, field, node);
    case KML_JOB_KIND_OUTPUTS:
        return read_outputs(r, field, node);
    case KML_JOB_KIND_FILE:
        return kml_job_read_file(r, field, node);
    case KML_JOB_KIND_JSON_MAP:
    case KML_JOB_KIND_JSON_LIST:
        return read_json(r, field, node);
    case KML_JOB_KIND_TEMPLATE:
        return kml_job_read_template(r, field, node);
    case KML_JOB_KIND_MAP:
    case KML_JOB_KIND_OPTION:
    case KML_JOB_KIND_IGNORED:
        break;
    }
    return 0;
}
