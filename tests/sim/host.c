#include "tests/sim/host_names.h"

#include "ps/host.c"

#include "tests/sim/inside.h"

struct kml_optimizer sim_optimizer_of(const struct kml_job *job)
{
    return optimizer_of(job);
}
