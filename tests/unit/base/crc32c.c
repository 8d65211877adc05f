#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/crc32c.h"
#include "base/crc32c_paths.h"
#include "base/mem.h"
#include "base/rng.h"
#include "unit/seed.h"

typedef uint32_t crc_of(uint32_t crc, const void *data, size_t size);

static crc_of *const paths[] = {kml_crc32c, kml_crc32c_table, kml_crc32c_hardware};

/* On a machine without the instruction the last path is left out. */
static size_t path_count(void)
{
    return kml_crc32c_has_hardware() ? 3 : 2;
}

static void the_vectors_of_rfc_3720_hold_on_every_path(void **state)
{
    (void)state;
    uint8_t zeros[32] = {0};
    uint8_t ones[32];
    uint8_t up[32];
    uint8_t down[32];
    memset(ones, 0xff, sizeof ones);
    for (uint8_t i = 0; i < 32; i++) {
        up[i] = i;
        down[i] = (uint8_t)(31 - i);
    }
    static const uint8_t read_pdu[48] = {
        0x01, 0xc0, 0, 0,    0, 0, 0, 0,    0,    0, 0, 0, 0, 0, 0, 0, 0x14, 0, 0, 0, 0, 0, 0x04, 0,
        0,    0,    0, 0x14, 0, 0, 0, 0x18, 0x28, 0, 0, 0, 0, 0, 0, 0, 0x02, 0, 0, 0, 0, 0, 0,    0,
    };
    for (size_t p = 0; p < path_count(); p++) {
        assert_int_equal(paths[p](0, zeros, 32), 0x8a9136aa);
        assert_int_equal(paths[p](0, ones, 32), 0x62a8ab43);
        assert_int_equal(paths[p](0, up, 32), 0x46dd794e);
        assert_int_equal(paths[p](0, down, 32), 0x113fdb5c);
        assert_int_equal(paths[p](0, read_pdu, 48), 0xd9963a56);
        assert_int_equal(paths[p](0, "123456789", 9), 0xe3069283);
        assert_int_equal(paths[p](0, "", 0), 0);
    }
}

/* The definition, bit by bit. */
static uint32_t by_bits(uint32_t crc, const uint8_t *data, size_t size)
{
    crc = ~crc;
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78 : 0);
        }
    }
    return ~crc;
}

static void all_paths_agree_for_every_length_and_alignment(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    const size_t most = 3 * 2048 * 2 + 3 * 128 * 2 + 100;
    kml_auto_free uint8_t *data = kml_alloc(most);
    for (size_t i = 0; i < most; i++) {
        data[i] = (uint8_t)kml_rng_next(&rng);
    }
    for (size_t i = 0; i < 1200; i++) {
        size_t from = kml_rng_below(&rng, 17);
        size_t size = i < 600 ? i : kml_rng_below(&rng, most - from + 1);
        size = size > most - from ? most - from : size;
        uint32_t start = (uint32_t)kml_rng_next(&rng);
        uint32_t expected = by_bits(start, data + from, size);
        for (size_t p = 0; p < path_count(); p++) {
            assert_int_equal(paths[p](start, data + from, size), expected);
        }
    }
}

static void a_sum_may_be_taken_in_pieces(void **state)
{
    (void)state;
    uint8_t data[1000];
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (uint8_t)(i * 7);
    }
    uint32_t whole = kml_crc32c(0, data, sizeof data);
    for (size_t cut = 0; cut <= sizeof data; cut += 13) {
        assert_int_equal(kml_crc32c(kml_crc32c(0, data, cut), data + cut, sizeof data - cut), whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vectors_of_rfc_3720_hold_on_every_path),
        cmocka_unit_test(all_paths_agree_for_every_length_and_alignment),
        cmocka_unit_test(a_sum_may_be_taken_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
