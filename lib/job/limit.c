#include "job/job.h"

/* |2d - m|: twice the distance of d from m/2, so that odd m needs no fractions. */
static uint32_t distance(uint32_t d, uint32_t m)
{
    return 2 * d > m ? 2 * d - m : m - 2 * d;
}

/* Ascending, and only a smaller distance wins: on a tie the smaller divisor stays. */
static uint32_t automatic_limit(uint32_t m)
{
    uint32_t best = 1;
    uint32_t divisors = 0;
    for (uint32_t d = 1; d <= m; d++) {
        if (m % d == 0) {
            divisors++;
            best = distance(d, m) < distance(best, m) ? d : best;
        }
    }
    return divisors == 2 && m % 2 == 1 ? (m + 1) / 2 : best;
}

uint32_t kml_job_limit(const struct kml_job *job, uint32_t workers)
{
    switch (job->sync.mode) {
    case KML_JOB_SYNC_ASP:
    case KML_JOB_SYNC_SSP:
        return 1;
    case KML_JOB_SYNC_LSP:
        if (job->sync.limit == KML_JOB_AUTO) {
            return automatic_limit(workers);
        }
        return job->sync.limit < workers ? job->sync.limit : workers;
    case KML_JOB_SYNC_BSP:
    case KML_JOB_SYNC_HYBRID:
    case KML_JOB_SYNC_COUNT:
        break;
    }
    return workers;
}
