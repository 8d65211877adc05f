#include "job/start.h"

#include <stdlib.h>
#include <string.h>

#include "base/parse.h"

static const char *value_of(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static int needed(const char *name, const char **out, struct kml_err *err)
{
    *out = value_of(name);
    if (*out == NULL) {
        return kml_fail(err, KML_USAGE, "%s is not set; `kunal run` or the operator sets it", name);
    }
    return 0;
}

static int positive(const char *name, double fallback, double *out, struct kml_err *err)
{
    const char *text = value_of(name);
    *out = fallback;
    if (text == NULL) {
        return 0;
    }
    if (kml_parse_real(text, out, err) < 0) {
        return kml_wrap(err, "%s", name);
    }
    if (*out < 0) {
        return kml_fail(err, KML_USAGE, "%s is %s; it must not be negative", name, text);
    }
    return 0;
}

static int read_role(enum kml_start_role role, struct kml_err *err)
{
    static const char *const names[] = {[KML_START_PS] = "PS", [KML_START_WORKER] = "Worker"};
    const char *given = value_of("KUNAL_ROLE");
    if (given != NULL && strcmp(given, names[role]) != 0) {
        return kml_fail(err, KML_USAGE, "KUNAL_ROLE is %s, but this program is a %s", given, names[role]);
    }
    return 0;
}

static int read_index(uint32_t *out, struct kml_err *err)
{
    const char *text;
    uint64_t index;
    if (needed("KUNAL_INDEX", &text, err) < 0) {
        return -1;
    }
    if (kml_parse_u64(text, &index, err) < 0 || index > UINT32_MAX - 1) {
        return kml_fail(err, KML_USAGE, "KUNAL_INDEX is %s, not a number of a replica", text);
    }
    *out = (uint32_t)index;
    return 0;
}

int kml_start_read(enum kml_start_role role, struct kml_start *out, struct kml_err *err)
{
    *out = (struct kml_start){.role = role, .speed = 1};
    if (read_role(role, err) < 0 || read_index(&out->index, err) < 0 ||
        needed("KUNAL_JOB_UID", &out->uid, err) < 0 || needed("KUNAL_JOB", &out->job, err) < 0 ||
        positive("KUNAL_PACE_NS", 0, &out->pace_ns, err) < 0 ||
        positive("KUNAL_SPEED", 1, &out->speed, err) < 0) {
        return -1;
    }
    if (strlen(out->uid) > KML_JOB_UID_MAX) {
        return kml_fail(err, KML_USAGE, "KUNAL_JOB_UID has more than %d letters", KML_JOB_UID_MAX);
    }
    if (out->speed <= 0) {
        return kml_fail(err, KML_USAGE, "KUNAL_SPEED must be above 0");
    }
    if (role == KML_START_PS && needed("KUNAL_LISTEN", &out->listen, err) < 0) {
        return -1;
    }
    /* PS-0 is the conductor; everybody else must be told where it is. */
    if ((role == KML_START_WORKER || out->index > 0) && needed("KUNAL_CONDUCTOR", &out->conductor, err) < 0) {
        return -1;
    }
    out->tls_folder = value_of("KUNAL_TLS_DIR");
    out->advertise = value_of("KUNAL_ADVERTISE");
    out->output = value_of("KUNAL_OUTPUT");
    out->profile = value_of("KUNAL_PROFILE");
    const char *shared = value_of("KUNAL_SHARED");
    out->shared = shared != NULL && strcmp(shared, "1") == 0;
    const char *log = value_of("KUNAL_LOG");
    out->log_text = log != NULL && strcmp(log, "text") == 0;
    return 0;
}
