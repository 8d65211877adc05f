#include "base/parse.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t digits(const char *text)
{
    size_t n = 0;
    while (is_digit(text[n])) {
        n++;
    }
    return n;
}

static int not_a(struct kml_err *err, const char *text, const char *what)
{
    return kml_fail(err, KML_INVALID, "\"%.100s\" is not %s", text, what);
}

/* `length` digits; false when they do not fit. */
static bool to_u64(const char *text, size_t length, uint64_t *out)
{
    uint64_t value = 0;
    for (size_t i = 0; i < length; i++) {
        uint64_t digit = (uint64_t)(text[i] - '0');
        if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
            __builtin_add_overflow(value, digit, &value)) {
            return false;
        }
    }
    *out = value;
    return true;
}

int kml_parse_u64(const char *text, uint64_t *out, struct kml_err *err)
{
    size_t length = digits(text);
    if (length == 0 || text[length] != '\0') {
        return not_a(err, text, "a whole number that is 0 or more");
    }
    return to_u64(text, length, out) ? 0 : not_a(err, text, "a number that fits into 64 bits");
}

int kml_parse_i64(const char *text, int64_t *out, struct kml_err *err)
{
    bool negative = text[0] == '-';
    const char *first = text + (negative ? 1 : 0);
    size_t length = digits(first);
    if (length == 0 || first[length] != '\0') {
        return not_a(err, text, "a whole number");
    }
    uint64_t size;
    if (!to_u64(first, length, &size) || size > (uint64_t)INT64_MAX + (negative ? 1 : 0)) {
        return not_a(err, text, "a number that fits into 64 bits");
    }
    *out = negative ? (int64_t)(0 - size) : (int64_t)size;
    return 0;
}

/* Length of [+-] digits [. digits] at the start of `text`, 0 when there is none; a digit on one side is
 * enough. */
static size_t decimal(const char *text)
{
    size_t sign = text[0] == '-' || text[0] == '+' ? 1 : 0;
    size_t whole = digits(text + sign);
    size_t n = sign + whole;
    size_t part = 0;
    if (text[n] == '.') {
        part = digits(text + n + 1);
        n += 1 + part;
    }
    return whole + part > 0 ? n : 0;
}

/* Length of e[+-]digits, 0 when there is none. */
static size_t exponent(const char *text)
{
    if (text[0] != 'e' && text[0] != 'E') {
        return 0;
    }
    size_t sign = text[1] == '-' || text[1] == '+' ? 1 : 0;
    size_t n = digits(text + 1 + sign);
    return n > 0 ? 1 + sign + n : 0;
}

static pthread_once_t locale_once = PTHREAD_ONCE_INIT;
static locale_t c_locale;

static void make_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static double to_real(const char *text)
{
    (void)pthread_once(&locale_once, make_locale);
    return c_locale == (locale_t)0 ? strtod(text, NULL) : strtod_l(text, NULL, c_locale);
}

int kml_parse_real(const char *text, double *out, struct kml_err *err)
{
    size_t length = decimal(text);
    if (length > 0) {
        length += exponent(text + length);
    }
    if (length == 0 || text[length] != '\0') {
        return not_a(err, text, "a number");
    }
    double value = to_real(text);
    if (!isfinite(value)) {
        return not_a(err, text, "a number that fits into a double");
    }
    *out = value;
    return 0;
}

/* From large to small; "ms" and "m" are told apart by the longest match. */
static const struct unit {
    const char *name;
    uint64_t ns;
} units[] = {
    {"h", 3600 * KML_SECOND}, {"m", 60 * KML_SECOND}, {"s", KML_SECOND},
    {"ms", KML_MILLISECOND},  {"us", 1000},           {"ns", 1},
};
#define UNITS (sizeof units / sizeof units[0])
#define SECONDS_UNIT 2

static size_t find_unit(const char *text)
{
    size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz");
    for (size_t u = 0; u < UNITS; u++) {
        if (strlen(units[u].name) == length && strncmp(text, units[u].name, length) == 0) {
            return u;
        }
    }
    return UNITS;
}

/* whole[.part] of one unit, exactly: no double in between. What is below a nanosecond is cut off. */
static bool scale(const char *text, size_t length, uint64_t unit, uint64_t *ns)
{
    size_t whole = digits(text);
    uint64_t value;
    if (!to_u64(text, whole, &value) || __builtin_mul_overflow(value, unit, &value)) {
        return false;
    }
    for (size_t i = whole + 1; i < length; i++) {
        unit /= 10;
        if (__builtin_add_overflow(value, (uint64_t)(text[i] - '0') * unit, &value)) {
            return false;
        }
    }
    return !__builtin_add_overflow(*ns, value, ns);
}

int kml_parse_duration(const char *text, uint64_t *ns, struct kml_err *err)
{
    static const char what[] = "a duration such as 90, 1.5s, 250ms, 2m or 1h30m";
    uint64_t total = 0;
    size_t next = 0; /* units come from large to small, each at most once */
    const char *at = text;
    do {
        size_t length = is_digit(at[0]) ? decimal(at) : 0;
        if (length == 0) {
            return not_a(err, text, what);
        }
        const char *name = at + length;
        bool bare = at == text && name[0] == '\0';
        size_t unit = bare ? SECONDS_UNIT : find_unit(name);
        if (unit >= UNITS || unit < next) {
            return not_a(err, text, what);
        }
        if (!scale(at, length, units[unit].ns, &total)) {
            return not_a(err, text, "a duration of less than 584 years");
        }
        next = unit + 1;
        at = name + (bare ? 0 : strlen(units[unit].name));
    } while (at[0] != '\0');
    *ns = total;
    return 0;
}

static const struct {
    const char *name;
    double factor;
} suffixes[] = {
    {"", 1},        {"n", 1e-9},    {"u", 1e-6},    {"m", 1e-3},    {"k", 1e3},     {"M", 1e6},
    {"G", 1e9},     {"T", 1e12},    {"P", 1e15},    {"E", 1e18},    {"Ki", 0x1p10}, {"Mi", 0x1p20},
    {"Gi", 0x1p30}, {"Ti", 0x1p40}, {"Pi", 0x1p50}, {"Ei", 0x1p60},
};

int kml_parse_quantity(const char *text, double *out, struct kml_err *err)
{
    static const char what[] = "a quantity such as 250m, 1.5, 64Mi, 2G or 1e3";
    size_t length = decimal(text);
    if (length == 0) {
        return not_a(err, text, what);
    }
    double factor = 0;
    size_t power = exponent(text + length);
    if (power > 0 && text[length + power] == '\0') {
        factor = 1; /* strtod reads the exponent with the number */
    }
    for (size_t i = 0; factor == 0 && i < sizeof suffixes / sizeof suffixes[0]; i++) {
        if (strcmp(text + length, suffixes[i].name) == 0) {
            factor = suffixes[i].factor;
        }
    }
    if (factor == 0) {
        return not_a(err, text, what);
    }
    double value = to_real(text) * factor;
    if (!isfinite(value)) {
        return not_a(err, text, "a quantity that fits into a double");
    }
    *out = value;
    return 0;
}

size_t kml_utf8_length(const char *c)
{
    const unsigned char *s = (const unsigned char *)c;
    if (s[0] < 0x80) {
        return 1;
    }
    if (s[0] < 0xc2 || s[0] > 0xf4) {
        return 0;
    }
    size_t length = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    /* The second byte alone tells overlong forms, surrogates and what is too large. */
    unsigned low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
    unsigned high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
    if (s[1] < low || s[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return 0; /* the zero at the end comes here too */
        }
    }
    return length;
}

#define WORD_MOST 63

static uint32_t least(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Levenshtein distance by one row of the table; words longer than WORD_MOST are far from everything. */
static uint32_t distance(const char *a, size_t na, const char *b)
{
    size_t nb = strlen(b);
    if (na > WORD_MOST || nb > WORD_MOST) {
        return UINT32_MAX;
    }
    uint32_t row[WORD_MOST + 1];
    for (size_t j = 0; j <= nb; j++) {
        row[j] = (uint32_t)j;
    }
    for (size_t i = 1; i <= na; i++) {
        uint32_t corner = row[0];
        row[0] = (uint32_t)i;
        for (size_t j = 1; j <= nb; j++) {
            uint32_t above = row[j];
            row[j] = least(above + 1, row[j - 1] + 1, corner + (a[i - 1] == b[j - 1] ? 0 : 1));
            corner = above;
        }
    }
    return row[nb];
}

const char *kml_nearest(const char *word, const char *const *names, uint32_t count)
{
    size_t length = strlen(word);
    const char *best = NULL;
    uint32_t best_distance = 3;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t d = distance(word, length, names[i]);
        if (d < best_distance && (size_t)d * 2 < length) {
            best = names[i];
            best_distance = d;
        }
    }
    return best;
}
