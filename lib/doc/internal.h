#ifndef KML_DOC_INTERNAL_H
#define KML_DOC_INTERNAL_H

#include "doc/doc.h"

/* What the files of lib/doc share: making nodes, and the two readers. */

/* A node that belongs to nobody yet. Counts it; NULL with KML_TOO_LARGE or KML_NO_MEMORY. */
struct kml_node *kml_node_create(struct kml_doc *doc, enum kml_node_kind kind,
                                 struct kml_err *err) KML_MUST_CHECK;
void kml_node_destroy(struct kml_node *node); /* with all below; NULL accepted */

/* Gives `node` to a list or map (then with `key`). On success both belong to `parent`, on failure to the
 * caller. */
int kml_node_attach(struct kml_node *parent, struct kml_node *node, char *key,
                    struct kml_err *err) KML_MUST_CHECK;

/* A copy of text with a zero behind it; NULL with KML_NO_MEMORY. */
char *kml_doc_text(const void *data, size_t size, struct kml_err *err) KML_MUST_CHECK;

/* Remembers a source's name; its index goes into the nodes. */
int kml_doc_add_source(struct kml_doc *doc, const char *name, uint32_t *index,
                       struct kml_err *err) KML_MUST_CHECK;

/* Sets "name:line:column: " and the text. Returns -1. */
int kml_doc_fail(struct kml_err *err, enum kml_code code, const char *name, size_t line, size_t column,
                 const char *format, ...) KML_PRINTF(6, 7);

/* What a plain YAML scalar means (core schema). Sets kind and value of `node`, whose text is already there.
 */
int kml_scalar_resolve(struct kml_node *node, struct kml_err *err) KML_MUST_CHECK;

/* The two readers. Both leave what they built in doc->root even when they fail; the caller clears it. */
int kml_yaml_read(struct kml_doc *doc, uint32_t source, struct kml_view text,
                  struct kml_err *err) KML_MUST_CHECK;
int kml_json_read(struct kml_doc *doc, uint32_t source, struct kml_view text,
                  struct kml_err *err) KML_MUST_CHECK;

/* One step of a path. */
struct kml_path_step {
    bool is_index;
    uint32_t index;
    char key[KML_DOC_PATH];
};

/* Takes the next step off *path: 1, 0 at the end, -1 when the path is malformed. `whole` is for the error
 * line. */
int kml_path_next(const char **path, struct kml_path_step *step, const char *whole,
                  struct kml_err *err) KML_MUST_CHECK;

#endif
