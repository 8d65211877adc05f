#ifndef KML_CLI_VERBS_H
#define KML_CLI_VERBS_H

/*
 * The verbs of `kunal`: one verb, one file. argv[0] is the verb. Each returns the exit code of the program
 * and answers
 * --help by itself; results go to stdout, everything else to stderr.
 */
int kml_cli_run(int argc, char **argv);
int kml_cli_validate(int argc, char **argv);
int kml_cli_inspect(int argc, char **argv);
int kml_cli_version(int argc, char **argv);
int kml_cli_help(int argc, char **argv);

struct kml_verb {
    const char *name;
    const char *summary; /* one sentence */
    int (*run)(int argc, char **argv);
};

/* All verbs in the order of the help text, ended by a row without a name. */
const struct kml_verb *kml_verbs(void);
const struct kml_verb *kml_verb_find(const char *name); /* NULL: there is none */

/* Says on stderr that the verb is unknown, with "did you mean", and returns the exit code for wrong use. */
int kml_verb_unknown(const char *name);

#endif
