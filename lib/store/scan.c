#include "store/scan.h"

#include <stdio.h>

#include "base/mem.h"

void kml_scan_init(struct kml_scan *s, struct kml_view text)
{
    *s = (struct kml_scan){text.data, text.data, text.data + text.size};
}

int kml_scan_fail(const struct kml_scan *s, struct kml_err *err, const char *what)
{
    return kml_fail(err, KML_INVALID, "byte %zu of the header: %s", (size_t)(s->at - s->start), what);
}

static void skip_blanks(struct kml_scan *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\t' || *s->at == '\r')) {
        s->at++;
    }
}

bool kml_scan_accept(struct kml_scan *s, char wanted)
{
    skip_blanks(s);
    if (s->at == s->end || *s->at != (uint8_t)wanted) {
        return false;
    }
    s->at++;
    return true;
}

int kml_scan_expect(struct kml_scan *s, char wanted, struct kml_err *err)
{
    if (kml_scan_accept(s, wanted)) {
        return 0;
    }
    char what[32];
    (void)snprintf(what, sizeof(what), "expected '%c'", wanted);
    return kml_scan_fail(s, err, what);
}

bool kml_scan_ended(struct kml_scan *s)
{
    skip_blanks(s);
    return s->at == s->end;
}

int kml_scan_uint(struct kml_scan *s, uint64_t *out, struct kml_err *err)
{
    skip_blanks(s);
    const uint8_t *first = s->at;
    uint64_t value = 0;
    for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++) {
        uint64_t digit = (uint64_t)(*s->at - '0');
        if (value > (UINT64_MAX - digit) / 10) {
            return kml_scan_fail(s, err, "a number beyond 64 bits");
        }
        value = value * 10 + digit;
    }
    if (s->at == first) {
        return kml_scan_fail(s, err, "expected a whole number from 0");
    }
    if (*first == '0' && s->at - first > 1) {
        return kml_scan_fail(s, err, "a number with a leading 0");
    }
    *out = value;
    return 0;
}

static int hex4(struct kml_scan *s, uint32_t *out, struct kml_err *err)
{
    *out = 0;
    for (int i = 0; i < 4; i++, s->at++) {
        uint8_t c = s->at < s->end ? *s->at : 0;
        uint8_t lower = c | 0x20;
        if (c >= '0' && c <= '9') {
            *out = *out * 16 + (uint32_t)(c - '0');
        } else if (lower >= 'a' && lower <= 'f') {
            *out = *out * 16 + (uint32_t)(lower - 'a' + 10);
        } else {
            return kml_scan_fail(s, err, "\\u wants four hexadecimal digits");
        }
    }
    return 0;
}

/* Behind "\u". A character above 0xffff comes as two halves (RFC 8259 section 7). */
static int code_point(struct kml_scan *s, uint32_t *out, struct kml_err *err)
{
    if (hex4(s, out, err) != 0) {
        return -1;
    }
    if (*out >= 0xd800 && *out < 0xdc00) {
        uint32_t low;
        if (s->end - s->at < 2 || s->at[0] != '\\' || s->at[1] != 'u') {
            return kml_scan_fail(s, err, "half of a surrogate pair");
        }
        s->at += 2;
        if (hex4(s, &low, err) != 0) {
            return -1;
        }
        if (low < 0xdc00 || low > 0xdfff) {
            return kml_scan_fail(s, err, "half of a surrogate pair");
        }
        *out = 0x10000 + ((*out - 0xd800) << 10) + (low - 0xdc00);
    } else if (*out >= 0xdc00 && *out < 0xe000) {
        return kml_scan_fail(s, err, "half of a surrogate pair");
    }
    return *out == 0 ? kml_scan_fail(s, err, "a zero character in a string") : 0;
}

static char *put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) {
        *to++ = (char)c;
        return to;
    }
    if (c < 0x800) {
        *to++ = (char)(0xc0 | c >> 6);
    } else if (c < 0x10000) {
        *to++ = (char)(0xe0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 0x3f));
    } else {
        *to++ = (char)(0xf0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 0x3f));
        *to++ = (char)(0x80 | (c >> 6 & 0x3f));
    }
    *to++ = (char)(0x80 | (c & 0x3f));
    return to;
}

static int escaped(struct kml_scan *s, char **to, struct kml_err *err)
{
    static const char letters[] = "\"\\/bfnrt";
    static const char meant[] = "\"\\/\b\f\n\r\t";
    uint8_t c = s->at < s->end ? *s->at++ : 0;
    if (c == 'u') {
        uint32_t point;
        if (code_point(s, &point, err) != 0) {
            return -1;
        }
        *to = put_utf8(*to, point);
        return 0;
    }
    for (int i = 0; letters[i] != '\0'; i++) {
        if (c == (uint8_t)letters[i]) {
            *(*to)++ = meant[i];
            return 0;
        }
    }
    return kml_scan_fail(s, err, "an unknown escape in a string");
}

/* An escape is never shorter than what it stands for, so the text between the quotes bounds the result. */
static size_t raw_length(const struct kml_scan *s)
{
    const uint8_t *p = s->at;
    while (p < s->end && *p != '"') {
        p += *p == '\\' && s->end - p > 1 ? 2 : 1;
    }
    return (size_t)(p - s->at);
}

int kml_scan_string(struct kml_scan *s, char **out, struct kml_err *err)
{
    if (kml_scan_expect(s, '"', err) != 0) {
        return -1;
    }
    char *text = kml_alloc(raw_length(s) + 1);
    char *to = text;
    int code = 0;
    while (code == 0 && s->at < s->end && *s->at != '"') {
        uint8_t c = *s->at;
        if (c < 0x20) {
            code = kml_scan_fail(s, err, "a control character in a string");
        } else {
            s->at++;
            if (c == '\\') {
                code = escaped(s, &to, err);
            } else {
                *to++ = (char)c;
            }
        }
    }
    if (code == 0 && s->at == s->end) {
        code = kml_scan_fail(s, err, "a string does not end");
    }
    if (code != 0) {
        kml_free(text);
        return -1;
    }
    s->at++;
    *to = '\0';
    *out = text;
    return 0;
}
