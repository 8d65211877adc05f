#include "sync/layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"

#define SHAPE(...) (uint32_t[]){__VA_ARGS__}, (uint32_t)(sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

static void add(struct kml_layout *l, const char *name, const uint32_t *shape, uint32_t dims)
{
    struct kml_err err;
    assert_int_equal(kml_layout_add(l, name, shape, dims, &err), 0);
}

static void refuses(struct kml_layout *l, const char *name, const uint32_t *shape, uint32_t dims,
                    enum kml_code code, const char *says)
{
    struct kml_err err = {.code = KML_OK};
    struct kml_layout before = *l;
    assert_int_equal(kml_layout_add(l, name, shape, dims, &err), -1);
    assert_int_equal(err.code, code);
    assert_string_equal(err.text, says);
    assert_int_equal(l->count, before.count);
    assert_int_equal(l->floats, before.floats);
}

static void mlp(struct kml_layout *l, uint32_t hidden)
{
    kml_layout_init(l);
    add(l, "layer.0.weight", SHAPE(hidden, 784));
    add(l, "layer.0.bias", SHAPE(hidden));
    add(l, "layer.1.weight", SHAPE(10, hidden));
    add(l, "layer.1.bias", SHAPE(10));
}

static void differs(const struct kml_layout *here, const struct kml_layout *job, const char *says)
{
    struct kml_err err = {.code = KML_OK};
    assert_int_equal(kml_layout_same(here, job, &err), -1);
    assert_int_equal(err.code, KML_PROTOCOL);
    assert_string_equal(err.text, says);
}

static void tensors_lie_end_to_end(void **state)
{
    (void)state;
    struct kml_layout l;
    mlp(&l, 128);
    assert_int_equal(l.floats, 101770);
    uint64_t offset = 0;
    for (uint32_t i = 0; i < l.count; i++) {
        assert_int_equal(l.tensor[i].offset, offset);
        offset += l.tensor[i].count;
    }
    assert_int_equal(offset, l.floats);
    assert_int_equal(kml_layout_find(&l, "layer.1.weight")->offset, 128 * 784 + 128);
    assert_null(kml_layout_find(&l, "layer.2.weight"));
    add(&l, "temperature", NULL, 0); /* a scalar */
    assert_int_equal(l.floats, 101771);
    kml_layout_finish(&l);
}

static void equal_layouts_are_the_same_and_copies_are_equal(void **state)
{
    (void)state;
    struct kml_layout a, b, copy;
    mlp(&a, 128);
    mlp(&b, 128);
    kml_layout_copy(&copy, &a);
    assert_int_equal(kml_layout_same(&a, &b, NULL), 0);
    assert_int_equal(kml_layout_same(&copy, &b, NULL), 0);
    add(&copy, "more", SHAPE(1));
    assert_int_equal(a.count, 4);
    kml_layout_finish(&a);
    kml_layout_finish(&b);
    kml_layout_finish(&copy);
    kml_layout_init(&a);
    kml_layout_copy(&copy, &a); /* an empty one, too */
    add(&copy, "first", SHAPE(2, 3, 4, 5));
    assert_int_equal(copy.floats, 120);
    kml_layout_finish(&copy);
}

static void the_first_difference_is_named(void **state)
{
    (void)state;
    struct kml_layout a, b;
    mlp(&a, 128);
    mlp(&b, 64);
    differs(&a, &b, "layer.0.weight: [128,784] here, [64,784] in the job");
    kml_layout_finish(&b);
    mlp(&b, 128);
    add(&b, "layer.2.bias", SHAPE(3));
    differs(&a, &b, "layer.2.bias: missing here, [3] in the job");
    differs(&b, &a, "layer.2.bias: [3] here, missing in the job");
    add(&a, "other", SHAPE(3));
    differs(&a, &b, "tensor 4: other here, layer.2.bias in the job");
    kml_layout_finish(&a);
    kml_layout_finish(&b);
    kml_layout_init(&a);
    kml_layout_init(&b);
    add(&a, "x", NULL, 0);
    add(&b, "x", SHAPE(1)); /* as many floats, another rank */
    differs(&a, &b, "x: [] here, [1] in the job");
    kml_layout_finish(&a);
    kml_layout_finish(&b);
}

static void what_breaks_a_bound_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    struct kml_layout l;
    char name[200];
    mlp(&l, 2);
    memset(name, 'n', sizeof name);
    name[KML_LAYOUT_NAME] = '\0';
    add(&l, name, SHAPE(1));
    name[KML_LAYOUT_NAME] = 'n';
    name[KML_LAYOUT_NAME + 1] = '\0';
    refuses(&l, name, SHAPE(1), KML_INVALID,
            "tensor 5: a name is 1 to 128 printable characters without spaces, this one begins "
            "\"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\"");
    refuses(&l, "", SHAPE(1), KML_INVALID,
            "tensor 5: a name is 1 to 128 printable characters without spaces, this one begins \"\"");
    refuses(&l, "a b", SHAPE(1), KML_INVALID,
            "tensor 5: a name is 1 to 128 printable characters without spaces, this one begins \"a b\"");
    refuses(&l, "__metadata__", SHAPE(1), KML_INVALID,
            "tensor 5: the model file has its metadata under the name __metadata__; take another one");
    refuses(&l, "a\n", SHAPE(1), KML_INVALID,
            "tensor 5: a name is 1 to 128 printable characters without spaces, this one begins \"a?\"");
    refuses(&l, "layer.0.bias", SHAPE(2), KML_INVALID, "layer.0.bias: two tensors have this name");
    refuses(&l, "x", SHAPE(1, 1, 1, 1, 1), KML_INVALID, "x: 5 dimensions, at most 4 are allowed");
    refuses(&l, "x", SHAPE(3, 0), KML_INVALID, "x: dimension 1 is 0");
    refuses(&l, "x", SHAPE(65536, 32768), KML_TOO_LARGE, "x: the model has more than 2147483647 parameters");
    refuses(&l, "x", SHAPE(UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX), KML_TOO_LARGE,
            "x: the model has more than 2147483647 parameters");
    refuses(&l, "x", SHAPE(2147483647), KML_TOO_LARGE, "x: the model has more than 2147483647 parameters");
    kml_layout_finish(&l);
}

static void the_number_of_tensors_is_bounded(void **state)
{
    (void)state;
    struct kml_layout l;
    kml_layout_init(&l);
    for (uint32_t i = 0; i < KML_LAYOUT_TENSORS; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%u", i);
        add(&l, name, SHAPE(1));
    }
    refuses(&l, "x", SHAPE(1), KML_TOO_LARGE, "x: a model has at most 4096 tensors");
    kml_layout_finish(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_lie_end_to_end),
        cmocka_unit_test(equal_layouts_are_the_same_and_copies_are_equal),
        cmocka_unit_test(the_first_difference_is_named),
        cmocka_unit_test(what_breaks_a_bound_is_refused_and_changes_nothing),
        cmocka_unit_test(the_number_of_tensors_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
