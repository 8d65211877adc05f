#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int grpc;
    int http;
    bool retry;
    int exit;
} table[KML_CODE_COUNT] = {
#define KML_ERR_ROW(name, grpc, http, retry, exit) [KML_##name] = {#name, grpc, http, retry, exit},
    KML_ERR_TABLE(KML_ERR_ROW)
#undef KML_ERR_ROW
};

/* One line, whatever a file name or a peer put into it; "..." shows that it was cut. */
static void tidy(char *text, size_t room, int wanted)
{
    for (char *c = text; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            *c = '?';
        }
    }
    if (wanted >= 0 && (size_t)wanted >= room) {
        memcpy(text + room - 4, "...", 4);
    }
}

__attribute__((format(printf, 3, 0))) static void vset(struct kml_err *err, enum kml_code code,
                                                       const char *format, va_list args)
{
    if (err == NULL) {
        return;
    }
    err->code = code;
    tidy(err->text, sizeof err->text, vsnprintf(err->text, sizeof err->text, format, args));
}

int kml_fail(struct kml_err *err, enum kml_code code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vset(err, code, format, args);
    va_end(args);
    return -1;
}

static enum kml_code code_of_errno(int error)
{
    switch (error) {
    case ENOENT:
        return KML_NOT_FOUND;
    case EEXIST:
    case EADDRINUSE:
        return KML_EXISTS;
    case EACCES:
    case EPERM:
    case EROFS:
        return KML_DENIED;
    case ENOMEM:
        return KML_NO_MEMORY;
    case EFBIG:
        return KML_TOO_LARGE;
    case ETIMEDOUT:
        return KML_TIMEOUT;
    case ECONNREFUSED:
    case ENETUNREACH:
    case EHOSTUNREACH:
        return KML_UNAVAILABLE;
    case EAGAIN:
    case EINTR:
        return KML_AGAIN;
    case EINVAL:
        return KML_INVALID;
    default:
        return KML_IO;
    }
}

int kml_fail_errno(struct kml_err *err, int error, const char *format, ...)
{
    if (err == NULL) {
        return -1;
    }
    char text[KML_ERR_TEXT];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return kml_fail(err, code_of_errno(error), "%s: %s", text, strerror(error));
}

int kml_wrap(struct kml_err *err, const char *format, ...)
{
    if (err == NULL) {
        return -1;
    }
    char context[KML_ERR_TEXT];
    char old[KML_ERR_TEXT];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(context, sizeof context, format, args);
    va_end(args);
    memcpy(old, err->text, sizeof old);
    return kml_fail(err, err->code, "%s: %s", context, old);
}

const char *kml_code_name(enum kml_code code)
{
    return (unsigned)code < KML_CODE_COUNT ? table[code].name : "UNKNOWN";
}

int kml_code_grpc(enum kml_code code)
{
    return table[code].grpc;
}

int kml_code_http(enum kml_code code)
{
    return table[code].http;
}

bool kml_code_retryable(enum kml_code code)
{
    return table[code].retry;
}

int kml_code_exit(enum kml_code code)
{
    return table[code].exit;
}

enum kml_code kml_code_of_grpc(int status)
{
    for (int code = 0; code < KML_CODE_COUNT; code++) {
        if (table[code].grpc == status) {
            return (enum kml_code)code;
        }
    }
    return KML_INTERNAL;
}
