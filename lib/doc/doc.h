#ifndef KML_DOC_DOC_H
#define KML_DOC_DOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * One tree for JSON and YAML documents. Every node knows where it was written and can say its path.
 *
 * Between any two calls:
 *   - a map has no key twice, and its children stand in the order in which they were written;
 *   - every text is UTF-8 without a zero byte; every real is finite;
 *   - the tree is at most KML_DOC_MAX_DEPTH deep and has at most KML_DOC_MAX_NODES nodes, whatever the input
 *     was.
 *
 * YAML is read through libyaml's events, with the core schema of YAML 1.2: null, true and false, integers
 * (also 0x and 0o) and reals are recognised when written plain; what is quoted stays text, and so do yes, no,
 * on and off. Anchors, aliases and tags are refused (so there is no "billion laughs"), and so are .inf and
 * .nan and a second document. JSON is read by jansson, which is strict where libyaml is not (surrogate pairs,
 * keys of any length, no bare words) but forgets places; a second walk over text that is known to be good
 * finds the place of each node. JSON is tried first when the document begins with '{' or '['.
 *
 * What is read is bounded and allocated with kml_try_alloc: KML_NO_MEMORY comes back as an error, and nothing
 * is left behind. A document is plain data: not thread-safe, but many may read it at once.
 */
#define KML_DOC_MAX_BYTES ((size_t)4 << 20)
#define KML_DOC_MAX_DEPTH 64
#define KML_DOC_MAX_NODES 100000
#define KML_DOC_MAX_KEYS 1024 /* of one map */
#define KML_DOC_MAX_SOURCES 1024

enum kml_node_kind {
    KML_NODE_NULL,
    KML_NODE_BOOL,
    KML_NODE_INT,
    KML_NODE_REAL,
    KML_NODE_TEXT,
    KML_NODE_LIST,
    KML_NODE_MAP,
};

struct kml_node {
    enum kml_node_kind kind;
    uint32_t source;   /* index into kml_doc.source; 0: made by a program, no place */
    uint32_t line;     /* 1.. of the value; 0: no place inside its source (as with --set) */
    uint32_t column;   /* 1.., in characters */
    uint32_t key_line; /* the same of the key */
    uint32_t key_column;
    uint32_t index;          /* its place among its parent's children */
    struct kml_node *parent; /* NULL: the root */
    char *key;               /* owned; NULL unless the parent is a map */
    union {
        bool yes;
        int64_t integer;
        double real;
    } value;
    char *text;              /* owned; NULL unless a text */
    struct kml_node **child; /* [count], owned; of lists and maps */
    uint32_t count;
    uint32_t room;
};

struct kml_doc {
    struct kml_node *root; /* NULL until something is read or set */
    char **source;         /* [sources], owned: the names of files and "--set a=b"; source[0] is "" */
    uint32_t sources;
    uint32_t nodes; /* how many nodes were made so far */
};

void kml_doc_init(struct kml_doc *doc);
void kml_doc_finish(struct kml_doc *doc);

/*
 * Reads one document into an initialised, empty `doc`. `name` stands in error lines ("job.yaml"). An error
 * reads "job.yaml:3:7: what; what to do" and leaves the doc empty. KML_INVALID, KML_TOO_LARGE, KML_NO_MEMORY.
 */
int kml_doc_read(struct kml_doc *doc, const char *name, struct kml_view text,
                 struct kml_err *err) KML_MUST_CHECK;
int kml_doc_read_file(struct kml_doc *doc, const char *path, struct kml_err *err) KML_MUST_CHECK;

/*
 * Sets the node at `path` to `value`, read as one YAML value (scalar, or list or map in flow form); the empty
 * text is null. Maps on the way are made when missing, `list[n]` may name an element or, with n = its length,
 * a new one. In a path a dot or bracket that belongs to a key has a backslash before it. `source` stands in
 * later errors
 * ("--set spec.x=1"). A path through a scalar is KML_INVALID; on failure the tree is as before, but for empty
 * maps.
 */
int kml_doc_set(struct kml_doc *doc, const char *path, const char *value, const char *source,
                struct kml_err *err) KML_MUST_CHECK;

/* "path=value" as it stands behind --set. */
int kml_doc_assign(struct kml_doc *doc, const char *assignment, struct kml_err *err) KML_MUST_CHECK;

/* A deep copy into an initialised, empty document. */
int kml_doc_copy(struct kml_doc *to, const struct kml_doc *from, struct kml_err *err) KML_MUST_CHECK;

/* Looking around. `map` may be NULL or no map: then nothing is found. */
struct kml_node *kml_node_get(const struct kml_node *map, const char *key);
struct kml_node *kml_doc_find(const struct kml_doc *doc, const char *path); /* NULL: not there */
const char *kml_node_kind_name(enum kml_node_kind kind);                    /* "integer", "map", ... */
bool kml_node_is_number(const struct kml_node *node);
double kml_node_number(const struct kml_node *node); /* of an integer or a real */

/* Equal values: the order of a map's keys, places and sources do not count; integer 1 and real 1.0 differ. */
bool kml_node_equal(const struct kml_node *a, const struct kml_node *b);

/* "spec.training.optimizer.learningRate", "spec.model.hiddenLayers[0]"; the root's is "". Cut when it does
 * not fit. */
#define KML_DOC_PATH 256
void kml_node_path(const struct kml_node *node, char out[KML_DOC_PATH]);

/* "job.yaml:3:7", or the name alone when there is no line, or "" for what a program made. `of_key`: the key's
 * place. */
#define KML_DOC_PLACE 256
void kml_node_place(const struct kml_doc *doc, const struct kml_node *node, bool of_key,
                    char out[KML_DOC_PLACE]);

/* Appends compact JSON: no blanks, keys in the order of the tree, numbers as in json.h. The same tree, the
 * same bytes. */
int kml_node_write(const struct kml_node *node, struct kml_buf *out, struct kml_err *err) KML_MUST_CHECK;

#endif
