/* Where the API server is and who we are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kube/config.h"
#include "unit/temp.h"

static char folder[TEMP_ROOM];

static int setup(void **state)
{
    (void)state;
    temp_make(folder);
    (void)unsetenv("KUBECONFIG");
    (void)unsetenv("KUBERNETES_SERVICE_HOST");
    (void)unsetenv("KUBERNETES_SERVICE_PORT");
    (void)setenv("HOME", folder, 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    temp_remove(folder);
    return 0;
}

static struct kml_kube_config load(const struct kml_kube_sources *sources)
{
    struct kml_kube_config c;
    struct kml_err err = {0};
    if (kml_kube_config_load(&c, sources, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return c;
}

static void assert_refused(const struct kml_kube_sources *sources, enum kml_code code, const char *words)
{
    struct kml_kube_config c;
    struct kml_err err = {0};
    assert_int_equal(kml_kube_config_load(&c, sources, &err), -1);
    assert_int_equal(err.code, code);
    if (strstr(err.text, words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", err.text, words);
    }
}

/* `cluster` and `user` are YAML in flow form. */
static void write_config(const char *name, const char *cluster, const char *user)
{
    char text[4096];
    (void)snprintf(text, sizeof text,
                   "apiVersion: v1\nkind: Config\ncurrent-context: one\n"
                   "contexts:\n- {name: one, context: {cluster: c, user: u, namespace: team}}\n"
                   "clusters:\n- name: c\n  cluster: %s\nusers:\n- name: u\n  user: %s\n",
                   cluster, user);
    temp_write(folder, name, text);
}

static void certificates_and_keys_inside_a_kubeconfig_are_decoded(void **state)
{
    (void)state;
    write_config("k",
                 "{server: 'https://1.2.3.4:6443/', certificate-authority-data: Q0E=, tls-server-name: kube}",
                 "{client-certificate-data: Q0VSVA==, client-key-data: S0VZ}");
    struct kml_kube_config c = load(&(struct kml_kube_sources){.kubeconfig = temp_path(folder, "k")});
    assert_string_equal(c.server, "https://1.2.3.4:6443");
    assert_string_equal(c.namespace, "team");
    assert_string_equal(c.context, "one");
    assert_string_equal(kml_buf_text(&c.ca), "CA");
    assert_string_equal(kml_buf_text(&c.cert), "CERT");
    assert_string_equal(kml_buf_text(&c.key), "KEY");
    assert_string_equal(c.tls_server_name, "kube");
    assert_null(c.token);
    kml_kube_config_finish(&c);
}

static void files_are_relative_to_the_kubeconfig_that_names_them(void **state)
{
    (void)state;
    write_config("sub/k", "{server: 'https://h', certificate-authority: pki/ca.crt}",
                 "{tokenFile: token, client-certificate: /abs/c.crt, client-key: k.key}");
    struct kml_kube_config c = load(&(struct kml_kube_sources){.kubeconfig = temp_path(folder, "sub/k")});
    assert_string_equal(c.ca_file, temp_path(folder, "sub/pki/ca.crt"));
    assert_string_equal(c.token_file, temp_path(folder, "sub/token"));
    assert_string_equal(c.cert_file, "/abs/c.crt");
    assert_string_equal(c.key_file, temp_path(folder, "sub/k.key"));
    kml_kube_config_finish(&c);
}

static void of_several_files_the_first_one_wins_and_missing_ones_are_skipped(void **state)
{
    (void)state;
    temp_write(folder, "1",
               "contexts: [{name: two, context: {cluster: c, user: v}}]\nusers: [{name: v, user: {token: "
               "first}}]\n");
    write_config("2", "{server: 'https://second'}", "{token: second}");
    write_config("3", "{server: 'https://third'}", "{token: third}");
    temp_write(folder, "4", "current-context: four\nusers: [{name: v, user: {token: fourth}}]\n");
    char list[TEMP_ROOM * 5];
    (void)snprintf(list, sizeof list, "%s/1:%s/none::%s/2:%s/3:%s/4", folder, folder, folder, folder, folder);
    (void)setenv("KUBECONFIG", list, 1);
    struct kml_kube_config c = load(NULL);
    assert_string_equal(c.context, "one");
    assert_string_equal(c.server, "https://second");
    assert_string_equal(c.token, "second");
    kml_kube_config_finish(&c);
    c = load(&(struct kml_kube_sources){.context = "two", .namespace = "other"});
    assert_string_equal(c.token, "first"); /* context and user of the first, cluster of the second file */
    assert_string_equal(c.server, "https://second");
    assert_string_equal(c.namespace, "other");
    kml_kube_config_finish(&c);
    (void)setenv("KUBECONFIG", "/nowhere/a:/nowhere/b", 1);
    assert_refused(NULL, KML_NOT_FOUND, "none of the files");
    (void)unsetenv("KUBECONFIG");
}

static void a_pod_finds_its_service_account(void **state)
{
    (void)state;
    temp_write(folder, "sa/token", "t0k3n");
    temp_write(folder, "sa/ca.crt", "CA");
    temp_write(folder, "sa/namespace", "kunal\n");
    const char *account = temp_path(folder, "sa");
    (void)setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1);
    (void)setenv("KUBERNETES_SERVICE_PORT", "6443", 1);
    struct kml_kube_config c = load(&(struct kml_kube_sources){.account_folder = account});
    assert_string_equal(c.server, "https://10.0.0.1:6443");
    assert_string_equal(c.namespace, "kunal");
    assert_string_equal(c.token_file, temp_path(folder, "sa/token"));
    assert_string_equal(c.ca_file, temp_path(folder, "sa/ca.crt"));
    assert_null(c.token); /* it changes: the file is read when it is needed */
    kml_kube_config_finish(&c);
    (void)setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
    c = load(&(struct kml_kube_sources){.account_folder = account});
    assert_string_equal(c.server, "https://[fd00::1]:6443");
    kml_kube_config_finish(&c);
    (void)unsetenv("KUBERNETES_SERVICE_HOST");
}

static void the_file_in_the_home_folder_comes_last(void **state)
{
    (void)state;
    const struct kml_kube_sources none = {.account_folder = "/nowhere"};
    assert_refused(&none, KML_NOT_FOUND, "no cluster is configured");
    write_config(".kube/config", "{server: 'https://home'}", "{}");
    struct kml_kube_config c = load(&none);
    assert_string_equal(c.server, "https://home");
    kml_kube_config_finish(&c);
}

static void what_is_not_safe_or_not_there_is_refused_in_one_line(void **state)
{
    (void)state;
    static const struct {
        const char *cluster;
        const char *user;
        enum kml_code code;
        const char *words;
    } cases[] = {
        {"{server: 'https://h', insecure-skip-tls-verify: true}", "{}", KML_DENIED,
         "insecure-skip-tls-verify"},
        {"{server: 'h:6443'}", "{}", KML_INVALID, "https://"},
        {"{}", "{}", KML_INVALID, "https://"},
        {"{server: 'https://h', certificate-authority-data: '%%'}", "{}", KML_INVALID,
         "certificate-authority-data"},
        {"{server: 'https://h'}", "{username: a, password: b}", KML_UNSUPPORTED, "passwords"},
        {"{server: 'https://h'}", "{auth-provider: {name: gcp}}", KML_UNSUPPORTED, "auth-provider"},
        {"{server: 'https://h'}", "{exec: {apiVersion: client.authentication.k8s.io/v1alpha1, command: x}}",
         KML_UNSUPPORTED, "exec"},
        {"{server: 'https://h'}", "{exec: {apiVersion: client.authentication.k8s.io/v1}}", KML_UNSUPPORTED,
         "command"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_config("bad", cases[i].cluster, cases[i].user);
        assert_refused(&(struct kml_kube_sources){.kubeconfig = temp_path(folder, "bad")}, cases[i].code,
                       cases[i].words);
    }
    write_config("bad", "{server: 'https://h', insecure-skip-tls-verify: true}", "{}");
    struct kml_kube_config c =
        load(&(struct kml_kube_sources){.kubeconfig = temp_path(folder, "bad"), .allow_insecure = true});
    assert_true(c.insecure);
    kml_kube_config_finish(&c);
    assert_refused(&(struct kml_kube_sources){.kubeconfig = temp_path(folder, "bad"), .context = "x"},
                   KML_INVALID, "no context \"x\"");
    temp_write(folder, "lost",
               "current-context: a\ncontexts: [{name: a, context: {cluster: gone, user: u}}]\n");
    assert_refused(&(struct kml_kube_sources){.kubeconfig = temp_path(folder, "lost")}, KML_INVALID,
                   "cluster \"gone\"");
    assert_refused(&(struct kml_kube_sources){.kubeconfig = "/nowhere/k"}, KML_NOT_FOUND, "/nowhere/k");
}

static void an_exec_command_gives_a_token_and_sees_what_it_should(void **state)
{
    (void)state;
    write_config("exec", "{server: 'https://h'}",
                 "{exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, installHint: install it,"
                 " env: [{name: WHO, value: me}], args: ['-c', 'case \"$KUBERNETES_EXEC_INFO\" in"
                 " *ExecCredential*) printf "
                 "\"{\\\"status\\\":{\\\"token\\\":\\\"%s-$1\\\",\\\"expirationTimestamp\\\":"
                 "\\\"2026-01-31T12:00:00Z\\\"}}\" \"$WHO\";; esac', x, arg]}}");
    struct kml_kube_config c = load(&(struct kml_kube_sources){.kubeconfig = temp_path(folder, "exec")});
    struct kml_kube_credential credential;
    struct kml_err err = {0};
    if (kml_kube_exec_run(c.exec, &credential, &err) != 0) {
        fail_msg("%s", err.text);
    }
    assert_string_equal(credential.token, "me-arg");
    assert_int_equal(credential.expires_ns / 1000000000, 1769860800);
    kml_kube_credential_finish(&credential);
    kml_kube_config_finish(&c);
}

static void an_exec_command_that_fails_says_which_and_what_to_do(void **state)
{
    (void)state;
    static const struct {
        const char *command;
        const char *words;
    } cases[] = {
        {"no-such-command-anywhere", "install it"},
        {"false", "code 1"},
        {"true", "credentials of true"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char user[512];
        (void)snprintf(user, sizeof user,
                       "{exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: '%s', "
                       "installHint: install it}}",
                       cases[i].command);
        write_config("exec", "{server: 'https://h'}", user);
        struct kml_kube_config c = load(&(struct kml_kube_sources){.kubeconfig = temp_path(folder, "exec")});
        struct kml_kube_credential credential;
        struct kml_err err = {0};
        assert_int_equal(kml_kube_exec_run(c.exec, &credential, &err), -1);
        if (strstr(err.text, cases[i].words) == NULL) {
            fail_msg("%s", err.text);
        }
        kml_kube_config_finish(&c);
    }
}

static void an_exec_credential_may_be_a_certificate(void **state)
{
    (void)state;
    struct kml_kube_credential credential;
    struct kml_err err = {0};
    const char *text = "{\"status\":{\"clientCertificateData\":\"CERT\",\"clientKeyData\":\"KEY\"}}";
    assert_int_equal(kml_kube_exec_read(kml_view_str(text), &credential, NULL), 0);
    assert_string_equal(kml_buf_text(&credential.cert), "CERT");
    assert_string_equal(kml_buf_text(&credential.key), "KEY");
    assert_int_equal(credential.expires_ns, UINT64_MAX);
    kml_kube_credential_finish(&credential);
    assert_int_equal(kml_kube_exec_read(kml_view_str("{\"status\":{}}"), &credential, &err), -1);
    assert_int_equal(err.code, KML_UNAUTHENTICATED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(certificates_and_keys_inside_a_kubeconfig_are_decoded),
        cmocka_unit_test(files_are_relative_to_the_kubeconfig_that_names_them),
        cmocka_unit_test(of_several_files_the_first_one_wins_and_missing_ones_are_skipped),
        cmocka_unit_test(a_pod_finds_its_service_account),
        cmocka_unit_test(the_file_in_the_home_folder_comes_last),
        cmocka_unit_test(what_is_not_safe_or_not_there_is_refused_in_one_line),
        cmocka_unit_test(an_exec_command_gives_a_token_and_sees_what_it_should),
        cmocka_unit_test(an_exec_command_that_fails_says_which_and_what_to_do),
        cmocka_unit_test(an_exec_credential_may_be_a_certificate),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
