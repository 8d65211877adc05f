#ifndef KML_CLI_NOTES_H
#define KML_CLI_NOTES_H

#include <stdio.h>

#include "base/err.h"
#include "job/job.h"

/* Every problem on a line; when reading stopped before the table was asked (no such file, bad YAML), `err`
 * alone. */
void kml_cli_print_problems(FILE *to, const struct kml_job_notes *notes, const struct kml_err *err);
void kml_cli_print_notes(const struct kml_job_notes *notes); /* to stderr, "note: …" */

#endif
