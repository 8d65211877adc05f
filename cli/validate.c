#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/parse.h"
#include "cli/notes.h"
#include "cli/usage.h"
#include "cli/verbs.h"
#include "job/job.h"

static const struct kml_usage usage = {
    .synopsis = "kunal validate MANIFEST... [flags]",
    .story = "Checks manifests (YAML or JSON) and prints every problem on a line of its own: file, line, "
             "column, path "
             "of the\n"
             "field, what is wrong, what to do. Notes on fields that have no effect go to stderr.\n",
    .examples = "  kunal validate examples/fashion-mnist.yaml\n"
                "  kunal validate job.yaml --set spec.synchronization.mode=BSP\n"
                "  kunal validate job.yaml --driver cluster\n",
    .exits = "  0   all manifests are valid\n"
             "  64  wrong use of the command line\n"
             "  65  a manifest is not valid\n"
             "  66  a manifest is not there\n",
};

static int driver_of(const char *name, enum kml_job_driver *out)
{
    static const char *const names[] = {"local", "cluster"};
    *out = strcmp(name, "cluster") == 0 ? KML_JOB_CLUSTER : KML_JOB_LOCAL;
    if (strcmp(name, "local") == 0 || strcmp(name, "cluster") == 0) {
        return 0;
    }
    const char *near = kml_nearest(name, names, KML_COUNT(names));
    (void)fprintf(stderr, "kunal validate: --driver is \"%s\", but there are only local and cluster%s%s%s\n",
                  name, near == NULL ? "" : "; did you mean ", near == NULL ? "" : near,
                  near == NULL ? "" : "?");
    return -1;
}

static int validate_one(const char *path, const struct kml_flag_list *sets, enum kml_job_driver driver)
{
    struct kml_job job;
    struct kml_job_notes notes;
    struct kml_err err;
    kml_job_init(&job);
    kml_job_notes_init(&notes);
    int code = 0;
    if (kml_job_load_file(&job, path, sets->values, sets->count, driver, &notes, &err) < 0) {
        kml_cli_print_problems(stdout, &notes, &err);
        code = kml_code_exit(err.code);
    } else {
        (void)printf("%s: valid\n", path);
    }
    kml_cli_print_notes(&notes);
    kml_job_notes_finish(&notes);
    kml_job_finish(&job);
    return code;
}

int kml_cli_validate(int argc, char **argv)
{
    struct kml_flag_list sets = {NULL, 0};
    struct kml_flag_list files;
    const char *driver_name = "local";
    const struct kml_flag flags[] = {
        {"set", 0, KML_FLAG_LIST, &sets, "PATH=VALUE", "Override a field: spec.training.epochs=3."},
        {"driver", 0, KML_FLAG_TEXT, &driver_name, "local|cluster",
         "Check for `kunal run` (local) or for a cluster."},
    };
    int code = kml_usage_parse(&usage, flags, KML_COUNT(flags), argc, argv, 1, UINT32_MAX, &files);
    if (code != KML_USAGE_GO_ON) {
        return code;
    }
    enum kml_job_driver driver;
    code = driver_of(driver_name, &driver) < 0 ? kml_code_exit(KML_USAGE) : 0;
    for (uint32_t i = 0; code != kml_code_exit(KML_USAGE) && i < files.count; i++) {
        int one = validate_one(files.values[i], &sets, driver);
        code = code == 0 ? one : code; /* the first failure decides */
    }
    kml_flags_finish(flags, KML_COUNT(flags), &files);
    return code;
}
