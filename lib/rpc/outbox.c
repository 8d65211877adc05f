#include "rpc/outbox.h"

#include "base/mem.h"

static void grow(struct kml_outbox *o)
{
    size_t room = o->room == 0 ? 8 : o->room * 2;
    struct kml_parcel *slot = KML_NEW_ARRAY(room, struct kml_parcel);
    for (size_t i = 0; i < o->count; i++) {
        slot[i] = o->slot[(o->head + i) & (o->room - 1)];
    }
    kml_free(o->slot);
    o->slot = slot;
    o->room = room;
    o->head = 0;
}

void kml_outbox_put(struct kml_outbox *o, struct kml_parcel parcel)
{
    if (o->count == o->room) {
        grow(o);
    }
    o->slot[(o->head + o->count) & (o->room - 1)] = parcel;
    o->count++;
    o->bytes += parcel.size;
}

bool kml_outbox_take(struct kml_outbox *o, struct kml_parcel *parcel)
{
    if (o->count == 0) {
        return false;
    }
    *parcel = o->slot[o->head];
    o->head = (o->head + 1) & (o->room - 1);
    o->count--;
    o->bytes -= parcel->size;
    return true;
}

void kml_outbox_clear(struct kml_outbox *o)
{
    struct kml_parcel parcel;
    while (kml_outbox_take(o, &parcel)) {
        grpc_byte_buffer_destroy(parcel.bytes);
    }
}

void kml_outbox_finish(struct kml_outbox *o)
{
    kml_outbox_clear(o);
    kml_free(o->slot);
    *o = (struct kml_outbox){0};
}
