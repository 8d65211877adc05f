#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "common.h"

/* What a good manifest means: defaults, overrides, notes, and the normalised form. */

static void load_good(struct loaded *l, const char *overrides, enum kml_job_driver driver)
{
    load(l, overrides, driver);
    if (l->result != 0) {
        fail_msg("%s: %s", overrides, l->err.text);
    }
    assert_int_equal(l->notes.problems, 0);
}

static void the_smallest_job_has_every_default(void **state)
{
    (void)state;
    struct loaded l;
    load_good(&l, "", KML_JOB_LOCAL);
    const struct kml_job *job = &l.job;
    assert_int_equal(l.notes.notes, 0);
    assert_string_equal(job->name, "small");
    assert_null(job->namespace);
    assert_int_equal(job->model.kind, KML_JOB_MODEL_SOFTMAX);
    assert_int_equal(job->model.hidden_count, 0);
    assert_int_equal(job->model.activation, KML_JOB_ACTIVATION_RELU);
    assert_int_equal(job->model.seed, 1);
    assert_string_equal(job->dataset.uri, "file:///data");
    assert_int_equal(job->dataset.format, KML_JOB_FORMAT_AUTO);
    assert_null(job->dataset.train.file);
    assert_int_equal(job->dataset.train.label_index, KML_JOB_AUTO);
    assert_int_equal(job->dataset.shuffle, KML_JOB_SHUFFLE_GLOBAL);
    assert_int_equal(job->training.epochs, 1);
    assert_int_equal(job->training.batch_size, 64);
    assert_int_equal(job->training.optimizer.kind, KML_JOB_OPTIMIZER_SGD);
    assert_true(job->training.optimizer.learning_rate == 0.1);
    assert_true(job->training.optimizer.epsilon == 1e-8);
    assert_true(job->training.clip_norm == 0);
    assert_int_equal(job->training.nonfinite, KML_JOB_NONFINITE_REFUSE);
    assert_false(job->training.target.on);
    assert_int_equal(job->training.evaluation.every_epochs, 1);
    assert_true(job->training.evaluation.on_test);
    assert_false(job->training.checkpoint.on);
    assert_int_equal(job->training.checkpoint.keep, 3);
    assert_int_equal(job->sync.mode, KML_JOB_SYNC_LSP);
    assert_int_equal(job->sync.limit, KML_JOB_AUTO);
    assert_int_equal(job->sync.staleness, 3);
    assert_int_equal(job->balancing.strategy, KML_JOB_STRATEGY_LEASED);
    assert_true(job->balancing.minimum_share == 0.02);
    assert_true(job->grouping.ratio == 1.3);
    assert_int_equal(job->grouping.stragglers, KML_JOB_AUTO);
    assert_null(job->output.uri);
    assert_int_equal(job->output.formats, 1U << KML_JOB_OUTPUT_SAFETENSORS);
    assert_int_equal(job->run_policy.clean, KML_JOB_CLEAN_RUNNING);
    assert_int_equal(job->run_policy.backoff_limit, 3);
    assert_int_equal(job->run_policy.active_deadline_seconds, 0);
    assert_true(job->run_policy.ttl_seconds == KML_JOB_UNSET);
    assert_int_equal(job->restart_scope, KML_JOB_SCOPE_POD);
    assert_int_equal(job->ps.replicas, 1);
    assert_int_equal(job->ps.restart_policy, KML_JOB_RESTART_ALWAYS);
    assert_int_equal(job->worker.replicas, 1);
    assert_int_equal(job->worker.restart_policy, KML_JOB_RESTART_ONFAILURE);
    assert_int_equal(job->transport, KML_JOB_TRANSPORT_PLAINTEXT);
    unload(&l);
}

static void the_cluster_has_its_own_defaults(void **state)
{
    (void)state;
    struct loaded l;
    load_good(&l, "", KML_JOB_CLUSTER);
    assert_int_equal(l.job.transport, KML_JOB_TRANSPORT_MTLS);
    assert_string_equal(l.job.output.uri, "configmap://small-model");
    unload(&l);
    load_good(&l,
              "spec.security.transport=Plaintext|spec.output.storageUri=pvc://c/"
              "m|spec.dataset.storageUri=pvc://c/d",
              KML_JOB_CLUSTER);
    assert_int_equal(l.job.transport, KML_JOB_TRANSPORT_PLAINTEXT);
    assert_string_equal(l.job.output.uri, "pvc://c/m");
    assert_int_equal(l.notes.notes, 0);
    unload(&l);
}

static void the_table_is_well_formed(void **state)
{
    (void)state;
    uint32_t count;
    const struct kml_job_field *rows = kml_job_fields(&count);
    struct kml_job job;
    kml_job_init(&job);
    for (uint32_t i = 0; i < count; i++) {
        const struct kml_job_field *row = &rows[i];
        size_t size = strlen(row->description);
        if (size < 10 || row->description[size - 1] != '.' || kml_job_field_of(row->path) != row) {
            fail_msg("row %s", row->path);
        }
        const char *dot = strrchr(row->path, '.');
        if (dot != NULL) { /* its parent stands before it and is a map */
            char *parent_path = kml_strndup(row->path, (size_t)(dot - row->path));
            const struct kml_job_field *parent = kml_job_field_of(parent_path);
            assert_true(parent != NULL && parent < row);
            assert_true(parent->kind == KML_JOB_KIND_MAP || parent->kind == KML_JOB_KIND_OPTION);
            kml_free(parent_path);
        }
        if (row->when != NULL) { /* what it depends on stands before it and is an enumeration */
            const struct kml_job_field *selector = kml_job_field_of(row->when);
            assert_true(selector != NULL && selector < row && selector->kind == KML_JOB_KIND_ENUM);
            assert_true(row->when_mask != 0 && row->when_mask < 1U << selector->value_count);
        }
        if (row->kind == KML_JOB_KIND_U32 || row->kind == KML_JOB_KIND_REAL) {
            assert_true(row->max > row->min);
            double number = row->fallback == NULL ? row->min : strtod(row->fallback, NULL);
            assert_true(number >= row->min && number <= row->max);
            assert_true(row->fallback == NULL || !row->above_min || number > row->min);
        }
        assert_true((row->kind != KML_JOB_KIND_ENUM && row->kind != KML_JOB_KIND_OUTPUTS) ||
                    row->value_count > 0);
        assert_true(row->kind != KML_JOB_KIND_URI || row->schemes != 0);
    }
    kml_job_finish(&job);
}

/* What must be there so that a row is active and its value is taken, by path; "" for most. */
static const struct {
    const char *path;
    const char *with;
} companions[] = {
    {"spec.model.hiddenLayers", "spec.model={kind: MLP, hiddenLayers: [3]}"},
    {"spec.model.activation", "spec.model={kind: MLP, hiddenLayers: [3]}"},
    {"spec.training.optimizer.momentum", "spec.training.optimizer.kind=Nesterov"},
    {"spec.training.optimizer.beta1", "spec.training.optimizer.kind=Adam"},
    {"spec.training.optimizer.beta2", "spec.training.optimizer.kind=AdamW"},
    {"spec.training.optimizer.epsilon", "spec.training.optimizer.kind=Adagrad"},
    {"spec.training.learningRateSchedule.stepEpochs",
     "spec.training.learningRateSchedule={kind: Step, stepEpochs: 2}"},
    {"spec.training.learningRateSchedule.factor",
     "spec.training.learningRateSchedule={kind: Step, stepEpochs: 2}"},
    {"spec.training.learningRateSchedule.warmupEpochs", "spec.training.epochs=1000000"},
    {"spec.training.target", "spec.training.target={metric: Loss, value: 0.5}"},
    {"spec.training.target.metric", "spec.training.target={metric: Loss, value: 0.5}"},
    {"spec.training.target.value", "spec.training.target={metric: Loss, value: 0.5}"},
    {"spec.training.target.patienceEpochs", "spec.training.target={metric: Loss, value: 0.5}"},
    {"spec.synchronization.staleness", "spec.synchronization.mode=SSP"},
    {"spec.synchronization.limit", "spec.replicaSpecs.Worker.replicas=10000"},
    {"spec.runPolicy.schedulingPolicy.minAvailable", "spec.runPolicy.schedulingPolicy={minAvailable: 1}"},
};

static const char *companion_of(const char *path)
{
    for (size_t i = 0; i < KML_COUNT(companions); i++) {
        if (strcmp(companions[i].path, path) == 0) {
            return companions[i].with;
        }
    }
    return strcmp(path, "spec.model.kind") == 0
               ? "spec.replicaSpecs.Worker.template={spec: {containers: [{command: [x]}]}}"
               : "metadata.uid=u";
}

static bool is_later(const struct kml_job_field *row)
{
    bool later = false;
    for (const char *dot = strchr(row->path, '.'); dot != NULL; dot = strchr(dot + 1, '.')) {
        char *above = kml_strndup(row->path, (size_t)(dot - row->path));
        later = later || kml_job_field_of(above)->later;
        kml_free(above);
    }
    return later || row->later;
}

/* Sets the row to `value`, and wants it in the normalised manifest if the row is active, or named in a note
 * if not. */
static void try_value(const struct kml_job_field *row, const char *value, const char *json)
{
    char *set = kml_format("%s|%s=%s", companion_of(row->path), row->path, value);
    struct loaded l, again;
    load_good(&l, set, KML_JOB_CLUSTER);
    struct kml_buf text;
    struct kml_doc doc;
    kml_buf_init(&text, 1 << 20);
    kml_doc_init(&doc);
    assert_int_equal(kml_job_to_json(&l.job, &text, NULL), 0);
    assert_int_equal(kml_doc_read(&doc, "normal", kml_buf_view(&text), NULL), 0);
    const struct kml_node *node = kml_doc_find(&doc, row->path);
    if (node == NULL) {
        if (!any_contains(l.notes.note, l.notes.notes, "it is not used")) {
            fail_msg("%s is neither written nor named in a note", set);
        }
    } else {
        struct kml_buf one;
        kml_buf_init(&one, 4096);
        assert_int_equal(kml_node_write(node, &one, NULL), 0);
        if (json != NULL && strcmp(kml_buf_text(&one), json) != 0) {
            fail_msg("%s became %s, wanted %s", set, kml_buf_text(&one), json);
        }
        kml_buf_finish(&one);
    }
    load_text(&again, kml_buf_text(&text), "", KML_JOB_PROCESS);
    if (again.result != 0) {
        fail_msg("%s: read back: %s", set, again.err.text);
    }
    assert_true(kml_job_equal(&l.job, &again.job));
    assert_int_equal(again.notes.notes, 0);
    unload(&l);
    unload(&again);
    kml_doc_finish(&doc);
    kml_buf_finish(&text);
    kml_free(set);
}

static void try_row(const struct kml_job_field *row)
{
    char number[64];
    switch (row->kind) {
    case KML_JOB_KIND_BOOL:
        try_value(row, "true", "true");
        try_value(row, "false", "false");
        break;
    case KML_JOB_KIND_U32_AUTO:
        try_value(row, "auto", "\"auto\"");
        __attribute__((fallthrough));
    case KML_JOB_KIND_U32:
    case KML_JOB_KIND_U64:
        snprintf(number, sizeof(number), "%.0f", row->min + 1);
        try_value(row, number, number);
        snprintf(number, sizeof(number), "%.0f", row->min);
        try_value(row, number, number);
        break;
    case KML_JOB_KIND_REAL:
        snprintf(number, sizeof(number), "%.17g", row->min + 0.375 * (row->max - row->min < 1 ? 0.5 : 1));
        try_value(row, number, NULL);
        break;
    case KML_JOB_KIND_ENUM:
        for (uint32_t i = 0; i < row->value_count; i++) {
            snprintf(number, sizeof(number), "\"%s\"", row->values[i].name);
            bool needs_more =
                strcmp(row->values[i].name, "MLP") == 0 || strcmp(row->values[i].name, "Step") == 0;
            if (!row->values[i].later &&
                !needs_more) { /* with their companions: see the rows that they activate */
                try_value(row, row->values[i].name, number);
            }
        }
        break;
    case KML_JOB_KIND_TEXT:
    case KML_JOB_KIND_NAME:
        try_value(row, "abc-1", "\"abc-1\"");
        break;
    case KML_JOB_KIND_URI:
        try_value(row, "file:///x/y", "\"file:///x/y\"");
        try_value(row, "pvc://claim/y", "\"pvc://claim/y\"");
        break;
    case KML_JOB_KIND_WIDTHS:
        try_value(row, "[128, 64, 1]", "[128,64,1]");
        try_value(row, "[1, 2, 3, 4, 5, 6, 7, 65536]", "[1,2,3,4,5,6,7,65536]");
        break;
    case KML_JOB_KIND_OUTPUTS:
        try_value(row, "[Safetensors]", "[\"Safetensors\"]");
        break;
    case KML_JOB_KIND_FILE:
        try_value(row, "a/b.csv", "\"a/b.csv\"");
        try_value(row, "{file: x, labelColumn: 'y z'}", "{\"file\":\"x\",\"labelColumn\":\"y z\"}");
        try_value(row, "{file: x, labelColumn: 0}", "{\"file\":\"x\",\"labelColumn\":0}");
        try_value(row, "{labelColumn: 3}", "{\"labelColumn\":3}");
        if (row->fraction) {
            try_value(row, "0.25", "0.25");
        }
        break;
    case KML_JOB_KIND_JSON_MAP:
        try_value(row, "{a: 'b', c: '1'}", "{\"a\":\"b\",\"c\":\"1\"}");
        break;
    case KML_JOB_KIND_TEMPLATE:
        try_value(row, "{spec: {containers: [{name: kunal, x: [1, null, 1.5]}]}}",
                  "{\"spec\":{\"containers\":[{\"name\":\"kunal\",\"x\":[1,null,1.5]}]}}");
        break;
    case KML_JOB_KIND_MAP:
    case KML_JOB_KIND_OPTION:
    case KML_JOB_KIND_FIXED:
    case KML_JOB_KIND_JSON_LIST:
    case KML_JOB_KIND_IGNORED:
        break;
    }
}

static void every_row_and_every_enum_value_can_be_set_and_survives_the_normalised_form(void **state)
{
    (void)state;
    uint32_t count;
    const struct kml_job_field *rows = kml_job_fields(&count);
    for (uint32_t i = 0; i < count; i++) {
        if (!is_later(&rows[i])) {
            try_row(&rows[i]);
        }
    }
}

static void random_overrides_give_a_job_that_reads_back_equal_or_a_refusal(void **state)
{
    (void)state;
    static const char *const pool[] = {
        "spec.model={kind: MLP, hiddenLayers: [8, 9]}",
        "spec.model.kind=Linear",
        "spec.model.activation=Tanh",
        "spec.model.seed=77",
        "spec.dataset.validation=0.1",
        "spec.dataset.train={file: t.csv, labelColumn: 4}",
        "spec.dataset.format=CSV",
        "spec.dataset.format=IDX",
        "spec.training.epochs=5",
        "spec.training.gradientClipNorm=1",
        "spec.training.optimizer={kind: Adam, learningRate: 1e-3}",
        "spec.training.optimizer.momentum=0.5",
        "spec.training.target={metric: Accuracy, value: 0.9}",
        "spec.training.learningRateSchedule.warmupEpochs=2.5",
        "spec.training.learningRateSchedule={kind: Step, stepEpochs: 3}",
        "spec.synchronization.mode=BSP",
        "spec.synchronization={mode: SSP, staleness: 0}",
        "spec.synchronization.limit=2",
        "spec.balancing.strategy=Static",
        "spec.balancing={strategy: WLBS, dryRun: true, everySteps: 7}",
        "spec.balancing.strategy=AutoWLBS",
        "spec.balancing.minimumShare=0.5",
        "spec.grouping.ratio=2",
        "spec.grouping.coding.stragglers=0",
        "spec.replicaSpecs.Worker.replicas=7",
        "spec.runPolicy.ttlSecondsAfterFinished=0",
        "spec.runPolicy.suspend=true",
        "spec.runPolicy.schedulingPolicy={}",
        "metadata.labels={a: 'x'}",
        "metadata.namespace=ns",
        "spec.replicaSpecs.PS.template={spec: {containers: [{image: i, env: [{name: A, value: b}]}]}}",
        "spec.training.evaluation.onTest=false",
        "spec.security.transport=MTLS",
        "spec.output.storageUri=file:///out"};
    uint64_t seed = 990;
    printf("seed %llu\n", (unsigned long long)seed);
    struct kml_rng rng;
    kml_rng_init(&rng, seed);
    int accepted = 0;
    for (int round = 0; round < 400; round++) {
        struct kml_buf set, text;
        kml_buf_init(&set, 1 << 16);
        kml_buf_init(&text, 1 << 20);
        for (uint64_t n = kml_rng_below(&rng, 8); n > 0; n--) {
            assert_int_equal(kml_buf_printf(&set, NULL, "%s|", pool[kml_rng_below(&rng, KML_COUNT(pool))]),
                             0);
        }
        struct loaded l, again;
        load(&l, kml_buf_text(&set), kml_rng_below(&rng, 2) ? KML_JOB_LOCAL : KML_JOB_CLUSTER);
        if (l.result == 0) {
            accepted++;
            assert_int_equal(kml_job_to_json(&l.job, &text, NULL), 0);
            load_text(&again, kml_buf_text(&text), "", KML_JOB_PROCESS);
            if (again.result != 0 || !kml_job_equal(&l.job, &again.job)) {
                fail_msg("%s: %s", kml_buf_text(&set), again.err.text);
            }
            unload(&again);
        }
        unload(&l);
        kml_buf_finish(&set);
        kml_buf_finish(&text);
    }
    assert_true(accepted > 100);
}

static void what_a_mode_does_not_use_is_named_and_holds_its_default(void **state)
{
    (void)state;
    struct loaded l;
    load_good(&l,
              "spec.synchronization={mode: BSP, limit: 2, staleness: 9}|spec.balancing.minimumShare=0.5|"
              "spec.grouping={ratio: 2, coding: {scheme: None}}|spec.model.hiddenLayers=[5]|"
              "spec.training.optimizer.beta1=0.5",
              KML_JOB_LOCAL);
    assert_int_equal(l.notes.notes, 6);
    char *const *note = l.notes.note;
    assert_true(
        any_contains(note, 6,
                     "spec.synchronization.limit: belongs to spec.synchronization.mode LSP, and that is "
                     "BSP; it is not used"));
    assert_true(
        any_contains(note, 6, "spec.synchronization.staleness: belongs to spec.synchronization.mode SSP"));
    assert_true(any_contains(
        note, 6, "spec.balancing.minimumShare: belongs to spec.balancing.strategy WLBS, AutoWLBS"));
    assert_true(any_contains(note, 6, "spec.grouping: belongs to spec.synchronization.mode Hybrid"));
    assert_true(any_contains(note, 6,
                             "spec.model.hiddenLayers: belongs to spec.model.kind MLP, and that is Softmax"));
    assert_true(any_contains(note, 6, "spec.training.optimizer.beta1: belongs to"));
    assert_int_equal(l.job.sync.limit, KML_JOB_AUTO);
    assert_int_equal(l.job.sync.staleness, 3);
    assert_true(l.job.balancing.minimum_share == 0.02);
    assert_true(l.job.grouping.ratio == 1.3);
    assert_int_equal(l.job.grouping.scheme, KML_JOB_CODING_AUTO);
    assert_int_equal(l.job.model.hidden_count, 0);
    unload(&l);
}

static void what_only_a_cluster_uses_is_named_when_there_is_none(void **state)
{
    (void)state;
    const char *set =
        "spec.runPolicy={suspend: true, managedBy: kueue.x-k8s.io/multikueue, schedulingPolicy: {queue: q}}|"
        "spec.replicaSpecs.Worker.template={metadata: {labels: {a: b}}, spec: {nodeName: n, containers: "
        "[{name: side}, {name: kunal, image: i, command: [c], args: [a, b], env: [{name: A, value: x}, "
        "{name: B, valueFrom: {}}, {name: C}]}]}}";
    struct loaded l;
    load_good(&l, set, KML_JOB_LOCAL);
    assert_true(any_contains(l.notes.note, l.notes.notes, "spec.runPolicy.suspend: only a cluster uses it"));
    assert_true(
        any_contains(l.notes.note, l.notes.notes, "spec.runPolicy.managedBy: only a cluster uses it"));
    assert_true(
        any_contains(l.notes.note, l.notes.notes, "spec.runPolicy.schedulingPolicy: only a cluster uses it"));
    assert_true(any_contains(l.notes.note, l.notes.notes,
                             "does not use: metadata, nodeName, image, command, args, further containers"));
    assert_true(any_contains(l.notes.note, l.notes.notes, "env[1].valueFrom: only a cluster can resolve it"));
    const struct kml_job_template *t = &l.job.worker.template;
    assert_string_equal(t->image, "i");
    assert_int_equal(t->command_count, 1);
    assert_string_equal(t->command[0], "c");
    assert_int_equal(t->args_count, 2);
    assert_string_equal(t->args[1], "b");
    assert_int_equal(t->env_count, 3);
    assert_string_equal(t->env[0].value, "x");
    assert_null(t->env[1].value);
    assert_string_equal(t->env[2].value, "");
    unload(&l);
    load_good(&l, set, KML_JOB_CLUSTER);
    assert_int_equal(l.notes.notes, 0);
    assert_true(l.job.run_policy.suspend);
    assert_int_equal(l.job.run_policy.managed_by, KML_JOB_MANAGER_MULTIKUEUE);
    assert_string_equal(l.job.run_policy.scheduling.queue, "q");
    unload(&l);
}

static void a_custom_worker_needs_only_its_command(void **state)
{
    (void)state;
    struct loaded l;
    load_good(
        &l,
        "spec.dataset=|spec.model={kind: Custom, seed: 5}|"
        "spec.replicaSpecs.Worker.template={spec: {containers: [{command: [python3, w.py], args: ['--x']}]}}",
        KML_JOB_LOCAL);
    assert_int_equal(l.notes.notes, 0);
    assert_null(l.job.dataset.uri);
    assert_int_equal(l.job.model.seed, 5);
    assert_string_equal(l.job.worker.template.command[1], "w.py");
    unload(&l);
    load_good(&l, "spec.model={kind: Custom}", KML_JOB_CLUSTER); /* the image may have an entry point */
    unload(&l);
}

static void a_limit_above_the_workers_is_clamped_with_a_note(void **state)
{
    (void)state;
    struct loaded l;
    load_good(&l, "spec.synchronization.limit=8|spec.replicaSpecs.Worker.replicas=4", KML_JOB_LOCAL);
    assert_int_equal(l.notes.notes, 1);
    assert_non_null(strstr(l.notes.note[0], "clamped to 4"));
    assert_int_equal(l.job.sync.limit, 8);
    assert_int_equal(kml_job_limit(&l.job, 4), 4);
    assert_int_equal(kml_job_limit(&l.job, 9), 8);
    unload(&l);
}

static void the_automatic_limit_is_the_divisor_nearest_to_half_the_workers(void **state)
{
    (void)state;
    static const uint32_t want[] = {0, 1, 1, 2, 2, 3, 3, 4, 4, 3, 5, 6, 6, 7, 7, 5, 8, 9, 9};
    struct kml_job job;
    kml_job_init(&job);
    for (uint32_t m = 1; m < KML_COUNT(want); m++) {
        assert_int_equal(kml_job_limit(&job, m), want[m]);
    }
    assert_int_equal(kml_job_limit(&job, 25), 5);
    assert_int_equal(kml_job_limit(&job, 97), 49);
    static const struct {
        enum kml_job_sync mode;
        uint32_t limit;
    } modes[] = {
        {KML_JOB_SYNC_BSP, 7}, {KML_JOB_SYNC_ASP, 1}, {KML_JOB_SYNC_SSP, 1}, {KML_JOB_SYNC_HYBRID, 7}};
    for (size_t i = 0; i < KML_COUNT(modes); i++) {
        job.sync.mode = modes[i].mode;
        assert_int_equal(kml_job_limit(&job, 7), modes[i].limit);
    }
    kml_job_finish(&job);
}

static void what_the_api_server_adds_is_accepted(void **state)
{
    (void)state;
    struct loaded l;
    load_good(&l,
              "metadata.creationTimestamp=null|metadata.resourceVersion='12'|metadata.managedFields=[{a: 1}]|"
              "metadata.generation=3|metadata.annotations.a\\.b/c=x|metadata.uid=u-1|metadata.namespace=7ns|"
              "metadata.labels={kueue.x-k8s.io/queue-name: q}|status={phase: Running, conditions: []}|"
              "metadata.finalizers=[x]|metadata.ownerReferences=[{}]",
              KML_JOB_CLUSTER);
    assert_int_equal(l.notes.notes, 0);
    assert_string_equal(l.job.uid, "u-1");
    assert_string_equal(l.job.namespace, "7ns");
    assert_string_equal(l.job.labels, "{\"kueue.x-k8s.io/queue-name\":\"q\"}");
    unload(&l);
}

static void null_counts_as_absent(void **state)
{
    (void)state;
    struct loaded l;
    load_good(&l,
              "spec.training=|spec.runPolicy.ttlSecondsAfterFinished=~|spec.training.checkpoint=|spec."
              "elasticPolicy=null",
              KML_JOB_LOCAL);
    assert_int_equal(l.job.training.epochs, 1);
    unload(&l);
}

static void json_and_yaml_mean_the_same(void **state)
{
    (void)state;
    struct loaded a, b;
    load_good(&a, "", KML_JOB_LOCAL);
    load_text(
        &b,
        "{\"apiVersion\":\"kunal.ml/v1alpha1\",\"kind\":\"KunalJob\",\"metadata\":{\"name\":\"small\"},"
        "\"spec\":{\"dataset\":{\"storageUri\":\"file:\\/\\/\\/data\"},\"model\":{\"kind\":\"Softmax\"}}}",
        "", KML_JOB_LOCAL);
    assert_int_equal(b.result, 0);
    assert_true(kml_job_equal(&a.job, &b.job));
    unload(&a);
    unload(&b);
}

static void a_job_with_another_value_is_not_equal(void **state)
{
    (void)state;
    struct loaded a, b;
    load_good(&a, "", KML_JOB_LOCAL);
    load_good(&b, "spec.model.seed=2", KML_JOB_LOCAL);
    assert_false(kml_job_equal(&a.job, &b.job));
    unload(&a);
    unload(&b);
}

static void the_examples_are_good_manifests(void **state)
{
    (void)state;
    static const char *const files[] = {"examples/fashion-mnist.yaml", "examples/smallest.yaml",
                                        "examples/csv.yaml"};
    for (size_t i = 0; i < KML_COUNT(files); i++) {
        struct loaded l = {.err = {0}};
        kml_job_init(&l.job);
        kml_job_notes_init(&l.notes);
        l.result = kml_job_load_file(&l.job, files[i], NULL, 0, KML_JOB_LOCAL, &l.notes, &l.err);
        if (l.result != 0) {
            fail_msg("%s", l.err.text);
        }
        assert_int_equal(l.notes.notes, 0);
        if (i == 0) {
            assert_int_equal(l.job.worker.replicas, 4);
            assert_int_equal(kml_job_limit(&l.job, 4), 2);
        }
        unload(&l);
    }
}

static void every_allocation_that_fails_is_an_error_and_leaks_nothing(void **state)
{
    (void)state;
    int failures = 0;
    int result = -1;
    for (uint64_t nth = 1; result != 0; nth++) {
        struct loaded l;
        kml_test_fail_alloc(nth);
        load(
            &l,
            "metadata.labels={a: 'x'}|spec.model={kind: MLP, hiddenLayers: [4]}|spec.dataset.train={file: a, "
            "labelColumn: b}|spec.replicaSpecs.Worker.template={spec: {containers: [{image: i, command: [a, "
            "b], args: "
            "[c], env: [{name: A, value: x}]}]}}",
            KML_JOB_LOCAL);
        kml_test_fail_alloc(0);
        result = l.result;
        if (result != 0) {
            failures++;
            if (l.err.code != KML_NO_MEMORY) {
                fail_msg("allocation %llu: %s", (unsigned long long)nth, l.err.text);
            }
        }
        unload(&l);
        assert_true(nth < 2000);
    }
    assert_true(failures > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_smallest_job_has_every_default),
        cmocka_unit_test(the_cluster_has_its_own_defaults),
        cmocka_unit_test(the_table_is_well_formed),
        cmocka_unit_test(every_row_and_every_enum_value_can_be_set_and_survives_the_normalised_form),
        cmocka_unit_test(random_overrides_give_a_job_that_reads_back_equal_or_a_refusal),
        cmocka_unit_test(what_a_mode_does_not_use_is_named_and_holds_its_default),
        cmocka_unit_test(what_only_a_cluster_uses_is_named_when_there_is_none),
        cmocka_unit_test(a_custom_worker_needs_only_its_command),
        cmocka_unit_test(a_limit_above_the_workers_is_clamped_with_a_note),
        cmocka_unit_test(the_automatic_limit_is_the_divisor_nearest_to_half_the_workers),
        cmocka_unit_test(what_the_api_server_adds_is_accepted),
        cmocka_unit_test(null_counts_as_absent),
        cmocka_unit_test(json_and_yaml_mean_the_same),
        cmocka_unit_test(a_job_with_another_value_is_not_equal),
        cmocka_unit_test(the_examples_are_good_manifests),
        cmocka_unit_test(every_allocation_that_fails_is_an_error_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
