#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/mem.h"
#include "base/rng.h"
#include "doc/doc.h"

static void read_good(struct kml_doc *doc, const char *text)
{
    struct kml_err err = {0};
    kml_doc_init(doc);
    if (kml_doc_read(doc, "t.yaml", kml_view_str(text), &err) != 0) {
        fail_msg("%s", err.text);
    }
}

static void assert_json(const struct kml_doc *doc, const char *json)
{
    struct kml_buf buf;
    kml_buf_init(&buf, 1 << 20);
    assert_int_equal(kml_node_write(doc->root, &buf, NULL), 0);
    assert_string_equal(kml_buf_text(&buf), json);
    kml_buf_finish(&buf);
}

static void plain_scalars_follow_the_core_schema(void **state)
{
    (void)state;
    static const struct {
        const char *yaml;
        const char *json;
    } cases[] = {
        {"~", "null"},
        {"null", "null"},
        {"Null", "null"},
        {"nUll", "\"nUll\""},
        {"true", "true"},
        {"FALSE", "false"},
        {"yes", "\"yes\""},
        {"no", "\"no\""},
        {"on", "\"on\""},
        {"off", "\"off\""},
        {"y", "\"y\""},
        {"12", "12"},
        {"-7", "-7"},
        {"+7", "7"},
        {"0x1F", "31"},
        {"0o17", "15"},
        {"017", "17"},
        {"0b1", "\"0b1\""},
        {"1_000", "\"1_000\""},
        {"1.5", "1.5"},
        {".5", "0.5"},
        {"5.", "5.0"},
        {"1e3", "1000.0"},
        {"-2.5E-3", "-0.0025"},
        {"1e", "\"1e\""},
        {"e3", "\"e3\""},
        {".", "\".\""},
        {"-", NULL},
        {"1.2.3", "\"1.2.3\""},
        {"12:30", "\"12:30\""},
        {"'12'", "\"12\""},
        {"\"true\"", "\"true\""},
        {"''", "\"\""},
        {"250m", "\"250m\""},
        {"0x", "\"0x\""},
        {"file:///a", "\"file:///a\""},
        {"9223372036854775807", "9223372036854775807"},
        {"-9223372036854775808", "-9223372036854775808"},
        {"[]", "[]"},
        {"{}", "{}"},
        {"2001-01-01", "\"2001-01-01\""},
        {"|\n a\n b\n", "\"a\\nb\\n\""},
        {">\n a\n b\n", "\"a b\\n\""},
    };
    for (size_t i = 0; i < KML_COUNT(cases); i++) {
        if (cases[i].json == NULL) {
            continue;
        }
        struct kml_doc doc;
        read_good(&doc, cases[i].yaml);
        assert_json(&doc, cases[i].json);
        kml_doc_finish(&doc);
    }
}

static void what_is_wrong_is_refused_with_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *want;
    } cases[] = {
        {"", "t.yaml: the document is empty"},
        {"# only a comment\n", "t.yaml: the document is empty"},
        {"a: 1\na: 2\n", "t.yaml:2:1: the key 'a' stands twice"},
        {"a:\n  b: 1\n  c: 2\n  b: 3\n", "t.yaml:4:3: the key 'b' stands twice"},
        {"{\"a\": 1,\n \"a\": 2}", "t.yaml:2:"},
        {"a: 1\n---\nb: 2\n", "t.yaml:2:1: a second document"},
        {"a: &x 1\nb: *x\n", "t.yaml:1:4: anchors and aliases"},
        {"a: [&x {b: 1}]\n", "t.yaml:1:5: anchors and aliases"},
        {"a: *x\n", "t.yaml:1:4: anchors and aliases"},
        {"a: !!str 1\n", "t.yaml:1:4: tags"},
        {"a: !mine {b: 1}\n", "t.yaml:1:4: tags"},
        {"a: .inf\n", "t.yaml:1:4: .inf is no finite number"},
        {"a: -.inf\n", "no finite number"},
        {"a: .nan\n", "no finite number"},
        {"a: 1e999\n", "too large"},
        {"a: 9223372036854775808\n", "does not fit"},
        {"{\"a\": 9223372036854775808}", "t.yaml:1:"},
        {"a: [1, 2\nb: 3\n", "t.yaml:2:"},
        {"a:\n\t- 1\n", "t.yaml:2:1"},
        {"a: b: c\n", "t.yaml:1:5"},
        {"? [1]\n: 2\n", "t.yaml:1:3: a key must be a text"},
        {"a: \"\\0\"\n", "zero byte"},
        {"\"a\\0b\": 1\n", "zero byte"},
        {"{\"a\": \"\\u0000\"}", "t.yaml:1:"},
        {"{\"a\" 1}", "t.yaml:1:"},
        {"{\"a\": [1, 2}", "t.yaml:1:"},
        {"[\"a\"", "t.yaml:1:"},
        {"a: \xff\n", "no UTF-8 text"},
        {"%YAML 3.0\n---\na: 1\n", "t.yaml:1:"},
    };
    for (size_t i = 0; i < KML_COUNT(cases); i++) {
        struct kml_doc doc;
        struct kml_err err = {0};
        kml_doc_init(&doc);
        if (kml_doc_read(&doc, "t.yaml", kml_view_str(cases[i].text), &err) == 0) {
            fail_msg("read without an error: %s", cases[i].text);
        }
        if (strstr(err.text, cases[i].want) == NULL) {
            fail_msg("'%s' gave '%s', wanted '%s'", cases[i].text, err.text, cases[i].want);
        }
        assert_int_equal(err.code, KML_INVALID);
        assert_null(doc.root);
        kml_doc_finish(&doc);
    }
}

static void assert_place(const struct kml_doc *doc, const char *path, bool key, const char *want)
{
    char place[KML_DOC_PLACE];
    char own[KML_DOC_PATH];
    const struct kml_node *node = kml_doc_find(doc, path);
    assert_non_null(node);
    kml_node_path(node, own);
    assert_string_equal(own, path);
    kml_node_place(doc, node, key, place);
    assert_string_equal(place, want);
}

static void yaml_nodes_know_their_places(void **state)
{
    (void)state;
    struct kml_doc doc;
    read_good(&doc, "a:\n  b: [1,\n    {c: x}]\n\"\xc3\xa9\": {d.e: 2}\n");
    assert_place(&doc, "a", true, "t.yaml:1:1");
    assert_place(&doc, "a", false, "t.yaml:2:3");
    assert_place(&doc, "a.b", true, "t.yaml:2:3");
    assert_place(&doc, "a.b[0]", false, "t.yaml:2:7");
    assert_place(&doc, "a.b[1].c", true, "t.yaml:3:6");
    assert_place(&doc, "a.b[1].c", false, "t.yaml:3:9");
    assert_place(&doc, "\xc3\xa9.d\\.e", false, "t.yaml:4:12");
    kml_doc_finish(&doc);
}

static void json_nodes_know_their_places(void **state)
{
    (void)state;
    struct kml_doc doc;
    read_good(
        &doc,
        "\xef\xbb\xbf{\"a\": {\n  \"b\" : [ 1.5, \n {\"c\": \"x\\\"]\"} , null, [], true],\r\n\"\\u00e9\": "
        "{\"d.e\": -2}},\n"
        "\t\"\xc3\xa9\xc3\xa9\": 3, \"\\ud83d\\ude00\": 4}\n");
    assert_place(&doc, "a", true, "t.yaml:1:2");
    assert_place(&doc, "a", false, "t.yaml:1:7");
    assert_place(&doc, "a.b", true, "t.yaml:2:3");
    assert_place(&doc, "a.b[0]", false, "t.yaml:2:11");
    assert_place(&doc, "a.b[1].c", true, "t.yaml:3:3");
    assert_place(&doc, "a.b[1].c", false, "t.yaml:3:8");
    assert_place(&doc, "a.b[2]", false, "t.yaml:3:18");
    assert_place(&doc, "a.b[4]", false, "t.yaml:3:28");
    assert_place(&doc, "a.\xc3\xa9.d\\.e", false, "t.yaml:4:19");
    assert_place(&doc, "\xc3\xa9\xc3\xa9", true, "t.yaml:5:2");
    assert_place(&doc, "\xc3\xa9\xc3\xa9", false, "t.yaml:5:8");
    assert_place(&doc, "\xf0\x9f\x98\x80", false, "t.yaml:5:27");
    kml_doc_finish(&doc);
}

static void a_document_within_its_limits_is_read_and_one_past_them_refused(void **state)
{
    (void)state;
    char text[1024];
    static const char *const brackets[] = {"[]", "{}"};
    for (int json = 0; json < 2; json++) {
        for (int depth = 60; depth <= 70; depth++) {
            size_t size = 0;
            for (int i = 0; i < depth; i++) {
                text[size++] = brackets[0][0];
            }
            if (json == 0) {
                text[size++] = 'x'; /* no JSON: the YAML reader has to refuse it by itself */
            }
            for (int i = 0; i < depth; i++) {
                text[size++] = brackets[0][1];
            }
            struct kml_doc doc;
            struct kml_err err = {0};
            kml_doc_init(&doc);
            int result = kml_doc_read(&doc, "deep", kml_view_of(text, size), &err);
            assert_int_equal(result,
                             depth < KML_DOC_MAX_DEPTH || (json == 1 && depth == KML_DOC_MAX_DEPTH) ? 0 : -1);
            assert_int_equal(err.code, result == 0 ? KML_OK : KML_TOO_LARGE);
            kml_doc_finish(&doc);
        }
    }
}

static void refused_as_too_large(struct kml_buf *text)
{
    struct kml_doc doc;
    struct kml_err err = {0};
    kml_doc_init(&doc);
    assert_int_equal(kml_doc_read(&doc, "big", kml_buf_view(text), &err), -1);
    assert_int_equal(err.code, KML_TOO_LARGE);
    kml_doc_finish(&doc);
    kml_buf_finish(text);
}

static void too_many_values_keys_and_bytes_are_refused(void **state)
{
    (void)state;
    for (int json = 0; json < 2; json++) {
        struct kml_buf text;
        kml_buf_init(&text, 1 << 23);
        assert_int_equal(kml_buf_puts(&text, json ? "[0" : "k: [0", NULL), 0);
        for (int i = 0; i < KML_DOC_MAX_NODES; i++) {
            assert_int_equal(kml_buf_puts(&text, ",1", NULL), 0);
        }
        assert_int_equal(kml_buf_puts(&text, "]", NULL), 0);
        refused_as_too_large(&text);

        kml_buf_init(&text, 1 << 23);
        assert_int_equal(kml_buf_puts(&text, json ? "{\"k\":0" : "k: 0\n", NULL), 0);
        for (int i = 0; i < KML_DOC_MAX_KEYS; i++) {
            assert_int_equal(kml_buf_printf(&text, NULL, json ? ",\"k%d\":1" : "k%d: 1\n", i), 0);
        }
        assert_int_equal(kml_buf_puts(&text, json ? "}" : "\n", NULL), 0);
        refused_as_too_large(&text);
    }
    struct kml_buf text;
    kml_buf_init(&text, KML_DOC_MAX_BYTES + 1);
    uint8_t *room = kml_buf_reserve(&text, KML_DOC_MAX_BYTES + 1, NULL);
    assert_non_null(room);
    memset(room, ' ', KML_DOC_MAX_BYTES + 1);
    kml_buf_added(&text, KML_DOC_MAX_BYTES + 1);
    refused_as_too_large(&text);
}

static void setting_makes_what_is_missing_and_replaces_what_is_there(void **state)
{
    (void)state;
    static const struct {
        const char *assignment;
        const char *json;
    } steps[] = {
        {"a.b=1", "{\"a\":{\"b\":1}}"},
        {"a.c=[1, x, {d: e}]", "{\"a\":{\"b\":1,\"c\":[1,\"x\",{\"d\":\"e\"}]}}"},
        {"a.c[1]=true", "{\"a\":{\"b\":1,\"c\":[1,true,{\"d\":\"e\"}]}}"},
        {"a.c[2].d='7'", "{\"a\":{\"b\":1,\"c\":[1,true,{\"d\":\"7\"}]}}"},
        {"a.c[3]=end", "{\"a\":{\"b\":1,\"c\":[1,true,{\"d\":\"7\"},\"end\"]}}"},
        {"a.c=", "{\"a\":{\"b\":1,\"c\":null}}"},
        {"a.c.d=x=y", "{\"a\":{\"b\":1,\"c\":{\"d\":\"x=y\"}}}"},
        {"a={\"q\": [0.5]}", "{\"a\":{\"q\":[0.5]}}"},
        {"a.k\\.ml/x=file:///p", "{\"a\":{\"q\":[0.5],\"k.ml/x\":\"file:///p\"}}"},
    };
    struct kml_doc doc;
    kml_doc_init(&doc);
    for (size_t i = 0; i < KML_COUNT(steps); i++) {
        struct kml_err err = {0};
        if (kml_doc_assign(&doc, steps[i].assignment, &err) != 0) {
            fail_msg("%s", err.text);
        }
        assert_json(&doc, steps[i].json);
    }
    assert_place(&doc, "a.k\\.ml/x", false, "--set a.k\\.ml/x=file:///p");
    kml_doc_finish(&doc);
}

static void a_bad_assignment_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *assignment;
        const char *want;
    } cases[] = {
        {"a.b", "has no value"},
        {"=1", "has no value"},
        {"a..b=1", "malformed"},
        {".a=1", "malformed"},
        {"a.=1", "malformed"},
        {"a[=1", "malformed"},
        {"a[x]=1", "malformed"},
        {"a]=1", "malformed"},
        {"l[0]x=1", "malformed"},
        {"l[99999999999]=1", "malformed"},
        {"l[5]=1", "neither one nor the next"},
        {"a.b.c=1", "'a.b' is of the kind integer, not map"},
        {"a[0]=1", "'a' is of the kind map, not list"},
        {"l.x=1", "'l' is of the kind list, not map"},
        {"a.b=[1", "--set a.b=[1"},
        {"a.b=*x", "anchors"},
    };
    for (size_t i = 0; i < KML_COUNT(cases); i++) {
        struct kml_doc doc;
        struct kml_err err = {0};
        read_good(&doc, "{a: {b: 1}, l: [1]}");
        assert_int_equal(kml_doc_assign(&doc, cases[i].assignment, &err), -1);
        if (strstr(err.text, cases[i].want) == NULL) {
            fail_msg("'%s' gave '%s', wanted '%s'", cases[i].assignment, err.text, cases[i].want);
        }
        assert_json(&doc, "{\"a\":{\"b\":1},\"l\":[1]}");
        kml_doc_finish(&doc);
    }
}

static void setting_cannot_build_what_reading_would_refuse(void **state)
{
    (void)state;
    struct kml_buf path;
    kml_buf_init(&path, 4096);
    for (int i = 0; i < KML_DOC_MAX_DEPTH; i++) {
        assert_int_equal(kml_buf_puts(&path, i > 0 ? ".a" : "a", NULL), 0);
    }
    struct kml_doc doc;
    struct kml_err err = {0};
    kml_doc_init(&doc);
    assert_int_equal(kml_doc_set(&doc, kml_buf_text(&path), "1", "test", &err), -1);
    assert_int_equal(err.code, KML_TOO_LARGE);
    assert_int_equal(kml_doc_set(&doc, kml_buf_text(&path) + 2, "1", "test", &err), 0);
    kml_doc_finish(&doc);
    kml_buf_finish(&path);
}

static void a_copy_is_equal_and_lives_alone(void **state)
{
    (void)state;
    struct kml_doc a, b;
    struct kml_err err = {0};
    read_good(&a, "{x: [1, 2.5, t, null, true], y: {z: w}}");
    kml_doc_init(&b);
    assert_int_equal(kml_doc_copy(&b, &a, &err), 0);
    kml_doc_finish(&a);
    assert_place(&b, "y.z", false, "t.yaml:1:37");
    read_good(&a, "y: {z: w}\nx: [1, 2.5, 't', ~, True]\n");
    assert_true(kml_node_equal(a.root, b.root));
    static const char *const changes[] = {"x[0]=1.0",   "x[1]=2.25", "x[2]=u", "x[3]=0",
                                          "x[4]=false", "y.z=v",     "y.q=1"};
    for (size_t i = 0; i < KML_COUNT(changes); i++) {
        struct kml_doc c;
        kml_doc_init(&c);
        assert_int_equal(kml_doc_copy(&c, &a, &err), 0);
        assert_int_equal(kml_doc_assign(&c, changes[i], &err), 0);
        assert_false(kml_node_equal(c.root, a.root));
        assert_false(kml_node_equal(a.root, c.root));
        kml_doc_finish(&c);
    }
    kml_doc_finish(&a);
    kml_doc_finish(&b);
}

/* ---- Random trees ---- */

static void random_text(struct kml_rng *rng, struct kml_buf *out)
{
    static const char *const words[] = {"a",    "null",     "12", "1e5", "true", "x: y",
                                        "# no", "\xc3\xa9", "",   " ",   "\\n",  "*x"};
    json_t *text = json_string(words[kml_rng_below(rng, KML_COUNT(words))]);
    char *dump = json_dumps(text, JSON_ENCODE_ANY);
    assert_int_equal(kml_buf_puts(out, dump, NULL), 0);
    free(dump);
    json_decref(text);
}

static void random_json(struct kml_rng *rng, struct kml_buf *out, int depth)
{
    uint64_t kind = kml_rng_below(rng, depth > 4 ? 5 : 7);
    uint64_t count = kml_rng_below(rng, 5);
    if (kind == 0) {
        assert_int_equal(kml_buf_puts(out, kml_rng_below(rng, 2) ? "true" : "null", NULL), 0);
    } else if (kind == 1) {
        assert_int_equal(kml_buf_printf(out, NULL, "%lld", (long long)(int64_t)kml_rng_next(rng)), 0);
    } else if (kind == 2) {
        assert_int_equal(kml_buf_printf(out, NULL, "%.17g.5", (double)kml_rng_below(rng, 1000)), 0);
    } else if (kind <= 4) {
        random_text(rng, out);
    } else {
        assert_int_equal(kml_buf_puts(out, kind == 5 ? "[" : "{", NULL), 0);
        for (uint64_t i = 0; i < count; i++) {
            if (kind == 6) {
                assert_int_equal(kml_buf_printf(out, NULL, "\"k%u\":", (unsigned)i), 0);
            }
            random_json(rng, out, depth + 1);
            assert_int_equal(kml_buf_puts(out, i + 1 < count ? ",\n " : "", NULL), 0);
        }
        assert_int_equal(kml_buf_puts(out, kind == 5 ? "]" : "}", NULL), 0);
    }
}

static void json_and_yaml_readers_agree_and_what_is_written_reads_back(void **state)
{
    (void)state;
    uint64_t seed = 4711;
    printf("seed %llu\n", (unsigned long long)seed);
    struct kml_rng rng;
    kml_rng_init(&rng, seed);
    for (int round = 0; round < 2000; round++) {
        struct kml_buf text, yaml, again;
        struct kml_doc a, b, c;
        kml_buf_init(&text, 1 << 20);
        kml_buf_init(&yaml, 1 << 20);
        kml_buf_init(&again, 1 << 20);
        assert_int_equal(kml_buf_puts(&text, "{\"r\": ", NULL), 0);
        random_json(&rng, &text, 0);
        assert_int_equal(kml_buf_puts(&text, "}", NULL), 0);
        assert_int_equal(kml_buf_printf(&yaml, NULL, "--- # by libyaml\n%s\n", kml_buf_text(&text)), 0);
        read_good(&a, kml_buf_text(&text));
        read_good(&b, kml_buf_text(&yaml));
        assert_true(kml_node_equal(a.root, b.root));
        assert_int_equal(kml_node_write(a.root, &again, NULL), 0);
        read_good(&c, kml_buf_text(&again));
        assert_true(kml_node_equal(a.root, c.root));
        json_t *oracle = json_loads(kml_buf_text(&text), 0, NULL);
        json_t *written = json_loads(kml_buf_text(&again), 0, NULL);
        assert_true(json_equal(oracle, written));
        json_decref(oracle);
        json_decref(written);
        kml_doc_finish(&a);
        kml_doc_finish(&b);
        kml_doc_finish(&c);
        kml_buf_finish(&text);
        kml_buf_finish(&yaml);
        kml_buf_finish(&again);
    }
}

static int read_set_and_copy(const char *text, struct kml_err *err)
{
    struct kml_doc a, b;
    kml_doc_init(&a);
    kml_doc_init(&b);
    int result = kml_doc_read(&a, "t", kml_view_str(text), err);
    if (result == 0) {
        result = kml_doc_assign(&a, "a.new.list=[1, {x: y}]", err);
    }
    if (result == 0) {
        result = kml_doc_copy(&b, &a, err);
    }
    kml_doc_finish(&a);
    kml_doc_finish(&b);
    return result;
}

static void every_allocation_that_fails_is_an_error_and_leaks_nothing(void **state)
{
    (void)state;
    static const char *const texts[] = {"a: {b: [1, 2, 3, 4, 5], c: text}\nd: 'e'\n",
                                        "{\"a\": {\"b\": [1, 2, 3, 4, 5], \"c\": \"text\"}, \"d\": \"e\"}"};
    for (size_t i = 0; i < KML_COUNT(texts); i++) {
        int failures = 0;
        int result = -1;
        for (uint64_t nth = 1; result != 0; nth++) {
            struct kml_err err = {0};
            kml_test_fail_alloc(nth);
            result = read_set_and_copy(texts[i], &err);
            kml_test_fail_alloc(0);
            if (result != 0) {
                assert_int_equal(err.code, KML_NO_MEMORY);
                failures++;
            }
            assert_true(nth < 1000);
        }
        assert_true(failures > 20);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_scalars_follow_the_core_schema),
        cmocka_unit_test(what_is_wrong_is_refused_with_its_place),
        cmocka_unit_test(yaml_nodes_know_their_places),
        cmocka_unit_test(json_nodes_know_their_places),
        cmocka_unit_test(a_document_within_its_limits_is_read_and_one_past_them_refused),
        cmocka_unit_test(too_many_values_keys_and_bytes_are_refused),
        cmocka_unit_test(setting_makes_what_is_missing_and_replaces_what_is_there),
        cmocka_unit_test(a_bad_assignment_is_refused_and_changes_nothing),
        cmocka_unit_test(setting_cannot_build_what_reading_would_refuse),
        cmocka_unit_test(a_copy_is_equal_and_lives_alone),
        cmocka_unit_test(json_and_yaml_readers_agree_and_what_is_written_reads_back),
        cmocka_unit_test(every_allocation_that_fails_is_an_error_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
