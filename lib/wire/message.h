#ifndef KML_WIRE_MESSAGE_H
#define KML_WIRE_MESSAGE_H

#include <protobuf-c/protobuf-c.h>

#include "base/buf.h"
#include "base/err.h"
#include "wire/slices.h"

/* Control messages: the generated structs of kunal/v1/control.pb-c.h to bytes and back. */

#define KML_CONTROL_MAX (4u << 20) /* bytes of one control message */

/* Replaces the contents of `out`. */
int kml_message_pack(const ProtobufCMessage *m, struct kml_buf *out, struct kml_err *err) KML_MUST_CHECK;

/* The caller frees with kml_message_free. KML_INVALID when the bytes are not such a message, strings hold bad
 * UTF-8, ... */
int kml_message_unpack(const ProtobufCMessageDescriptor *type, const struct kml_slices *bytes,
                       ProtobufCMessage **out, struct kml_err *err) KML_MUST_CHECK;
void kml_message_free(ProtobufCMessage *m); /* NULL accepted */

#endif
