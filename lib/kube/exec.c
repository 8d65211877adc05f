#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "doc/doc.h"
#include "kube/config.h"
#include "kube/text.h"

/* Credential plugins of kubeconfig: a command prints an ExecCredential. */

#define PATIENCE (30 * KML_SECOND)
#define ANSWER_MAX ((size_t)1 << 20)
#define PEM_MAX ((size_t)1 << 20)

extern char **environ;

static const char *text_of(const struct kml_node *map, const char *key)
{
    const struct kml_node *node = kml_node_get(map, key);
    return node == NULL || node->kind != KML_NODE_TEXT || node->text[0] == '\0' ? NULL : node->text;
}

static int read_credential(const struct kml_node *status, struct kml_kube_credential *out,
                           struct kml_err *err)
{
    const char *expires = text_of(status, "expirationTimestamp");
    const char *cert = text_of(status, "clientCertificateData");
    const char *key = text_of(status, "clientKeyData");
    out->token = kml_strdup(text_of(status, "token"));
    out->expires_ns = UINT64_MAX;
    if (out->token == NULL && (cert == NULL || key == NULL)) {
        return kml_fail(err, KML_UNAUTHENTICATED,
                        "its ExecCredential holds no token and no certificate with a key");
    }
    if (cert != NULL && key != NULL &&
        (kml_buf_puts(&out->cert, cert, err) != 0 || kml_buf_puts(&out->key, key, err) != 0)) {
        return -1;
    }
    return expires == NULL ? 0 : kml_kube_time_read(expires, &out->expires_ns, err);
}

int kml_kube_exec_read(struct kml_view text, struct kml_kube_credential *out, struct kml_err *err)
{
    struct kml_doc doc;
    kml_doc_init(&doc);
    *out = (struct kml_kube_credential){0};
    kml_buf_init(&out->cert, PEM_MAX);
    kml_buf_init(&out->key, PEM_MAX);
    int result = kml_doc_read(&doc, "ExecCredential", text, err);
    if (result == 0) {
        result = read_credential(kml_node_get(doc.root, "status"), out, err);
    }
    kml_doc_finish(&doc);
    if (result != 0) {
        kml_kube_credential_finish(out);
    }
    return result;
}

/* Our environment, with the plugin's own variables before it: getenv finds the first. The array is the
 * caller's. */
static char **environment(const struct kml_kube_exec *exec, char *info)
{
    uint32_t count = 0;
    while (environ[count] != NULL) {
        count++;
    }
    char **env = KML_NEW_ARRAY(count + exec->envs + 2, char *);
    uint32_t n = 0;
    env[n++] = info;
    for (uint32_t i = 0; i < exec->envs; i++) {
        env[n++] = exec->env[i];
    }
    memcpy(&env[n], environ, count * sizeof *env);
    return env;
}

static int spawn(const struct kml_kube_exec *exec, pid_t *child, int *from, struct kml_err *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return kml_fail_errno(err, errno, "a pipe for %s", exec->argument[0]);
    }
    kml_auto_free char *info =
        kml_format("KUBERNETES_EXEC_INFO={\"apiVersion\":\"%s\",\"kind\":\"ExecCredential\","
                   "\"spec\":{\"interactive\":false}}",
                   exec->api_version);
    char **env = environment(exec, info);
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    int error = posix_spawnp(child, exec->argument[0], &actions, &attributes, exec->argument, env);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    kml_free(env);
    close(ends[1]);
    *from = ends[0];
    if (error != 0) {
        close(ends[0]);
        return kml_fail_errno(err, error, "cannot run %s%s%s", exec->argument[0],
                              exec->hint == NULL ? "" : "; ", exec->hint == NULL ? "" : exec->hint);
    }
    return 0;
}

/* Reads until the end of the output; 0, or -1 when it takes too long or is too long. */
static int read_output(int from, struct kml_buf *out, struct kml_err *err)
{
    struct kml_clock clock = kml_clock_monotonic();
    uint64_t until = kml_now(&clock) + PATIENCE;
    for (;;) {
        uint64_t now = kml_now(&clock);
        struct pollfd fd = {.fd = from, .events = POLLIN};
        int ready = now >= until ? 0 : poll(&fd, 1, (int)((until - now) / KML_MILLISECOND) + 1);
        if (ready == 0) {
            return kml_fail(err, KML_TIMEOUT, "no answer within 30 s");
        }
        uint8_t *to = kml_buf_reserve(out, 4096, err);
        if (to == NULL) {
            return -1;
        }
        ssize_t got = ready < 0 ? -1 : read(from, to, 4096);
        if (got == 0) {
            return 0;
        }
        if (got < 0 && errno != EINTR && errno != EAGAIN) {
            return kml_fail_errno(err, errno, "reading its output");
        }
        kml_buf_added(out, got < 0 ? 0 : (size_t)got);
    }
}

static int finish_child(pid_t child, bool kill_it, struct kml_err *err)
{
    int status = 0;
    if (kill_it) {
        (void)kill(child, SIGKILL);
    }
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) {
            return kml_fail_errno(err, errno, "waiting for it");
        }
    }
    if (kill_it) {
        return -1; /* the error is set already */
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        return kml_fail(err, KML_UNAUTHENTICATED, "it ended with %s %d; run it by hand to see why",
                        WIFEXITED(status) ? "code" : "signal",
                        WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    }
    return 0;
}

int kml_kube_exec_run(const struct kml_kube_exec *exec, struct kml_kube_credential *out, struct kml_err *err)
{
    pid_t child = 0;
    int from = -1;
    if (spawn(exec, &child, &from, err) != 0) {
        return -1;
    }
    struct kml_buf text;
    kml_buf_init(&text, ANSWER_MAX);
    bool bad = read_output(from, &text, err) != 0;
    close(from);
    int result = finish_child(child, bad, err);
    if (result == 0) {
        result = kml_kube_exec_read(kml_buf_view(&text), out, err);
    }
    if (text.data != NULL) {
        explicit_bzero(text.data, text.size);
    }
    kml_buf_finish(&text);
    return result == 0 ? 0 : kml_wrap(err, "credentials of %s", exec->argument[0]);
}
