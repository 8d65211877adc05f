#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "ps/lead.h"

/* ---- Orders to the shards: a call to our own, a message to the others ---- */

static void order_setup(void *self, const struct kml_shardmap *map, uint64_t generation)
{
    struct kml_lead *l = self;
    for (uint32_t s = 1; s < l->conductor.shards; s++) {
        struct kml_span span = kml_shardmap_shard(map, s);
        Kunal__V1__Setup setup = KUNAL__V1__SETUP__INIT;
        Kunal__V1__FromConductor m = KUNAL__V1__FROM_CONDUCTOR__INIT;
        setup.elements = map->floats;
        setup.begin = span.begin;
        setup.end = span.end;
        setup.chunk_elements = KML_CHUNK_FLOATS; /* the wish; the shard computes the same map from it */
        setup.generation = generation;
        m.message_case = KUNAL__V1__FROM_CONDUCTOR__MESSAGE_SETUP;
        m.setup = &setup;
        kml_session_to_shard(l, s, &m);
    }
    kml_host_setup(l->host, map, 0, generation);
}

static void tell_admit(struct kml_lead *l, uint32_t worker, uint64_t incarnation, bool withdrawn)
{
    Kunal__V1__Admit admit = KUNAL__V1__ADMIT__INIT;
    Kunal__V1__FromConductor m = KUNAL__V1__FROM_CONDUCTOR__INIT;
    admit.worker = worker;
    admit.incarnation = incarnation;
    admit.withdrawn = withdrawn;
    m.message_case = KUNAL__V1__FROM_CONDUCTOR__MESSAGE_ADMIT;
    m.admit = &admit;
    kml_session_to_shards(l, &m);
}

static void order_admit(void *self, uint32_t worker, uint64_t incarnation)
{
    struct kml_lead *l = self;
    tell_admit(l, worker, incarnation, false);
    kml_host_admit(l->host, worker, incarnation);
}

static void order_dismiss(void *self, uint32_t worker, uint64_t incarnation)
{
    struct kml_lead *l = self;
    tell_admit(l, worker, incarnation, true);
    kml_host_dismiss(l->host, worker, incarnation);
}

static void send_commit(struct kml_lead *l, const struct kml_commit *c)
{
    Kunal__V1__CommitMember *member = KML_NEW_ARRAY(c->count, Kunal__V1__CommitMember);
    Kunal__V1__CommitMember **members = KML_NEW_ARRAY(c->count, Kunal__V1__CommitMember *);
    kml_auto_free uint32_t *release = KML_NEW_ARRAY(c->releases, uint32_t);
    for (uint32_t i = 0; i < c->count; i++) {
        kunal__v1__commit_member__init(&member[i]);
        member[i].worker = c->member[i].worker;
        member[i].incarnation = c->member[i].incarnation;
        member[i].step = c->member[i].step;
        member[i].coefficient = c->member[i].coefficient;
        members[i] = &member[i];
    }
    memcpy(release, c->release, c->releases * sizeof *release);
    Kunal__V1__Commit commit = KUNAL__V1__COMMIT__INIT;
    Kunal__V1__FromConductor m = KUNAL__V1__FROM_CONDUCTOR__INIT;
    commit.version = c->version;
    commit.members = members;
    commit.n_members = c->count;
    commit.learning_rate = c->learning_rate;
    commit.step_scale = c->step_scale;
    commit.release = release;
    commit.n_release = c->releases;
    m.message_case = KUNAL__V1__FROM_CONDUCTOR__MESSAGE_COMMIT;
    m.commit = &commit;
    kml_session_to_shards(l, &m);
    kml_free(member);
    kml_free(members);
}

static void order_commit(void *self, const struct kml_commit *c)
{
    struct kml_lead *l = self;
    if (l->conductor.shards > 1) {
        send_commit(l, c);
    }
    for (uint32_t i = 0; i < c->count; i++) {
        l->member[i] = (struct kml_shard_member){c->member[i].worker, c->member[i].incarnation,
                                                 c->member[i].step, c->member[i].coefficient};
    }
    struct kml_shard_commit commit = {.version = c->version,
                                      .member = l->member,
                                      .count = c->count,
                                      .learning_rate = c->learning_rate * c->step_scale};
    kml_host_commit(l->host, &commit, c->release, c->releases);
}

static void order_release(void *self, uint64_t version, const uint32_t *workers, uint32_t count)
{
    struct kml_lead *l = self;
    kml_auto_free uint32_t *list = KML_NEW_ARRAY(count, uint32_t);
    memcpy(list, workers, count * sizeof *list);
    Kunal__V1__Release release = KUNAL__V1__RELEASE__INIT;
    Kunal__V1__FromConductor m = KUNAL__V1__FROM_CONDUCTOR__INIT;
    release.version = version;
    release.workers = list;
    release.n_workers = count;
    m.message_case = KUNAL__V1__FROM_CONDUCTOR__MESSAGE_RELEASE;
    m.release = &release;
    kml_session_to_shards(l, &m);
    kml_host_release(l->host, version, workers, count);
}

static void tell_pin(struct kml_lead *l, uint64_t version, bool unpin)
{
    Kunal__V1__Pin pin = KUNAL__V1__PIN__INIT;
    Kunal__V1__FromConductor m = KUNAL__V1__FROM_CONDUCTOR__INIT;
    pin.version = version;
    pin.unpin = unpin;
    m.message_case = KUNAL__V1__FROM_CONDUCTOR__MESSAGE_PIN;
    m.pin = &pin;
    kml_session_to_shards(l, &m);
}

static void order_pin(void *self, uint64_t version)
{
    struct kml_lead *l = self;
    tell_pin(l, version, false);
    kml_host_pin(l->host, version);
}

static void order_unpin(void *self, uint64_t version)
{
    struct kml_lead *l = self;
    tell_pin(l, version, true);
    kml_host_unpin(l->host, version);
}

/* ---- Orders to one worker ---- */

static void order_welcome(void *self, uint32_t worker, uint64_t last_step)
{
    struct kml_lead *l = self;
    uint32_t n = l->conductor.shards;
    kml_auto_free Kunal__V1__ShardEntry *entry = KML_NEW_ARRAY(n, Kunal__V1__ShardEntry);
    kml_auto_free Kunal__V1__ShardEntry **entries = KML_NEW_ARRAY(n, Kunal__V1__ShardEntry *);
    for (uint32_t s = 0; s < n; s++) {
        struct kml_span span = kml_shardmap_shard(&l->conductor.map, s);
        kunal__v1__shard_entry__init(&entry[s]);
        entry[s].shard = s;
        entry[s].address = l->shard_address[s];
        entry[s].begin = span.begin;
        entry[s].end = span.end;
        entries[s] = &entry[s];
    }
    Kunal__V1__ShardTable table = KUNAL__V1__SHARD_TABLE__INIT;
    Kunal__V1__JoinReply reply = KUNAL__V1__JOIN_REPLY__INIT;
    Kunal__V1__FromConductor m = KUNAL__V1__FROM_CONDUCTOR__INIT;
    table.shards = entries;
    table.n_shards = n;
    table.chunk_elements = l->conductor.map.chunk_floats;
    reply.shards = &table;
    reply.version = l->conductor.barrier.version;
    reply.generation = l->conductor.generation;
    reply.workers = l->conductor.workers;
    reply.last_step = last_step;
    m.message_case = KUNAL__V1__FROM_CONDUCTOR__MESSAGE_JOINED;
    m.joined = &reply;
    kml_session_to_worker(l, worker, &m);
}

static void order_upload(void *self, uint32_t worker)
{
    Kunal__V1__Upload upload = KUNAL__V1__UPLOAD__INIT;
    Kunal__V1__FromConductor m = KUNAL__V1__FROM_CONDUCTOR__INIT;
    m.message_case = KUNAL__V1__FROM_CONDUCTOR__MESSAGE_UPLOAD;
    m.upload = &upload;
    kml_session_to_worker(self, worker, &m);
}

static void order_assign(void *self, uint32_t worker, const struct kml_assignment *a)
{
    Kunal__V1__SampleRange range[KML_LEASE_RANGES];
    Kunal__V1__SampleRange *ranges[KML_LEASE_RANGES];
    for (uint32_t i = 0; i < a->lease->count; i++) {
        kunal__v1__sample_range__init(&range[i]);
        range[i].begin = a->lease->range[i].begin;
        range[i].end = a->lease->range[i].end;
        ranges[i] = &range[i];
    }
    Kunal__V1__Assign assign = KUNAL__V1__ASSIGN__INIT;
    Kunal__V1__FromConductor m = KUNAL__V1__FROM_CONDUCTOR__INIT;
    assign.step = a->step;
    assign.version = a->version;
    assign.epoch = a->lease->epoch;
    assign.ranges = ranges;
    assign.n_ranges = a->lease->count;
    m.message_case = KUNAL__V1__FROM_CONDUCTOR__MESSAGE_ASSIGN;
    m.assign = &assign;
    kml_session_to_worker(self, worker, &m);
}

static void order_evaluate(void *self, uint32_t worker, const struct kml_evaluation_lease *e)
{
    Kunal__V1__Evaluate evaluate = KUNAL__V1__EVALUATE__INIT;
    Kunal__V1__FromConductor m = KUNAL__V1__FROM_CONDUCTOR__INIT;
    evaluate.lease = e->lease;
    evaluate.version = e->version;
    evaluate.split = e->test ? KUNAL__V1__SPLIT__TEST : KUNAL__V1__SPLIT__VALIDATION;
    evaluate.begin = e->range.begin;
    evaluate.end = e->range.end;
    m.message_case = KUNAL__V1__FROM_CONDUCTOR__MESSAGE_EVALUATE;
    m.evaluate = &evaluate;
    kml_session_to_worker(self, worker, &m);
}

static void order_abandon(void *self, uint32_t worker, uint64_t step)
{
    Kunal__V1__Abandon abandon = KUNAL__V1__ABANDON__INIT;
    Kunal__V1__FromConductor m = KUNAL__V1__FROM_CONDUCTOR__INIT;
    abandon.step = step;
    m.message_case = KUNAL__V1__FROM_CONDUCTOR__MESSAGE_ABANDON;
    m.abandon = &abandon;
    kml_session_to_worker(self, worker, &m);
}

static void order_expel(void *self, uint32_t worker, uint64_t incarnation, enum kml_code code,
                        const char *why)
{
    kml_session_expel(self, worker, incarnation, code, why);
}

/* ---- The model and the end ---- */

static void cannot_save(struct kml_lead *l, const struct kml_err *err)
{
    kml_conductor_fail(&l->conductor, "ModelNotSaved", err->text, (uint32_t)kml_code_exit(err->code),
                       kml_lead_now(l));
}

/* Where PS-0 itself writes; NULL: a driver fetches the model and stores it. */
static int output_folder(const struct kml_lead *l, const char **folder, struct kml_err *err)
{
    *folder = l->start->output;
    if (*folder == NULL && l->job->output.uri != NULL &&
        strncmp(l->job->output.uri, "configmap://", 12) != 0) {
        return kml_file_uri_path(l->job->output.uri, folder, err);
    }
    return 0;
}

static void store(struct kml_lead *l)
{
    struct kml_err err;
    const char *folder;
    if (kml_save_make(&l->save, &l->conductor, &err) < 0 || output_folder(l, &folder, &err) < 0) {
        cannot_save(l, &err);
        return;
    }
    if (folder == NULL) {
        return; /* ReportModelStored ends it */
    }
    if (kml_save_write(&l->save, folder, &err) < 0) {
        cannot_save(l, &err);
        return;
    }
    kml_info("model saved", kv_s("path", l->save.location), kv_u("bytes", kml_save_bytes(&l->save)));
    kml_conductor_saved(&l->conductor, kml_lead_now(l));
}

void kml_lead_part(struct kml_lead *l, uint32_t shard, uint64_t offset, const void *data, size_t size,
                   bool last)
{
    (void)last;
    struct kml_err err;
    if (l->conductor.phase != KML_PHASE_SAVING || l->save.made) {
        return;
    }
    if (kml_save_put(&l->save, shard, kml_shardmap_shard(&l->conductor.map, shard), offset, data, size,
                     &err) < 0) {
        cannot_save(l, &err);
    } else if (kml_save_complete(&l->save)) {
        store(l);
    }
}

static void own_part(struct kml_lead *l, uint64_t version)
{
    struct kml_shard *shard = kml_host_shard(l->host);
    for (uint32_t c = 0; c < kml_shard_chunks(shard); c++) {
        struct kml_span span = kml_shard_span(shard, c);
        struct kml_block *block = kml_shard_block(shard, version, c);
        KML_BUG_ON(block == NULL); /* the newest version, or the pinned one */
        kml_lead_part(l, 0, span.begin, kml_block_data(block), (span.end - span.begin) * sizeof(float),
                      false);
        kml_block_drop(block);
    }
}

static void order_save(void *self, uint64_t version)
{
    struct kml_lead *l = self;
    struct kml_err err;
    if (kml_save_begin(&l->save, l->conductor.map.floats, &err) < 0) {
        cannot_save(l, &err);
        return;
    }
    Kunal__V1__Gather gather = KUNAL__V1__GATHER__INIT;
    Kunal__V1__FromConductor m = KUNAL__V1__FROM_CONDUCTOR__INIT;
    gather.version = version;
    m.message_case = KUNAL__V1__FROM_CONDUCTOR__MESSAGE_GATHER;
    m.gather = &gather;
    kml_session_to_shards(l, &m);
    own_part(l, version);
}

static void order_over(void *self, enum kml_phase phase, const char *reason, uint32_t exit_code)
{
    struct kml_lead *l = self;
    Kunal__V1__FromConductor m = KUNAL__V1__FROM_CONDUCTOR__INIT;
    Kunal__V1__Finished finished = KUNAL__V1__FINISHED__INIT;
    Kunal__V1__Stop stop = KUNAL__V1__STOP__INIT;
    char text[64];
    if (phase == KML_PHASE_FAILED) {
        (void)snprintf(text, sizeof text, "%s", reason);
        stop.reason = text;
        stop.exit_code = exit_code;
        m.message_case = KUNAL__V1__FROM_CONDUCTOR__MESSAGE_STOP;
        m.stop = &stop;
        kml_error("job failed", kv_s("reason", reason), kv_s("message", l->conductor.message));
    } else {
        m.message_case = KUNAL__V1__FROM_CONDUCTOR__MESSAGE_FINISHED;
        m.finished = &finished;
        kml_info("job over", kv_s("phase", kml_phase_name(phase)), kv_s("reason", reason));
    }
    kml_session_to_all(l, &m);
    l->over_ns = kml_lead_now(l);
    kml_journal_over(&l->journal, &l->conductor, l->save.location, kml_save_bytes(&l->save));
}

static void order_record(void *self, const struct kml_record *r)
{
    struct kml_lead *l = self;
    kml_journal_record(&l->journal, &l->conductor, r);
    if (r->kind == KML_RECORD_WARNING) {
        kml_warn("conductor", kv_s("warning", r->text));
    } else if (r->kind == KML_RECORD_WORKER_LEFT) {
        KML_LOG(kml_conductor_over(&l->conductor) ? KML_INFO : KML_WARN, "worker left",
                kv_u("worker", r->worker), kv_s("why", r->text));
    } else if (r->kind == KML_RECORD_WORKER_JOINED) {
        kml_info("worker joined", kv_u("worker", r->worker), kv_u("incarnation", r->incarnation));
    }
}

const struct kml_conductor_sink kml_orders = {
    .setup = order_setup,
    .admit = order_admit,
    .dismiss = order_dismiss,
    .commit = order_commit,
    .release = order_release,
    .pin = order_pin,
    .unpin = order_unpin,
    .welcome = order_welcome,
    .upload = order_upload,
    .assign = order_assign,
    .evaluate = order_evaluate,
    .abandon = order_abandon,
    .expel = order_expel,
    .save = order_save,
    .over = order_over,
    .record = order_record,
};
