#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/verbs.h"

static void print_overview(void)
{
    (void)printf("Kunal ML %s: distributed training with parameter servers.\n\n"
                 "Usage: kunal VERB [flags] [arguments]\n\nVerbs:\n",
                 KML_VERSION);
    for (const struct kml_verb *v = kml_verbs(); v->name != NULL; v++) {
        (void)printf("  %-10s  %s\n", v->name, v->summary);
    }
    (void)printf(
        "\nStart here:\n"
        "  kunal run examples/fashion-mnist.yaml    train a model with a parameter server and four workers\n"
        "  kunal VERB --help                        flags, examples and exit codes of a verb\n");
}

int kml_cli_help(int argc, char **argv)
{
    if (argc < 2 || argv[1][0] == '-') {
        print_overview();
        return 0;
    }
    const struct kml_verb *verb = kml_verb_find(argv[1]);
    if (verb == NULL) {
        return kml_verb_unknown(argv[1]);
    }
    if (verb->run == kml_cli_help) {
        print_overview();
        return 0;
    }
    char *forward[] = {argv[1], (char[]){"--help"}, NULL};
    return verb->run(2, forward);
}
