#include "cli/verbs.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/parse.h"

static const struct kml_verb verbs[] = {
    {"run", "Train a KunalJob on this machine, without a cluster.", kml_cli_run},
    {"validate", "Check manifests and say everything that is wrong with them.", kml_cli_validate},
    {"inspect", "Show what is inside a model file.", kml_cli_inspect},
    {"version", "Print the version.", kml_cli_version},
    {"help", "Print this text, or the help of a verb.", kml_cli_help},
    {NULL, NULL, NULL},
};

const struct kml_verb *kml_verbs(void)
{
    return verbs;
}

const struct kml_verb *kml_verb_find(const char *name)
{
    for (const struct kml_verb *v = verbs; v->name != NULL; v++) {
        if (strcmp(v->name, name) == 0) {
            return v;
        }
    }
    return NULL;
}

int kml_verb_unknown(const char *name)
{
    const char *names[KML_COUNT(verbs)];
    uint32_t count = 0;
    for (const struct kml_verb *v = verbs; v->name != NULL; v++) {
        names[count++] = v->name;
    }
    const char *near = kml_nearest(name, names, count);
    (void)fprintf(stderr, "kunal: there is no verb \"%s\"%s%s%s; `kunal help` lists them\n", name,
                  near == NULL ? "" : ", did you mean \"", near == NULL ? "" : near,
                  near == NULL ? "" : "\"?");
    return kml_code_exit(KML_USAGE);
}
