#include "ps/save.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/parse.h"
#include "store/safetensors.h"

void kml_save_init(struct kml_save *s, uint32_t shards)
{
    *s = (struct kml_save){.shards = shards};
    s->here = KML_NEW_ARRAY(shards, bool);
    s->filled = KML_NEW_ARRAY(shards, uint64_t);
    kml_buf_init(&s->header, KML_SAFETENSORS_MAX_HEADER + 64);
}

void kml_save_forget(struct kml_save *s)
{
    for (uint32_t i = 0; i < s->metadata; i++) {
        kml_free(s->key[i]);
        kml_free(s->text[i]);
    }
    s->metadata = 0;
}

void kml_save_finish(struct kml_save *s)
{
    kml_save_forget(s);
    kml_buf_finish(&s->header);
    kml_free(s->vector);
    kml_free(s->here);
    kml_free(s->filled);
    kml_free(s->location);
    *s = (struct kml_save){.shards = 0};
}

/* Text without control characters: it grows at most twofold in the header, so the header keeps its limit. */
static bool is_text(const char *text)
{
    for (const char *c = text; *c != '\0';) {
        size_t length = (unsigned char)*c < 0x20 ? 0 : kml_utf8_length(c);
        if (length == 0) {
            return false;
        }
        c += length;
    }
    return true;
}

/* A key twice, or one that we write ourselves, makes a file that readers refuse or read in two ways. */
static bool is_taken(const struct kml_save *s, const char *key)
{
    bool taken = strcmp(key, "format") == 0 || strncmp(key, "kunal.", 6) == 0;
    for (uint32_t i = 0; i < s->metadata && !taken; i++) {
        taken = strcmp(s->key[i], key) == 0;
    }
    return taken;
}

int kml_save_note(struct kml_save *s, const char *key, const char *text, struct kml_err *err)
{
    if (s->metadata == KML_SAVE_METADATA || strlen(key) > 256 || strlen(text) > KML_SAVE_TEXT) {
        return kml_fail(err, KML_TOO_LARGE, "metadata: at most %d texts of %u bytes", KML_SAVE_METADATA,
                        KML_SAVE_TEXT);
    }
    if (!is_text(key) || !is_text(text) || is_taken(s, key)) {
        return kml_fail(
            err, KML_INVALID,
            "metadata %.64s: keys and values are UTF-8 without control characters, keys come once, "
            "and \"format\" and \"kunal.\" are taken",
            key);
    }
    s->key[s->metadata] = kml_strdup(key);
    s->text[s->metadata++] = kml_strdup(text);
    return 0;
}

int kml_save_begin(struct kml_save *s, uint64_t floats, struct kml_err *err)
{
    s->floats = floats;
    s->missing = s->shards;
    s->vector = kml_try_alloc(floats * sizeof(float));
    if (s->vector == NULL) {
        return kml_fail(err, KML_NO_MEMORY, "no memory for a model of %llu bytes",
                        (unsigned long long)(floats * sizeof(float)));
    }
    return 0;
}

int kml_save_put(struct kml_save *s, uint32_t shard, struct kml_span span, uint64_t offset, const void *data,
                 size_t size, struct kml_err *err)
{
    /* Parts come in ascending order, so a count tells what is missing. */
    uint64_t count = size / sizeof(float);
    if (s->vector == NULL || size % sizeof(float) != 0 || offset != span.begin + s->filled[shard] ||
        count > span.end - offset) {
        return kml_fail(err, KML_PROTOCOL, "shard %u sent a part of the model that was not asked for", shard);
    }
    memcpy(s->vector + offset, data, size);
    s->filled[shard] += count;
    if (!s->here[shard] && s->filled[shard] == span.end - span.begin) {
        s->here[shard] = true;
        s->missing--;
    }
    return 0;
}

bool kml_save_complete(const struct kml_save *s)
{
    return s->vector != NULL && s->missing == 0;
}

/* ---- The file ---- */

static struct kml_tensor *tensors_of(const struct kml_save *s, const struct kml_layout *layout)
{
    struct kml_tensor *tensor = KML_NEW_ARRAY(layout->count, struct kml_tensor);
    for (uint32_t i = 0; i < layout->count; i++) {
        const struct kml_layout_tensor *from = &layout->tensor[i];
        tensor[i] =
            (struct kml_tensor){.name = from->name,
                                .dtype = KML_F32,
                                .dims = from->dims,
                                .data = kml_view_of(s->vector + from->offset, from->count * sizeof(float))};
        for (uint32_t d = 0; d < from->dims; d++) {
            tensor[i].dim[d] = from->shape[d];
        }
    }
    return tensor;
}

#define OWN_PAIRS 8

struct pairs {
    struct kml_metadata pair[KML_SAVE_METADATA + OWN_PAIRS];
    uint32_t count;
    char text[OWN_PAIRS][80];
};

static void add_pair(struct pairs *p, const char *key, const char *text)
{
    p->pair[p->count++] = (struct kml_metadata){key, text};
}

static void describe(struct pairs *p, const struct kml_save *s, const struct kml_conductor *c,
                     const char *manifest)
{
    p->count = 0;
    add_pair(p, "format",
             "pt"); /* what readers of safetensors expect; the tensors are as torch.nn.Linear's */
    add_pair(p, "kunal.version", KML_VERSION);
    add_pair(p, "kunal.job", c->job->name);
    add_pair(p, "kunal.manifest_sha256", manifest);
    (void)snprintf(p->text[0], sizeof p->text[0], "%u", c->ledger.closed);
    add_pair(p, "kunal.epochs", p->text[0]);
    if (c->has_evaluation) {
        (void)snprintf(p->text[1], sizeof p->text[1], "%.9g", c->loss);
        add_pair(p, "kunal.loss", p->text[1]);
    }
    if (c->has_evaluation && !isnan(c->accuracy)) {
        (void)snprintf(p->text[2], sizeof p->text[2], "%.9g", c->accuracy);
        add_pair(p, "kunal.accuracy", p->text[2]);
    }
    for (uint32_t i = 0; i < s->metadata; i++) {
        add_pair(p, s->key[i], s->text[i]);
    }
}

static int manifest_hash(const struct kml_job *job, char out[2 * KML_SHA256_BYTES + 1], struct kml_err *err)
{
    struct kml_buf text;
    uint8_t digest[KML_SHA256_BYTES];
    kml_buf_init(&text, (size_t)8 << 20);
    int result = kml_job_to_json(job, &text, err);
    if (result == 0) {
        kml_sha256_of(text.data, text.size, digest);
        kml_hex(digest, sizeof digest, out);
    }
    kml_buf_finish(&text);
    return result;
}

static void hash_file(struct kml_save *s)
{
    struct kml_sha256 *h = kml_sha256_create();
    kml_sha256_add(h, s->header.data, s->header.size);
    kml_sha256_add(h, s->vector, s->floats * sizeof(float));
    kml_sha256_end(h, s->sha256);
}

int kml_save_make(struct kml_save *s, const struct kml_conductor *c, struct kml_err *err)
{
    char manifest[2 * KML_SHA256_BYTES + 1];
    struct pairs pairs;
    if (manifest_hash(c->job, manifest, err) < 0) {
        return -1;
    }
    describe(&pairs, s, c, manifest);
    struct kml_tensor *tensor = tensors_of(s, &c->layout);
    int result = kml_safetensors_header(&s->header, tensor, c->layout.count, pairs.pair, pairs.count, err);
    kml_free(tensor);
    if (result == 0) {
        hash_file(s);
        s->made = true;
    }
    return result;
}

int kml_save_write(struct kml_save *s, const char *folder, struct kml_err *err)
{
    kml_auto_free char *path = kml_format("%s/model.safetensors", folder);
    struct kml_view parts[2] = {kml_buf_view(&s->header), kml_view_of(s->vector, s->floats * sizeof(float))};
    if (kml_folder_make(folder, 0755, err) < 0 || kml_file_write(path, parts, 2, 0644, err) < 0) {
        return kml_wrap(err, "cannot save the model");
    }
    s->location = realpath(path, NULL);
    return s->location == NULL ? kml_fail(err, KML_IO, "cannot save the model: %s is gone again", path) : 0;
}

uint64_t kml_save_bytes(const struct kml_save *s)
{
    return s->made ? s->header.size + s->floats * sizeof(float) : 0;
}

void kml_save_read(const struct kml_save *s, uint64_t offset, void *to, size_t size)
{
    uint8_t *out = to;
    if (offset < s->header.size) {
        size_t part = s->header.size - offset < size ? s->header.size - offset : size;
        memcpy(out, s->header.data + offset, part);
        out += part;
        offset += part;
        size -= part;
    }
    if (size > 0) {
        memcpy(out, (const uint8_t *)s->vector + (offset - s->header.size), size);
    }
}
