#include "data/dataset.h"

#include "base/crc32c.h"

typedef void part_function(void *self, struct kml_view bytes);

static void table_parts(const struct kml_dataset *d, const struct kml_table *t, part_function *values,
                        part_function *other, void *self)
{
    uint32_t shape[] = {t->rows, t->features, t->classes, t->bytes != NULL};
    other(self, kml_view_of(shape, sizeof(shape)));
    size_t cells = (size_t)t->rows * t->features;
    if (t->bytes != NULL) {
        values(self, kml_view_of(t->bytes, cells));
    } else if (t->reals != NULL) {
        values(self, kml_view_of(t->reals, cells * sizeof(*t->reals)));
    }
    size_t size = (size_t)t->rows * sizeof(uint32_t);
    if (t->rows > 0) {
        other(self,
              d->targets == KML_TARGET_CLASS ? kml_view_of(t->label, size) : kml_view_of(t->target, size));
    }
}

static void all_parts(const struct kml_dataset *d, int with_test, part_function *values, part_function *other,
                      void *self)
{
    for (int i = 0; i < (with_test ? 3 : 2); i++) {
        table_parts(d, &d->tables[i], values, other, self);
    }
    uint32_t counts[] = {d->train.count, d->validation.count, (uint32_t)d->standardize};
    other(self, kml_view_of(counts, sizeof(counts)));
    if (d->validation.row != NULL) { /* then the training rows are what is left */
        other(self, kml_view_of(d->validation.row, (size_t)d->validation.count * sizeof(uint32_t)));
    }
    other(self, kml_view_of(d->mean, (size_t)d->features * sizeof(float)));
    other(self, kml_view_of(d->scale, (size_t)d->features * sizeof(float)));
}

void kml_dataset_digest_parts(const struct kml_dataset *d, int with_test,
                              void (*part)(void *self, struct kml_view bytes), void *self)
{
    all_parts(d, with_test, part, part, self);
}

struct sums {
    uint32_t values;
    uint32_t other;
};

static void add_values(void *self, struct kml_view bytes)
{
    struct sums *s = self;
    s->values = kml_crc32c(s->values, bytes.data, bytes.size);
}

static void add_other(void *self, struct kml_view bytes)
{
    struct sums *s = self;
    s->other = kml_crc32c(s->other, bytes.data, bytes.size);
}

uint64_t kml_dataset_digest(const struct kml_dataset *d, int with_test)
{
    struct sums s = {0, 0};
    all_parts(d, with_test, add_values, add_other, &s);
    uint64_t digest = (uint64_t)s.other << 32 | s.values;
    return digest == 0 ? 1 : digest;
}
