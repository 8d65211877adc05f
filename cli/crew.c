#include "cli/crew.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cpus.h"
#include "base/mem.h"
#include "cli/environment.h"
#include "doc/doc.h"

void kml_crew_init(struct kml_crew *c, const struct kml_job *job, const struct kml_run_folder *folder,
                   const char *uid)
{
    *c = (struct kml_crew){.job = job,
                           .folder = folder,
                           .uid = uid,
                           .shards = job->ps.replicas,
                           .workers = job->worker.replicas};
    c->child = KML_NEW_ARRAY(kml_crew_size(c), struct kml_child);
    for (uint32_t i = 0; i < kml_crew_size(c); i++) {
        bool ps = i < c->shards;
        kml_auto_free char *name =
            kml_format("kunal-%s-%u", ps ? "ps" : "worker", (unsigned)(ps ? i : i - c->shards));
        kml_child_init(&c->child[i], name, folder->path);
    }
}

void kml_crew_finish(struct kml_crew *c)
{
    for (uint32_t i = 0; i < kml_crew_size(c); i++) {
        kml_child_finish(&c->child[i]);
    }
    kml_free(c->child);
    kml_free(c->conductor);
    *c = (struct kml_crew){0};
}

uint32_t kml_crew_size(const struct kml_crew *c)
{
    return c->shards + c->workers;
}

static void set_number(struct kml_environment *e, const char *name, int digits, double value)
{
    char text[64];
    (void)snprintf(text, sizeof text, "%.*f", digits, value);
    kml_environment_set(e, name, text);
}

/* Workers share the cores of this machine: without this each would take all of them for its kernels. */
static void share_threads(const struct kml_crew *c, struct kml_environment *e)
{
    if (kml_environment_get(e, "OPENBLAS_NUM_THREADS") == NULL) {
        double cores = kml_cpu_limit("/") / c->workers;
        set_number(e, "OPENBLAS_NUM_THREADS", 0, cores < 1 ? 1 : floor(cores));
    }
}

static void common(const struct kml_crew *c, const char *role, const char *folder_role, uint32_t index,
                   struct kml_environment *e)
{
    char number[16];
    kml_auto_free char *job = kml_run_folder_file(c->folder, "job.json");
    (void)snprintf(number, sizeof number, "%u", (unsigned)index);
    kml_environment_set(e, "KUNAL_ROLE", role);
    kml_environment_set(e, "KUNAL_INDEX", number);
    kml_environment_set(e, "KUNAL_JOB_UID", c->uid);
    kml_environment_set(e, "KUNAL_JOB", job);
    kml_environment_set(e, "KUNAL_CONDUCTOR", c->conductor);
    /* All run here, for this user; --tls and --listen are for the way over a network, so they take it. */
    kml_environment_set(e, "KUNAL_SHARED", c->tls || c->listen != NULL ? NULL : "1");
    if (c->tls) {
        kml_auto_free char *tls = kml_run_folder_tls_of(c->folder, folder_role, index);
        kml_environment_set(e, "KUNAL_TLS_DIR", tls);
    }
}

static void for_ps(const struct kml_crew *c, uint32_t index, struct kml_environment *e)
{
    kml_auto_free char *socket = kml_run_folder_socket(c->folder, index);
    common(c, "PS", "ps", index, e);
    kml_environment_set(e, "KUNAL_LISTEN",
                        c->listen == NULL ? socket
                        : index == 0      ? c->listen
                                          : "127.0.0.1:0");
    if (index == 0 && c->job->output.uri == NULL) {
        kml_environment_set(e, "KUNAL_OUTPUT", c->folder->path);
    }
}

static void for_worker(const struct kml_crew *c, uint32_t index, struct kml_environment *e)
{
    common(c, "Worker", "worker", index, e);
    share_threads(c, e);
    if (c->pace == NULL) {
        return;
    }
    kml_auto_free char *name = kml_format("speed-%u.txt", (unsigned)index);
    kml_auto_free char *profile = kml_run_folder_file(c->folder, name);
    set_number(e, "KUNAL_PACE_NS", 3, c->nominal_ns);
    set_number(e, "KUNAL_SPEED", 9, c->pace->speed[index]);
    kml_environment_set(e, "KUNAL_PROFILE", access(profile, R_OK) == 0 ? profile : NULL);
}

static void template_env(const struct kml_job_template *t, struct kml_environment *e)
{
    for (uint32_t i = 0; i < t->env_count; i++) {
        if (t->env[i].value != NULL) {
            kml_environment_set(e, t->env[i].name, t->env[i].value);
        }
    }
}

/* command and args of the template, one after the other; the strings stay the template's. */
static char **custom_arguments(const struct kml_job_template *t)
{
    char **argv = KML_NEW_ARRAY((size_t)t->command_count + t->args_count + 1, char *);
    for (uint32_t i = 0; i < t->command_count; i++) {
        argv[i] = t->command[i];
    }
    for (uint32_t i = 0; i < t->args_count; i++) {
        argv[t->command_count + i] = t->args[i];
    }
    return argv;
}

static int start_with(struct kml_child *child, char *const *argv, const struct kml_environment *e, bool pipe,
                      struct kml_err *err)
{
    const struct kml_child_command command = {
        .program = argv[0], .argv = argv, .envp = e->text, .pipe = pipe};
    return kml_child_start(child, &command, err);
}

static int start_worker(struct kml_crew *c, uint32_t index, const struct kml_environment *e,
                        struct kml_err *err)
{
    struct kml_child *child = &c->child[c->shards + index];
    const struct kml_job_template *t = &c->job->worker.template;
    if (c->job->model.kind != KML_JOB_MODEL_CUSTOM) {
        char *argv[] = {(char[]){"kunal-worker"}, NULL};
        return start_with(child, argv, e, false, err);
    }
    if (t->command_count == 0) {
        return kml_fail(
            err, KML_INVALID,
            "spec.replicaSpecs.Worker.template: model.kind Custom needs the command of your program there");
    }
    kml_auto_free char **argv = custom_arguments(t);
    return start_with(child, argv, e, false, err);
}

int kml_crew_start(struct kml_crew *c, uint32_t i, struct kml_err *err)
{
    bool ps = i < c->shards;
    struct kml_environment e;
    int result;
    kml_environment_init(&e, environ);
    template_env(ps ? &c->job->ps.template : &c->job->worker.template, &e);
    if (ps) {
        char *argv[] = {(char[]){"kunal-ps"}, NULL};
        for_ps(c, i, &e);
        result = start_with(&c->child[i], argv, &e, i == 0, err);
    } else {
        for_worker(c, i - c->shards, &e);
        result = start_worker(c, i - c->shards, &e, err);
    }
    kml_environment_finish(&e);
    return result;
}

/* ---- What processes print ---- */

static char *text_of(const struct kml_doc *doc, const char *key)
{
    const struct kml_node *node = kml_node_get(doc->root, key);
    return node != NULL && node->kind == KML_NODE_TEXT ? node->text : NULL;
}

static char *reachable(const char *address)
{
    static const char *const every[] = {"0.0.0.0:", "[::]:"};
    for (size_t i = 0; i < KML_COUNT(every); i++) {
        size_t length = strlen(every[i]);
        if (strncmp(address, every[i], length) == 0) {
            return kml_format("127.0.0.1:%s", address + length);
        }
    }
    return kml_strdup(address);
}

char *kml_crew_listening(const char *line)
{
    struct kml_doc doc;
    char *address = NULL;
    kml_doc_init(&doc);
    if (line[0] == '{' && kml_doc_read(&doc, "stdout", kml_view_str(line), NULL) == 0) {
        const char *event = text_of(&doc, "event");
        const char *told = text_of(&doc, "address");
        address = event != NULL && strcmp(event, "listening") == 0 && told != NULL ? reachable(told) : NULL;
    }
    kml_doc_finish(&doc);
    return address;
}
