#include "job/internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"

/* Values that say where data is: URIs, and files below them. */

static const struct scheme {
    const char *prefix;
    uint32_t bit;
} schemes[] = {
    {"file://", KML_JOB_SCHEME_FILE},           {"pvc://", KML_JOB_SCHEME_PVC},
    {"configmap://", KML_JOB_SCHEME_CONFIGMAP}, {"https://", KML_JOB_SCHEME_HTTP},
    {"http://", KML_JOB_SCHEME_HTTP},           {"s3://", KML_JOB_SCHEME_S3},
};

static const struct scheme *scheme_of(const char *uri)
{
    for (size_t i = 0; i < KML_COUNT(schemes); i++) {
        if (strncmp(uri, schemes[i].prefix, strlen(schemes[i].prefix)) == 0) {
            return &schemes[i];
        }
    }
    return NULL;
}

static bool has_control(const char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f) {
            return true;
        }
    }
    return false;
}

/* A ".." would leave the folder that somebody allowed us to read. */
static bool climbs(const char *path)
{
    for (const char *c = path; (c = strstr(c, "..")) != NULL; c += 2) {
        if ((c == path || c[-1] == '/') && (c[2] == '\0' || c[2] == '/')) {
            return true;
        }
    }
    return false;
}

/* What the part behind the scheme lacks, or NULL. */
static const char *fault_of(const struct scheme *scheme, const char *rest)
{
    if (has_control(rest)) {
        return "it holds a control character; remove it";
    }
    if (scheme->bit == KML_JOB_SCHEME_FILE) {
        return rest[0] == '/' ? NULL
                              : "the path is not absolute; write three slashes, as in file:///data/mnist";
    }
    if (rest[0] == '/' || rest[0] == '\0') {
        return "the name behind // is missing; write it, as in pvc://claim/folder";
    }
    return NULL;
}

/* Which schemes this row takes from this driver, for an error line. */
static const char *legal_list(const struct kml_job_reader *r, const struct kml_job_field *field)
{
    if (r->driver == KML_JOB_LOCAL || (field->schemes & KML_JOB_SCHEME_PVC) == 0) {
        return "file:///folder";
    }
    return (field->schemes & KML_JOB_SCHEME_CONFIGMAP) != 0
               ? "file:///folder, pvc://claim/folder or configmap://name"
               : "file:///folder or pvc://claim/folder";
}

static int check_uri(struct kml_job_reader *r, const struct kml_job_field *field, const struct kml_node *node)
{
    const char *uri = node->text;
    const struct scheme *scheme = scheme_of(uri);
    const uint32_t only_cluster = KML_JOB_SCHEME_PVC | KML_JOB_SCHEME_CONFIGMAP;
    const uint32_t later = KML_JOB_SCHEME_HTTP | KML_JOB_SCHEME_S3;
    const char *legal = legal_list(r, field);
    if (scheme == NULL || (field->schemes & scheme->bit) == 0) {
        kml_job_problem(r, node, false, field->path, KML_INVALID,
                        "'%.120s' has no scheme that is read here; write %s", uri, legal);
        return -1;
    }
    if ((scheme->bit & later) != 0) {
        kml_job_problem(r, node, false, field->path, KML_UNSUPPORTED,
                        "'%.120s': %s is not supported yet; write %s", uri, scheme->prefix, legal);
        return -1;
    }
    if (r->driver == KML_JOB_LOCAL && (scheme->bit & only_cluster) != 0) {
        kml_job_problem(r, node, false, field->path, KML_INVALID,
                        "'%.120s' needs a cluster, and this job runs on one machine; write %s", uri, legal);
        return -1;
    }
    const char *fault = fault_of(scheme, uri + strlen(scheme->prefix));
    if (fault != NULL) {
        kml_job_problem(r, node, false, field->path, KML_INVALID, "'%.120s': %s", uri, fault);
        return -1;
    }
    return 0;
}

static int not_a_text(struct kml_job_reader *r, const struct kml_node *node, const char *path,
                      const char *wanted)
{
    char what[96];
    kml_job_describe(node, what);
    kml_job_problem(r, node, false, path, KML_INVALID, "%s stands here; write %s", what, wanted);
    return -1;
}

int kml_job_read_uri(struct kml_job_reader *r, const struct kml_job_field *field, const struct kml_node *node)
{
    if (node->kind != KML_NODE_TEXT) {
        return not_a_text(r, node, field->path, legal_list(r, field));
    }
    if (check_uri(r, field, node) != 0) {
        return -1;
    }
    return kml_job_keep(r, field, kml_job_text(r, field, node));
}

static int read_file_name(struct kml_job_reader *r, const struct kml_job_field *field,
                          const struct kml_node *node, struct kml_job_file *file)
{
    char path[KML_DOC_PATH];
    kml_node_path(node, path);
    if (node->kind != KML_NODE_TEXT) {
        return not_a_text(r, node, path, "a file name");
    }
    if (strcmp(node->text, "Auto") == 0) {
        return 0;
    }
    if (node->text[0] == '\0' || node->text[0] == '/' || climbs(node->text) || has_control(node->text)) {
        kml_job_problem(r, node, false, path, KML_INVALID,
                        "'%.120s' is no file below storageUri; write a relative name without '..'",
                        node->text);
        return -1;
    }
    file->file = kml_job_text(r, field, node);
    return file->file == NULL ? -1 : 0;
}

static int read_label(struct kml_job_reader *r, const struct kml_job_field *field,
                      const struct kml_node *node, struct kml_job_file *file)
{
    if (node->kind == KML_NODE_TEXT && node->text[0] != '\0') {
        file->label_column = kml_job_text(r, field, node);
        return file->label_column == NULL ? -1 : 0;
    }
    if (node->kind == KML_NODE_INT && node->value.integer >= 0 && node->value.integer < 1000000) {
        file->label_index = (uint32_t)node->value.integer;
        return 0;
    }
    char path[KML_DOC_PATH];
    kml_node_path(node, path);
    kml_job_problem(
        r, node, false, path, KML_INVALID,
        "this is no column; write the name from the header line, or the place of the column, 0 first");
    return -1;
}

static int read_fraction(struct kml_job_reader *r, const struct kml_job_field *field,
                         const struct kml_node *node, struct kml_job_file *file)
{
    double part = kml_node_number(node);
    if (!field->fraction) {
        return not_a_text(r, node, field->path, "a file name, or {file: name, labelColumn: name}");
    }
    if (!(part > 0 && part < 1)) {
        kml_job_problem(r, node, false, field->path, KML_INVALID,
                        "the fraction %g is out of range; write more than 0 and less than 1", part);
        return -1;
    }
    file->fraction = part;
    return 0;
}

static int read_file_map(struct kml_job_reader *r, const struct kml_job_field *field,
                         const struct kml_node *node, struct kml_job_file *file)
{
    static const char *const names[] = {"file", "labelColumn"};
    int result = 0;
    for (uint32_t i = 0; i < node->count; i++) {
        const struct kml_node *child = node->child[i];
        char path[KML_DOC_PATH];
        kml_node_path(child, path);
        if (strcmp(child->key, "file") != 0 && strcmp(child->key, "labelColumn") != 0) {
            const char *near = kml_job_suggest(child->key, names, KML_COUNT(names));
            kml_job_problem(r, child, true, path, KML_INVALID, "unknown field; %s%s%s",
                            near != NULL ? "did you mean '" : "write file or labelColumn",
                            near != NULL ? near : "", near != NULL ? "'?" : "");
            result = -1;
        } else if (child->kind != KML_NODE_NULL) {
            int one = child->key[0] == 'f' ? read_file_name(r, field, child, file)
                                           : read_label(r, field, child, file);
            result = one != 0 ? -1 : result;
        }
    }
    return result;
}

int kml_job_read_file(struct kml_job_reader *r, const struct kml_job_field *field,
                      const struct kml_node *node)
{
    struct kml_job_file *file = kml_job_target(r->job, field);
    int result;
    if (node->kind == KML_NODE_MAP) {
        result = read_file_map(r, field, node, file);
    } else if (kml_node_is_number(node)) {
        result = read_fraction(r, field, node, file);
    } else {
        result = read_file_name(r, field, node, file);
    }
    if (result != 0) {
        kml_job_mark_bad(r, field);
    }
    return result;
}
