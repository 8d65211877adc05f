#ifndef KML_PS_SAVE_H
#define KML_PS_SAVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "pki/pki.h"
#include "ps/conductor.h"

/*
 * The finished model: the shards' parts gathered into one vector, then one safetensors file, all or nothing.
 * The bytes stay in memory for a driver that fetches them.
 */
#define KML_SAVE_METADATA 64
#define KML_SAVE_TEXT (1u << 20) /* bytes of one text */

struct kml_save {
    float *vector; /* [floats] NULL until gathering begins */
    uint64_t floats;
    bool *here; /* [shards] this part is whole */
    uint32_t shards, missing;
    uint64_t *filled;      /* [shards] floats that came so far */
    struct kml_buf header; /* of the file; the vector follows */
    uint8_t sha256[KML_SHA256_BYTES];
    char *location; /* absolute path, or "configmap://..." once the driver has it; NULL until the model is
                       durable */
    bool made;      /* header and sha256 are there */
    char *key[KML_SAVE_METADATA]; /* what the first worker said of the data */
    char *text[KML_SAVE_METADATA];
    uint32_t metadata;
};

void kml_save_init(struct kml_save *s, uint32_t shards);
void kml_save_finish(struct kml_save *s);

void kml_save_forget(struct kml_save *s); /* all pairs */
/* Remembers a pair for the file; those beyond KML_SAVE_METADATA, and texts over KML_SAVE_TEXT, are refused.
 */
int kml_save_note(struct kml_save *s, const char *key, const char *text, struct kml_err *err) KML_MUST_CHECK;

int kml_save_begin(struct kml_save *s, uint64_t floats, struct kml_err *err) KML_MUST_CHECK;
/* A piece of shard `shard`'s part, which is `span`. */
int kml_save_put(struct kml_save *s, uint32_t shard, struct kml_span span, uint64_t offset, const void *data,
                 size_t size, struct kml_err *err) KML_MUST_CHECK;
bool kml_save_complete(const struct kml_save *s);

/* Composes the file's bytes. */
int kml_save_make(struct kml_save *s, const struct kml_conductor *c, struct kml_err *err) KML_MUST_CHECK;
/* Writes folder/model.safetensors durably; sets `location`. */
int kml_save_write(struct kml_save *s, const char *folder, struct kml_err *err) KML_MUST_CHECK;

uint64_t kml_save_bytes(const struct kml_save *s);
/* Copies file bytes [offset, offset + size). */
void kml_save_read(const struct kml_save *s, uint64_t offset, void *to, size_t size);

#endif
