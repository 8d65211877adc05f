#ifndef KML_TESTS_INTEGRATION_KUBE_FAKE_H
#define KML_TESTS_INTEGRATION_KUBE_FAKE_H

/* Test helper: fake_api.py as a child process, a client of lib/kube that speaks to it, and a clock that is
 * the test's. */
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/parse.h"
#include "kube/client.h"
#include "pki/pki.h"
#include "unit/temp.h"

extern char **environ;

#define MS KML_MILLISECOND

struct fake {
    char folder[TEMP_ROOM]; /* ca.crt, tls.crt, tls.key, token */
    struct kml_pki_pair ca;
    pid_t child;
    int leash; /* the child's stdin: it ends when this is closed */
    uint64_t now_ns;
    uint64_t stepped_ns; /* how long the last step took */
    struct kml_kube_config config;
    struct kml_kube_client *client;
    struct kml_kube_config steering_config; /* without credentials and without a check of the server's */
    struct kml_kube_client *steering;       /* for /_control, on a real clock */
};

static inline uint64_t fake_now(void *self)
{
    return ((struct fake *)self)->now_ns;
}

static inline void must(int result, const struct kml_err *err)
{
    if (result != 0) {
        fail_msg("%s", err->text);
    }
}

/* A pair for localhost, written where the server looks for its own. */
static inline void fake_issue(struct fake *f, const char *name, struct kml_pki_pair *pair)
{
    static const char *const dns[] = {"localhost", "kubernetes.default.svc"};
    static const char *const addresses[] = {"127.0.0.1"};
    struct kml_err err = {0};
    uint64_t today = kml_wall_ns() / KML_SECOND;
    struct kml_pki_request r = {name, "kunal://u/operator/0", dns,          2, addresses,
                                1,    today - 86400,          today + 86400};
    must(kml_pki_issue(&f->ca, &r, pair, &err), &err);
}

static inline void fake_new_ca(struct fake *f)
{
    struct kml_err err = {0};
    struct kml_pki_pair pair;
    uint64_t today = kml_wall_ns() / KML_SECOND;
    kml_pki_pair_finish(&f->ca);
    must(kml_pki_make_ca("kubernetes", today - 86400, today + 86400, &f->ca, &err), &err);
    fake_issue(f, "apiserver", &pair);
    must(kml_pki_write_folder(f->folder, &f->ca, &pair, &err), &err);
    kml_pki_pair_finish(&pair);
}

static inline int fake_spawn(struct fake *f)
{
    int in[2], out[2];
    const char *python = getenv("PYTHON");
    char program[] = "tests/integration/fake_api.py";
    char *argv[] = {kml_strdup(python == NULL ? "/usr/bin/python3" : python), program, f->folder, NULL};
    assert_int_equal(pipe(in) + pipe(out), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawn_file_actions_addclose(&actions, in[1]);
    posix_spawn_file_actions_addclose(&actions, out[0]);
    assert_int_equal(posix_spawn(&f->child, argv[0], &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    kml_free(argv[0]);
    close(in[0]);
    close(out[1]);
    f->leash = in[1];
    FILE *answer = fdopen(out[0], "r");
    char line[16] = "";
    uint64_t port = 0;
    assert_non_null(fgets(line, sizeof line, answer));
    line[strcspn(line, "\n")] = '\0';
    assert_int_equal(kml_parse_u64(line, &port, NULL), 0);
    (void)fclose(answer);
    return (int)port;
}

static inline void fake_start(struct fake *f)
{
    *f = (struct fake){.now_ns = 1000 * KML_SECOND};
    struct kml_err err = {0};
    temp_make(f->folder);
    fake_new_ca(f);
    temp_write(f->folder, "token", "first\n");
    int port = fake_spawn(f);
    char text[2048];
    (void)snprintf(
        text, sizeof text,
        "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://localhost:%d', certificate-authority: ca.crt}}]\n"
        "users: [{name: u, user: {tokenFile: token}}]\n",
        port);
    temp_write(f->folder, "config", text);
    struct kml_kube_sources sources = {.kubeconfig = temp_path(f->folder, "config")};
    must(kml_kube_config_load(&f->config, &sources, &err), &err);
    struct kml_kube_client_options options = {.clock = {fake_now, f}};
    must(kml_kube_client_create(&f->client, &f->config, &options, &err), &err);
    (void)snprintf(
        text, sizeof text,
        "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://localhost:%d', insecure-skip-tls-verify: true}}]\n"
        "users: [{name: u, user: {}}]\n",
        port);
    temp_write(f->folder, "steering", text);
    sources =
        (struct kml_kube_sources){.kubeconfig = temp_path(f->folder, "steering"), .allow_insecure = true};
    must(kml_kube_config_load(&f->steering_config, &sources, &err), &err);
    must(kml_kube_client_create(&f->steering, &f->steering_config, NULL, &err), &err);
}

static inline void fake_stop(struct fake *f)
{
    kml_kube_client_destroy(f->client);
    kml_kube_client_destroy(f->steering);
    kml_kube_config_finish(&f->config);
    kml_kube_config_finish(&f->steering_config);
    kml_pki_pair_finish(&f->ca);
    close(f->leash);
    assert_int_equal(waitpid(f->child, NULL, 0), f->child);
    temp_remove(f->folder);
}

/* Steers the server; the answer goes into `doc` unless that is NULL. */
static inline void control(struct fake *f, const char *order, struct kml_doc *doc)
{
    struct kml_err err = {0};
    struct kml_kube_request r = {
        .method = "POST", .path = kml_strdup("/_control"), .content_type = "application/json"};
    kml_buf_init(&r.body, KML_KUBE_BODY_MAX);
    must(kml_buf_puts(&r.body, order, &err), &err);
    must(kml_kube_call(f->steering, &r, doc, NULL, &err), &err);
}

static inline void control_format(struct fake *f, const char *format, ...) KML_PRINTF(2, 3);
static inline void control_format(struct fake *f, const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    control(f, text, NULL);
}

/* How many requests the server has seen whose "METHOD path" holds the words (both, if two are given). */
static inline uint32_t seen(struct fake *f, const char *method, const char *words)
{
    struct kml_doc doc;
    kml_doc_init(&doc);
    control(f, "{\"do\":\"trace\"}", &doc);
    uint32_t count = 0;
    for (uint32_t i = 0; i < doc.root->count; i++) {
        const struct kml_node *e = doc.root->child[i];
        count += strcmp(kml_node_get(e, "method")->text, method) == 0 &&
                         strstr(kml_node_get(e, "path")->text, words) != NULL
                     ? 1
                     : 0;
    }
    kml_doc_finish(&doc);
    return count;
}

/* Steps the client until the condition holds. Real time only bounds how long a broken program is waited for.
 */
static inline void fake_step(struct fake *f, const char *what, uint64_t *until_ns)
{
    struct kml_clock clock = kml_clock_monotonic();
    uint64_t now = kml_now(&clock);
    *until_ns = *until_ns == 0 ? now + 60 * KML_SECOND : *until_ns;
    if (now > *until_ns) {
        fail_msg("never came true: %s", what);
    }
    kml_kube_client_step(f->client, 5 * MS);
    f->stepped_ns = kml_now(&clock) - now;
}

#define UNTIL(f, condition)                                                                                  \
    for (uint64_t until_ = 0; !(condition);) {                                                               \
        fake_step((f), #condition, &until_);                                                                 \
    }

/* UNTIL, with the test's clock running ten times as fast as the real one, so that waiting times pass. */
#define SOON(f, condition)                                                                                   \
    for (uint64_t until_ = 0; !(condition);) {                                                               \
        fake_step((f), #condition, &until_);                                                                 \
        (f)->now_ns += 10 * ((f)->stepped_ns < 10 * MS ? (f)->stepped_ns : 10 * MS);                         \
    }

/* Gives the client some turns in which nothing should happen. */
static inline void linger(struct fake *f)
{
    for (int i = 0; i < 20; i++) {
        kml_kube_client_step(f->client, 2 * MS);
    }
}

/* What a call told its caller. */
struct told {
    uint32_t times;
    enum kml_code code;
    char text[KML_ERR_TEXT];
    struct kml_kube_status status;
    struct kml_buf bytes; /* of a stream */
};

static inline void told_done(void *self, const struct kml_kube_answer *a)
{
    struct told *t = self;
    t->times++;
    t->status = a->status;
    t->code = a->err == NULL ? KML_OK : a->err->code;
    (void)snprintf(t->text, sizeof t->text, "%s", a->err == NULL ? "" : a->err->text);
}

static inline int told_bytes(void *self, struct kml_view bytes, struct kml_err *err)
{
    struct told *t = self;
    return kml_buf_append(&t->bytes, bytes.data, bytes.size, err);
}

static inline struct kml_kube_call *send_request(struct fake *f, struct kml_kube_request *r,
                                                 const struct kml_kube_send *how, struct told *t)
{
    struct kml_err err = {0};
    struct kml_kube_call *call = NULL;
    *t = (struct told){0};
    kml_buf_init(&t->bytes, (size_t)1 << 20);
    bool streams = how != NULL && how->stream;
    struct kml_kube_sink sink = {streams ? told_bytes : NULL, told_done, t};
    must(kml_kube_client_send(f->client, r, how, &sink, &call, &err), &err);
    return call;
}

static inline struct kml_kube_request get_pod(const char *name)
{
    struct kml_kube_request r;
    struct kml_err err = {0};
    must(kml_kube_get(&r, &(struct kml_kube_ref){&kml_kube_pods, "a", name, NULL}, &err), &err);
    return r;
}

#endif
