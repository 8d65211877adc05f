#ifndef KML_BASE_CRC32C_H
#define KML_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* CRC-32C (Castagnoli, RFC 3720 appendix B.4). Start with 0; the result of one call continues in the next. */
uint32_t kml_crc32c(uint32_t crc, const void *data, size_t size);

#endif
