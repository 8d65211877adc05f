#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

/* Reference: the authors' algorithm from the state {1, 2, 3, 4}; the first values follow by hand from the
 * definition. */
static void the_generator_is_xoshiro256_starstar(void **state)
{
    (void)state;
    struct kml_rng r = {{1, 2, 3, 4}};
    assert_int_equal(kml_rng_next(&r), 11520); /* rotl(2 * 5, 7) * 9 */
    assert_int_equal(kml_rng_next(&r), 0);     /* s[1] is now 2 ^ 1 ^ 3 = 0 */
    assert_int_equal(kml_rng_next(&r), UINT64_C(1509978240));
}

static void one_seed_gives_one_sequence(void **state)
{
    (void)state;
    struct kml_rng a;
    struct kml_rng b;
    kml_rng_init(&a, 7);
    kml_rng_init(&b, 7);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(kml_rng_next(&a), kml_rng_next(&b));
    }
    kml_rng_init(&b, 8);
    assert_int_not_equal(kml_rng_next(&a), kml_rng_next(&b));
}

static void streams_of_one_seed_differ(void **state)
{
    (void)state;
    uint64_t first[64];
    for (uint64_t s = 0; s < 64; s++) {
        struct kml_rng r;
        kml_rng_init2(&r, 1, s);
        first[s] = kml_rng_next(&r);
        for (uint64_t t = 0; t < s; t++) {
            assert_int_not_equal(first[s], first[t]);
        }
    }
}

static void below_is_uniform_and_in_range(void **state)
{
    (void)state;
    struct kml_rng r;
    kml_rng_init(&r, 3);
    int count[7] = {0};
    for (int i = 0; i < 70000; i++) {
        uint64_t x = kml_rng_below(&r, 7);
        assert_in_range(x, 0, 6);
        count[x]++;
    }
    for (int i = 0; i < 7; i++) {
        assert_in_range(count[i], 9600, 10400); /* four deviations, and the seed is fixed */
    }
    assert_int_equal(kml_rng_below(&r, 1), 0);
}

static void moments_are_those_of_the_distributions(void **state)
{
    (void)state;
    struct kml_rng r;
    kml_rng_init(&r, 4);
    double unit = 0;
    double normal = 0;
    double square = 0;
    double exponential = 0;
    const int n = 100000;
    for (int i = 0; i < n; i++) {
        double u = kml_rng_unit(&r);
        assert_true(u >= 0 && u < 1);
        double z = kml_rng_normal(&r);
        unit += u / n;
        normal += z / n;
        square += z * z / n;
        exponential += kml_rng_exponential(&r, 4) / n;
    }
    assert_true(fabs(unit - 0.5) < 0.005);
    assert_true(fabs(normal) < 0.02);
    assert_true(fabs(square - 1) < 0.02);
    assert_true(fabs(exponential - 0.25) < 0.005);
}

static void a_shuffle_is_a_permutation_and_every_order_comes(void **state)
{
    (void)state;
    struct kml_rng r;
    kml_rng_init(&r, 5);
    int seen[27] = {0};
    for (int i = 0; i < 6000; i++) {
        uint32_t v[3] = {0, 1, 2};
        kml_rng_shuffle(&r, v, 3);
        assert_int_equal((1 << v[0]) | (1 << v[1]) | (1 << v[2]), 7);
        seen[v[0] * 9 + v[1] * 3 + v[2]]++;
    }
    int orders = 0;
    for (int i = 0; i < 27; i++) {
        if (seen[i] > 0) {
            orders++;
            assert_in_range(seen[i], 880, 1120);
        }
    }
    assert_int_equal(orders, 6);
}

static void secrets_are_not_zero_and_do_not_repeat(void **state)
{
    (void)state;
    uint64_t a = kml_random_secret();
    uint64_t b = kml_random_secret();
    assert_true(a != 0 && b != 0 && a != b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_generator_is_xoshiro256_starstar),
        cmocka_unit_test(one_seed_gives_one_sequence),
        cmocka_unit_test(streams_of_one_seed_differ),
        cmocka_unit_test(below_is_uniform_and_in_range),
        cmocka_unit_test(moments_are_those_of_the_distributions),
        cmocka_unit_test(a_shuffle_is_a_permutation_and_every_order_comes),
        cmocka_unit_test(secrets_are_not_zero_and_do_not_repeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
