#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "kube/internal.h"

#define FILE_BYTES ((size_t)1 << 20)
#define TOKEN_AGE (60 * KML_SECOND)

static void file_init(struct kml_kube_file *f, const char *path)
{
    *f = (struct kml_kube_file){.path = path};
    kml_buf_init(&f->text, FILE_BYTES);
}

static void file_finish(struct kml_kube_file *f)
{
    if (f->text.data != NULL) {
        explicit_bzero(f->text.data, f->text.size);
    }
    kml_buf_finish(&f->text);
}

void kml_kube_creds_init(struct kml_kube_creds *c, const struct kml_kube_config *config)
{
    *c = (struct kml_kube_creds){.config = config};
    file_init(&c->token, config->token_file);
    file_init(&c->ca, config->ca_file);
    file_init(&c->cert, config->cert_file);
    file_init(&c->key, config->key_file);
}

void kml_kube_creds_finish(struct kml_kube_creds *c)
{
    file_finish(&c->token);
    file_finish(&c->ca);
    file_finish(&c->cert);
    file_finish(&c->key);
    kml_kube_credential_finish(&c->exec);
}

static bool as_before(const struct kml_kube_file *f, const struct stat *now)
{
    return f->changed.tv_sec == now->st_mtim.tv_sec && f->changed.tv_nsec == now->st_mtim.tv_nsec &&
           f->inode == now->st_ino && f->size == now->st_size;
}

/* A file that is just being replaced may be missing or empty for a moment: what was read before stays good.
 */
static int file_refresh(struct kml_kube_file *f, bool again, uint64_t now_ns, struct kml_err *err)
{
    struct stat info = {0};
    if (f->path == NULL || (stat(f->path, &info) == 0 && !again && f->text.size > 0 && as_before(f, &info))) {
        return 0;
    }
    struct kml_buf text;
    kml_buf_init(&text, FILE_BYTES);
    struct kml_err why = {0};
    if (kml_file_read(f->path, &text, &why) != 0 || text.size == 0) {
        kml_buf_finish(&text);
        if (f->text.size > 0) {
            return 0;
        }
        return kml_fail(err, why.code == KML_OK ? KML_INVALID : why.code, "%s",
                        why.code == KML_OK ? "a credential file is empty" : why.text);
    }
    file_finish(f);
    f->text = text;
    f->changed = info.st_mtim;
    f->inode = info.st_ino;
    f->size = info.st_size;
    f->read_ns = now_ns;
    return 0;
}

static int exec_refresh(struct kml_kube_creds *c, bool again, struct kml_err *err)
{
    if (c->config->exec == NULL || (!again && kml_wall_ns() < c->exec.expires_ns)) {
        return 0;
    }
    struct kml_kube_credential fresh;
    if (kml_kube_exec_run(c->config->exec, &fresh, err) != 0) {
        return -1;
    }
    kml_kube_credential_finish(&c->exec);
    c->exec = fresh;
    return 0;
}

int kml_kube_creds_refresh(struct kml_kube_creds *c, bool again, uint64_t now_ns, struct kml_err *err)
{
    bool old = c->token.text.size > 0 && now_ns - c->token.read_ns >= TOKEN_AGE;
    uint64_t read_before = c->token.read_ns;
    bool had_one = c->token.text.size > 0;
    if (file_refresh(&c->token, again || old, now_ns, err) != 0 ||
        file_refresh(&c->ca, again, now_ns, err) != 0 || file_refresh(&c->cert, again, now_ns, err) != 0 ||
        file_refresh(&c->key, again, now_ns, err) != 0) {
        return kml_wrap(err, "credentials for the API server");
    }
    if (c->token.path != NULL && (!had_one || c->token.read_ns != read_before)) {
        c->token_reads++;
    }
    return exec_refresh(c, again, err);
}

bool kml_kube_creds_can_change(const struct kml_kube_creds *c)
{
    return c->token.path != NULL || c->cert.path != NULL || c->config->exec != NULL;
}

static void set_blob(CURL *easy, CURLoption option, const struct kml_buf *text)
{
    if (text->size > 0) {
        struct curl_blob blob = {.data = text->data, .len = text->size, .flags = CURL_BLOB_COPY};
        (void)curl_easy_setopt(easy, option, &blob);
    }
}

static const struct kml_buf *either(const struct kml_buf *inside, const struct kml_buf *read)
{
    return inside->size > 0 ? inside : read;
}

static int add_token(const struct kml_kube_creds *c, struct curl_slist **headers, struct kml_err *err)
{
    const char *token = c->token.text.size > 0 ? kml_buf_text(&c->token.text) : c->config->token;
    token = token == NULL ? c->exec.token : token;
    if (token == NULL) {
        return 0;
    }
    size_t size = strcspn(token, "\r\n \t");
    if (size == 0 || token[size + strspn(token + size, "\r\n \t")] != '\0') {
        return kml_fail(err, KML_INVALID, "the token for the API server has blanks inside, or is empty");
    }
    char *line = kml_format("Authorization: Bearer %.*s", (int)size, token);
    *headers = curl_slist_append(*headers, line);
    explicit_bzero(line, strlen(line));
    kml_free(line);
    return 0;
}

int kml_kube_creds_apply(const struct kml_kube_creds *c, CURL *easy, struct curl_slist **headers,
                         struct kml_err *err)
{
    if (strncmp(c->config->server, "https://", 8) != 0) {
        return 0;
    }
    const struct kml_buf *cert = either(&c->config->cert, &c->cert.text);
    const struct kml_buf *key = either(&c->config->key, &c->key.text);
    const struct kml_buf *ca = either(&c->config->ca, &c->ca.text);
    set_blob(easy, CURLOPT_SSLCERT_BLOB, cert->size > 0 ? cert : &c->exec.cert);
    set_blob(easy, CURLOPT_SSLKEY_BLOB, key->size > 0 ? key : &c->exec.key);
    (void)curl_easy_setopt(easy, CURLOPT_SSLCERTTYPE, "PEM");
    (void)curl_easy_setopt(easy, CURLOPT_SSLKEYTYPE, "PEM");
    if (ca->size > 0) { /* this one and no other */
        set_blob(easy, CURLOPT_CAINFO_BLOB, ca);
        (void)curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
    }
    return add_token(c, headers, err);
}
