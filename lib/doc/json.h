#ifndef KML_DOC_JSON_H
#define KML_DOC_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * Writing JSON by appending, without a tree: one line of metrics, one status, one normalised manifest.
 *
 *     struct kml_json w;
 *     kml_json_begin(&w, &buf);             {
 *     kml_json_text(&w, "event", "epoch");    "event":"epoch"
 *     kml_json_list(&w, "share");             ,"share":[
 *     kml_json_real(&w, NULL, 0.25);            0.25
 *     kml_json_close(&w);                     ]
 *     return kml_json_end(&w, err);         }\n
 *
 * `key` is NULL inside a list and never NULL inside a map (else it is a bug and aborts). The first failure
 * (the buffer's maximum) is kept and reported by kml_json_end, so the calls between need no checks; then the
 * buffer is as it was before kml_json_begin. Bytes that are not UTF-8 become U+FFFD. No allocation of its
 * own; one thread at a time.
 */
#define KML_JSON_DEPTH 72

struct kml_json {
    struct kml_buf *out;
    size_t start; /* size of the buffer before this line */
    uint32_t depth;
    char closer[KML_JSON_DEPTH]; /* '}' or ']' of each open level */
    bool comma;                  /* the next thing needs one */
    bool failed;
    struct kml_err err;
};

void kml_json_begin(struct kml_json *w, struct kml_buf *out);             /* opens a map */
int kml_json_end(struct kml_json *w, struct kml_err *err) KML_MUST_CHECK; /* closes all levels, adds "\n" */
int kml_json_end_bare(struct kml_json *w, struct kml_err *err) KML_MUST_CHECK; /* the same without the "\n" */

void kml_json_map(struct kml_json *w, const char *key);
void kml_json_list(struct kml_json *w, const char *key);
void kml_json_close(struct kml_json *w); /* the innermost map or list; closing the line itself is a bug */

void kml_json_text(struct kml_json *w, const char *key, const char *text); /* NULL is null */
void kml_json_uint(struct kml_json *w, const char *key, uint64_t value);
void kml_json_int(struct kml_json *w, const char *key, int64_t value);
void kml_json_real(struct kml_json *w, const char *key,
                   double value); /* shortest that reads back; NaN, Inf: null */
void kml_json_bool(struct kml_json *w, const char *key, bool yes);
void kml_json_null(struct kml_json *w, const char *key);
void kml_json_raw(struct kml_json *w, const char *key, const char *json); /* a value that is JSON already */

/* The shortest decimal that reads back as `value` (finite), always with '.' or 'e' in it: "0.1", "1.0",
 * "1e+300". */
#define KML_JSON_REAL 32
void kml_format_real(double value, char out[KML_JSON_REAL]);

/* Appends `text` as a JSON string with its quotes. */
int kml_json_quote(struct kml_buf *out, const char *text, struct kml_err *err) KML_MUST_CHECK;

#endif
