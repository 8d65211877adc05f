#include "data/table.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "data/lines.h"
#include "data/number.h"

/* What is known while a text file is read. */
struct reader {
    struct kml_table *table;
    struct kml_lines lines;
    const char *name;
    char separator;
    enum kml_target_kind targets;
    uint32_t columns;
    uint32_t label_column;
    uint32_t room; /* rows that the table's arrays hold */
};

/* A field as it may stand in an error line: short, its length as printf's "%.*s" wants it. */
static int shown(struct kml_view field)
{
    return field.size > 40 ? 40 : (int)field.size;
}

static int bad_quotes(const struct reader *r, struct kml_err *err)
{
    return kml_fail(err, KML_INVALID, "%s: line %llu: a quoted field does not end before the next separator",
                    r->name, (unsigned long long)r->lines.number);
}

static bool same_text(struct kml_view field, const char *text)
{
    return field.size == strlen(text) && memcmp(field.data, text, field.size) == 0;
}

/* A number of a column, from 0; UINT32_MAX: it is none. */
static uint32_t column_number(const char *text)
{
    double value;
    if (!kml_number_read(kml_view_str(text), &value) || value < 0 || value >= KML_DATA_MAX_FEATURES + 1.0 ||
        value != floor(value)) {
        return UINT32_MAX;
    }
    return (uint32_t)value;
}

/* Counts the first line's columns; says whether it is a header, and where in it the name `wanted` stands. */
static int look_at_first(struct reader *r, struct kml_view line, const char *wanted, bool *header,
                         uint32_t *named, struct kml_err *err)
{
    struct kml_fields fields;
    struct kml_view field;
    kml_fields_init(&fields, line, r->separator);
    *header = false;
    *named = UINT32_MAX;
    while (kml_fields_next(&fields, &field)) {
        double ignored;
        *header = *header || (field.size > 0 && !kml_number_read(field, &ignored));
        if (*named == UINT32_MAX && same_text(field, wanted)) {
            *named = r->columns;
        }
        r->columns++;
    }
    if (fields.malformed) {
        return bad_quotes(r, err);
    }
    if (r->columns < 2) {
        return kml_fail(err, KML_INVALID,
                        "%s: line %llu: only one column; features and a label are needed, separated by %s",
                        r->name, (unsigned long long)r->lines.number,
                        r->separator == '\t' ? "tabs" : "commas");
    }
    if (r->columns - 1 > KML_DATA_MAX_FEATURES) {
        return kml_fail(err, KML_TOO_LARGE, "%s: more than %u features", r->name, KML_DATA_MAX_FEATURES);
    }
    return 0;
}

static int choose_label(struct reader *r, struct kml_view line, const char *wanted, bool *header,
                        struct kml_err *err)
{
    uint32_t named;
    if (look_at_first(r, line, wanted == NULL ? "label" : wanted, header, &named, err) != 0) {
        return -1;
    }
    if (*header && named != UINT32_MAX) {
        r->label_column = named;
        return 0;
    }
    if (wanted == NULL) {
        r->label_column = r->columns - 1;
        return 0;
    }
    r->label_column = column_number(wanted);
    if (r->label_column < r->columns) {
        return 0;
    }
    return kml_fail(err, KML_INVALID,
                    "%s: there is no label column \"%s\" among its %u columns (%s; numbers count from 0)",
                    r->name, wanted, r->columns,
                    *header ? "the first line has their names" : "it has no header");
}

static int grow(void **array, size_t used, size_t size, const char *name, struct kml_err *err)
{
    void *grown = size > KML_DATA_MAX_BYTES ? NULL : kml_try_alloc(size);
    if (grown == NULL) {
        return kml_fail(err, KML_NO_MEMORY, "%s: no memory for %zu MB of values", name, size >> 20);
    }
    if (used > 0) {
        memcpy(grown, *array, used);
    }
    kml_free(*array);
    *array = grown;
    return 0;
}

static int make_room(struct reader *r, struct kml_err *err)
{
    struct kml_table *t = r->table;
    if (t->rows < r->room) {
        return 0;
    }
    if (t->rows == KML_DATA_MAX_ROWS) {
        return kml_fail(err, KML_TOO_LARGE, "%s: more than %u samples", r->name, KML_DATA_MAX_ROWS);
    }
    size_t room = r->room == 0 ? 64 : (size_t)r->room * 2;
    room = room > KML_DATA_MAX_ROWS ? KML_DATA_MAX_ROWS : room;
    size_t row = (size_t)t->features * sizeof(float);
    void *reals = t->reals;
    void *labels = r->targets == KML_TARGET_CLASS ? (void *)t->label : (void *)t->target;
    int code = grow(&reals, row * t->rows, row * room, r->name, err);
    t->reals = reals;
    if (code == 0) {
        code = grow(&labels, sizeof(float) * t->rows, sizeof(float) * room, r->name, err);
        if (r->targets == KML_TARGET_CLASS) {
            t->label = labels;
        } else {
            t->target = labels;
        }
    }
    r->room = code == 0 ? (uint32_t)room : r->room;
    return code;
}

static int read_label(struct reader *r, uint32_t column, double value, struct kml_err *err)
{
    struct kml_table *t = r->table;
    if (r->targets == KML_TARGET_REAL) {
        t->target[t->rows] = (float)value;
        return 0;
    }
    if (value < 0 || value >= KML_DATA_MAX_CLASSES || value != floor(value)) {
        return kml_fail(err, KML_INVALID,
                        "%s: line %llu, column %u: label %g is out of range; classes are whole numbers from "
                        "0 to %u",
                        r->name, (unsigned long long)r->lines.number, column + 1, value,
                        KML_DATA_MAX_CLASSES - 1);
    }
    uint32_t label = (uint32_t)value;
    t->label[t->rows] = label;
    t->classes = label >= t->classes ? label + 1 : t->classes;
    return 0;
}

static int read_field(struct reader *r, uint32_t column, struct kml_view field, float *row,
                      struct kml_err *err)
{
    double value;
    if (!kml_number_read(field, &value)) {
        return kml_fail(err, KML_INVALID, "%s: line %llu, column %u: \"%.*s\" is not a number", r->name,
                        (unsigned long long)r->lines.number, column + 1, shown(field),
                        (const char *)field.data);
    }
    if (!(fabs(value) <= FLT_MAX)) {
        return kml_fail(
            err, KML_INVALID, "%s: line %llu, column %u: \"%.*s\" is too large for a 32-bit number", r->name,
            (unsigned long long)r->lines.number, column + 1, shown(field), (const char *)field.data);
    }
    if (column == r->label_column) {
        return read_label(r, column, value, err);
    }
    row[column < r->label_column ? column : column - 1] = (float)value;
    return 0;
}

static int count_changes(const struct reader *r, uint32_t columns, bool more, struct kml_err *err)
{
    return kml_fail(err, KML_INVALID, "%s: line %llu has %s%u columns, the first line has %u", r->name,
                    (unsigned long long)r->lines.number, more ? "more than " : "", columns, r->columns);
}

static int read_row(struct reader *r, struct kml_view line, struct kml_err *err)
{
    if (make_room(r, err) != 0) {
        return -1;
    }
    struct kml_table *t = r->table;
    float *row = t->reals + (size_t)t->rows * t->features;
    struct kml_fields fields;
    struct kml_view field;
    uint32_t column = 0;
    kml_fields_init(&fields, line, r->separator);
    while (kml_fields_next(&fields, &field)) {
        if (column == r->columns) {
            return count_changes(r, column, true, err);
        }
        if (read_field(r, column, field, row, err) != 0) {
            return -1;
        }
        column++;
    }
    if (fields.malformed) {
        return bad_quotes(r, err);
    }
    if (column < r->columns) {
        return count_changes(r, column, false, err);
    }
    t->rows++;
    return 0;
}

static int read_all(struct reader *r, const char *label_column, struct kml_err *err)
{
    struct kml_view line;
    bool header;
    if (kml_lines_next(&r->lines, &line, err) != 0) {
        return -1;
    }
    if (line.data == NULL) {
        return kml_fail(err, KML_INVALID, "%s: the file is empty", r->name);
    }
    if (choose_label(r, line, label_column, &header, err) != 0) {
        return -1;
    }
    r->table->features = r->columns - 1;
    int code = header ? 0 : read_row(r, line, err);
    while (code == 0) {
        code = kml_lines_next(&r->lines, &line, err);
        if (code != 0 || line.data == NULL) {
            break;
        }
        code = read_row(r, line, err);
    }
    if (code == 0 && r->table->rows == 0) {
        return kml_fail(err, KML_INVALID, "%s: a header, but no samples", r->name);
    }
    return code;
}

int kml_table_read_text(struct kml_table *t, struct kml_source *source, char separator,
                        const char *label_column, enum kml_target_kind targets, struct kml_err *err)
{
    *t = (struct kml_table){0};
    struct reader r = {
        .table = t, .name = kml_source_name(source), .separator = separator, .targets = targets};
    kml_lines_init(&r.lines, source);
    int code = read_all(&r, label_column, err);
    kml_lines_finish(&r.lines);
    if (code != 0) {
        kml_table_finish(t);
    }
    return code;
}
