#include "job/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/parse.h"

void kml_job_notes_init(struct kml_job_notes *notes)
{
    *notes = (struct kml_job_notes){0};
}

void kml_job_notes_finish(struct kml_job_notes *notes)
{
    for (uint32_t i = 0; i < notes->notes; i++) {
        kml_free(notes->note[i]);
    }
    for (uint32_t i = 0; i < notes->problems; i++) {
        kml_free(notes->problem[i]);
    }
    kml_job_notes_init(notes);
}

/* The line goes through kml_fail, which cuts it and takes control characters out of it. */
static struct kml_err make_line(const struct kml_job_reader *r, const struct kml_node *node, bool of_key,
                                const char *path, enum kml_code code, const char *text)
{
    struct kml_err line = {0};
    char place[KML_DOC_PLACE] = "";
    const struct kml_node *where = node != NULL ? node : r->doc->root;
    if (where != NULL) {
        kml_node_place(r->doc, where, of_key, place);
    }
    kml_fail(&line, code, "%s%s%s%s%s", place, place[0] != '\0' ? ": " : "", path,
             path[0] != '\0' ? ": " : "", text);
    return line;
}

void kml_job_mark_bad(struct kml_job_reader *r, const struct kml_job_field *field)
{
    uint32_t count;
    r->bad[field - kml_job_fields(&count)] = true;
}

void kml_job_problem(struct kml_job_reader *r, const struct kml_node *node, bool of_key, const char *path,
                     enum kml_code code, const char *format, ...)
{
    char text[KML_ERR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    struct kml_err line = make_line(r, node, of_key, path, code, text);
    const struct kml_job_field *field = kml_job_field_of(path);
    if (field != NULL) {
        kml_job_mark_bad(r, field);
    }
    if (r->problems++ == 0) {
        kml_fail(r->err, line.code, "%s", line.text);
    }
    if (r->notes == NULL) {
        return;
    }
    if (r->notes->problems < KML_JOB_MAX_PROBLEMS) {
        r->notes->problem[r->notes->problems++] = kml_strdup(line.text);
    } else {
        r->notes->problems_left_out++;
    }
}

void kml_job_note(struct kml_job_reader *r, const struct kml_node *node, const char *path, const char *format,
                  ...)
{
    if (r->notes == NULL || r->driver == KML_JOB_PROCESS || r->notes->notes >= KML_JOB_MAX_NOTES) {
        return;
    }
    char text[KML_ERR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    struct kml_err line = make_line(r, node, true, path, KML_OK, text);
    r->notes->note[r->notes->notes++] = kml_strdup(line.text);
}

void kml_job_value_list(const struct kml_job_field *field, uint32_t mask, bool later, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < field->value_count && used < size; i++) {
        if ((mask & (1U << i)) == 0 || (field->values[i].later && !later)) {
            continue;
        }
        int more = snprintf(out + used, size - used, "%s%s", used > 0 ? ", " : "", field->values[i].name);
        used += more > 0 ? (size_t)more : 0;
    }
}

const char *kml_job_suggest(const char *word, const char *const *names, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcasecmp(word, names[i]) == 0) {
            return names[i];
        }
    }
    return strlen(word) > 64 ? NULL : kml_nearest(word, names, count);
}
