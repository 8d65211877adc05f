#include "data/table.h"

#include "base/mem.h"

void kml_table_finish(struct kml_table *t)
{
    kml_free(t->bytes);
    kml_free(t->reals);
    kml_free(t->label);
    kml_free(t->target);
    *t = (struct kml_table){0};
}
