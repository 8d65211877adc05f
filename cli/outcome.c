#include "cli/outcome.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "doc/json.h"
#include "job/exitcode.h"

void kml_outcome_init(struct kml_outcome *o)
{
    *o = (struct kml_outcome){.loss = (double)NAN};
}

void kml_outcome_finish(struct kml_outcome *o)
{
    kml_free(o->model);
    o->model = NULL;
}

void kml_outcome_set(struct kml_outcome *o, enum kml_outcome_kind kind, int exit_code, const char *reason,
                     const char *format, ...)
{
    if (o->kind != KML_OUTCOME_NONE) {
        return;
    }
    o->kind = kind;
    o->exit_code = exit_code;
    (void)snprintf(o->reason, sizeof o->reason, "%s", reason);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(o->message, sizeof o->message, format, arguments);
    va_end(arguments);
}

static int numbers(const struct kml_outcome *o, struct kml_buf *out, struct kml_err *err)
{
    if (kml_buf_printf(out, err, " epochs=%llu", (unsigned long long)o->epochs) < 0 ||
        (o->has_accuracy && kml_buf_printf(out, err, " accuracy=%.4f", o->accuracy) < 0) ||
        (isfinite(o->loss) && kml_buf_printf(out, err, " loss=%.6g", o->loss) < 0)) {
        return -1;
    }
    return kml_buf_printf(out, err, " samples_per_second=%.1f seconds=%.3f",
                          o->seconds > 0 ? (double)o->samples / o->seconds : 0, o->seconds);
}

static int told(const struct kml_outcome *o, struct kml_buf *out, struct kml_err *err)
{
    if (kml_buf_puts(out, " message=", err) < 0) {
        return -1;
    }
    return kml_json_quote(out, o->message, err);
}

static int stopped(const struct kml_outcome *o, struct kml_buf *out, struct kml_err *err)
{
    if (kml_buf_printf(out, err, "stopped reason=%s", o->reason) < 0) {
        return -1;
    }
    if (o->model == NULL) {
        return told(o, out, err);
    }
    return numbers(o, out, err) < 0 ? -1 : kml_buf_printf(out, err, " model=%s", o->model);
}

static int line(const struct kml_outcome *o, struct kml_buf *out, struct kml_err *err)
{
    switch (o->kind) {
    case KML_OUTCOME_SUCCEEDED:
        if (kml_buf_puts(out, "succeeded", err) < 0 || numbers(o, out, err) < 0) {
            return -1;
        }
        return kml_buf_printf(out, err, " model=%s", o->model == NULL ? "-" : o->model);
    case KML_OUTCOME_STOPPED:
        return stopped(o, out, err);
    case KML_OUTCOME_FAILED:
    case KML_OUTCOME_NONE:
        break;
    }
    if (kml_buf_printf(out, err, "failed reason=%s", o->reason) < 0) {
        return -1;
    }
    return told(o, out, err);
}

int kml_outcome_line(const struct kml_outcome *o, struct kml_buf *out, struct kml_err *err)
{
    return line(o, out, err) < 0 ? -1 : kml_buf_puts(out, "\n", err);
}

int kml_outcome_exit_of_child(unsigned code)
{
    if (code > 0 && code < 126) {
        return (int)code;
    }
    return kml_code_exit(kml_exit_classify(code) == KML_EXIT_RETRYABLE ? KML_AGAIN : KML_INTERNAL);
}
