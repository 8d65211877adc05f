#include "cli/usage.h"

#include <stdio.h>

static void print_help(const struct kml_usage *usage, const struct kml_flag *flags, uint32_t count)
{
    (void)printf("Usage: %s\n\n%s\nFlags:\n", usage->synopsis, usage->story);
    kml_flags_print(flags, count);
    (void)printf("\nExamples:\n%s\nExit codes:\n%s", usage->examples, usage->exits);
}

static int count_check(const struct kml_flag_list *rest, uint32_t least, uint32_t most, const char *synopsis,
                       struct kml_err *err)
{
    if (rest->count < least) {
        return kml_fail(err, KML_USAGE, "an argument is missing: %s", synopsis);
    }
    if (rest->count > most) {
        return kml_fail(err, KML_USAGE, "\"%s\" is one argument too many: %s", rest->values[most], synopsis);
    }
    return 0;
}

int kml_usage_parse(const struct kml_usage *usage, const struct kml_flag *flags, uint32_t count, int argc,
                    char **argv, uint32_t least, uint32_t most, struct kml_flag_list *rest)
{
    struct kml_err err;
    bool help;
    int code = KML_USAGE_GO_ON;
    if (kml_flags_parse(flags, count, argc, argv, rest, &help, &err) < 0 ||
        (!help && count_check(rest, least, most, usage->synopsis, &err) < 0)) {
        (void)fprintf(stderr, "kunal %s: %s\n", argv[0], err.text);
        code = kml_code_exit(err.code);
    } else if (help) {
        print_help(usage, flags, count);
        code = 0;
    }
    if (code != KML_USAGE_GO_ON) {
        kml_flags_finish(flags, count, rest);
    }
    return code;
}
