#include "kube/text.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int kml_base64_write(struct kml_buf *out, struct kml_view bytes, struct kml_err *err)
{
    uint8_t *to = kml_buf_reserve(out, (bytes.size + 2) / 3 * 4, err);
    if (to == NULL) {
        return -1;
    }
    uint8_t *start = to;
    for (size_t i = 0; i < bytes.size; i += 3) {
        size_t left = bytes.size - i;
        uint32_t three = (uint32_t)bytes.data[i] << 16;
        three |= left > 1 ? (uint32_t)bytes.data[i + 1] << 8 : 0;
        three |= left > 2 ? bytes.data[i + 2] : 0;
        *to++ = (uint8_t)alphabet[three >> 18];
        *to++ = (uint8_t)alphabet[three >> 12 & 63];
        *to++ = left > 1 ? (uint8_t)alphabet[three >> 6 & 63] : '=';
        *to++ = left > 2 ? (uint8_t)alphabet[three & 63] : '=';
    }
    kml_buf_added(out, (size_t)(to - start));
    return 0;
}

static int digit_of(char c)
{
    const char *at = c == '\0' ? NULL : strchr(alphabet, c);
    return at == NULL ? -1 : (int)(at - alphabet);
}

/* Decodes into `to`, which has room for 3 bytes of every 4 letters. The size, or -1. */
static int64_t decode(const char *text, uint8_t *to)
{
    uint32_t bits = 0;
    uint32_t letters = 0;
    uint32_t padding = 0;
    int64_t size = 0;
    for (; *text != '\0'; text++) {
        if (strchr(" \t\r\n", *text) != NULL) {
            continue;
        }
        int digit = *text == '=' ? 0 : digit_of(*text);
        padding += *text == '=' ? 1 : 0;
        if (digit < 0 || padding > 2 || (padding > 0 && *text != '=')) {
            return -1;
        }
        bits = bits << 6 | (uint32_t)digit;
        if (++letters % 4 != 0) {
            continue;
        }
        to[size++] = (uint8_t)(bits >> 16);
        to[size++] = (uint8_t)(bits >> 8);
        to[size++] = (uint8_t)bits;
        bits = 0;
    }
    return letters % 4 != 0 ? -1 : size - padding;
}

int kml_base64_read(struct kml_buf *out, const char *text, struct kml_err *err)
{
    uint8_t *to = kml_buf_reserve(out, strlen(text) / 4 * 3 + 3, err);
    if (to == NULL) {
        return -1;
    }
    int64_t size = decode(text, to);
    if (size < 0) {
        return kml_fail(err, KML_INVALID, "this is no base64");
    }
    kml_buf_added(out, (size_t)size);
    return 0;
}

/* Days since 1970-01-01 of a date of the Gregorian calendar; years from 1970 on. */
static uint64_t days_of(uint32_t year, uint32_t month, uint32_t day)
{
    static const uint32_t before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    uint64_t past = year - 1;
    uint64_t leaps = past / 4 - past / 100 + past / 400 - (1969 / 4 - 1969 / 100 + 1969 / 400);
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return (uint64_t)(year - 1970) * 365 + leaps + before[month - 1] + (leap && month > 2 ? 1 : 0) + day - 1;
}

static bool number(const char **at, uint32_t digits, uint32_t least, uint32_t most, uint32_t *out)
{
    *out = 0;
    for (uint32_t i = 0; i < digits; i++, (*at)++) {
        if (**at < '0' || **at > '9') {
            return false;
        }
        *out = *out * 10 + (uint32_t)(**at - '0');
    }
    return *out >= least && *out <= most;
}

static bool letter(const char **at, char wanted)
{
    if (**at != wanted && !(wanted == 'T' && **at == 't')) {
        return false;
    }
    (*at)++;
    return true;
}

static bool fraction(const char **at, uint64_t *ns)
{
    if (**at != '.') {
        return true;
    }
    (*at)++;
    uint64_t scale = KML_SECOND;
    const char *first = *at;
    for (; **at >= '0' && **at <= '9'; (*at)++) {
        scale /= 10;
        *ns += scale * (uint64_t)(**at - '0');
    }
    return *at != first;
}

/* Seconds to the east of Greenwich. */
static bool zone(const char **at, int64_t *east)
{
    if (**at == 'Z' || **at == 'z') {
        (*at)++;
        return true;
    }
    int64_t sign = **at == '-' ? -1 : 1;
    uint32_t hours = 0;
    uint32_t minutes = 0;
    if (**at != '+' && **at != '-') {
        return false;
    }
    (*at)++;
    if (!number(at, 2, 0, 23, &hours) || !letter(at, ':') || !number(at, 2, 0, 59, &minutes)) {
        return false;
    }
    *east = sign * (int64_t)(hours * 3600 + minutes * 60);
    return true;
}

int kml_kube_time_read(const char *text, uint64_t *wall_ns, struct kml_err *err)
{
    const char *at = text;
    uint32_t year, month, day, hour, minute, second;
    uint64_t ns = 0;
    int64_t east = 0;
    bool good = number(&at, 4, 1970, 2500, &year) && letter(&at, '-') && number(&at, 2, 1, 12, &month) &&
                letter(&at, '-') && number(&at, 2, 1, 31, &day) && letter(&at, 'T') &&
                number(&at, 2, 0, 23, &hour) && letter(&at, ':') && number(&at, 2, 0, 59, &minute) &&
                letter(&at, ':') && number(&at, 2, 0, 60, &second) && fraction(&at, &ns) &&
                zone(&at, &east) && *at == '\0';
    if (!good) {
        return kml_fail(err, KML_INVALID, "\"%.64s\" is no time like 2026-01-31T12:00:00Z", text);
    }
    int64_t seconds =
        (int64_t)(days_of(year, month, day) * 86400 + hour * 3600 + minute * 60 + second) - east;
    if (seconds < 0) {
        return kml_fail(err, KML_INVALID, "\"%.64s\" lies before 1970", text);
    }
    *wall_ns = (uint64_t)seconds * KML_SECOND + ns;
    return 0;
}

static void format(uint64_t wall_ns, bool micro, char out[KML_KUBE_TIME])
{
    time_t seconds = (time_t)(wall_ns / KML_SECOND);
    struct tm at;
    KML_BUG_ON(gmtime_r(&seconds, &at) == NULL);
    size_t size = strftime(out, KML_KUBE_TIME, "%Y-%m-%dT%H:%M:%S", &at);
    if (micro) {
        (void)snprintf(out + size, KML_KUBE_TIME - size, ".%06" PRIu64 "Z", wall_ns % KML_SECOND / 1000);
    } else {
        (void)snprintf(out + size, KML_KUBE_TIME - size, "Z");
    }
}

void kml_kube_time(uint64_t wall_ns, char out[KML_KUBE_TIME])
{
    format(wall_ns, false, out);
}

void kml_kube_time_micro(uint64_t wall_ns, char out[KML_KUBE_TIME])
{
    format(wall_ns, true, out);
}
