#include <stdio.h>
#include <string.h>

#include "cli/usage.h"
#include "cli/verbs.h"

int kml_cli_version(int argc, char **argv)
{
    struct kml_flag_list rest;
    static const struct kml_usage usage = {
        .synopsis = "kunal version",
        .story = "Prints the version of Kunal ML.",
        .examples = "  kunal version\n",
        .exits = "  0   always\n",
    };
    int code = strcmp(argv[0], "--version") == 0 ? KML_USAGE_GO_ON
                                                 : kml_usage_parse(&usage, NULL, 0, argc, argv, 0, 0, &rest);
    if (code == KML_USAGE_GO_ON) {
        (void)printf("kunal %s\n", KML_VERSION);
        return 0;
    }
    return code;
}
