#ifndef KML_WIRE_CHUNK_H
#define KML_WIRE_CHUNK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "wire/slices.h"

/*
 * The one bulk message, kunal.v1.Chunk (proto/kunal/v1/data.proto), written as a small header before the
 * payload and read in place from scattered slices: float data is never copied by the framing. The bytes are
 * those of protobuf.
 */
#define KML_CHUNK_BYTES_MAX (1u << 20) /* of data */
#define KML_CHUNK_MESSAGE_MAX (KML_CHUNK_BYTES_MAX + 1024u)
#define KML_CHUNK_HEADER_MAX 320

#define KML_PROTOCOL_VERSION 1u /* in Join and Open; docs/PROTOCOL.md, Compatibility */

enum kml_payload { KML_PAYLOAD_GRADIENT = 0, KML_PAYLOAD_PARAMETERS = 1 };
enum kml_role { KML_ROLE_WORKER = 0, KML_ROLE_PS = 1, KML_ROLE_DRIVER = 2 };

struct kml_open {
    uint32_t protocol;
    char job_uid[64];
    enum kml_role role;
    uint32_t index;
    uint64_t incarnation;
    uint64_t generation;
    bool checksum;
    uint32_t shared_pid; /* 0: data travel in the messages; else see base/shared.h and data.proto */
    uint32_t shared_fd;
};

struct kml_chunk {
    uint64_t step;
    uint64_t version;
    uint32_t shard;
    uint64_t offset; /* elements */
    enum kml_payload payload;
    bool has_crc;
    uint32_t crc32c;
    bool has_open;
    struct kml_open open;
    uint64_t elements;      /* float32s in data, or in shared memory */
    bool shared;            /* the floats are not in the message: whoever parsed it sets `data` */
    struct kml_cursor data; /* parsed messages only: at the first byte of data */
};

/*
 * Writes everything of `c` but the data: the message is these bytes followed by elements * 4 bytes of
 * little-endian floats. Returns the header's size. Fails with KML_TOO_LARGE when the data exceed
 * KML_CHUNK_BYTES_MAX.
 */
int kml_chunk_header(const struct kml_chunk *c, uint8_t out[KML_CHUNK_HEADER_MAX], size_t *size,
                     struct kml_err *err) KML_MUST_CHECK;

/*
 * Reads a message: fields in any order, unknown fields skipped, a repeated field's last value wins.
 * KML_INVALID for what is not protobuf, data not a multiple of 4 bytes, another dtype, an over-long job uid,
 * `open` twice; KML_TOO_LARGE for too much data. payload and role may hold numbers that the enums do not
 * have: newer peers send them. out->data refers to message->part. Does not check the crc: kml_chunk_copy does
 * while it copies. has_crc says that the field was there; as protobuf leaves a zero out, whoever expects
 * checksums sets it before kml_chunk_copy.
 */
int kml_chunk_parse(const struct kml_slices *message, struct kml_chunk *out,
                    struct kml_err *err) KML_MUST_CHECK;

/* Copies the data out (elements * 4 bytes, of a shared chunk from where the caller set `data`; `to`
 * float-aligned); with has_crc a wrong checksum is KML_INVALID. */
int kml_chunk_copy(const struct kml_chunk *c, float *to, struct kml_err *err) KML_MUST_CHECK;

/*
 * Shared memory of a worker and its shards (data.proto, Open.shared_pid): KML_AREAS areas of kml_area_bytes
 * each, which all hold the whole vector: the gradient, then the parameters of even versions, then those of
 * odd ones. So a version on its way never overwrites the one before it.
 */
#define KML_AREAS 3u
size_t kml_area_bytes(uint64_t floats);
float *kml_area_gradient(uint8_t *memory);
float *kml_area_parameters(uint8_t *memory, uint64_t floats, uint64_t version);

#endif
