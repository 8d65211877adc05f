#include "cli/tensorstats.h"

#include <math.h>
#include <string.h>

/* Little-endian bytes to an unsigned number of 1 to 8 bytes. */
static uint64_t unsigned_of(const uint8_t *at, uint32_t size)
{
    uint64_t value = 0;
    for (uint32_t i = size; i > 0; i--) {
        value = value << 8 | at[i - 1];
    }
    return value;
}

static double signed_of(const uint8_t *at, uint32_t size)
{
    uint64_t raw = unsigned_of(at, size);
    uint64_t sign = UINT64_C(1) << (size * 8 - 1);
    return (raw & sign) == 0 ? (double)raw : -(double)((~raw & (sign - 1)) + 1);
}

static double single_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/* IEEE 754 binary16: 1 sign bit, 5 of exponent (bias 15), 10 of fraction. */
static double half_of(uint32_t bits)
{
    int exponent = (int)(bits >> 10 & 31);
    double fraction = (double)(bits & 1023);
    double sign = (bits >> 15) != 0 ? -1 : 1;
    if (exponent == 31) {
        return fraction > 0 ? (double)NAN : sign * (double)INFINITY;
    }
    return sign * (exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25));
}

static double double_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

double kml_tensor_number(enum kml_dtype dtype, const uint8_t *at)
{
    switch (dtype) {
    case KML_F32:
        return single_of((uint32_t)unsigned_of(at, 4));
    case KML_F64:
        return double_of(unsigned_of(at, 8));
    case KML_F16:
        return half_of((uint32_t)unsigned_of(at, 2));
    case KML_BF16: /* the upper half of a binary32 */
        return single_of((uint32_t)unsigned_of(at, 2) << 16);
    case KML_I8:
    case KML_I16:
    case KML_I32:
    case KML_I64:
        return signed_of(at, kml_dtype_size(dtype));
    case KML_BOOL:
    case KML_U8:
    case KML_U16:
    case KML_U32:
    case KML_U64:
    case KML_DTYPE_COUNT:
        break;
    }
    return (double)unsigned_of(at, kml_dtype_size(dtype));
}

void kml_tensor_stats_of(const struct kml_tensor *tensor, struct kml_tensor_stats *out)
{
    uint32_t size = kml_dtype_size(tensor->dtype);
    uint64_t finite = 0;
    double squares = 0;
    *out = (struct kml_tensor_stats){.elements = tensor->data.size / size};
    for (uint64_t i = 0; i < out->elements; i++) {
        double x = kml_tensor_number(tensor->dtype, tensor->data.data + i * size);
        if (!isfinite(x)) {
            out->non_finite++;
            continue;
        }
        finite++;
        double off = x - out->mean;
        out->mean += off / (double)finite;
        squares += off * (x - out->mean);
        out->least = finite == 1 || x < out->least ? x : out->least;
        out->most = finite == 1 || x > out->most ? x : out->most;
    }
    out->deviation = finite == 0 ? 0 : sqrt(squares / (double)finite);
}
