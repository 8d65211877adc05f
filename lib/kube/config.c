#include "kube/config.h"

#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "doc/doc.h"
#include "kube/text.h"

#define ACCOUNT_FOLDER "/var/run/secrets/kubernetes.io/serviceaccount"
#define FILES_MAX 32
#define PEM_MAX ((size_t)1 << 20)

/* The kubeconfig files, in the order of their weight. */
struct files {
    struct kml_doc doc[FILES_MAX];
    char *path[FILES_MAX];
    uint32_t count;
};

static void files_finish(struct files *f)
{
    for (uint32_t i = 0; i < f->count; i++) {
        kml_doc_finish(&f->doc[i]);
        kml_free(f->path[i]);
    }
    *f = (struct files){0};
}

static int add_file(struct files *f, const char *path, struct kml_err *err)
{
    if (f->count >= FILES_MAX) {
        return kml_fail(err, KML_TOO_LARGE, "KUBECONFIG names more than %d files", FILES_MAX);
    }
    struct kml_doc *doc = &f->doc[f->count];
    kml_doc_init(doc);
    if (kml_doc_read_file(doc, path, err) != 0) {
        return -1;
    }
    f->path[f->count++] = kml_strdup(path);
    return 0;
}

static int add_list(struct files *f, const char *list, struct kml_err *err)
{
    while (list[0] != '\0') {
        size_t size = strcspn(list, ":");
        kml_auto_free char *path = kml_strndup(list, size);
        if (size > 0 && access(path, F_OK) == 0 && add_file(f, path, err) != 0) {
            return -1;
        }
        list += size + (list[size] == ':' ? 1 : 0);
    }
    return 0;
}

/* ---- Reading one kubeconfig entry ---- */

static const char *text_of(const struct kml_node *map, const char *key)
{
    const struct kml_node *node = kml_node_get(map, key);
    return node == NULL || node->kind != KML_NODE_TEXT || node->text[0] == '\0' ? NULL : node->text;
}

static bool yes_of(const struct kml_node *map, const char *key)
{
    const struct kml_node *node = kml_node_get(map, key);
    return node != NULL && node->kind == KML_NODE_BOOL && node->value.yes;
}

static char *copy_of(const struct kml_node *map, const char *key)
{
    return kml_strdup(text_of(map, key));
}

/* An entry of the lists "contexts", "clusters", "users", and the file where it stands. */
struct found {
    const struct kml_node *entry; /* NULL: nowhere */
    const char *path;
};

static struct found find_entry(const struct files *f, const char *list, const char *key, const char *name)
{
    for (uint32_t i = 0; i < f->count; i++) {
        const struct kml_node *all = kml_node_get(f->doc[i].root, list);
        for (uint32_t j = 0; all != NULL && all->kind == KML_NODE_LIST && j < all->count; j++) {
            const char *its = text_of(all->child[j], "name");
            if (its != NULL && strcmp(its, name) == 0) {
                return (struct found){kml_node_get(all->child[j], key), f->path[i]};
            }
        }
    }
    return (struct found){0};
}

/* Relative to the folder of the file that names it. */
static char *file_of(const struct found *at, const char *key)
{
    const char *path = text_of(at->entry, key);
    const char *slash = path == NULL || path[0] == '/' ? NULL : strrchr(at->path, '/');
    if (slash == NULL) {
        return kml_strdup(path);
    }
    return kml_format("%.*s/%s", (int)(slash - at->path), at->path, path);
}

/* "x-data" (base64, wins) or "x" (a file). */
static int pem_of(const struct found *at, const char *key, struct kml_buf *pem, char **file,
                  struct kml_err *err)
{
    kml_auto_free char *data_key = kml_format("%s-data", key);
    const char *data = text_of(at->entry, data_key);
    if (data == NULL) {
        *file = file_of(at, key);
        return 0;
    }
    return kml_base64_read(pem, data, err) == 0 ? 0 : kml_wrap(err, "%s: %s", at->path, data_key);
}

static int read_cluster(struct kml_kube_config *c, const struct found *at, bool allow_insecure,
                        struct kml_err *err)
{
    const char *server = text_of(at->entry, "server");
    if (server == NULL || (strncmp(server, "https://", 8) != 0 && strncmp(server, "http://", 7) != 0)) {
        return kml_fail(err, KML_INVALID, "%s: the cluster's server must be a URL with https://", at->path);
    }
    c->insecure = yes_of(at->entry, "insecure-skip-tls-verify");
    if (c->insecure && !allow_insecure) {
        return kml_fail(
            err, KML_DENIED,
            "%s: insecure-skip-tls-verify lets anybody be the API server; give certificate-authority-data",
            at->path);
    }
    size_t size = strlen(server);
    while (server[size - 1] == '/') {
        size--;
    }
    c->server = kml_strndup(server, size);
    c->tls_server_name = copy_of(at->entry, "tls-server-name");
    c->proxy = copy_of(at->entry, "proxy-url");
    return pem_of(at, "certificate-authority", &c->ca, &c->ca_file, err);
}

/* ---- exec ---- */

static char **list_of(const struct kml_node *list, uint32_t before, uint32_t *count)
{
    uint32_t more = list != NULL && list->kind == KML_NODE_LIST ? list->count : 0;
    *count = before + more;
    return KML_NEW_ARRAY(*count + 1, char *);
}

static int read_exec(struct kml_kube_config *c, const struct kml_node *exec, const char *path,
                     struct kml_err *err)
{
    const char *command = text_of(exec, "command");
    const char *version = text_of(exec, "apiVersion");
    if (command == NULL || version == NULL || strncmp(version, "client.authentication.k8s.io/v1", 31) != 0 ||
        strstr(version, "alpha") != NULL) {
        return kml_fail(err, KML_UNSUPPORTED,
                        "%s: exec needs a command and apiVersion client.authentication.k8s.io/v1 or v1beta1",
                        path);
    }
    struct kml_kube_exec *e = KML_NEW(struct kml_kube_exec);
    c->exec = e;
    e->api_version = kml_strdup(version);
    e->hint = copy_of(exec, "installHint");
    const struct kml_node *args = kml_node_get(exec, "args");
    e->argument = list_of(args, 1, &e->arguments);
    const struct found at = {exec, path};
    e->argument[0] =
        strchr(command, '/') != NULL ? file_of(&at, "command") : kml_strdup(command); /* else in PATH */
    for (uint32_t i = 1; i < e->arguments; i++) {
        const struct kml_node *arg = args->child[i - 1];
        e->argument[i] = kml_strdup(arg->kind == KML_NODE_TEXT ? arg->text : "");
    }
    const struct kml_node *env = kml_node_get(exec, "env");
    e->env = list_of(env, 0, &e->envs);
    for (uint32_t i = 0; i < e->envs; i++) {
        const char *name = text_of(env->child[i], "name");
        const char *value = text_of(env->child[i], "value");
        e->env[i] = kml_format("%s=%s", name == NULL ? "" : name, value == NULL ? "" : value);
    }
    return 0;
}

static void exec_destroy(struct kml_kube_exec *e)
{
    if (e == NULL) {
        return;
    }
    for (uint32_t i = 0; i < e->arguments; i++) {
        kml_free(e->argument[i]);
    }
    for (uint32_t i = 0; i < e->envs; i++) {
        kml_free(e->env[i]);
    }
    kml_free(e->argument);
    kml_free(e->env);
    kml_free(e->api_version);
    kml_free(e->hint);
    kml_free(e);
}

static int read_user(struct kml_kube_config *c, const struct found *at, struct kml_err *err)
{
    if (kml_node_get(at->entry, "auth-provider") != NULL) {
        return kml_fail(err, KML_UNSUPPORTED, "%s: auth-provider is gone from Kubernetes; use exec",
                        at->path);
    }
    if (text_of(at->entry, "username") != NULL) {
        return kml_fail(err, KML_UNSUPPORTED,
                        "%s: Kubernetes takes no user names with passwords; use a token", at->path);
    }
    c->token = copy_of(at->entry, "token");
    c->token_file = file_of(at, "tokenFile");
    if (pem_of(at, "client-certificate", &c->cert, &c->cert_file, err) != 0 ||
        pem_of(at, "client-key", &c->key, &c->key_file, err) != 0) {
        return -1;
    }
    const struct kml_node *exec = kml_node_get(at->entry, "exec");
    return exec == NULL || exec->kind != KML_NODE_MAP ? 0 : read_exec(c, exec, at->path, err);
}

static const char *current_context(const struct files *f)
{
    for (uint32_t i = 0; i < f->count; i++) {
        const char *name = text_of(f->doc[i].root, "current-context");
        if (name != NULL) {
            return name;
        }
    }
    return NULL;
}

/* The entry of a list that a context names. */
static int follow(const struct files *f, const char *context, const struct kml_node *from, const char *kind,
                  struct found *out, struct kml_err *err)
{
    const char *name = text_of(from, kind);
    kml_auto_free char *list = kml_format("%ss", kind);
    *out = name == NULL ? (struct found){0} : find_entry(f, list, kind, name);
    if (out->entry == NULL) {
        return kml_fail(err, KML_INVALID,
                        "kubeconfig: context \"%s\" names the %s \"%s\", which is not there", context, kind,
                        name == NULL ? "" : name);
    }
    return 0;
}

static int read_files(struct kml_kube_config *c, const struct files *f, const struct kml_kube_sources *s,
                      struct kml_err *err)
{
    const char *name = s->context != NULL ? s->context : current_context(f);
    if (name == NULL) {
        return kml_fail(err, KML_INVALID,
                        "kubeconfig: no current-context; run \"kubectl config use-context\"");
    }
    struct found context = find_entry(f, "contexts", "context", name);
    struct found cluster, user;
    if (context.entry == NULL) {
        return kml_fail(err, KML_INVALID, "kubeconfig: there is no context \"%s\"", name);
    }
    if (follow(f, name, context.entry, "cluster", &cluster, err) != 0 ||
        follow(f, name, context.entry, "user", &user, err) != 0) {
        return -1;
    }
    c->context = kml_strdup(name);
    c->namespace = copy_of(context.entry, "namespace");
    if (read_cluster(c, &cluster, s->allow_insecure, err) != 0) {
        return -1;
    }
    return read_user(c, &user, err);
}

/* ---- In a cluster ---- */

static int read_account(struct kml_kube_config *c, const char *folder, struct kml_err *err)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST");
    const char *port = getenv("KUBERNETES_SERVICE_PORT");
    bool v6 = strchr(host, ':') != NULL;
    c->server =
        kml_format("https://%s%s%s:%s", v6 ? "[" : "", host, v6 ? "]" : "", port == NULL ? "443" : port);
    c->token_file = kml_format("%s/token", folder);
    c->ca_file = kml_format("%s/ca.crt", folder);
    kml_auto_free char *ns_file = kml_format("%s/namespace", folder);
    struct kml_buf ns;
    kml_buf_init(&ns, 256);
    if (access(ns_file, F_OK) == 0 && kml_file_read(ns_file, &ns, err) != 0) {
        kml_buf_finish(&ns);
        return -1;
    }
    size_t size = strcspn(kml_buf_text(&ns), "\n");
    c->namespace = size == 0 ? NULL : kml_strndup(kml_buf_text(&ns), size);
    kml_buf_finish(&ns);
    return 0;
}

static bool in_cluster(const char *folder)
{
    kml_auto_free char *token = kml_format("%s/token", folder);
    const char *host = getenv("KUBERNETES_SERVICE_HOST");
    return host != NULL && host[0] != '\0' && access(token, F_OK) == 0;
}

static int read_home(struct files *f, struct kml_err *err)
{
    const char *home = getenv("HOME");
    kml_auto_free char *path = kml_format("%s/.kube/config", home == NULL ? "" : home);
    if (home == NULL || access(path, F_OK) != 0) {
        return kml_fail(err, KML_NOT_FOUND,
                        "no cluster is configured: no KUBECONFIG, no ~/.kube/config, and this is no pod");
    }
    return add_file(f, path, err);
}

/* From the first source that there is. */
static int read_any(struct kml_kube_config *c, struct files *f, const struct kml_kube_sources *s,
                    struct kml_err *err)
{
    const char *folder = s->account_folder == NULL ? ACCOUNT_FOLDER : s->account_folder;
    const char *list = getenv("KUBECONFIG");
    if (s->kubeconfig != NULL) {
        return add_file(f, s->kubeconfig, err) != 0 ? -1 : read_files(c, f, s, err);
    }
    if (list != NULL && list[0] != '\0') {
        if (add_list(f, list, err) != 0) {
            return -1;
        }
        if (f->count == 0) {
            return kml_fail(err, KML_NOT_FOUND, "none of the files of KUBECONFIG=%s is there", list);
        }
        return read_files(c, f, s, err);
    }
    if (in_cluster(folder)) {
        return read_account(c, folder, err);
    }
    return read_home(f, err) != 0 ? -1 : read_files(c, f, s, err);
}

int kml_kube_config_load(struct kml_kube_config *config, const struct kml_kube_sources *sources,
                         struct kml_err *err)
{
    struct kml_kube_sources none = {0};
    const struct kml_kube_sources *s = sources == NULL ? &none : sources;
    struct files *f = KML_NEW(struct files);
    *config = (struct kml_kube_config){0};
    kml_buf_init(&config->ca, PEM_MAX);
    kml_buf_init(&config->cert, PEM_MAX);
    kml_buf_init(&config->key, PEM_MAX);
    int result = read_any(config, f, s, err);
    files_finish(f);
    kml_free(f);
    if (result != 0) {
        kml_kube_config_finish(config);
        return -1;
    }
    if (s->namespace != NULL || config->namespace == NULL) {
        kml_free(config->namespace);
        config->namespace = kml_strdup(s->namespace != NULL ? s->namespace : "default");
    }
    return 0;
}

static void wipe(char *secret)
{
    if (secret != NULL) {
        explicit_bzero(secret, strlen(secret));
    }
    kml_free(secret);
}

static void wipe_buf(struct kml_buf *b)
{
    if (b->data != NULL) {
        explicit_bzero(b->data, b->size);
    }
    kml_buf_finish(b);
}

void kml_kube_config_finish(struct kml_kube_config *c)
{
    kml_free(c->server);
    kml_free(c->namespace);
    kml_free(c->context);
    kml_free(c->ca_file);
    kml_free(c->cert_file);
    kml_free(c->key_file);
    kml_free(c->token_file);
    kml_free(c->tls_server_name);
    kml_free(c->proxy);
    wipe(c->token);
    wipe_buf(&c->key);
    kml_buf_finish(&c->cert);
    kml_buf_finish(&c->ca);
    exec_destroy(c->exec);
    *c = (struct kml_kube_config){0};
}

void kml_kube_credential_finish(struct kml_kube_credential *c)
{
    wipe(c->token);
    wipe_buf(&c->key);
    kml_buf_finish(&c->cert);
    *c = (struct kml_kube_credential){0};
}
