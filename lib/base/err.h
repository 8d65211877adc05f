#ifndef KML_BASE_ERR_H
#define KML_BASE_ERR_H

#include <stdbool.h>
#include <stddef.h>

/*
 * The one error idiom of the project.
 *
 * A function that can fail returns int, 0 or -1, and takes a `struct kml_err *err` as its last parameter. The
 * struct lives on the caller's stack; nothing is allocated. On success it is untouched; on failure it holds a
 * code and one line for people: what failed, where, and what to do about it. Outer layers add their context
 * with kml_wrap. An error is logged once, by whoever handles it, never by whoever returns it.
 */

/* name, gRPC status, HTTP status, may a retry help, exit code of a program that ends with it */
#define KML_ERR_TABLE(X)                                                                                     \
    X(OK, 0, 200, false, 0)                /* never in a failure */                                          \
    X(INVALID, 3, 400, false, 65)          /* the input is wrong: bad data, bad manifest, bad message */     \
    X(USAGE, 3, 400, false, 64)            /* the command line is wrong */                                   \
    X(NOT_FOUND, 5, 404, false, 66)        /* a file, an object, a name that should be there is not */       \
    X(EXISTS, 6, 409, false, 73)           /* it is there already */                                         \
    X(CONFLICT, 9, 409, false, 70)         /* not in this state */                                           \
    X(DENIED, 7, 403, false, 77)           /* not allowed, or refused by the peer */                         \
    X(UNAUTHENTICATED, 16, 401, false, 77) /* the peer could not be identified */                            \
    X(UNAVAILABLE, 14, 503, true, 69)      /* the peer cannot be reached */                                  \
    X(TIMEOUT, 4, 504, true, 75)           /* no answer in time */                                           \
    X(CANCELLED, 1, 499, false, 75)        /* somebody asked for a stop */                                   \
    X(AGAIN, 14, 503, true, 75)            /* not now */                                                     \
    X(EXHAUSTED, 8, 429, true, 75)         /* a limit or quota is reached */                                 \
    X(TOO_LARGE, 8, 413, false, 65)        /* larger than a hard maximum */                                  \
    X(FENCED, 9, 409, false, 75)           /* from an older generation or incarnation */                     \
    X(PROTOCOL, 9, 400, false, 76)         /* the peer speaks another protocol or another layout */          \
    X(IO, 13, 500, false, 73)              /* reading or writing failed */                                   \
    X(NO_MEMORY, 8, 500, false, 70)        /* a message-sized allocation failed */                           \
    X(UNSUPPORTED, 12, 501, false, 65)     /* valid, but not supported yet */                                \
    X(INTERNAL, 13, 500, false, 70)        /* a bug, or a library that broke its contract */

enum kml_code {
#define KML_ERR_ENUM(name, grpc, http, retry, exit) KML_##name,
    KML_ERR_TABLE(KML_ERR_ENUM)
#undef KML_ERR_ENUM
        KML_CODE_COUNT
};

#define KML_ERR_TEXT 480

struct kml_err {
    enum kml_code code;
    char text[KML_ERR_TEXT]; /* one line, no newline, cut with "..." when too long */
};

#define KML_MUST_CHECK __attribute__((warn_unused_result))
#define KML_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* Sets the error and returns -1. `err` may be NULL when the caller does not care. Control characters become
 * '?'. */
int kml_fail(struct kml_err *err, enum kml_code code, const char *format, ...) KML_PRINTF(3, 4);

/* kml_fail with ": " and strerror(error) behind the text; the code follows from errno (ENOENT -> NOT_FOUND,
 * ...). */
int kml_fail_errno(struct kml_err *err, int error, const char *format, ...) KML_PRINTF(3, 4);

/* Puts "context: " before the text of an error that is set already; keeps the code. Returns -1. */
int kml_wrap(struct kml_err *err, const char *format, ...) KML_PRINTF(2, 3);

const char *kml_code_name(enum kml_code code); /* "INVALID" */
int kml_code_grpc(enum kml_code code);         /* status code of gRPC */
int kml_code_http(enum kml_code code);
bool kml_code_retryable(enum kml_code code);
int kml_code_exit(enum kml_code code); /* exit code of a program, see docs/OPERATIONS.md */
enum kml_code
kml_code_of_grpc(int status); /* the first code of the table with that status; INTERNAL if none */

#endif
