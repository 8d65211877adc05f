/* The copy of the API server's objects. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "kube/store.h"
#include "unit/seed.h"

struct heard {
    char text[4096]; /* "+a/x:1 ~a/x:2 -a/x:2 " */
    size_t size;
    uint32_t count;
};

static void on_change(void *self, const struct kml_kube_object *o, enum kml_kube_change change)
{
    struct heard *h = self;
    int n = snprintf(h->text + h->size, sizeof h->text - h->size, "%c%s/%s:%s ", "+~-"[change], o -> ns,
                     o -> name, o -> version);
    h->size = h->size + (size_t)n < sizeof h->text ? h->size + (size_t)n : 0;
    h->count++;
}

static void assert_heard(struct heard *h, const char *text)
{
    assert_string_equal(h->text, text);
    *h = (struct heard){0};
}

static struct kml_doc doc_of(const char *json)
{
    struct kml_doc doc;
    struct kml_err err = {0};
    kml_doc_init(&doc);
    if (kml_doc_read(&doc, "t", kml_view_str(json), &err) != 0) {
        fail_msg("%s", err.text);
    }
    return doc;
}

static void put(struct kml_kube_store *s, const char *ns, const char *name, const char *uid,
                const char *version, const char *owner)
{
    kml_auto_free char *refs =
        owner == NULL ? kml_strdup("")
                      : kml_format(",\"ownerReferences\":[{\"uid\":\"other\"},{\"controller\":true,"
                                   "\"uid\":\"%s\"}]",
                                   owner);
    kml_auto_free char *json = kml_format(
        "{\"metadata\":{\"namespace\":\"%s\",\"name\":\"%s\",\"uid\":\"%s\",\"resourceVersion\":\"%s\"%s}}",
        ns, name, uid, version, refs);
    struct kml_doc doc = doc_of(json);
    assert_int_equal(kml_kube_store_put(s, &doc, NULL), 0);
    assert_null(doc.root);
}

static struct kml_kube_store *listening(struct heard *h)
{
    *h = (struct heard){0};
    return kml_kube_store_create(&(struct kml_kube_store_options){.changed = on_change, .self = h});
}

static void every_difference_is_heard_of_once(void **state)
{
    (void)state;
    struct heard h;
    struct kml_kube_store *s = listening(&h);
    put(s, "a", "x", "u1", "1", NULL);
    put(s, "a", "x", "u1", "1", NULL);
    put(s, "b", "x", "u2", "1", NULL);
    put(s, "a", "x", "u1", "2", NULL);
    kml_kube_store_remove(s, "a", "x");
    kml_kube_store_remove(s, "a", "x");
    assert_heard(&h, "+a/x:1 +b/x:1 ~a/x:2 -a/x:2 ");
    assert_int_equal(kml_kube_store_count(s), 1);
    assert_null(kml_kube_store_get(s, "a", "x"));
    assert_string_equal(kml_kube_store_get(s, "b", "x")->uid, "u2");
    kml_kube_store_destroy(s);
}

static void the_same_name_with_another_uid_is_a_deletion_and_an_addition(void **state)
{
    (void)state;
    struct heard h;
    struct kml_kube_store *s = listening(&h);
    put(s, "a", "x", "u1", "1", NULL);
    put(s, "a", "x", "u2", "9", NULL);
    assert_heard(&h, "+a/x:1 -a/x:1 +a/x:9 ");
    kml_kube_store_destroy(s);
}

static void what_a_new_list_does_not_hold_is_deleted(void **state)
{
    (void)state;
    struct heard h;
    struct kml_kube_store *s = listening(&h);
    kml_kube_store_begin(s);
    put(s, "a", "x", "u1", "1", NULL);
    put(s, "a", "y", "u2", "1", NULL);
    put(s, "a", "z", "u3", "1", NULL);
    kml_kube_store_sweep(s);
    assert_heard(&h, "+a/x:1 +a/y:1 +a/z:1 ");
    kml_kube_store_begin(s); /* one that fails after its first page */
    put(s, "a", "x", "u1", "1", NULL);
    kml_kube_store_begin(s);
    put(s, "a", "z", "u3", "4", NULL);
    put(s, "a", "y", "u2", "1", NULL);
    kml_kube_store_sweep(s);
    assert_heard(&h, "~a/z:4 -a/x:1 ");
    kml_kube_store_destroy(s);
}

static void children_are_found_by_their_controlling_owner(void **state)
{
    (void)state;
    struct kml_kube_store *s = kml_kube_store_create(NULL);
    for (int i = 0; i < 500; i++) {
        char name[16], uid[16], owner[16];
        (void)snprintf(name, sizeof name, "p-%d", i);
        (void)snprintf(uid, sizeof uid, "u-%d", i);
        (void)snprintf(owner, sizeof owner, "job-%d", i % 7);
        put(s, "a", name, uid, "1", i % 2 == 0 ? owner : NULL);
    }
    put(s, "a", "p-0", "u-0", "2", "job-3"); /* adopted by another one */
    uint32_t found[8] = {0};
    for (int j = 0; j < 8; j++) {
        char owner[16];
        (void)snprintf(owner, sizeof owner, "job-%d", j);
        for (const struct kml_kube_object *o = NULL; (o = kml_kube_store_owned(s, owner, o)) != NULL;) {
            assert_string_equal(o->owner_uid, owner);
            found[j]++;
        }
    }
    assert_int_equal(found[0] + found[1] + found[2] + found[3] + found[4] + found[5] + found[6], 250);
    assert_int_equal(found[0], 35);
    assert_int_equal(found[3], 35 + 1);
    assert_int_equal(found[7], 0);
    uint32_t all = 0;
    for (const struct kml_kube_object *o = NULL; (o = kml_kube_store_next(s, o)) != NULL;) {
        all++;
    }
    assert_int_equal(all, 500);
    kml_kube_store_destroy(s);
}

static void assert_projected(const char *json, const char *const *keep, const char *left)
{
    struct kml_doc doc = doc_of(json);
    struct kml_buf text;
    kml_buf_init(&text, 10000);
    kml_kube_project(&doc, keep);
    assert_int_equal(kml_node_write(doc.root, &text, NULL), 0);
    assert_string_equal(kml_buf_text(&text), left);
    kml_buf_finish(&text);
    kml_doc_finish(&doc);
}

static void only_the_fields_asked_for_are_kept(void **state)
{
    (void)state;
    static const char *const keep[] = {"spec.nodeName", "status.containerStatuses.state",
                                       "metadata.annotations", NULL};
    assert_projected("{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"managedFields\":[{\"f\":1}],"
                     "\"name\":\"x\",\"uid\":\"u\","
                     "\"annotations\":{\"a\":\"b\"},\"labels\":{\"l\":\"m\"},\"generateName\":\"g\"},"
                     "\"spec\":{\"volumes\":[1],"
                     "\"nodeName\":\"n\",\"nodeNameX\":1},\"status\":{\"phase\":\"Running\","
                     "\"containerStatuses\":[{\"name\":\"c\","
                     "\"state\":{\"running\":{}}},{\"state\":null}]},\"other\":1}",
                     keep,
                     "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"x\",\"uid\":\"u\","
                     "\"annotations\":{\"a\":\"b\"},"
                     "\"labels\":{\"l\":\"m\"}},\"spec\":{\"nodeName\":\"n\"},\"status\":{"
                     "\"containerStatuses\":[{\"state\":"
                     "{\"running\":{}}},{\"state\":null}]}}");
    assert_projected("{\"metadata\":{\"a\":1,\"managedFields\":[1,2],\"b\":2},\"spec\":[{\"x\":null}]}", NULL,
                     "{\"metadata\":{\"a\":1,\"b\":2},\"spec\":[{\"x\":null}]}");
    static const char *const nothing[] = {NULL};
    assert_projected("{\"spec\":{\"a\":1},\"kind\":\"K\"}", nothing, "{\"kind\":\"K\"}");
    assert_projected("[1,\"a\"]", nothing, "[1,\"a\"]"); /* no object at all: nothing to look into */
}

static void an_object_without_name_or_uid_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"{}",
                                      "[]",
                                      "3",
                                      "{\"metadata\":{\"name\":\"x\"}}",
                                      "{\"metadata\":{\"uid\":\"u\"}}",
                                      "{\"metadata\":{\"name\":7,\"uid\":\"u\"}}",
                                      "{\"metadata\":null}"};
    struct kml_kube_store *s = kml_kube_store_create(NULL);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct kml_doc doc = doc_of(bad[i]);
        struct kml_err err = {0};
        assert_int_equal(kml_kube_store_put(s, &doc, &err), -1);
        assert_int_equal(err.code, KML_INVALID);
        assert_null(doc.root);
    }
    assert_int_equal(kml_kube_store_count(s), 0);
    kml_kube_store_destroy(s);
}

static void it_equals_a_plain_table_after_any_order_of_changes(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    struct kml_kube_store *s = kml_kube_store_create(NULL);
    uint32_t version[300] = {0}; /* 0: not there */
    for (uint32_t step = 1; step < 6000; step++) {
        uint32_t i = (uint32_t)kml_rng_below(&rng, 300);
        char name[16], text[16], owner[16];
        (void)snprintf(name, sizeof name, "p-%u", i);
        (void)snprintf(text, sizeof text, "%u", step);
        (void)snprintf(owner, sizeof owner, "o-%u", (unsigned)kml_rng_below(&rng, 5));
        if (kml_rng_below(&rng, 3) == 0) {
            kml_kube_store_remove(s, "a", name);
            version[i] = 0;
        } else {
            put(s, "a", name, name, text, owner);
            version[i] = step;
        }
    }
    uint32_t there = 0, owned = 0;
    for (uint32_t i = 0; i < 300; i++) {
        char name[16], text[16];
        (void)snprintf(name, sizeof name, "p-%u", i);
        (void)snprintf(text, sizeof text, "%u", version[i]);
        const struct kml_kube_object *o = kml_kube_store_get(s, "a", name);
        assert_true((o != NULL) == (version[i] != 0));
        if (o != NULL) {
            assert_string_equal(o->version, text);
            there++;
        }
    }
    for (uint32_t i = 0; i < 5; i++) {
        char owner[16];
        (void)snprintf(owner, sizeof owner, "o-%u", i);
        for (const struct kml_kube_object *o = NULL; (o = kml_kube_store_owned(s, owner, o)) != NULL;) {
            owned++;
        }
    }
    assert_int_equal(kml_kube_store_count(s), there);
    assert_int_equal(owned, there);
    kml_kube_store_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_difference_is_heard_of_once),
        cmocka_unit_test(the_same_name_with_another_uid_is_a_deletion_and_an_addition),
        cmocka_unit_test(what_a_new_list_does_not_hold_is_deleted),
        cmocka_unit_test(children_are_found_by_their_controlling_owner),
        cmocka_unit_test(only_the_fields_asked_for_are_kept),
        cmocka_unit_test(an_object_without_name_or_uid_is_refused),
        cmocka_unit_test(it_equals_a_plain_table_after_any_order_of_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
