#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/file.h"
#include "job/job.h"
#include "job/table.h"

/*
 * docs/MANIFEST.md holds the table of fields between two marker lines, and this test holds it against the
 * code's table. KML_UPDATE=1 writes the page anew instead. Tests run in the root of the tree.
 */
#define PAGE "docs/MANIFEST.md"
#define BEGIN_MARK "<!-- fields: begin (made from lib/job/table.c; KML_UPDATE=1 renews it) -->\n"
#define END_MARK "<!-- fields: end -->\n"
#define PAGE_MOST ((size_t)1 << 20)

static void put(struct kml_buf *out, const char *format, ...) KML_PRINTF(2, 3);

static void put(struct kml_buf *out, const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    int size = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    assert_true(size >= 0 && (size_t)size < sizeof text);
    assert_int_equal(kml_buf_puts(out, text, NULL), 0);
}

/* ---- The columns of one row ---- */

static const char *type_of(const struct kml_job_field *field)
{
    static const char *const names[] = {
        [KML_JOB_KIND_MAP] = "map",
        [KML_JOB_KIND_OPTION] = "map, may be absent",
        [KML_JOB_KIND_FIXED] = "text",
        [KML_JOB_KIND_BOOL] = "true or false",
        [KML_JOB_KIND_U32] = "integer",
        [KML_JOB_KIND_U32_AUTO] = "integer or `auto`",
        [KML_JOB_KIND_U64] = "integer",
        [KML_JOB_KIND_REAL] = "number",
        [KML_JOB_KIND_ENUM] = "one of",
        [KML_JOB_KIND_TEXT] = "text",
        [KML_JOB_KIND_NAME] = "DNS label",
        [KML_JOB_KIND_URI] = "URI",
        [KML_JOB_KIND_WIDTHS] = "list of 1 to 8 integers",
        [KML_JOB_KIND_OUTPUTS] = "list of",
        [KML_JOB_KIND_FILE] = "file name or `{file, labelColumn}`",
        [KML_JOB_KIND_JSON_MAP] = "map",
        [KML_JOB_KIND_JSON_LIST] = "list",
        [KML_JOB_KIND_TEMPLATE] = "pod template",
        [KML_JOB_KIND_IGNORED] = "anything",
    };
    return names[field->kind];
}

static bool has_limits(const struct kml_job_field *field)
{
    return field->kind == KML_JOB_KIND_U32 || field->kind == KML_JOB_KIND_U32_AUTO ||
           field->kind == KML_JOB_KIND_U64 || field->kind == KML_JOB_KIND_REAL ||
           field->kind == KML_JOB_KIND_WIDTHS;
}

static void put_bound(struct kml_buf *out, double bound)
{
    put(out, bound == floor(bound) ? "%.0f" : "%g", bound);
}

static void put_limits(struct kml_buf *out, const struct kml_job_field *field)
{
    if (field->kind == KML_JOB_KIND_NAME) {
        put(out, " of at most %.0f letters", field->max);
    }
    if (!has_limits(field)) {
        return;
    }
    put(out, field->above_min ? ", above " : ", ");
    put_bound(out, field->min);
    put(out, field->below_max ? " to below " : " to ");
    put_bound(out, field->max);
}

static void put_values(struct kml_buf *out, const struct kml_job_field *field)
{
    for (uint32_t i = 0; i < field->value_count; i++) {
        put(out, "%s `%s`%s", i == 0 ? "" : ",", field->values[i].name,
            field->values[i].later ? " (not yet)" : "");
    }
}

static void put_schemes(struct kml_buf *out, const struct kml_job_field *field)
{
    static const struct {
        uint32_t bit;
        const char *text;
    } schemes[] = {
        {KML_JOB_SCHEME_FILE, "`file://`"},
        {KML_JOB_SCHEME_PVC, "`pvc://` (cluster)"},
        {KML_JOB_SCHEME_CONFIGMAP, "`configmap://` (cluster)"},
        {KML_JOB_SCHEME_HTTP, "`http://`, `https://` (not yet)"},
        {KML_JOB_SCHEME_S3, "`s3://` (not yet)"},
    };
    const char *before = ": ";
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        if ((field->schemes & schemes[i].bit) != 0) {
            put(out, "%s%s", before, schemes[i].text);
            before = ", ";
        }
    }
}

static void put_default(struct kml_buf *out, const struct kml_job_field *field)
{
    if (field->kind == KML_JOB_KIND_FIXED) {
        put(out, "must be `%s`", field->fallback);
    } else if (field->required) {
        put(out, "required");
    } else if (field->fallback != NULL) {
        put(out, "`%s`", field->fallback);
    } else {
        put(out, "–");
    }
}

/* ---- What a row needs ---- */

static bool is_above(const struct kml_job_field *parent, const struct kml_job_field *field)
{
    size_t size = strlen(parent->path);
    return strncmp(parent->path, field->path, size) == 0 && field->path[size] == '.';
}

static bool needs_what_is_not_built(const struct kml_job_field *field)
{
    if (field->when == NULL) {
        return false;
    }
    const struct kml_job_field *selector = kml_job_field_of(field->when);
    for (uint32_t i = 0; i < selector->value_count; i++) {
        if ((field->when_mask & (1U << i)) != 0 && !selector->values[i].later) {
            return false;
        }
    }
    return true;
}

static bool is_built(const struct kml_job_field *field)
{
    uint32_t count;
    const struct kml_job_field *rows = kml_job_fields(&count);
    for (const struct kml_job_field *row = rows; row <= field; row++) {
        if ((row == field || is_above(row, field)) && (row->later || needs_what_is_not_built(row))) {
            return false;
        }
    }
    return true;
}

static void put_condition(struct kml_buf *out, const struct kml_job_field *field)
{
    if (field->when == NULL) {
        return;
    }
    const struct kml_job_field *selector = kml_job_field_of(field->when);
    const char *before = " ";
    put(out, " Only with `%s`", field->when);
    for (uint32_t i = 0; i < selector->value_count; i++) {
        if ((field->when_mask & (1U << i)) != 0) {
            put(out, "%s`%s`", before, selector->values[i].name);
            before = ", ";
        }
    }
    put(out, ".");
}

static void put_row(struct kml_buf *out, const struct kml_job_field *field)
{
    put(out, "| `%s` | %s", field->path, type_of(field));
    put_limits(out, field);
    put_values(out, field);
    put_schemes(out, field);
    put(out, "%s | ", field->fraction ? ", or a fraction above 0 and below 1" : "");
    put_default(out, field);
    put(out, " | %s", field->description);
    put_condition(out, field);
    put(out, "%s%s |\n", field->cluster ? " Cluster only." : "",
        is_built(field) ? "" : " **Not supported yet.**");
}

/* ---- The page ---- */

/* Each field right below spec has a section of its own, maps and the rest alike. */
static bool begins_section(const struct kml_job_field *field)
{
    const char *first = strchr(field->path, '.');
    bool below_spec =
        first != NULL && first == field->path + strlen("spec") && strncmp(field->path, "spec", 4) == 0;
    bool top = strcmp(field->path, "metadata") == 0 || strcmp(field->path, "spec") == 0 ||
               strcmp(field->path, "status") == 0;
    return top || (below_spec && strchr(first + 1, '.') == NULL);
}

static void put_head(struct kml_buf *out, const char *title)
{
    put(out, "\n### %s\n\n| field | type and limits | default | meaning |\n|---|---|---|---|\n", title);
}

static void render(struct kml_buf *out)
{
    uint32_t count;
    const struct kml_job_field *rows = kml_job_fields(&count);
    put_head(out, "The document");
    for (uint32_t i = 0; i < count; i++) {
        if (begins_section(&rows[i])) {
            put_head(out, rows[i].path);
        }
        put_row(out, &rows[i]);
    }
    put(out, "\n");
}

static void write_page(const char *page, const char *begin, const char *end, const struct kml_buf *fields)
{
    struct kml_err err;
    const struct kml_view parts[] = {kml_view_of(page, (size_t)(begin - page)), kml_buf_view(fields),
                                     kml_view_str(end)};
    if (kml_file_write(PAGE, parts, 3, 0644, &err) != 0) {
        fail_msg("%s", err.text);
    }
}

static void the_page_of_the_manifest_shows_the_fields_of_the_code(void **state)
{
    (void)state;
    struct kml_buf page;
    struct kml_buf fields;
    struct kml_err err;
    kml_buf_init(&page, PAGE_MOST);
    kml_buf_init(&fields, PAGE_MOST);
    render(&fields);
    if (kml_file_read(PAGE, &page, &err) != 0) {
        fail_msg("%s", err.text);
    }
    const char *text = kml_buf_text(&page);
    const char *begin = strstr(text, BEGIN_MARK);
    const char *end = strstr(text, END_MARK);
    assert_true(begin != NULL && end != NULL && begin < end);
    begin += strlen(BEGIN_MARK);
    if (getenv("KML_UPDATE") != NULL) {
        write_page(text, begin, end, &fields);
    } else if ((size_t)(end - begin) != fields.size || memcmp(begin, fields.data, fields.size) != 0) {
        fail_msg("%s is not up to date; run this test with KML_UPDATE=1, or put this between its marks:\n%s",
                 PAGE, kml_buf_text(&fields));
    }
    kml_buf_finish(&page);
    kml_buf_finish(&fields);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_page_of_the_manifest_shows_the_fields_of_the_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
