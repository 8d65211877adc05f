#ifndef KML_BASE_LOG_H
#define KML_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/*
 * Structured log: a constant message and pairs. JSON lines for machines (pods, run folders), one readable
 * line for a terminal. Thread-safe: a line is written with one write(2) to stderr. Only programs log;
 * libraries return errors. A secret is never a pair.
 */
enum kml_level { KML_DEBUG, KML_INFO, KML_WARN, KML_ERROR };

struct kml_kv {
    const char *key;
    enum { KML_KV_TEXT, KML_KV_UINT, KML_KV_INT, KML_KV_REAL, KML_KV_BOOL } kind;
    union {
        const char *text;
        uint64_t u;
        int64_t i;
        double real;
        bool yes;
    } value;
};

struct kml_kv kv_s(const char *key, const char *text); /* NULL prints as null */
struct kml_kv kv_u(const char *key, uint64_t value);
struct kml_kv kv_i(const char *key, int64_t value);
struct kml_kv kv_f(const char *key, double value);
struct kml_kv kv_b(const char *key, bool value);
struct kml_kv kv_err(const struct kml_err *err); /* key "error", "CODE: text" */

/* At the start of main. `program` (copied, 31 letters) stands in every line ("kunal-ps-0"). */
void kml_log_init(const char *program, enum kml_level least, bool json);

void kml_log(enum kml_level level, const char *message, const struct kml_kv *pairs, size_t count);

#define KML_LOG(level, message, ...)                                                                         \
    kml_log((level), (message), (const struct kml_kv[]){__VA_ARGS__},                                        \
            sizeof((const struct kml_kv[]){__VA_ARGS__}) / sizeof(struct kml_kv))
#define kml_debug(...) KML_LOG(KML_DEBUG, __VA_ARGS__)
#define kml_info(...) KML_LOG(KML_INFO, __VA_ARGS__)
#define kml_warn(...) KML_LOG(KML_WARN, __VA_ARGS__)
#define kml_error(...) KML_LOG(KML_ERROR, __VA_ARGS__)

#endif
