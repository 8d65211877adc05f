#ifndef KML_JOB_TABLE_H
#define KML_JOB_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The manifest as a table: one row for each field, parents before their children, in the order in which the
 * normalised manifest is written. The reader, the writer, `kunal validate` and the CRD walk these rows;
 * nothing else knows a field's name, default or limit. Rules between two fields stand in rules.c.
 */
enum kml_job_kind {
    KML_JOB_KIND_MAP,      /* a map with rows of its own, always there */
    KML_JOB_KIND_OPTION,   /* a map with rows of its own that may be absent; target: bool */
    KML_JOB_KIND_FIXED,    /* a text that must be `fallback`; no target */
    KML_JOB_KIND_BOOL,     /* bool */
    KML_JOB_KIND_U32,      /* uint32_t */
    KML_JOB_KIND_U32_AUTO, /* uint32_t, or the word auto: KML_JOB_AUTO */
    KML_JOB_KIND_U64,      /* uint64_t */
    KML_JOB_KIND_REAL,     /* double */
    KML_JOB_KIND_ENUM,     /* one of `values`; an enum of the size of int */
    KML_JOB_KIND_TEXT,     /* char * */
    KML_JOB_KIND_NAME,     /* char *, a DNS label */
    KML_JOB_KIND_URI,      /* char *, scheme://... */
    KML_JOB_KIND_WIDTHS,   /* list of 1..KML_JOB_MAX_LAYERS numbers: uint32_t [8], then uint32_t count */
    KML_JOB_KIND_OUTPUTS,  /* list of `values`: uint32_t, a bit each */
    KML_JOB_KIND_FILE, /* a name or {file, labelColumn}, for validation also a fraction: struct kml_job_file
                        */
    KML_JOB_KIND_JSON_MAP,  /* any map, kept as JSON text: char * */
    KML_JOB_KIND_JSON_LIST, /* any list, kept as JSON text: char * */
    KML_JOB_KIND_TEMPLATE,  /* a pod template: struct kml_job_template */
    KML_JOB_KIND_IGNORED,   /* accepted, whatever it is (status, what the API server adds); no target */
};

struct kml_job_value {
    const char *name;
    bool later; /* valid, but not supported yet */
};

/* URI schemes, a bit each. */
enum {
    KML_JOB_SCHEME_FILE = 1,
    KML_JOB_SCHEME_PVC = 2,       /* cluster only */
    KML_JOB_SCHEME_CONFIGMAP = 4, /* cluster only */
    KML_JOB_SCHEME_HTTP = 8,      /* http and https; later */
    KML_JOB_SCHEME_S3 = 16,       /* later */
};

struct kml_job_field {
    const char *path;        /* "spec.model.kind" */
    const char *description; /* one sentence */
    enum kml_job_kind kind;
    size_t offset; /* into struct kml_job; not of kinds without a target */
    bool required; /* inside its parent, when that is there and active */
    bool later;    /* refused as not supported yet */
    bool cluster;  /* LOCAL takes it and says in a note that it is not used */
    bool fraction; /* FILE: may be a fraction of train */

    const struct kml_job_value *values; /* ENUM, OUTPUTS */
    uint32_t value_count;
    uint32_t schemes;     /* URI */
    const char *fallback; /* the default as YAML text; NULL: none */
    double unset;    /* numbers without a default: what the struct then holds; such a value is not written */
    double min, max; /* numbers, both inclusive; of WIDTHS each element */
    bool above_min;  /* min itself is out of range */
    bool below_max;  /* max itself is out of range */

    /* The row is active only while this ENUM row has one of the values in the mask. NULL: always. */
    const char *when;
    uint32_t when_mask; /* 1 << enum value */
};

/* All rows; `count` is set. The array is constant and lives for ever. */
const struct kml_job_field *kml_job_fields(uint32_t *count);

/* The row of a full path, or NULL. */
const struct kml_job_field *kml_job_field_of(const char *path);

/* The last part of the path ("kind"), borrowed from it. */
const char *kml_job_field_key(const struct kml_job_field *field);

#endif
