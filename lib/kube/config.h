#ifndef KML_KUBE_CONFIG_H
#define KML_KUBE_CONFIG_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * Where the API server is, how we know that it is the right one, and who we are.
 *
 * Found in this order: the kubeconfig asked for; the files of KUBECONFIG, merged; the service account of the
 * pod we run in; ~/.kube/config. Merging follows kubectl: of two entries with one name, and of two
 * current-contexts, the first file wins; a file of KUBECONFIG that is not there is skipped; relative paths
 * are relative to the file that names them.
 *
 * Refused with a clear line: insecure-skip-tls-verify unless asked for, user names with passwords,
 * auth-provider, a current-context that names nothing. Files named for tokens, certificates and CAs are only
 * named here; the client reads them, and reads them again when they change.
 */
struct kml_kube_exec {
    char *api_version; /* "client.authentication.k8s.io/v1" or "/v1beta1" */
    char **argument;   /* [arguments + 1], ends with NULL; argument[0] is the command */
    uint32_t arguments;
    char **env; /* [envs + 1], "NAME=value", on top of our own environment; ends with NULL */
    uint32_t envs;
    char *hint; /* what to tell when the command is not there; or NULL */
};

struct kml_kube_config {
    char *server;          /* "https://10.0.0.1:443", without a slash at its end */
    char *namespace;       /* never NULL: "default" */
    char *context;         /* the kubeconfig's context; NULL in a cluster */
    char *ca_file;         /* or NULL */
    struct kml_buf ca;     /* PEM, when it stood inside the file; empty and no ca_file: the system's CAs */
    char *cert_file;       /* client certificate, or NULL */
    char *key_file;        /* and its key */
    struct kml_buf cert;   /* PEM, when it stood inside the file */
    struct kml_buf key;    /* PEM */
    char *token;           /* or NULL; token_file wins when both are there */
    char *token_file;      /* or NULL */
    char *tls_server_name; /* the name to look for in the server's certificate; NULL: the host of `server` */
    char *proxy;           /* proxy-url, or NULL */
    bool insecure;         /* the server's certificate is not checked */
    struct kml_kube_exec *exec; /* a command that makes credentials, or NULL */
};

struct kml_kube_sources {
    const char *kubeconfig;     /* one file, as of --kubeconfig; NULL: look around */
    const char *context;        /* NULL: current-context */
    const char *namespace;      /* NULL: of the context, of the service account, or "default" */
    const char *account_folder; /* NULL: /var/run/secrets/kubernetes.io/serviceaccount */
    bool allow_insecure;        /* insecure-skip-tls-verify is not refused */
};

/* Fills an uninitialised `config`; on failure nothing is left to finish. `sources` may be NULL. */
int kml_kube_config_load(struct kml_kube_config *config, const struct kml_kube_sources *sources,
                         struct kml_err *err) KML_MUST_CHECK;
void kml_kube_config_finish(struct kml_kube_config *config); /* secrets are wiped */

/* What an exec command gave. */
struct kml_kube_credential {
    char *token;         /* or NULL */
    struct kml_buf cert; /* PEM; empty: none */
    struct kml_buf key;
    uint64_t expires_ns; /* wall clock; UINT64_MAX: until a 401 */
};

/* Runs the command (its stderr is ours), waits 30 s at most and reads its ExecCredential. */
int kml_kube_exec_run(const struct kml_kube_exec *exec, struct kml_kube_credential *out,
                      struct kml_err *err) KML_MUST_CHECK;
/* The pure part of it: the ExecCredential's text. */
int kml_kube_exec_read(struct kml_view text, struct kml_kube_credential *out,
                       struct kml_err *err) KML_MUST_CHECK;
void kml_kube_credential_finish(struct kml_kube_credential *credential);

#endif
