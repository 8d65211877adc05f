#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpus.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/notes.h"
#include "cli/supervise.h"
#include "cli/usage.h"
#include "cli/verbs.h"
#include "doc/json.h"
#include "job/job.h"
#include "rpc/loop.h"

#define PROFILE_MOST ((size_t)8 << 20)

static const struct kml_usage usage = {
    .synopsis = "kunal run MANIFEST [flags]",
    .story =
        "Trains the KunalJob of a manifest on this machine: starts parameter servers and workers, shows "
        "progress, "
        "and ends\n"
        "with one line on stdout: succeeded, failed or stopped, with the numbers and where the model is. "
        "Everything of a\n"
        "run is kept in its run folder: job.json, metrics.jsonl, one log for each process, "
        "model.safetensors.\n"
        "Ctrl-C saves what was trained so far and stops; a second Ctrl-C stops at once.\n",
    .examples = "  kunal run examples/fashion-mnist.yaml\n"
                "  kunal run job.yaml --set spec.training.epochs=3 --set spec.synchronization.mode=BSP\n"
                "  kunal run job.yaml --speeds 1,0.8,0.5,0.25\n"
                "  kunal run job.yaml --tls --run-dir /tmp/first --status-file /tmp/first.json\n",
    .exits = "  0    succeeded\n"
             "  64   wrong use of the command line\n"
             "  65   the manifest or the data is bad\n"
             "  66   something that is needed is not there\n"
             "  69   a process could not reach its peer\n"
             "  70   a process broke down\n"
             "  73   something cannot be written\n"
             "  75   it took too long, or may go better next time\n"
             "  76   processes of different versions, or different models\n"
             "  130  interrupted (Ctrl-C); 143: by SIGTERM\n"
             "  else the exit code of the process that failed\n",
};

struct run_flags {
    struct kml_flag_list sets;
    const char *run_folder, *speeds, *profile, *listen, *status_file;
    uint64_t nominal_ns;
    bool tls, quiet;
};

/* Everything of one run. What is zero was not made yet. */
struct run {
    const struct run_flags *flags;
    struct kml_job job;
    struct kml_run_folder folder;
    struct kml_pace pace;
    struct kml_crew crew;
    char uid[40];
    int signals;
};

/* ---- Steps before the first process ---- */

static int load(struct run *r, const char *manifest, struct kml_err *err)
{
    struct kml_job_notes notes;
    kml_job_notes_init(&notes);
    int result = kml_job_load_file(&r->job, manifest, r->flags->sets.values, r->flags->sets.count,
                                   KML_JOB_LOCAL, &notes, err);
    if (result < 0) {
        kml_cli_print_problems(stderr, &notes, err);
    }
    kml_cli_print_notes(&notes);
    kml_job_notes_finish(&notes);
    if (r->flags->tls) {
        r->job.transport = KML_JOB_TRANSPORT_MTLS;
    }
    return result;
}

/* Blocked before any thread starts, so that they come to the signalfd alone. */
static int take_signals(struct run *r, struct kml_err *err)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGHUP);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    r->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return r->signals < 0 ? kml_fail_errno(err, errno, "cannot wait for signals") : 0;
}

static void make_uid(char out[40])
{
    uint64_t a = kml_random_secret();
    uint64_t b = kml_random_secret();
    (void)snprintf(out, 40, "%08x-%04x-4%03x-%04x-%012llx", (unsigned)(a >> 32), (unsigned)(a >> 16 & 0xffff),
                   (unsigned)(a & 0xfff), (unsigned)(0x8000 | (b >> 48 & 0x3fff)),
                   (unsigned long long)(b & 0xffffffffffff));
}

static int make_folder(struct run *r, struct kml_err *err)
{
    uint64_t now = kml_wall_ns();
    const struct kml_job *job = &r->job;
    make_uid(r->uid);
    if (kml_run_folder_make(&r->folder, r->flags->run_folder, job->name, job->ps.replicas, now, err) < 0 ||
        kml_run_folder_job(&r->folder, job, err) < 0) {
        return -1;
    }
    if (job->transport == KML_JOB_TRANSPORT_MTLS &&
        kml_run_folder_tls(&r->folder, r->uid, job->ps.replicas, job->worker.replicas, now, err) < 0) {
        return -1;
    }
    (void)fprintf(stderr, "run folder %s\n", r->folder.path);
    return 0;
}

/* ---- Paced workers ---- */

static bool is_paced(const struct run_flags *f)
{
    return f->speeds != NULL || f->profile != NULL || f->nominal_ns != 0;
}

static int read_profile(struct run *r, struct kml_err *err)
{
    struct kml_buf text;
    kml_buf_init(&text, PROFILE_MOST);
    int result = kml_file_read(r->flags->profile, &text, err);
    if (result == 0) {
        result = kml_pace_profile(&r->pace, r->flags->profile, kml_buf_view(&text), err);
    }
    kml_buf_finish(&text);
    return result < 0 ? kml_wrap(err, "--speed-profile") : 0;
}

/* Whatever is wrong with the flags shows here, before anything is made. */
static int read_pace(struct run *r, struct kml_err *err)
{
    if (!is_paced(r->flags)) {
        return 0;
    }
    kml_pace_init(&r->pace, r->job.worker.replicas);
    if ((r->flags->speeds != NULL && kml_pace_speeds(&r->pace, r->flags->speeds, err) < 0) ||
        (r->flags->profile != NULL && read_profile(r, err) < 0)) {
        return -1;
    }
    if (r->job.model.kind == KML_JOB_MODEL_CUSTOM && r->flags->nominal_ns == 0) {
        return kml_fail(err, KML_USAGE, "a program of your own cannot be calibrated: give --nominal too");
    }
    return 0;
}

static int write_profiles(struct run *r, struct kml_err *err)
{
    struct kml_buf lines;
    kml_buf_init(&lines, PROFILE_MOST);
    int result = 0;
    for (uint32_t w = 0; w < r->pace.workers && result == 0; w++) {
        kml_auto_free char *name = kml_format("speed-%u.txt", (unsigned)w);
        kml_buf_clear(&lines);
        result = kml_pace_split(&r->pace, w, &lines, err);
        if (result == 0 && lines.size > 0) {
            result = kml_run_folder_write(&r->folder, name, kml_buf_view(&lines), 0644, err);
        }
    }
    kml_buf_finish(&lines);
    return result;
}

static int write_pace(struct run *r, double cost_ns, double nominal_ns, struct kml_err *err)
{
    struct kml_buf text;
    struct kml_json w;
    kml_buf_init(&text, PROFILE_MOST);
    kml_json_begin(&w, &text);
    kml_json_real(&w, "nominalNs", nominal_ns);
    kml_json_real(&w, "calibratedNs", cost_ns);
    kml_json_real(&w, "cores", kml_cpu_limit("/"));
    kml_json_list(&w, "speeds");
    for (uint32_t i = 0; i < r->pace.workers; i++) {
        kml_json_real(&w, NULL, r->pace.speed[i]);
    }
    kml_json_close(&w);
    int result = kml_json_end(&w, err);
    if (result == 0) {
        result = kml_run_folder_write(&r->folder, "pace.json", kml_buf_view(&text), 0644, err);
    }
    kml_buf_finish(&text);
    return result;
}

static int choose_pace(struct run *r, struct kml_err *err)
{
    if (!is_paced(r->flags)) {
        return 0;
    }
    double cost_ns = 0;
    double nominal_ns = (double)r->flags->nominal_ns;
    if (r->job.model.kind != KML_JOB_MODEL_CUSTOM &&
        (kml_crew_calibrate(&r->crew, r->signals, &cost_ns, err) < 0 ||
         kml_pace_choose(&r->pace, cost_ns, kml_cpu_limit("/"), nominal_ns, &nominal_ns, err) < 0)) {
        return -1;
    }
    if (write_profiles(r, err) < 0 || write_pace(r, cost_ns, nominal_ns, err) < 0) {
        return -1;
    }
    (void)fprintf(stderr, "paced workers: %.0f ns a sample at speed 1 (a sample costs %.0f ns of a core)\n",
                  nominal_ns, cost_ns);
    r->crew.pace = &r->pace;
    r->crew.nominal_ns = nominal_ns;
    return 0;
}

/* ---- The run ---- */

static int prepare(struct run *r, const char *manifest, struct kml_err *err)
{
    if (load(r, manifest, err) < 0 || read_pace(r, err) < 0 || take_signals(r, err) < 0 ||
        make_folder(r, err) < 0) {
        return -1;
    }
    kml_crew_init(&r->crew, &r->job, &r->folder, r->uid);
    r->crew.listen = r->flags->listen;
    r->crew.tls = r->job.transport == KML_JOB_TRANSPORT_MTLS;
    return choose_pace(r, err);
}

static int train(struct run *r, struct kml_outcome *out, struct kml_err *err)
{
    const struct kml_supervise_options options = {
        .signals = r->signals, .quiet = r->flags->quiet, .status_file = r->flags->status_file};
    kml_rpc_init();
    int result = kml_supervise(&r->crew, &options, out, err);
    kml_rpc_shutdown();
    return result;
}

/* The signal that ended the preparation early; it still lies in the signalfd. */
static int pending_signal(int signals)
{
    struct signalfd_siginfo info;
    while (signals >= 0 && read(signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo != SIGCHLD) {
            return (int)info.ssi_signo;
        }
    }
    return 0;
}

static void set_failure(const struct run *r, struct kml_outcome *out, const struct kml_err *err)
{
    int signal = err->code == KML_CANCELLED ? pending_signal(r->signals) : 0;
    if (signal != 0) {
        kml_outcome_set(out, KML_OUTCOME_STOPPED, 128 + signal, KML_STOP_SIGNAL,
                        "%s; nothing was there to save", err->text);
        return;
    }
    const char *reason = r->folder.path == NULL ? "ValidationFailed" : "LaunchFailed";
    kml_outcome_set(out, KML_OUTCOME_FAILED, kml_code_exit(err->code), reason, "%s", err->text);
}

static void print_last_line(const struct kml_outcome *out)
{
    struct kml_buf line;
    kml_buf_init(&line, 65536);
    if (kml_outcome_line(out, &line, NULL) == 0) {
        (void)fwrite(line.data, 1, line.size, stdout);
        (void)fflush(stdout);
    }
    kml_buf_finish(&line);
}

static void finish(struct run *r)
{
    kml_crew_finish(&r->crew);
    kml_pace_finish(&r->pace);
    kml_run_folder_finish(&r->folder);
    kml_job_finish(&r->job);
    if (r->signals >= 0) {
        (void)close(r->signals);
    }
}

static int run(const char *manifest, const struct run_flags *flags)
{
    struct run r = {.flags = flags, .signals = -1};
    struct kml_outcome out;
    struct kml_err err;
    kml_job_init(&r.job);
    kml_outcome_init(&out);
    if (prepare(&r, manifest, &err) < 0 || train(&r, &out, &err) < 0) {
        set_failure(&r, &out, &err);
    }
    print_last_line(&out);
    int code = out.exit_code;
    finish(&r);
    kml_outcome_finish(&out);
    return code;
}

int kml_cli_run(int argc, char **argv)
{
    struct run_flags f = {0};
    struct kml_flag_list files;
    const struct kml_flag flags[] = {
        {"set", 0, KML_FLAG_LIST, &f.sets, "PATH=VALUE", "Override a field: spec.training.epochs=3."},
        {"run-dir", 0, KML_FLAG_TEXT, &f.run_folder, "FOLDER", "Keep the run here; default runs/NAME-TIME."},
        {"tls", 0, KML_FLAG_BOOL, &f.tls, NULL, "Encrypt and authenticate all connections (mutual TLS)."},
        {"listen", 0, KML_FLAG_TEXT, &f.listen, "HOST:PORT",
         "TCP address of PS-0; default: a socket in the run folder."},
        {"speeds", 0, KML_FLAG_TEXT, &f.speeds, "V,V,...",
         "Pace the workers: relative speeds, one for each."},
        {"speed-profile", 0, KML_FLAG_TEXT, &f.profile, "FILE",
         "Change speeds in training: lines \"seconds worker speed\"."},
        {"nominal", 0, KML_FLAG_DURATION, &f.nominal_ns, "TIME",
         "Time of a sample at speed 1 (50us); default: measured."},
        {"status-file", 0, KML_FLAG_TEXT, &f.status_file, "FILE", "Keep the job's status there as JSON."},
        {"quiet", 'q', KML_FLAG_BOOL, &f.quiet, NULL, "No progress line."},
    };
    int code = kml_usage_parse(&usage, flags, KML_COUNT(flags), argc, argv, 1, 1, &files);
    if (code != KML_USAGE_GO_ON) {
        return code;
    }
    code = run(files.values[0], &f);
    kml_flags_finish(flags, KML_COUNT(flags), &files);
    return code;
}
