/*
 * Our side of P1 and P2: a worker that computes nothing. It speaks the worker's protocol with the worker's
 * own code (worker/session, pipe, params) to a running kunal-ps, as `kunal run` starts both (model.kind
 * Custom, batchSize 1: a sample is a round). A round is push -> staged and reported -> commit -> the new
 * parameters are here.
 *
 *     push FLOATS ROUNDS WARM FILE     writes one line of JSON into FILE: median and mean seconds of a round
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/parse.h"
#include "job/start.h"
#include "rpc/creds.h"
#include "rpc/loop.h"
#include "worker/params.h"
#include "worker/pipe.h"
#include "worker/session.h"

struct push {
    size_t floats, rounds, warm;
    const char *file;
    struct kml_session session;
    struct kml_pipe pipe;
    struct kml_params params;
    float *gradient;
    bool upload_due, assigned;
    uint64_t step, version;
    uint64_t began; /* of the running round; 0: none */
    double *took;   /* [rounds] seconds */
    size_t done;    /* rounds, the warm ones too */
};

static uint64_t now(void)
{
    struct kml_clock clock = kml_clock_monotonic();
    return kml_now(&clock);
}

/* ---- From the session and the pipe ---- */

static int on_joined(void *self, const Kunal__V1__JoinReply *m, struct kml_err *err)
{
    struct push *p = self;
    p->pipe.config.incarnation = p->session.incarnation;
    return kml_pipe_open(&p->pipe, m->shards, m->generation, err);
}

static int on_assign(void *self, const Kunal__V1__Assign *m, struct kml_err *err)
{
    (void)err;
    struct push *p = self;
    p->assigned = true;
    p->step = m->step;
    p->version = m->version;
    p->params.waiting = true;
    p->params.waited = m->version;
    return 0;
}

static int on_evaluate(void *self, const Kunal__V1__Evaluate *m, struct kml_err *err)
{
    (void)self;
    return kml_fail(err, KML_PROTOCOL, "an evaluation of split %d, but there is no such data", (int)m->split);
}

static int on_shards(void *self, const Kunal__V1__ShardTable *m, struct kml_err *err)
{
    (void)self;
    (void)m;
    (void)err;
    return 0;
}

static void on_upload(void *self)
{
    struct push *p = self;
    p->upload_due = true;
}

static void on_abandon(void *self, uint64_t step)
{
    (void)self;
    (void)step;
}

/* A benchmark does not go on after a break. */
static void on_lost(void *self, const struct kml_err *why)
{
    struct push *p = self;
    kml_session_fail(&p->session, why);
}

static const struct kml_session_ops session_ops = {.joined = on_joined,
                                                   .assign = on_assign,
                                                   .evaluate = on_evaluate,
                                                   .shards = on_shards,
                                                   .upload = on_upload,
                                                   .abandon = on_abandon,
                                                   .lost = on_lost};

/* ---- A round ---- */

static void send_vector(struct push *p, enum kml_payload payload, uint64_t step)
{
    struct kml_err err;
    kml_pipe_begin(&p->pipe, p->gradient, payload, step);
    if (kml_pipe_ready(&p->pipe, 0, &err) < 0) {
        kml_session_fail(&p->session, &err);
    }
}

static void end_round(struct push *p, uint64_t at)
{
    if (p->began != 0) {
        if (p->done >= p->warm && p->done - p->warm < p->rounds) {
            p->took[p->done - p->warm] = (double)(at - p->began) / 1e9;
        }
        p->done++;
    }
}

static void report(struct push *p)
{
    Kunal__V1__StepReport m = KUNAL__V1__STEP_REPORT__INIT;
    m.step = p->step;
    m.samples = 1;
    kml_session_report(&p->session, &m);
}

/* Does what can be done; false: nothing. */
static bool work(struct push *p)
{
    if (p->session.state != KML_SESSION_JOINED || p->pipe.state != KML_PIPE_OPEN ||
        !kml_pipe_free_to_write(&p->pipe)) {
        return false;
    }
    if (p->upload_due) {
        p->upload_due = false;
        send_vector(p, KML_PAYLOAD_PARAMETERS, 0);
        return true;
    }
    if (!p->assigned || kml_params_get(&p->params, p->version) == NULL) {
        return false;
    }
    p->assigned = false;
    uint64_t at = now();
    end_round(p, at);
    p->began = at;
    send_vector(p, KML_PAYLOAD_GRADIENT, p->step);
    report(p);
    return true;
}

static int run(struct push *p, struct kml_loop *loop)
{
    while (p->session.state != KML_SESSION_OVER) {
        uint64_t next = kml_session_tick(&p->session, now(), p->pipe.state == KML_PIPE_DOWN);
        uint64_t pipe = kml_pipe_tick(&p->pipe, now());
        next = pipe < next ? pipe : next;
        if (work(p)) {
            continue;
        }
        /* The transport gives bytes back without an event. */
        bool held = !kml_pipe_free_to_write(&p->pipe);
        uint64_t soon = now() + KML_MILLISECOND / 50;
        (void)kml_loop_run(loop, held && soon < next ? soon : next, true);
    }
    if (p->session.why.code != KML_OK) {
        kml_error("push ends", kv_err(&p->session.why));
    }
    return p->session.exit_code;
}

/* ---- The result ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static int write_result(struct push *p)
{
    struct rusage u;
    double sum = 0;
    FILE *file = fopen(p->file, "w");
    if (file == NULL || p->done < p->warm + p->rounds || getrusage(RUSAGE_SELF, &u) < 0) {
        kml_error("no result", kv_s("file", p->file), kv_u("rounds", p->done));
        return 70;
    }
    for (size_t i = 0; i < p->rounds; i++) {
        sum += p->took[i];
    }
    qsort(p->took, p->rounds, sizeof *p->took, by_value);
    (void)fprintf(file, "{\"median\": %.9g, \"p99\": %.9g, \"mean\": %.9g, \"rss_bytes\": %ld}\n",
                  p->took[p->rounds / 2], p->took[p->rounds * 99 / 100], sum / (double)p->rounds,
                  u.ru_maxrss * 1024);
    return fclose(file) == 0 ? 0 : 73;
}

/* ---- Life ---- */

static int with_buffers(struct push *p, const struct kml_start *start)
{
    struct kml_loop *loop = kml_loop_create();
    struct kml_creds *creds = kml_creds_plaintext();
    uint32_t shape = (uint32_t)p->floats;
    kml_auto_free char *uid = kml_strdup(start->uid);
    Kunal__V1__Tensor tensor = KUNAL__V1__TENSOR__INIT;
    Kunal__V1__Tensor *tensors[] = {&tensor};
    Kunal__V1__Layout layout = KUNAL__V1__LAYOUT__INIT;
    Kunal__V1__Join join = KUNAL__V1__JOIN__INIT;
    tensor.name = (char[]){"w"};
    tensor.shape = &shape;
    tensor.n_shape = 1;
    layout.tensors = tensors;
    layout.n_tensors = 1;
    join.protocol = 1;
    join.job_uid = uid;
    join.role = KUNAL__V1__ROLE__WORKER;
    join.index = start->index;
    join.layout = &layout;
    join.train_samples = p->warm + p->rounds + 1; /* a round ends with the parameters of the next */
    struct kml_pipe_config pipe = {.loop = loop,
                                   .creds = creds,
                                   .params = &p->params,
                                   .uid = uid,
                                   .index = start->index,
                                   .lost = on_lost,
                                   .self = p};
    struct kml_session_config session = {.loop = loop,
                                         .creds = creds,
                                         .address = start->conductor,
                                         .join = &join,
                                         .patience_ns = KML_SESSION_PATIENCE_NS,
                                         .ops = &session_ops,
                                         .self = p};
    kml_pipe_init(&p->pipe, &pipe);
    kml_session_init(&p->session, &session, now());
    int code = run(p, loop);
    kml_session_finish(&p->session);
    kml_pipe_finish(&p->pipe);
    kml_loop_destroy(loop);
    kml_creds_destroy(creds);
    return code == 0 ? write_result(p) : code;
}

static int push(struct push *p)
{
    struct kml_start start;
    struct kml_err err;
    if (kml_start_read(KML_START_WORKER, &start, &err) < 0 ||
        kml_params_init(&p->params, p->floats, NULL, &err) < 0) {
        kml_error("push ends", kv_err(&err));
        return kml_code_exit(err.code);
    }
    p->gradient = KML_NEW_ARRAY(p->floats, float);
    p->took = KML_NEW_ARRAY(p->rounds, double);
    for (size_t i = 0; i < p->floats; i++) {
        p->gradient[i] = (float)(i % 7) * 0.001f;
    }
    int code = with_buffers(p, &start);
    kml_free(p->gradient);
    kml_free(p->took);
    kml_params_finish(&p->params);
    return code;
}

static bool read_number(const char *text, size_t *to)
{
    uint64_t value;
    if (kml_parse_u64(text, &value, NULL) < 0 || value == 0 || value > UINT32_MAX) {
        return false;
    }
    *to = (size_t)value;
    return true;
}

int main(int argc, char **argv)
{
    struct push p = {.done = 0};
    kml_log_init("push", KML_INFO, false);
    if (argc != 5 || !read_number(argv[1], &p.floats) || !read_number(argv[2], &p.rounds) ||
        !read_number(argv[3], &p.warm)) {
        (void)fprintf(stderr, "usage: push FLOATS ROUNDS WARM FILE\n");
        return 64;
    }
    p.file = argv[4];
    kml_rpc_init();
    int code = push(&p);
    kml_rpc_shutdown();
    return code;
}
