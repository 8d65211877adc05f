#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/tensorstats.h"
#include "cli/usage.h"
#include "cli/verbs.h"
#include "doc/json.h"
#include "pki/pki.h"
#include "store/safetensors.h"

#define SHAPE_ROOM 192
#define HEX_ROOM (2 * KML_SHA256_BYTES + 1)

static const struct kml_usage usage = {
    .synopsis = "kunal inspect MODEL [flags]",
    .story =
        "Shows what is inside a model file (safetensors): tensors with shape, type, size, mean, standard "
        "deviation, least\n"
        "and largest value, how many numbers are NaN or infinite; the metadata; the SHA-256 of the file.\n",
    .examples = "  kunal inspect runs/fashion-20260131-120000/model.safetensors\n"
                "  kunal inspect model.safetensors --json | python3 -m json.tool\n",
    .exits = "  0   the file was read\n"
             "  64  wrong use of the command line\n"
             "  65  it is not a safetensors file, or it is damaged\n"
             "  66  it is not there\n",
};

static void shape_text(const struct kml_tensor *t, char out[SHAPE_ROOM])
{
    size_t at = (size_t)snprintf(out, SHAPE_ROOM, "[");
    for (uint32_t d = 0; d < t->dims; d++) {
        at += (size_t)snprintf(out + at, SHAPE_ROOM - at, "%s%" PRIu64, d == 0 ? "" : ",", t->dim[d]);
    }
    (void)snprintf(out + at, SHAPE_ROOM - at, "]");
}

static int widest_name(const struct kml_safetensors *s)
{
    size_t widest = 6;
    for (uint32_t i = 0; i < s->count; i++) {
        size_t width = strlen(s->tensor[i].name);
        widest = width > widest ? width : widest;
    }
    return widest > 60 ? 60 : (int)widest;
}

/* Metadata comes from anywhere: control characters must not reach a terminal. */
static void print_clean(const char *text)
{
    for (const char *c = text; *c != '\0'; c++) {
        (void)putchar((unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c);
    }
}

static void print_tensors(const struct kml_safetensors *s)
{
    int width = widest_name(s);
    (void)printf("%-*s  %-14s %-5s %12s %12s %12s %12s %12s %10s\n", width, "tensor", "shape", "dtype",
                 "bytes", "mean", "std", "min", "max", "non-finite");
    for (uint32_t i = 0; i < s->count; i++) {
        const struct kml_tensor *t = &s->tensor[i];
        struct kml_tensor_stats stats;
        char shape[SHAPE_ROOM];
        kml_tensor_stats_of(t, &stats);
        shape_text(t, shape);
        print_clean(t->name);
        (void)printf("%*s  %-14s %-5s %12zu %12.5g %12.5g %12.5g %12.5g %10" PRIu64 "\n",
                     width > (int)strlen(t->name) ? width - (int)strlen(t->name) : 0, "", shape,
                     kml_dtype_name(t->dtype), t->data.size, stats.mean, stats.deviation, stats.least,
                     stats.most, stats.non_finite);
    }
}

static void print_text(const struct kml_safetensors *s, const char *sha256)
{
    uint64_t elements = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        elements += s->tensor[i].data.size / kml_dtype_size(s->tensor[i].dtype);
    }
    print_tensors(s);
    (void)printf("\n%u tensors, %" PRIu64 " numbers, %zu bytes\nsha256 %s\n", (unsigned)s->count, elements,
                 s->file.size, sha256);
    for (uint32_t i = 0; i < s->metadata_count; i++) {
        print_clean(s->metadata[i].key);
        (void)printf(" = ");
        print_clean(s->metadata[i].text);
        (void)printf("\n");
    }
}

static void tensor_json(struct kml_json *w, const struct kml_tensor *t)
{
    struct kml_tensor_stats stats;
    kml_tensor_stats_of(t, &stats);
    kml_json_map(w, NULL);
    kml_json_text(w, "name", t->name);
    kml_json_list(w, "shape");
    for (uint32_t d = 0; d < t->dims; d++) {
        kml_json_uint(w, NULL, t->dim[d]);
    }
    kml_json_close(w);
    kml_json_text(w, "dtype", kml_dtype_name(t->dtype));
    kml_json_uint(w, "bytes", t->data.size);
    kml_json_real(w, "mean", stats.mean);
    kml_json_real(w, "std", stats.deviation);
    kml_json_real(w, "min", stats.least);
    kml_json_real(w, "max", stats.most);
    kml_json_uint(w, "nonFinite", stats.non_finite);
    kml_json_close(w);
}

static int print_json(const struct kml_safetensors *s, const char *sha256, struct kml_err *err)
{
    struct kml_buf buf;
    struct kml_json w;
    kml_buf_init(&buf, (size_t)1 << 30);
    kml_json_begin(&w, &buf);
    kml_json_text(&w, "sha256", sha256);
    kml_json_uint(&w, "bytes", s->file.size);
    kml_json_list(&w, "tensors");
    for (uint32_t i = 0; i < s->count; i++) {
        tensor_json(&w, &s->tensor[i]);
    }
    kml_json_close(&w);
    kml_json_map(&w, "metadata");
    for (uint32_t i = 0; i < s->metadata_count; i++) {
        kml_json_text(&w, s->metadata[i].key, s->metadata[i].text);
    }
    int result = kml_json_end(&w, err);
    if (result == 0) {
        (void)fwrite(buf.data, 1, buf.size, stdout);
    }
    kml_buf_finish(&buf);
    return result;
}

static int inspect(const char *path, bool json, struct kml_err *err)
{
    struct kml_safetensors s;
    if (kml_safetensors_read(&s, path, err) < 0) {
        return -1;
    }
    uint8_t digest[KML_SHA256_BYTES];
    char sha256[HEX_ROOM];
    kml_sha256_of(s.file.data, s.file.size, digest);
    kml_hex(digest, sizeof digest, sha256);
    int result = 0;
    if (json) {
        result = print_json(&s, sha256, err);
    } else {
        print_text(&s, sha256);
    }
    kml_safetensors_finish(&s);
    return result;
}

int kml_cli_inspect(int argc, char **argv)
{
    bool json = false;
    struct kml_flag_list files;
    const struct kml_flag flags[] = {
        {"json", 0, KML_FLAG_BOOL, &json, NULL, "Print one JSON document."},
    };
    int code = kml_usage_parse(&usage, flags, KML_COUNT(flags), argc, argv, 1, 1, &files);
    if (code != KML_USAGE_GO_ON) {
        return code;
    }
    struct kml_err err;
    code = 0;
    if (inspect(files.values[0], json, &err) < 0) {
        (void)fprintf(stderr, "kunal inspect: %s\n", err.text);
        code = kml_code_exit(err.code);
    }
    kml_flags_finish(flags, KML_COUNT(flags), &files);
    return code;
}
