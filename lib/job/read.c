#include "job/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "job/internal.h"

/*
 * Reading walks the table, not the document: a map's children are first matched against its rows, then the
 * rows are read in the table's order, so that whatever a row's activity depends on has been read before it.
 */

static void read_map(struct kml_job_reader *r, const char *path, const struct kml_node *node,
                     const struct kml_node *above, bool active);

static bool has_row(const char *parent, const char *key)
{
    uint32_t count;
    const struct kml_job_field *rows = kml_job_fields(&count);
    for (uint32_t i = 0; i < count; i++) {
        if (kml_job_is_child(&rows[i], parent) && strcmp(kml_job_field_key(&rows[i]), key) == 0) {
            return true;
        }
    }
    return false;
}

static void unknown_field(struct kml_job_reader *r, const char *parent, const struct kml_node *child)
{
    const char *names[KML_JOB_MAX_ROWS];
    uint32_t known = 0;
    uint32_t count;
    const struct kml_job_field *rows = kml_job_fields(&count);
    char list[256] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (kml_job_is_child(&rows[i], parent) && rows[i].kind != KML_JOB_KIND_IGNORED) {
            names[known] = kml_job_field_key(&rows[i]);
            int more =
                snprintf(list + used, sizeof(list) - used, "%s%s", known > 0 ? ", " : "", names[known]);
            used += more > 0 ? (size_t)more : 0;
            used = used >= sizeof(list) ? sizeof(list) - 1 : used;
            known++;
        }
    }
    char path[KML_DOC_PATH];
    kml_node_path(child, path);
    const char *near = kml_job_suggest(child->key, names, known);
    if (near != NULL) {
        kml_job_problem(r, child, true, path, KML_INVALID, "unknown field; did you mean '%s'?", near);
    } else {
        kml_job_problem(r, child, true, path, KML_INVALID, "unknown field; remove it, or write one of %s",
                        list);
    }
}

/* "SSP" or "WLBS, AutoWLBS", and what is chosen instead. */
static void note_inactive(struct kml_job_reader *r, const struct kml_job_field *field,
                          const struct kml_node *node)
{
    const struct kml_job_field *selector = kml_job_field_of(field->when);
    char list[256];
    kml_job_value_list(selector, field->when_mask, true, list, sizeof(list));
    uint32_t value;
    memcpy(&value, kml_job_target(r->job, selector), sizeof(value));
    kml_job_note(r, node, field->path, "belongs to %s %s, and that is %s; it is not used", selector->path,
                 list, selector->values[value].name);
}

static void missing(struct kml_job_reader *r, const struct kml_job_field *field, const struct kml_node *above)
{
    if (field->kind == KML_JOB_KIND_FIXED) {
        kml_job_problem(r, above, false, field->path, KML_INVALID, "required, but missing; write %s: %s",
                        kml_job_field_key(field), field->fallback);
    } else if (field->when != NULL) {
        kml_job_problem(r, above, false, field->path, KML_INVALID,
                        "required with this %s, but missing; write it", field->when);
    } else if (field->kind != KML_JOB_KIND_MAP) { /* a map's own required children complain */
        kml_job_problem(r, above, false, field->path, KML_INVALID, "required, but missing; write it");
    }
}

static void read_container(struct kml_job_reader *r, const struct kml_job_field *field,
                           const struct kml_node *node, const struct kml_node *above, bool active)
{
    if (node != NULL && node->kind != KML_NODE_MAP) {
        char what[96];
        kml_job_describe(node, what);
        kml_job_problem(r, node, false, field->path, KML_INVALID, "%s stands here; write a map", what);
        return;
    }
    if (field->kind == KML_JOB_KIND_OPTION) {
        *(bool *)kml_job_target(r->job, field) = node != NULL;
        if (node == NULL) {
            return;
        }
    }
    read_map(r, field->path, node, node != NULL ? node : above, active);
}

/* One row: `node` is its value or NULL. `active` says whether all above it is. */
static void read_row(struct kml_job_reader *r, const struct kml_job_field *field, const struct kml_node *node,
                     const struct kml_node *above, bool active)
{
    bool container = field->kind == KML_JOB_KIND_MAP || field->kind == KML_JOB_KIND_OPTION;
    bool chosen = active && kml_job_active(r->job, field);
    if (node != NULL && field->later) {
        kml_job_problem(r, node, true, field->path, KML_UNSUPPORTED, "not supported yet; remove it");
        return;
    }
    if (node == NULL && field->required && chosen) {
        missing(r, field, above);
    }
    if (container) {
        if (node != NULL || chosen) {
            read_container(r, field, node, above, chosen);
        }
    } else if (node != NULL) {
        kml_job_read_value(r, field, node);
    }
    if (node == NULL) {
        return;
    }
    if (active && !chosen) {
        note_inactive(r, field, node);
        kml_job_set_default(r->job, field);
    } else if (field->cluster && r->driver == KML_JOB_LOCAL) {
        kml_job_note(r, node, field->path, "only a cluster uses it; `kunal run` does not");
    }
}

static void read_map(struct kml_job_reader *r, const char *path, const struct kml_node *node,
                     const struct kml_node *above, bool active)
{
    for (uint32_t i = 0; node != NULL && i < node->count; i++) {
        if (!has_row(path, node->child[i]->key)) {
            unknown_field(r, path, node->child[i]);
        }
    }
    uint32_t count;
    const struct kml_job_field *rows = kml_job_fields(&count);
    for (uint32_t i = 0; i < count; i++) {
        if (!kml_job_is_child(&rows[i], path)) {
            continue;
        }
        const struct kml_node *child = kml_node_get(node, kml_job_field_key(&rows[i]));
        bool absent = child == NULL || child->kind == KML_NODE_NULL;
        read_row(r, &rows[i], absent ? NULL : child, above, active);
    }
}

/* What the driver decides when the manifest does not. */
static void fill_for_driver(struct kml_job_reader *r)
{
    struct kml_job *job = r->job;
    const struct kml_node *transport = kml_doc_find(r->doc, "spec.security.transport");
    if (transport == NULL || transport->kind == KML_NODE_NULL) {
        job->transport = r->driver == KML_JOB_LOCAL ? KML_JOB_TRANSPORT_PLAINTEXT : KML_JOB_TRANSPORT_MTLS;
    }
    if (r->driver == KML_JOB_CLUSTER && job->output.uri == NULL && job->name != NULL) {
        job->output.uri = kml_format("configmap://%s-model", job->name);
    }
}

int kml_job_read(struct kml_job *job, const struct kml_doc *doc, enum kml_job_driver driver,
                 struct kml_job_notes *notes, struct kml_err *err)
{
    struct kml_job_reader r = {.job = job, .doc = doc, .driver = driver, .notes = notes, .err = err};
    if (doc->root == NULL || doc->root->kind != KML_NODE_MAP) {
        kml_job_problem(&r, doc->root, false, "", KML_INVALID,
                        "this is no KunalJob; write a map with apiVersion, kind, metadata and spec");
        return -1;
    }
    read_map(&r, "", doc->root, doc->root, true);
    fill_for_driver(&r);
    kml_job_check_rules(&r);
    return r.problems > 0 ? -1 : 0;
}

static int finish_load(struct kml_job *job, struct kml_doc *doc, const char *const *overrides,
                       uint32_t override_count, enum kml_job_driver driver, struct kml_job_notes *notes,
                       struct kml_err *err)
{
    for (uint32_t i = 0; i < override_count; i++) {
        if (kml_doc_assign(doc, overrides[i], err) != 0) {
            return -1;
        }
    }
    return kml_job_read(job, doc, driver, notes, err);
}

/* A document that cannot be read at all is a problem like any other, so that a list of problems is never
 * empty. */
static int unreadable(struct kml_job_notes *notes, const struct kml_err *why, struct kml_err *err)
{
    if (notes != NULL && notes->problems == 0) {
        notes->problem[notes->problems++] = kml_strdup(why->text);
    }
    return kml_fail(err, why->code, "%s", why->text);
}

int kml_job_load(struct kml_job *job, const char *name, struct kml_view text, const char *const *overrides,
                 uint32_t override_count, enum kml_job_driver driver, struct kml_job_notes *notes,
                 struct kml_err *err)
{
    struct kml_doc doc;
    struct kml_err why = {0};
    kml_doc_init(&doc);
    int result = kml_doc_read(&doc, name, text, &why);
    if (result == 0) {
        result = finish_load(job, &doc, overrides, override_count, driver, notes, &why);
    }
    kml_doc_finish(&doc);
    return result == 0 ? 0 : unreadable(notes, &why, err);
}

int kml_job_load_file(struct kml_job *job, const char *path, const char *const *overrides,
                      uint32_t override_count, enum kml_job_driver driver, struct kml_job_notes *notes,
                      struct kml_err *err)
{
    struct kml_buf text;
    kml_buf_init(&text, KML_DOC_MAX_BYTES);
    struct kml_err why = {0};
    int result = kml_file_read(path, &text, &why);
    if (result != 0) {
        unreadable(notes, &why, err);
    } else {
        result = kml_job_load(job, path, kml_buf_view(&text), overrides, override_count, driver, notes, err);
    }
    kml_buf_finish(&text);
    return result;
}
