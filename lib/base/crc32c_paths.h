#ifndef KML_BASE_CRC32C_PATHS_H
#define KML_BASE_CRC32C_PATHS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The two ways in which kml_crc32c computes, apart, so that a test can hold them against each other. */
uint32_t kml_crc32c_table(uint32_t crc, const void *data,
                          size_t size); /* everywhere: eight bytes a step by tables */
uint32_t kml_crc32c_hardware(uint32_t crc, const void *data,
                             size_t size); /* only where kml_crc32c_has_hardware() */
bool kml_crc32c_has_hardware(void);        /* x86-64 with SSE4.2 */

#endif
