#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/signals.h"
#include "job/job.h"
#include "job/start.h"
#include "ps/follow.h"
#include "ps/lead.h"
#include "rpc/creds.h"
#include "rpc/loop.h"

static const char help[] =
    "kunal-ps: a parameter server of a KunalJob; number 0 also conducts the job.\n"
    "\n"
    "It is started by `kunal run` or by the operator, which tell it by environment who it is:\n"
    "  KUNAL_INDEX, KUNAL_JOB_UID, KUNAL_JOB (normalised manifest), KUNAL_LISTEN, and for all but number 0\n"
    "  KUNAL_CONDUCTOR; optionally KUNAL_ADVERTISE, KUNAL_OUTPUT, KUNAL_TLS_DIR, KUNAL_SHARED,\n"
    "  KUNAL_LOG, KUNAL_PARENT_FD. See docs/PROTOCOL.md.\n"
    "\n"
    "  --help, --version\n"
    "\n"
    "Number 0 prints the job's metrics on stdout as JSON lines. SIGTERM saves what is there and ends.\n"
    "Exit codes: 0 job done or stopped, 64 usage, 65 bad data, 66 missing input, 69 peer unreachable, 70 "
    "bug,\n"
    "73 cannot write, 75 try again, 76 other protocol, 77 refused.\n";

static struct kml_loop *_Atomic loop; /* NULL: not serving yet; what was taken is seen at the start */

static void wake(void *self)
{
    (void)self;
    struct kml_loop *l = atomic_load(&loop);
    if (l != NULL) {
        kml_loop_wake(l);
    }
}

static int load(const struct kml_start *start, struct kml_job *job, struct kml_creds **creds,
                struct kml_err *err)
{
    if (kml_job_load_file(job, start->job, NULL, 0, KML_JOB_PROCESS, NULL, err) < 0) {
        return -1;
    }
    if (start->index >= job->ps.replicas) {
        return kml_fail(err, KML_USAGE, "KUNAL_INDEX is %u, but the job has %u parameter servers",
                        start->index, job->ps.replicas);
    }
    if (start->tls_folder != NULL) {
        return kml_creds_mtls(start->tls_folder, creds, err);
    }
    *creds = kml_creds_plaintext();
    return 0;
}

static int serve(const struct kml_start *start, const struct kml_job *job, struct kml_creds *creds,
                 struct kml_err *err)
{
    int code;
    struct kml_lead lead;
    if (start->index > 0) {
        code = kml_follow(job, start, loop, creds, kml_signals_taken, err);
    } else if (kml_lead_open(&lead, job, start, loop, creds, err) < 0) {
        code = kml_code_exit(err->code);
    } else {
        kml_lead_run(&lead, kml_signals_taken);
        code = kml_lead_close(&lead);
        (void)kml_fail(err, KML_INTERNAL, "the job failed; see above");
    }
    return code;
}

static int run(struct kml_err *err)
{
    struct kml_start start;
    if (kml_start_read(KML_START_PS, &start, err) < 0) {
        kml_signals_stop();
        return kml_code_exit(err->code);
    }
    char name[32];
    (void)snprintf(name, sizeof name, "kunal-ps-%u", start.index);
    kml_log_init(name, KML_INFO, !start.log_text);
    struct kml_job job;
    struct kml_creds *creds = NULL;
    kml_job_init(&job);
    int code;
    if (load(&start, &job, &creds, err) < 0) {
        code = kml_code_exit(err->code);
    } else {
        atomic_store(&loop, kml_loop_create());
        code = serve(&start, &job, creds, err);
    }
    kml_signals_stop(); /* nobody wakes the loop any more */
    if (loop != NULL) {
        kml_loop_destroy(loop);
    }
    kml_creds_destroy(creds);
    kml_job_finish(&job);
    return code;
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        bool version = strcmp(argv[1], "--version") == 0;
        bool asked = version || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0;
        (void)fputs(version ? "kunal-ps " KML_VERSION "\n" : help, asked ? stdout : stderr);
        return asked ? 0 : kml_code_exit(KML_USAGE);
    }
    struct kml_err err;
    kml_log_init("kunal-ps", KML_INFO, true);
    /* Before gRPC has threads: one that does not block SIGTERM would end the process, the model unsaved. */
    if (kml_signals_start(kml_signals_parent(), wake, NULL, &err) < 0) {
        kml_error("ended", kv_err(&err));
        return kml_code_exit(err.code);
    }
    kml_rpc_init();
    int code = run(&err);
    if (code != 0) {
        kml_error("ended", kv_i("exit_code", code), kv_err(&err));
    }
    kml_rpc_shutdown();
    return code;
}
