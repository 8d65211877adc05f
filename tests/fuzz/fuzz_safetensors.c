#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "store/safetensors.h"

/* What is read can be written, and is then read as the same. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_and_read(const struct kml_safetensors *s)
{
    struct kml_buf file;
    struct kml_safetensors again;
    struct kml_err err;
    kml_buf_init(&file, 1 << 24);
    KML_BUG_ON(kml_safetensors_header(&file, s->tensor, s->count, s->metadata, s->metadata_count, &err) != 0);
    for (uint32_t i = 0; i < s->count; i++) {
        KML_BUG_ON(kml_buf_append(&file, s->tensor[i].data.data, s->tensor[i].data.size, &err) != 0);
    }
    KML_BUG_ON(kml_safetensors_parse(&again, kml_buf_view(&file), &err) != 0);
    KML_BUG_ON(again.count != s->count || again.metadata_count != s->metadata_count);
    for (uint32_t i = 0; i < s->count; i++) {
        const struct kml_tensor *t = kml_safetensors_find(&again, s->tensor[i].name);
        KML_BUG_ON(t == NULL || t->dims != s->tensor[i].dims || t->data.size != s->tensor[i].data.size);
        KML_BUG_ON(t->data.size > 0 && memcmp(t->data.data, s->tensor[i].data.data, t->data.size) != 0);
    }
    for (uint32_t i = 0; i < s->metadata_count; i++) {
        KML_BUG_ON(strcmp(again.metadata[i].text, s->metadata[i].text) != 0);
    }
    kml_safetensors_finish(&again);
    kml_buf_finish(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kml_safetensors s;
    struct kml_err err = {.code = KML_OK};
    if (kml_safetensors_parse(&s, kml_view_of(data, size), &err) == 0) {
        write_and_read(&s);
        kml_safetensors_finish(&s);
    } else {
        KML_BUG_ON(err.code == KML_OK);
    }
    return 0;
}
