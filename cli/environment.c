#include "cli/environment.h"

#include <stdbool.h>
#include <string.h>

#include "base/mem.h"

static const char *const contract[] = {
    "KUNAL_ROLE",    "KUNAL_INDEX",   "KUNAL_JOB_UID",   "KUNAL_CONDUCTOR", "KUNAL_JOB",
    "KUNAL_TLS_DIR", "KUNAL_LISTEN",  "KUNAL_ADVERTISE", "KUNAL_OUTPUT",    "KUNAL_PACE_NS",
    "KUNAL_SPEED",   "KUNAL_PROFILE", "KUNAL_SHARED",    "KUNAL_PARENT_FD",
};

static bool is_named(const char *text, const char *name)
{
    size_t length = strlen(name);
    return strncmp(text, name, length) == 0 && text[length] == '=';
}

static bool is_contract(const char *text)
{
    for (size_t i = 0; i < KML_COUNT(contract); i++) {
        if (is_named(text, contract[i])) {
            return true;
        }
    }
    return false;
}

static void add(struct kml_environment *e, char *text)
{
    e->text = kml_realloc(e->text, (e->count + 2) * sizeof *e->text);
    e->text[e->count++] = text;
    e->text[e->count] = NULL;
}

void kml_environment_init(struct kml_environment *e, char *const *from)
{
    *e = (struct kml_environment){.text = KML_NEW_ARRAY(1, char *)};
    for (; *from != NULL; from++) {
        if (!is_contract(*from)) {
            add(e, kml_strdup(*from));
        }
    }
}

void kml_environment_finish(struct kml_environment *e)
{
    for (uint32_t i = 0; i < e->count; i++) {
        kml_free(e->text[i]);
    }
    kml_free(e->text);
    *e = (struct kml_environment){0};
}

void kml_environment_set(struct kml_environment *e, const char *name, const char *value)
{
    for (uint32_t i = 0; i < e->count;) {
        if (is_named(e->text[i], name)) {
            kml_free(e->text[i]);
            e->text[i] = e->text[--e->count];
            e->text[e->count] = NULL;
        } else {
            i++;
        }
    }
    if (value != NULL) {
        add(e, kml_format("%s=%s", name, value));
    }
}

const char *kml_environment_get(const struct kml_environment *e, const char *name)
{
    for (uint32_t i = 0; i < e->count; i++) {
        if (is_named(e->text[i], name)) {
            return e->text[i] + strlen(name) + 1;
        }
    }
    return NULL;
}
