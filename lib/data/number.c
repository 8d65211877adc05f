#include "data/number.h"

#include <math.h>
#include <stdint.h>

#define EXPONENT_MAX 100000 /* far beyond what a double holds; keeps the sum below from overflowing */

struct digits {
    uint64_t mantissa; /* the first 18 digits */
    int32_t exponent;  /* of ten */
    uint32_t count;    /* digits seen */
};

static bool is_digit(const uint8_t *p, const uint8_t *end)
{
    return p < end && *p >= '0' && *p <= '9';
}

/* Digits past the 18th only count for the exponent: they are below a double's precision. */
static const uint8_t *read_digits(const uint8_t *p, const uint8_t *end, bool fraction, struct digits *d)
{
    for (; is_digit(p, end); p++) {
        d->count++;
        bool fits = d->mantissa < UINT64_C(100000000000000000);
        if (fits) {
            d->mantissa = d->mantissa * 10 + (uint64_t)(*p - '0');
        }
        int32_t shift = (fits ? 0 : 1) - (fraction ? 1 : 0);
        d->exponent += d->exponent > -EXPONENT_MAX && d->exponent < EXPONENT_MAX ? shift : 0;
    }
    return p;
}

/* NULL: an exponent without digits. */
static const uint8_t *read_exponent(const uint8_t *p, const uint8_t *end, struct digits *d)
{
    if (p == end || (*p != 'e' && *p != 'E')) {
        return p;
    }
    p++;
    bool negative = p < end && *p == '-';
    p += p < end && (*p == '-' || *p == '+') ? 1 : 0;
    if (!is_digit(p, end)) {
        return NULL;
    }
    int32_t value = 0;
    for (; is_digit(p, end); p++) {
        value = value < EXPONENT_MAX ? value * 10 + (*p - '0') : value;
    }
    d->exponent += negative ? -value : value;
    return p;
}

/*
 * Whole numbers below 2^53 and powers of ten up to 10^22 are exact doubles, so one operation rounds once
 * (Clinger 1990).
 */
static double scaled(const struct digits *d)
{
    static const double power[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                   1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    double m = (double)d->mantissa;
    if (d->mantissa == 0) {
        return 0;
    }
    if (d->exponent >= 0 && d->exponent <= 22) {
        return m * power[d->exponent];
    }
    if (d->exponent < 0 && d->exponent >= -22) {
        return m / power[-d->exponent];
    }
    /* In two halves: 10^-330 alone would be 0 although the product is not. */
    int32_t half = d->exponent / 2;
    return m * pow(10, half) * pow(10, d->exponent - half);
}

static struct kml_view without_blanks(struct kml_view v)
{
    while (v.size > 0 && (v.data[0] == ' ' || v.data[0] == '\t')) {
        v.data++;
        v.size--;
    }
    while (v.size > 0 && (v.data[v.size - 1] == ' ' || v.data[v.size - 1] == '\t')) {
        v.size--;
    }
    return v;
}

bool kml_number_read(struct kml_view field, double *out)
{
    field = without_blanks(field);
    if (field.size == 0) {
        return false;
    }
    const uint8_t *p = field.data;
    const uint8_t *end = p + field.size;
    bool negative = *p == '-';
    p += *p == '-' || *p == '+' ? 1 : 0;
    struct digits d = {0};
    p = read_digits(p, end, false, &d);
    if (p < end && *p == '.') {
        p = read_digits(p + 1, end, true, &d);
    }
    p = d.count == 0 ? NULL : read_exponent(p, end, &d);
    if (p != end) {
        return false;
    }
    double value = scaled(&d);
    *out = negative ? -value : value;
    return true;
}
