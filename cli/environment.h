#ifndef KML_CLI_ENVIRONMENT_H
#define KML_CLI_ENVIRONMENT_H

#include <stdint.h>

/*
 * The environment that a child gets: the user's, without the variables of the start contract (job/start.h),
 * so that nothing left over in a shell steers a worker; then what is set here. Each name stands in it once.
 */
struct kml_environment {
    char **text; /* "NAME=value", ended by NULL; owned */
    uint32_t count;
};

void kml_environment_init(struct kml_environment *e, char *const *from);
void kml_environment_finish(struct kml_environment *e);
void kml_environment_set(struct kml_environment *e, const char *name,
                         const char *value);                                        /* NULL: takes it out */
const char *kml_environment_get(const struct kml_environment *e, const char *name); /* NULL: not there */

#endif
