#include "cli/notes.h"

void kml_cli_print_problems(FILE *to, const struct kml_job_notes *notes, const struct kml_err *err)
{
    for (uint32_t i = 0; i < notes->problems; i++) {
        (void)fprintf(to, "%s\n", notes->problem[i]);
    }
    if (notes->problems == 0) {
        (void)fprintf(to, "%s\n", err->text);
    }
    if (notes->problems_left_out > 0) {
        (void)fprintf(to, "%u more problems\n", (unsigned)notes->problems_left_out);
    }
}

void kml_cli_print_notes(const struct kml_job_notes *notes)
{
    for (uint32_t i = 0; i < notes->notes; i++) {
        (void)fprintf(stderr, "note: %s\n", notes->note[i]);
    }
}
