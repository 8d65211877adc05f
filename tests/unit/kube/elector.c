/* Who leads. Several electors and one lease in memory; their clocks and the network are the test's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "kube/elector.h"
#include "unit/seed.h"

/* The API server: one object with optimistic concurrency. */
struct server {
    bool exists;
    struct kml_elector_record record;
    uint32_t version;
    uint32_t writes;
};

static void version_text(const struct server *s, char out[16])
{
    (void)snprintf(out, 16, "%u", s->version);
}

/* Carries out one wanted call at once. False: the network or a conflict ate it. */
static void serve(struct server *s, struct kml_elector *e, const struct kml_elector_want *want, bool network,
                  uint64_t now)
{
    char version[16];
    version_text(s, version);
    if (!network) {
        kml_elector_failed(e, now);
        return;
    }
    if (want->act == KML_ELECTOR_READ) {
        if (s->exists) {
            kml_elector_read(e, &s->record, version, now);
        } else {
            kml_elector_missing(e, now);
        }
        return;
    }
    bool fits =
        want->act == KML_ELECTOR_CREATE ? !s->exists : s->exists && strcmp(want->version, version) == 0;
    if (!fits) {
        kml_elector_failed(e, now);
        return;
    }
    s->exists = true;
    s->record = want->record;
    s->version++;
    s->writes++;
    version_text(s, version);
    kml_elector_wrote(e, &want->record, version, now);
}

/* All that it wants at this moment; the next moment of interest comes back. */
static uint64_t turn(struct server *s, struct kml_elector *e, bool network, uint64_t now)
{
    struct kml_elector_want want;
    for (int i = 0; i < 10; i++) {
        kml_elector_next(e, now, now + 1000 * KML_SECOND, &want);
        if (want.act == KML_ELECTOR_WAIT) {
            return want.until_ns;
        }
        serve(s, e, &want, network, now);
    }
    fail_msg("it asks again and again at one moment");
    return 0;
}

static void the_first_one_creates_the_lease_and_renews_it_every_two_seconds(void **state)
{
    (void)state;
    struct server s = {0};
    struct kml_elector a;
    kml_elector_init(&a, "a", 1);
    uint64_t now = 5 * KML_SECOND;
    assert_int_equal(turn(&s, &a, true, now), 7 * KML_SECOND);
    assert_true(kml_elector_leads(&a, now));
    assert_string_equal(s.record.holder, "a");
    assert_int_equal(s.record.duration_seconds, 15);
    assert_int_equal(s.record.transitions, 0);
    uint64_t acquired = s.record.acquire_wall_ns;
    assert_int_equal(turn(&s, &a, true, 7 * KML_SECOND), 9 * KML_SECOND);
    assert_int_equal(s.writes, 2); /* without reading in between */
    assert_int_equal(s.record.acquire_wall_ns, acquired);
    assert_true(s.record.renew_wall_ns > acquired);
}

static void a_second_one_waits_until_the_lease_did_not_change_for_its_duration(void **state)
{
    (void)state;
    struct server s = {0};
    struct kml_elector a, b;
    kml_elector_init(&a, "a", 1);
    kml_elector_init(&b, "b", 2);
    uint64_t now = 0;
    (void)turn(&s, &a, true, now); /* a leads, and is never heard of again */
    uint64_t took = 0;
    for (now = KML_SECOND; took == 0 && now < 60 * KML_SECOND; now += KML_SECOND / 10) {
        (void)turn(&s, &b, true, now);
        took = kml_elector_leads(&b, now) ? now : 0;
    }
    /* it first saw the record at second 1, and asks at least every 4.4 s */
    assert_in_range(took, 16 * KML_SECOND, 21 * KML_SECOND);
    assert_string_equal(s.record.holder, "b");
    assert_int_equal(s.record.transitions, 1);
    assert_false(kml_elector_leads(&a, took));
}

static void a_leader_that_cannot_renew_has_lost_before_another_may_take_over(void **state)
{
    (void)state;
    struct server s = {0};
    struct kml_elector a;
    kml_elector_init(&a, "a", 1);
    (void)turn(&s, &a, true, 0);
    uint64_t now = 0;
    for (now = 2 * KML_SECOND; now < 10 * KML_SECOND; now += 2 * KML_SECOND) {
        (void)turn(&s, &a, false, now);
        assert_true(kml_elector_leads(&a, now));
    }
    assert_false(kml_elector_leads(&a, 10 * KML_SECOND)); /* even if nobody asked it */
    assert_int_equal(turn(&s, &a, true, 10 * KML_SECOND), UINT64_MAX);
    assert_int_equal(a.state, KML_ELECTOR_LOST);
    assert_int_equal(turn(&s, &a, true, 100 * KML_SECOND), UINT64_MAX); /* for good */
    assert_int_equal(s.writes, 1);
}

static void a_renewal_counts_from_when_it_was_sent(void **state)
{
    (void)state;
    struct server s = {0};
    struct kml_elector a;
    struct kml_elector_want want;
    kml_elector_init(&a, "a", 1);
    (void)turn(&s, &a, true, 0);
    kml_elector_next(&a, 2 * KML_SECOND, 0, &want);
    assert_int_equal(want.act, KML_ELECTOR_WRITE);
    serve(&s, &a, &want, true, 9 * KML_SECOND); /* the answer took seven seconds */
    assert_true(kml_elector_leads(&a, 11 * KML_SECOND));
    assert_false(kml_elector_leads(&a, 12 * KML_SECOND));
}

static void a_leader_that_reads_another_holder_has_lost(void **state)
{
    (void)state;
    struct server s = {0};
    struct kml_elector a;
    kml_elector_init(&a, "a", 1);
    (void)turn(&s, &a, true, 0);
    (void)snprintf(s.record.holder, sizeof s.record.holder, "b");
    s.version++;
    (void)turn(&s, &a, true, 2 * KML_SECOND); /* conflict */
    assert_true(kml_elector_leads(&a, 3 * KML_SECOND));
    (void)turn(&s, &a, true, 4 * KML_SECOND); /* reads it */
    assert_int_equal(a.state, KML_ELECTOR_LOST);
}

static void a_released_lease_is_taken_at_the_next_look(void **state)
{
    (void)state;
    struct server s = {0};
    struct kml_elector a, b;
    kml_elector_init(&a, "a", 1);
    kml_elector_init(&b, "b", 2);
    (void)turn(&s, &a, true, 0);
    uint64_t look = turn(&s, &b, true, KML_SECOND);
    assert_in_range(look, 3 * KML_SECOND, 5400 * KML_MILLISECOND + 1);
    kml_elector_release(&a);
    assert_int_equal(turn(&s, &a, true, KML_SECOND), UINT64_MAX); /* at once, not at the next renewal */
    assert_int_equal(a.state, KML_ELECTOR_RELEASED);
    assert_false(kml_elector_leads(&a, KML_SECOND));
    assert_string_equal(s.record.holder, "");
    assert_int_equal(s.record.duration_seconds, 1);
    (void)turn(&s, &b, true, look);
    assert_true(kml_elector_leads(&b, look));
}

static void who_does_not_lead_releases_nothing(void **state)
{
    (void)state;
    struct server s = {0};
    struct kml_elector a, b;
    kml_elector_init(&a, "a", 1);
    kml_elector_init(&b, "b", 2);
    (void)turn(&s, &a, true, 0);
    (void)turn(&s, &b, true, 0);
    kml_elector_release(&b);
    assert_int_equal(b.state, KML_ELECTOR_RELEASED);
    assert_int_equal(turn(&s, &b, true, KML_SECOND), UINT64_MAX);
    assert_int_equal(s.writes, 1);
}

/* Five candidates, a lossy network, pauses of any length: never two that lead at one moment. */
static void there_are_never_two_leaders(void **state)
{
    (void)state;
    struct kml_rng rng;
    kml_rng_init(&rng, test_seed());
    for (int run = 0; run < 60; run++) {
        struct server s = {0};
        struct kml_elector e[5];
        uint64_t paused_until[5] = {0};
        uint32_t led = 0;
        for (int i = 0; i < 5; i++) {
            char name[8];
            (void)snprintf(name, sizeof name, "c%d", i);
            kml_elector_init(&e[i], name, kml_rng_next(&rng));
        }
        for (uint64_t now = 0; now < 300 * KML_SECOND; now += KML_SECOND / 4) {
            uint32_t leaders = 0;
            for (int i = 0; i < 5; i++) {
                if (kml_rng_below(&rng, 200) == 0) {
                    paused_until[i] = now + kml_rng_below(&rng, 40 * KML_SECOND);
                }
                if (now >= paused_until[i]) {
                    (void)turn(&s, &e[i], kml_rng_below(&rng, 3) != 0, now);
                }
                leaders += kml_elector_leads(&e[i], now) ? 1 : 0;
                if (e[i].state == KML_ELECTOR_LOST) { /* its program is started anew */
                    char name[32];
                    (void)snprintf(name, sizeof name, "c%d-%u", i, (unsigned)(now / KML_MILLISECOND));
                    kml_elector_init(&e[i], name, kml_rng_next(&rng));
                }
            }
            assert_true(leaders <= 1);
            led += leaders;
        }
        assert_true(led > 300); /* and most of the time there is one */
    }
}

static void a_lease_object_reads_back_as_it_was_written(void **state)
{
    (void)state;
    struct kml_elector_record record = {"pod-1_x", 15, UINT64_C(1769860800123456000),
                                        UINT64_C(1769860802000000000), 3};
    struct kml_elector_record back;
    char version[KML_ELECTOR_VERSION];
    struct kml_buf text;
    kml_buf_init(&text, 4096);
    assert_int_equal(kml_elector_write_json(&record, "ns", "lease", "77", &text, NULL), 0);
    assert_string_equal(
        kml_buf_text(&text),
        "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\",\"metadata\":{\"name\":\"lease\","
        "\"namespace\":\"ns\",\"resourceVersion\":\"77\"},\"spec\":{\"holderIdentity\":\"pod-1_x\","
        "\"leaseDurationSeconds\":15,\"acquireTime\":\"2026-01-31T12:00:00.123456Z\","
        "\"renewTime\":\"2026-01-31T12:00:02.000000Z\",\"leaseTransitions\":3}}");
    struct kml_doc doc;
    kml_doc_init(&doc);
    assert_int_equal(kml_doc_read(&doc, "t", kml_buf_view(&text), NULL), 0);
    assert_int_equal(kml_elector_read_json(doc.root, &back, version, NULL), 0);
    assert_memory_equal(&back, &record, sizeof back);
    assert_string_equal(version, "77");
    kml_doc_finish(&doc);
    assert_int_equal(kml_doc_read(&doc, "t", kml_view_str("{\"metadata\":{},\"spec\":{}}"), NULL), 0);
    assert_int_equal(kml_elector_read_json(doc.root, &back, version, NULL), -1);
    kml_doc_finish(&doc);
    kml_buf_finish(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_one_creates_the_lease_and_renews_it_every_two_seconds),
        cmocka_unit_test(a_second_one_waits_until_the_lease_did_not_change_for_its_duration),
        cmocka_unit_test(a_leader_that_cannot_renew_has_lost_before_another_may_take_over),
        cmocka_unit_test(a_renewal_counts_from_when_it_was_sent),
        cmocka_unit_test(a_leader_that_reads_another_holder_has_lost),
        cmocka_unit_test(a_released_lease_is_taken_at_the_next_look),
        cmocka_unit_test(who_does_not_lead_releases_nothing),
        cmocka_unit_test(there_are_never_two_leaders),
        cmocka_unit_test(a_lease_object_reads_back_as_it_was_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
