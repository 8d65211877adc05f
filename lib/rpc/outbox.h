#ifndef KML_RPC_OUTBOX_H
#define KML_RPC_OUTBOX_H

#include <grpc/byte_buffer.h>
#include <stdbool.h>
#include <stddef.h>

/* Messages that wait for their turn on a stream, oldest first. The stream bounds it; this only keeps it. */
struct kml_parcel {
    grpc_byte_buffer *bytes; /* owned by whoever holds the parcel */
    size_t size;
};

struct kml_outbox {
    struct kml_parcel *slot; /* [room], a ring; room is 0 or a power of two */
    size_t room;
    size_t head;
    size_t count;
    size_t bytes; /* of all messages in it */
};

void kml_outbox_put(struct kml_outbox *o, struct kml_parcel parcel);   /* takes it */
bool kml_outbox_take(struct kml_outbox *o, struct kml_parcel *parcel); /* gives it; false when empty */
void kml_outbox_clear(struct kml_outbox *o);
void kml_outbox_finish(struct kml_outbox *o);

#endif
