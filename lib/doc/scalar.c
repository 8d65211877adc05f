#include "doc/internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* The core schema of YAML 1.2.2, section 10.3.2: what a plain scalar means. */

static bool one_of(const char *text, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(text, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool all_digits(const char *text, const char *digits)
{
    return *text != '\0' && text[strspn(text, digits)] == '\0';
}

static const char *after_digits(const char *c)
{
    return c + strspn(c, "0123456789");
}

/* [-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )? */
static bool is_real(const char *text)
{
    const char *c = text + (*text == '-' || *text == '+');
    const char *whole = after_digits(c);
    bool some = whole > c;
    c = whole;
    if (*c == '.') {
        const char *part = after_digits(c + 1);
        some = some || part > c + 1;
        c = part;
    }
    if (!some) {
        return false;
    }
    if (*c == 'e' || *c == 'E') {
        c++;
        c += *c == '-' || *c == '+';
        return all_digits(c, "0123456789");
    }
    return *c == '\0';
}

static int take_integer(struct kml_node *node, const char *digits, int base, struct kml_err *err)
{
    errno = 0;
    long long value = strtoll(digits, NULL, base);
    if (errno != 0) {
        return kml_fail(err, KML_INVALID, "the integer %.60s does not fit into 64 bits", node->text);
    }
    node->kind = KML_NODE_INT;
    node->value.integer = value;
    return 0;
}

/* Programs stay in the C locale, so strtod reads a point; a text with any other letter did not get here. */
static int take_real(struct kml_node *node, struct kml_err *err)
{
    double value = strtod(node->text, NULL);
    if (!isfinite(value)) {
        return kml_fail(err, KML_INVALID, "the number %.60s is too large", node->text);
    }
    node->kind = KML_NODE_REAL;
    node->value.real = value;
    return 0;
}

static int take_number(struct kml_node *node, struct kml_err *err)
{
    const char *text = node->text;
    const char *unsigned_part = text + (*text == '-' || *text == '+');
    if (all_digits(unsigned_part, "0123456789")) {
        return take_integer(node, text, 10, err);
    }
    if (strncmp(text, "0x", 2) == 0 && all_digits(text + 2, "0123456789abcdefABCDEF")) {
        return take_integer(node, text + 2, 16, err);
    }
    if (strncmp(text, "0o", 2) == 0 && all_digits(text + 2, "01234567")) {
        return take_integer(node, text + 2, 8, err);
    }
    if (is_real(text)) {
        return take_real(node, err);
    }
    static const char *const endless[] = {".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN"};
    if (one_of(unsigned_part, endless, KML_COUNT(endless))) {
        return kml_fail(err, KML_INVALID, "%s is no finite number; put it in quotes if a text is meant",
                        text);
    }
    node->kind = KML_NODE_TEXT;
    return 0;
}

int kml_scalar_resolve(struct kml_node *node, struct kml_err *err)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    static const char *const trues[] = {"true", "True", "TRUE"};
    static const char *const falses[] = {"false", "False", "FALSE"};
    if (one_of(node->text, nulls, KML_COUNT(nulls))) {
        node->kind = KML_NODE_NULL;
    } else if (one_of(node->text, trues, KML_COUNT(trues)) || one_of(node->text, falses, KML_COUNT(falses))) {
        node->kind = KML_NODE_BOOL;
        node->value.yes = node->text[0] == 't' || node->text[0] == 'T';
    } else if (take_number(node, err) != 0) {
        return -1;
    }
    if (node->kind != KML_NODE_TEXT) {
        kml_free(node->text);
        node->text = NULL;
    }
    return 0;
}
