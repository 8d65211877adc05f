#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/verbs.h"

/* `kunal VERB …`: finds the verb and hands over. `kunal` alone and `kunal --help` print the help. */
int main(int argc, char **argv)
{
    kml_log_init("kunal", KML_WARN, false);
    (void)signal(SIGPIPE, SIG_IGN); /* a reader of our output that goes away must not leave children behind */
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        char *help[] = {(char[]){"help"}, NULL};
        return kml_cli_help(1, help);
    }
    if (strcmp(argv[1], "--version") == 0) {
        return kml_cli_version(argc - 1, argv + 1);
    }
    const struct kml_verb *verb = kml_verb_find(argv[1]);
    return verb == NULL ? kml_verb_unknown(argv[1]) : verb->run(argc - 1, argv + 1);
}
