#include "cli/restart.h"

#include "base/mem.h"
#include "job/exitcode.h"

void kml_restart_init(struct kml_restart *r, enum kml_job_restart policy, uint32_t limit,
                      struct kml_restart_seat *seat, uint32_t workers)
{
    *r = (struct kml_restart){.policy = policy, .limit = limit, .seat = seat, .workers = workers};
}

static uint64_t wait_before(uint32_t restarts)
{
    uint64_t wait = KML_RESTART_FIRST_NS;
    for (uint32_t i = 0; i < restarts && wait < KML_RESTART_MOST_NS; i++) {
        wait *= 2;
    }
    return wait < KML_RESTART_MOST_NS ? wait : KML_RESTART_MOST_NS;
}

struct kml_restart_verdict kml_restart_ended(struct kml_restart *r, uint32_t worker, unsigned code)
{
    KML_BUG_ON(worker >= r->workers || r->seat[worker].gone);
    struct kml_restart_seat *seat = &r->seat[worker];
    seat->code = code;
    r->failures += code != 0;
    bool again = kml_exit_restarts(r->policy, code);
    if (again && r->failures <= r->limit) {
        uint64_t wait = wait_before(seat->restarts);
        seat->restarts++;
        r->restarts++;
        return (struct kml_restart_verdict){KML_RESTART_AGAIN, wait};
    }
    seat->gone = true;
    r->gone++;
    r->gone_failed += code != 0;
    if (again) {
        return (struct kml_restart_verdict){KML_RESTART_OVER_LIMIT, 0};
    }
    return (struct kml_restart_verdict){r->gone == r->workers ? KML_RESTART_ALL_GONE : KML_RESTART_GONE, 0};
}
