#include "base/crc32c.h"

#include <pthread.h>
#include <string.h>

#include "base/crc32c_paths.h"
#include "base/mem.h"

/*
 * A CRC is the remainder of the message, read as a polynomial over GF(2), modulo P. In the reflected form
 * used here bit 31 of a word is x^0 and bit 0 is x^31, so a multiplication by x is a shift to the right.
 */
#define POLYNOMIAL UINT32_C(0x82f63b78)
#define ONE UINT32_C(0x80000000)

/*
 * The crc32 instruction has a latency of three cycles and a throughput of one, so three lanes run side by
 * side. Lanes are joined by multiplying with x^(8 * lane bytes), a linear map that four tables hold. Two
 * sizes, so that neither large chunks nor small messages pay for the join.
 */
#define LANE_LONG 2048
#define LANE_SHORT 128

static uint32_t byte_table[8][256]; /* [k][b]: byte b followed by k zero bytes */
static uint32_t shift_long[4][256];
static uint32_t shift_short[4][256];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static uint32_t times_x(uint32_t a)
{
    return (a >> 1) ^ ((a & 1) != 0 ? POLYNOMIAL : 0);
}

static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (uint32_t bit = ONE; bit != 0; bit >>= 1) {
        product ^= (b & bit) != 0 ? a : 0;
        a = times_x(a);
    }
    return product;
}

/* x^bits mod P, by squaring. */
static uint32_t power_of_x(uint64_t bits)
{
    uint32_t result = ONE;
    for (uint32_t square = ONE >> 1; bits > 0; bits >>= 1) {
        result = (bits & 1) != 0 ? multiply(result, square) : result;
        square = multiply(square, square);
    }
    return result;
}

static void make_shift(uint32_t table[4][256], size_t bytes)
{
    uint32_t factor = power_of_x((uint64_t)bytes * 8);
    for (uint32_t k = 0; k < 4; k++) {
        for (uint32_t b = 0; b < 256; b++) {
            table[k][b] = multiply(b << (8 * k), factor);
        }
    }
}

static void make_tables(void)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;
        for (int bit = 0; bit < 8; bit++) {
            crc = times_x(crc);
        }
        byte_table[0][b] = crc;
    }
    for (uint32_t b = 0; b < 256; b++) {
        for (int k = 1; k < 8; k++) {
            uint32_t before = byte_table[k - 1][b];
            byte_table[k][b] = (before >> 8) ^ byte_table[0][before & 0xff];
        }
    }
    make_shift(shift_long, LANE_LONG);
    make_shift(shift_short, LANE_SHORT);
}

static uint64_t load64(const uint8_t *from)
{
    uint64_t word;
    memcpy(&word, from, sizeof word); /* any alignment */
    return word;
}

static uint32_t step_byte(uint32_t crc, uint8_t byte)
{
    return (crc >> 8) ^ byte_table[0][(crc ^ byte) & 0xff];
}

uint32_t kml_crc32c_table(uint32_t crc, const void *data, size_t size)
{
    (void)pthread_once(&tables_once, make_tables);
    const uint8_t *at = data;
    crc = ~crc;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    for (; size >= 8; at += 8, size -= 8) {
        uint64_t word = load64(at) ^ crc;
        crc = 0;
        for (int k = 0; k < 8; k++) {
            crc ^= byte_table[7 - k][(word >> (8 * k)) & 0xff];
        }
    }
#endif
    for (; size > 0; at++, size--) {
        crc = step_byte(crc, *at);
    }
    return ~crc;
}

#if defined(__x86_64__)

bool kml_crc32c_has_hardware(void)
{
    return __builtin_cpu_supports("sse4.2") != 0;
}

static uint32_t shift(uint32_t table[4][256], uint32_t crc)
{
    return table[0][crc & 0xff] ^ table[1][(crc >> 8) & 0xff] ^ table[2][(crc >> 16) & 0xff] ^
           table[3][crc >> 24];
}

/* Three lanes of `lane` bytes from `at`. */
__attribute__((target("sse4.2"))) static uint32_t three_lanes(uint32_t crc, const uint8_t *at, size_t lane,
                                                              uint32_t table[4][256])
{
    uint64_t a = crc;
    uint64_t b = 0;
    uint64_t c = 0;
    for (size_t i = 0; i < lane; i += 8) {
        a = __builtin_ia32_crc32di(a, load64(at + i));
        b = __builtin_ia32_crc32di(b, load64(at + lane + i));
        c = __builtin_ia32_crc32di(c, load64(at + 2 * lane + i));
    }
    uint32_t ab = shift(table, (uint32_t)a) ^ (uint32_t)b;
    return shift(table, ab) ^ (uint32_t)c;
}

__attribute__((target("sse4.2"))) uint32_t kml_crc32c_hardware(uint32_t crc, const void *data, size_t size)
{
    (void)pthread_once(&tables_once, make_tables);
    const uint8_t *at = data;
    crc = ~crc;
    for (; size >= 3 * LANE_LONG; at += 3 * LANE_LONG, size -= 3 * LANE_LONG) {
        crc = three_lanes(crc, at, LANE_LONG, shift_long);
    }
    for (; size >= 3 * LANE_SHORT; at += 3 * LANE_SHORT, size -= 3 * LANE_SHORT) {
        crc = three_lanes(crc, at, LANE_SHORT, shift_short);
    }
    for (; size >= 8; at += 8, size -= 8) {
        crc = (uint32_t)__builtin_ia32_crc32di(crc, load64(at));
    }
    for (; size > 0; at++, size--) {
        crc = __builtin_ia32_crc32qi(crc, *at);
    }
    return ~crc;
}

#else

bool kml_crc32c_has_hardware(void)
{
    return false;
}

uint32_t kml_crc32c_hardware(uint32_t crc, const void *data, size_t size)
{
    return kml_crc32c_table(crc, data, size);
}

#endif

uint32_t kml_crc32c(uint32_t crc, const void *data, size_t size)
{
    return kml_crc32c_has_hardware() ? kml_crc32c_hardware(crc, data, size)
                                     : kml_crc32c_table(crc, data, size);
}
