#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/supervise.h"
#include "doc/doc.h"
#include "job/exitcode.h"

#define SETTLE_NS KML_SECOND       /* how long an end waits for the conductor's word */
#define LEAVE_NS (10 * KML_SECOND) /* after success: time to end by themselves */
#define OBEY_NS (2 * KML_SECOND)   /* after a failure: the conductor's Stop is on its way */
#define SAVE_NS (10 * KML_SECOND)
#define IDLE_NS (5 * KML_SECOND) /* all workers ended well, but the training did not */

void kml_supervisor_close(struct kml_supervisor *s, uint64_t grace_ns, uint64_t now)
{
    if (s->stage != KML_STAGE_CLOSING) {
        s->stage = KML_STAGE_CLOSING;
        s->stage_until = now + grace_ns;
        s->terminated = false;
    }
}

/* ---- What the conductor says ---- */

/* An absolute path of what lies on this machine, else the location as it is. */
static char *model_path(const char *location)
{
    const char *path = location;
    if (strncmp(location, "file://", 7) == 0 && kml_file_uri_path(location, &path, NULL) < 0) {
        path = location;
    }
    char *absolute = realpath(path, NULL);
    char *result = kml_strdup(absolute == NULL ? path : absolute);
    free(absolute);
    return result;
}

static void take_numbers(struct kml_outcome *o, const Kunal__V1__JobStatus *status)
{
    if (status == NULL) {
        return;
    }
    o->epochs = status->epoch;
    o->samples = status->samples;
    o->seconds = status->training_seconds;
    o->loss = status->has_evaluation ? status->loss : status->samples > 0 ? status->train_loss : (double)NAN;
    o->has_accuracy = status->has_accuracy;
    o->accuracy = status->accuracy;
    if (status->model_location[0] != '\0') {
        kml_free(o->model);
        o->model = model_path(status->model_location);
    }
}

static int exit_code_of(const Kunal__V1__JobStatus *status)
{
    return status->exit_code > 0 && status->exit_code < 126 ? (int)status->exit_code
                                                            : kml_code_exit(KML_INTERNAL);
}

void kml_supervisor_stopped(struct kml_supervisor *s, const char *why_not, uint64_t now)
{
    struct kml_outcome *o = s->outcome;
    take_numbers(o, s->driver.status);
    const char *saved = o->model == NULL ? why_not : o->model;
    const char *where = o->model == NULL ? "" : "what was trained so far is in ";
    if (strcmp(s->stop_reason, KML_STOP_DEADLINE) != 0) {
        int code = s->signal != 0 ? 128 + s->signal : kml_code_exit(KML_CANCELLED);
        kml_outcome_set(o, KML_OUTCOME_STOPPED, code, s->stop_reason, "%s%s", where, saved);
    } else {
        kml_outcome_set(o, KML_OUTCOME_FAILED, kml_code_exit(KML_TIMEOUT), s->stop_reason,
                        "runPolicy.activeDeadlineSeconds, %llu s, are over; %s%s",
                        (unsigned long long)s->crew->job->run_policy.active_deadline_seconds, where, saved);
    }
    kml_supervisor_close(s, OBEY_NS, now);
}

void kml_supervisor_status(struct kml_supervisor *s, uint64_t now)
{
    const Kunal__V1__JobStatus *status = s->driver.status;
    if (status->phase != KUNAL__V1__PHASE__STARTING && status->phase != KUNAL__V1__PHASE__FAILED &&
        !s->trained) {
        s->trained = true;
        s->wall_running = kml_wall_ns();
    }
    switch (status->phase) {
    case KUNAL__V1__PHASE__SUCCEEDED:
        take_numbers(s->outcome, status);
        kml_outcome_set(s->outcome, KML_OUTCOME_SUCCEEDED, 0, "", "%s", "");
        kml_supervisor_close(s, LEAVE_NS, now);
        break;
    case KUNAL__V1__PHASE__FAILED:
        take_numbers(s->outcome, status);
        kml_outcome_set(s->outcome, KML_OUTCOME_FAILED, exit_code_of(status),
                        status->reason[0] == '\0' ? "JobFailed" : status->reason, "%s", status->message);
        kml_supervisor_close(s, OBEY_NS, now);
        break;
    case KUNAL__V1__PHASE__STOPPED:
        if (s->stop_reason == NULL) { /* another driver asked for it */
            s->stop_reason = "StoppedByRequest";
        }
        kml_supervisor_stopped(s, "nothing was there to save", now);
        break;
    default:
        break;
    }
}

void kml_supervisor_stop(struct kml_supervisor *s, const char *reason, uint64_t now)
{
    s->stop_reason = reason;
    if (s->stage == KML_STAGE_LAUNCHING) {
        kml_supervisor_stopped(s, "nothing was there to save", now);
        return;
    }
    kml_supervisor_say(s, "stopping; what was trained so far is saved first (Ctrl-C again: stop at once)");
    kml_driver_stop(&s->driver, reason);
    s->stage = KML_STAGE_SAVING;
    s->stage_until = now + SAVE_NS;
    s->next_ask = now;
}

/* ---- Who has ended ---- */

static void lose_ps(struct kml_supervisor *s, uint32_t i, uint64_t now)
{
    const struct kml_child *child = &s->crew->child[i];
    char words[KML_OUTCOME_MESSAGE];
    kml_child_epitaph(child, words, sizeof words);
    int code = child->code == 0 ? kml_code_exit(KML_INTERNAL) : kml_outcome_exit_of_child(child->code);
    kml_outcome_set(s->outcome, KML_OUTCOME_FAILED, code,
                    s->stage == KML_STAGE_LAUNCHING ? "LaunchFailed" : "ParameterServerLost", "%s%s", words,
                    child->code == 0 ? ", before it said how the job ended" : "");
    kml_supervisor_close(s, 0, now);
}

static double number_in(const struct kml_node *map, const char *key)
{
    const struct kml_node *node = kml_node_get(map, key);
    return node != NULL && kml_node_is_number(node) ? kml_node_number(node) : 0;
}

static char *text_in(const struct kml_node *map, const char *key)
{
    const struct kml_node *node = kml_node_get(map, key);
    return node != NULL && node->kind == KML_NODE_TEXT ? node->text : NULL;
}

/* What the conductor wrote as its last numbers, as if it had answered with them. */
static void take_finished(struct kml_supervisor *s, const struct kml_node *line, uint64_t now)
{
    Kunal__V1__JobStatus status = KUNAL__V1__JOB_STATUS__INIT;
    const char *phase = text_in(line, "phase");
    char *model = text_in(line, "model");
    bool stopped = phase != NULL && strcmp(phase, "Stopped") == 0;
    status.phase = stopped ? KUNAL__V1__PHASE__STOPPED : KUNAL__V1__PHASE__SUCCEEDED;
    status.epoch = (uint64_t)number_in(line, "epoch");
    status.samples = (uint64_t)number_in(line, "samples");
    status.training_seconds = number_in(line, "training_seconds");
    status.train_loss = number_in(line, "train_loss");
    status.has_evaluation = kml_node_get(line, "loss") != NULL;
    status.loss = number_in(line, "loss");
    status.has_accuracy = kml_node_get(line, "accuracy") != NULL;
    status.accuracy = number_in(line, "accuracy");
    if (model != NULL) {
        status.model_location = model;
    }
    Kunal__V1__JobStatus *kept = s->driver.status;
    s->driver.status = &status;
    kml_supervisor_status(s, now);
    s->driver.status = kept;
}

/* We may have slept (Ctrl-Z, a busy machine) while PS-0 waited for a question; its line tells it too. */
static bool told_by_line(struct kml_supervisor *s, uint64_t now)
{
    struct kml_doc doc;
    kml_doc_init(&doc);
    bool told = s->crew->child[0].code == 0 && s->finished != NULL &&
                kml_doc_read(&doc, "metrics.jsonl", kml_view_str(s->finished), NULL) == 0;
    if (told) {
        take_finished(s, doc.root, now);
    }
    kml_doc_finish(&doc);
    return told;
}

static void judge_ps(struct kml_supervisor *s, uint32_t i, uint64_t now)
{
    if (i == 0 && told_by_line(s, now)) {
        return;
    }
    if (s->stage == KML_STAGE_SAVING) {
        char words[KML_OUTCOME_MESSAGE];
        if (i == 0) {
            kml_child_epitaph(&s->crew->child[0], words, sizeof words);
            kml_supervisor_stopped(s, words, now);
        }
        return;
    }
    lose_ps(s, i, now);
}

/* A shard that ended well does so because the conductor said so; give the status time to say it too. */
static bool may_be_judged(const struct kml_supervisor *s, uint32_t i, uint64_t now)
{
    const struct kml_child *child = &s->crew->child[i];
    if (i == 0 || s->crew->child[0].pid == 0) {
        return true;
    }
    if (i < s->crew->shards && child->code == 0) {
        return now - child->ended_ns > IDLE_NS;
    }
    return s->driver.answered_ns > child->ended_ns || now - child->ended_ns > SETTLE_NS;
}

static bool training_is_over(const struct kml_supervisor *s)
{
    const Kunal__V1__JobStatus *status = s->driver.status;
    return status != NULL && status->phase >= KUNAL__V1__PHASE__SAVING;
}

static void fail_by_worker(struct kml_supervisor *s, const char *reason, const char *words, const char *tail,
                           unsigned code, uint64_t now)
{
    kml_outcome_set(s->outcome, KML_OUTCOME_FAILED, kml_outcome_exit_of_child(code), reason, "%s%s", words,
                    tail);
    kml_supervisor_close(s, 0, now);
}

static void carry_out(struct kml_supervisor *s, uint32_t w, const struct kml_restart_verdict *v, uint64_t now)
{
    const struct kml_child *child = &s->crew->child[s->crew->shards + w];
    char words[KML_OUTCOME_MESSAGE];
    char tail[96];
    kml_child_epitaph(child, words, sizeof words);
    switch (v->what) {
    case KML_RESTART_AGAIN:
        s->process[s->crew->shards + w].restart_at = now + v->wait_ns;
        kml_supervisor_say(s, "%s; it is started again in %.1f s (failure %u, backoffLimit %u)", words,
                           (double)v->wait_ns / (double)KML_SECOND, (unsigned)s->restart.failures,
                           (unsigned)s->restart.limit);
        break;
    case KML_RESTART_GONE:
        if (child->code != 0) {
            kml_supervisor_say(s, "%s; its restartPolicy lets it rest, the others go on", words);
        }
        break;
    case KML_RESTART_ALL_GONE:
        s->idle_since = now;
        if (child->code != 0) {
            fail_by_worker(s, "WorkerFailed", words, "; no worker is left", child->code, now);
        }
        break;
    case KML_RESTART_OVER_LIMIT:
        (void)snprintf(tail, sizeof tail, "; failure %u, more than runPolicy.backoffLimit %u",
                       (unsigned)s->restart.failures, (unsigned)s->restart.limit);
        fail_by_worker(s, "BackoffLimitExceeded", words, tail, child->code, now);
        break;
    }
}

/*
 * Our own worker says that its input is wrong, missing or misused. The others read the same, on this same
 * machine: whatever the restartPolicy, starting it again only delays the answer.
 */
static bool in_vain(const struct kml_supervisor *s, unsigned code)
{
    return s->crew->job->model.kind != KML_JOB_MODEL_CUSTOM &&
           (code == (unsigned)kml_code_exit(KML_USAGE) || code == (unsigned)kml_code_exit(KML_INVALID) ||
            code == (unsigned)kml_code_exit(KML_NOT_FOUND));
}

static void judge_worker(struct kml_supervisor *s, uint32_t w, uint64_t now)
{
    if (s->stage != KML_STAGE_RUNNING || training_is_over(s)) {
        return; /* nobody needs it any more */
    }
    const struct kml_child *child = &s->crew->child[s->crew->shards + w];
    if (in_vain(s, child->code)) {
        char words[KML_OUTCOME_MESSAGE];
        kml_child_epitaph(child, words, sizeof words);
        fail_by_worker(s, "WorkerFailed", words, "; another try would end the same way", child->code, now);
        return;
    }
    struct kml_restart_verdict v = kml_restart_ended(&s->restart, w, child->code);
    carry_out(s, w, &v, now);
}

static void judge_one(struct kml_supervisor *s, uint32_t i, uint64_t now)
{
    s->process[i].judged = true;
    if (i < s->crew->shards) {
        judge_ps(s, i, now);
    } else {
        judge_worker(s, i - s->crew->shards, now);
    }
}

void kml_supervisor_judge(struct kml_supervisor *s, uint64_t now)
{
    for (uint32_t i = 0; i < kml_crew_size(s->crew) && s->stage != KML_STAGE_CLOSING; i++) {
        if (s->crew->child[i].pid == 0 && !s->process[i].judged && may_be_judged(s, i, now)) {
            judge_one(s, i, now);
        }
    }
    if (s->stage == KML_STAGE_RUNNING && s->idle_since != 0 && now - s->idle_since > IDLE_NS &&
        !training_is_over(s)) {
        kml_outcome_set(s->outcome, KML_OUTCOME_FAILED, kml_code_exit(KML_INTERNAL), "WorkerFailed",
                        "all workers ended with exit code 0, but the training is not over");
        kml_supervisor_close(s, 0, now);
    }
}
