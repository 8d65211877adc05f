/*
 * kunal-worker: trains a replica of a job's model against its parameter servers.
 *
 * Reading order: input.h (what it trains with), train.h (its life), session.h and pipe.h (whom it talks to),
 * step.h (what it computes), pace.h.
 *
 * Exit codes: 0 the job has finished; the code of Stop; kml_code_exit of an error (69: no conductor for 60
 * s); 128 + signal when SIGTERM or SIGINT told it to leave before the job's end, 75 when its parent went
 * away. Never 0 for that: 0 means that no worker is missing.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cpus.h"
#include "base/file.h"
#include "base/flags.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/rng.h"
#include "base/signals.h"
#include "job/start.h"
#include "math/gemm.h"
#include "rpc/creds.h"
#include "rpc/loop.h"
#include "worker/calibrate.h"
#include "worker/input.h"
#include "worker/train.h"

#define PROFILE_MOST ((size_t)1 << 20)

static int fail(const struct kml_err *err)
{
    kml_error("worker ends", kv_err(err));
    return kml_code_exit(err->code);
}

/* ---- Threads of the kernels ---- */

/*
 * One, as several workers often share a machine, unless the user says otherwise or a CPU quota of this group
 * (a pod's limit) gives more than one core.
 */
static unsigned threads_wanted(void)
{
    const char *given = getenv("OPENBLAS_NUM_THREADS");
    uint64_t threads;
    if (given != NULL && kml_parse_u64(given, &threads, NULL) == 0 && threads >= 1 && threads <= 1024) {
        return (unsigned)threads;
    }
    cpu_set_t cpus;
    bool limited = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && kml_cpu_limit("/") < CPU_COUNT(&cpus);
    return limited ? kml_cpu_threads("/") : 1;
}

/* ---- Being told to stop ---- */

static struct kml_loop *_Atomic running; /* NULL: not training yet, so there is nobody to say goodbye to */
static bool watching;

static void wake(void *self)
{
    (void)self;
    struct kml_loop *loop = atomic_load(&running);
    if (loop == NULL) {
        _exit(kml_train_exit_of(kml_signals_taken()));
    }
    kml_loop_wake(loop);
}

static void stop_watching(void)
{
    if (watching) {
        kml_signals_stop();
        watching = false;
    }
}

/* ---- Pieces of the start ---- */

static int read_pace(const struct kml_start *start, struct kml_pace *pace, struct kml_err *err)
{
    struct kml_buf text;
    kml_buf_init(&text, PROFILE_MOST);
    int result = 0;
    if (start->profile != NULL) {
        result = kml_file_read(start->profile, &text, err);
    }
    if (result == 0) {
        result = kml_pace_init(pace, start->pace_ns, start->speed, start->profile, kml_buf_view(&text), err);
    }
    kml_buf_finish(&text);
    return result < 0 ? kml_wrap(err, "KUNAL_PROFILE") : 0;
}

static int read_creds(const struct kml_start *start, struct kml_creds **out, struct kml_err *err)
{
    if (start->tls_folder == NULL) {
        *out = kml_creds_plaintext();
        return 0;
    }
    return kml_creds_mtls(start->tls_folder, out, err) < 0 ? kml_wrap(err, "KUNAL_TLS_DIR") : 0;
}

/* ---- The run ---- */

static int ended(const struct kml_train *t, const struct kml_err *why, int exit_code)
{
    if (why->code != KML_OK) {
        return fail(why);
    }
    kml_info("worker ends", kv_i("exit_code", exit_code), kv_s("reason", why->text), kv_u("steps", t->steps),
             kv_u("samples", t->samples));
    return exit_code;
}

static int run_training(const struct kml_train_config *config)
{
    struct kml_train train;
    struct kml_err err;
    if (kml_train_init(&train, config, &err) < 0) {
        return fail(&err);
    }
    int exit_code = kml_train_run(&train, &err);
    exit_code = ended(&train, &err, exit_code);
    kml_train_finish(&train);
    return exit_code;
}

static int with_input(const struct kml_start *start, const struct kml_input *in, const struct kml_pace *pace)
{
    struct kml_creds *creds;
    struct kml_join join;
    struct kml_err err;
    if (read_creds(start, &creds, &err) < 0) {
        return fail(&err);
    }
    kml_join_init(&join, &in->model, &in->data, start->uid, start->index, kml_random_secret());
    struct kml_train_config config = {.loop = kml_loop_create(),
                                      .creds = creds,
                                      .conductor = start->conductor,
                                      .uid = start->uid,
                                      .join = &join.message,
                                      .mtls = start->tls_folder != NULL,
                                      .shared = start->shared,
                                      .patience_ns = KML_SESSION_PATIENCE_NS,
                                      .model = &in->model,
                                      .data = &in->data,
                                      .shuffle = kml_input_shuffle(in),
                                      .seed = in->job.model.seed,
                                      .initial = in->initial,
                                      .pace = pace,
                                      .stop_asked = kml_signals_taken,
                                      .root = "/"};
    atomic_store(&running, config.loop);
    int exit_code = run_training(&config);
    stop_watching(); /* it wakes the loop */
    kml_loop_destroy(config.loop);
    kml_creds_destroy(creds);
    kml_join_finish(&join);
    return exit_code;
}

static int train(void)
{
    struct kml_start start;
    struct kml_pace pace;
    struct kml_input in;
    struct kml_err err;
    if (kml_start_read(KML_START_WORKER, &start, &err) < 0) {
        return fail(&err);
    }
    char name[32];
    (void)snprintf(name, sizeof(name), "kunal-worker-%u", start.index);
    kml_log_init(name, KML_INFO, !start.log_text);
    if (read_pace(&start, &pace, &err) < 0) {
        return fail(&err);
    }
    if (kml_input_open(&in, start.job, &err) < 0) {
        kml_pace_finish(&pace);
        return fail(&err);
    }
    int exit_code = with_input(&start, &in, &pace);
    kml_input_finish(&in);
    kml_pace_finish(&pace);
    return exit_code;
}

static int calibrate(void)
{
    struct kml_input in;
    struct kml_err err;
    double seconds;
    const char *manifest = getenv("KUNAL_JOB");
    if (manifest == NULL || manifest[0] == '\0') {
        (void)kml_fail(&err, KML_USAGE,
                       "KUNAL_JOB is not set; --calibrate needs the path of a normalised manifest in it");
        return fail(&err);
    }
    if (kml_input_open(&in, manifest, &err) < 0) {
        return fail(&err);
    }
    int result = kml_calibrate(&in, &seconds, &err);
    kml_input_finish(&in);
    if (result < 0) {
        return fail(&err);
    }
    (void)printf("seconds_per_sample=%.9g\n", seconds);
    return fflush(stdout) == 0 ? 0 : kml_code_exit(KML_IO);
}

static int print_help(const struct kml_flag *flags, uint32_t count)
{
    (void)printf(
        "kunal-worker: trains a replica of a job's model. `kunal run` and the operator start it.\n\n"
        "Who it is comes by environment: KUNAL_INDEX, KUNAL_JOB_UID, KUNAL_CONDUCTOR, KUNAL_JOB; also "
        "KUNAL_TLS_DIR,\n"
        "KUNAL_PACE_NS, KUNAL_SPEED, KUNAL_PROFILE, KUNAL_SHARED, KUNAL_LOG, KUNAL_PARENT_FD. See "
        "docs/PROTOCOL.md.\n\n");
    kml_flags_print(flags, count);
    return 0;
}

int main(int argc, char **argv)
{
    bool version = false;
    bool calibrating = false;
    bool help = false;
    const struct kml_flag flags[] = {
        {"version", 0, KML_FLAG_BOOL, &version, NULL, "Print the version and end."},
        {"calibrate", 0, KML_FLAG_BOOL, &calibrating, NULL,
         "Measure how long this machine computes for one sample of the job in KUNAL_JOB, print it and end."},
    };
    struct kml_flag_list rest = {0};
    struct kml_err err;
    kml_log_init("kunal-worker", KML_INFO, getenv("KUNAL_LOG") == NULL || getenv("KUNAL_LOG")[0] != 't');
    if (kml_flags_parse(flags, KML_COUNT(flags), argc, argv, &rest, &help, &err) < 0) {
        return fail(&err);
    }
    bool extra = rest.count > 0;
    kml_flags_finish(flags, KML_COUNT(flags), &rest);
    if (extra) {
        (void)kml_fail(&err, KML_USAGE, "no arguments are taken; see --help");
        return fail(&err);
    }
    if (help) {
        return print_help(flags, KML_COUNT(flags));
    }
    if (version) {
        (void)printf("kunal-worker " KML_VERSION "\n");
        return 0;
    }
    kml_math_threads(threads_wanted(), argv);
    if (calibrating) {
        return calibrate();
    }
    if (kml_signals_start(kml_signals_parent(), wake, NULL, &err) < 0) {
        return fail(&err);
    }
    watching = true;
    kml_rpc_init();
    int exit_code = train();
    stop_watching();
    kml_rpc_shutdown();
    return exit_code;
}
