#include "sync/barrier.h"

#include "base/mem.h"

enum event { JOIN, LEAVE, STAGE, EXCUSE, READMIT, COMMIT, RELEASE };

#define STAYS UINT8_MAX /* the event means nothing in this state */

/* The whole machine: [state][event] -> state. Whether COMMIT and RELEASE are due is decided in settle(). */
#define AWAY KML_SEAT_AWAY
#define COMP KML_SEAT_COMPUTING
#define STGD KML_SEAT_STAGED
#define HELD KML_SEAT_HELD
#define EXCD KML_SEAT_EXCUSED
/* clang-format off */
static const uint8_t next_state[5][7] = {
    /*        JOIN   LEAVE  STAGE  EXCUSE READMIT COMMIT RELEASE */
    [AWAY] = {COMP,  STAYS, STAYS, STAYS, STAYS,  STAYS, STAYS},
    [COMP] = {STAYS, AWAY,  STGD,  EXCD,  STAYS,  STAYS, STAYS},
    [STGD] = {STAYS, AWAY,  STAYS, STAYS, STAYS,  HELD,  STAYS},
    [HELD] = {STAYS, AWAY,  STAYS, STAYS, STAYS,  STAYS, COMP},
    [EXCD] = {STAYS, AWAY,  STAYS, STAYS, COMP,   STAYS, STAYS},
};
/* clang-format on */

const char *kml_seat_name(enum kml_seat_state state)
{
    static const char *const name[] = {"away", "computing", "staged", "held", "excused"};
    return name[state];
}

struct kml_barrier_rule kml_barrier_bsp(void)
{
    return kml_barrier_lsp(KML_BARRIER_ALL, 0);
}

struct kml_barrier_rule kml_barrier_asp(void)
{
    return kml_barrier_lsp(1, 0);
}

struct kml_barrier_rule kml_barrier_lsp(uint32_t limit, uint64_t grace)
{
    return (struct kml_barrier_rule){.limit = limit, .bound = KML_BARRIER_UNBOUNDED, .grace = grace};
}

struct kml_barrier_rule kml_barrier_ssp(uint32_t staleness)
{
    return (struct kml_barrier_rule){.limit = 1, .bound = staleness, .grace = 0};
}

uint32_t kml_barrier_auto_limit(uint32_t workers)
{
    KML_BUG_ON(workers == 0);
    uint32_t best = 1;
    uint64_t best_distance = UINT64_MAX;
    for (uint32_t d = 1; d <= workers; d++) {
        /* twice the distance to m/2, so that it stays whole */
        uint64_t distance = 2 * (uint64_t)d > workers ? 2 * (uint64_t)d - workers : workers - 2 * (uint64_t)d;
        if (workers % d == 0 && distance < best_distance) {
            best = d;
            best_distance = distance;
        }
    }
    bool odd_prime = best == 1 && workers > 2;
    return odd_prime ? workers / 2 + 1 : best;
}

void kml_barrier_init(struct kml_barrier *b, uint32_t group, struct kml_barrier_rule rule,
                      struct kml_barrier_seat *seat, uint32_t capacity)
{
    KML_BUG_ON(rule.limit == 0);
    *b = (struct kml_barrier){
        .rule = rule, .group = group, .deadline = KML_BARRIER_NEVER, .seat = seat, .capacity = capacity};
    for (uint32_t w = 0; w < capacity; w++) {
        seat[w] = (struct kml_barrier_seat){.state = KML_SEAT_AWAY};
    }
}

uint32_t kml_barrier_crew(const struct kml_barrier *b)
{
    return b->live - b->excused;
}

uint32_t kml_barrier_limit(const struct kml_barrier *b)
{
    /* Held workers cannot stage, so waiting for them could last for ever. */
    uint32_t can_stage = kml_barrier_crew(b) - b->held;
    uint32_t limit = b->rule.limit < can_stage ? b->rule.limit : can_stage;
    return limit > 0 ? limit : 1;
}

/* One step of the machine. False, and nothing changed, when the event means nothing to this worker now. */
static bool move(struct kml_barrier *b, uint32_t worker, enum event event)
{
    KML_BUG_ON(worker >= b->capacity);
    enum kml_seat_state from = b->seat[worker].state;
    uint8_t to = next_state[from][event];
    if (to == STAYS) {
        return false;
    }
    b->seat[worker].state = (enum kml_seat_state)to;
    b->live = b->live + (to != KML_SEAT_AWAY) - (from != KML_SEAT_AWAY);
    b->staged = b->staged + (to == KML_SEAT_STAGED) - (from == KML_SEAT_STAGED);
    b->held = b->held + (to == KML_SEAT_HELD) - (from == KML_SEAT_HELD);
    b->excused = b->excused + (to == KML_SEAT_EXCUSED) - (from == KML_SEAT_EXCUSED);
    return true;
}

static void start_computing(struct kml_barrier *b, uint32_t worker)
{
    struct kml_barrier_seat *seat = &b->seat[worker];
    seat->pulled = b->version;
    if (seat->clock < b->floor) {
        seat->clock = b->floor; /* so that a newcomer never holds up those who are ahead */
    }
}

/* Enough have staged, and no grace window still runs. Opens and closes the window on the way. */
static bool is_due(struct kml_barrier *b, uint64_t now)
{
    if (b->staged == 0 || b->staged < kml_barrier_limit(b)) {
        b->deadline = KML_BARRIER_NEVER;
        return false;
    }
    if (b->rule.grace == 0 || b->staged == kml_barrier_crew(b) - b->held) {
        return true; /* nobody is left to wait for */
    }
    if (b->deadline == KML_BARRIER_NEVER) {
        b->deadline = now < KML_BARRIER_NEVER - b->rule.grace ? now + b->rule.grace : KML_BARRIER_NEVER - 1;
    }
    return now >= b->deadline;
}

static void open_now(struct kml_barrier *b, struct kml_opening *out)
{
    for (uint32_t w = 0; w < b->capacity; w++) {
        struct kml_barrier_seat *seat = &b->seat[w];
        if (!move(b, w, COMMIT)) {
            continue;
        }
        uint64_t staleness = b->version - seat->pulled;
        out->worker[out->count] = w;
        out->staleness[out->count] = (uint32_t)staleness;
        out->count++;
        seat->clock++;
        b->applied += staleness;
        b->contributions++;
    }
    b->version++;
    b->deadline = KML_BARRIER_NEVER;
    out->version = b->version;
}

static void raise_floor(struct kml_barrier *b)
{
    uint64_t lowest = UINT64_MAX;
    for (uint32_t w = 0; w < b->capacity; w++) {
        const struct kml_barrier_seat *seat = &b->seat[w];
        bool crew = seat->state != KML_SEAT_AWAY && seat->state != KML_SEAT_EXCUSED;
        if (crew && seat->clock < lowest) {
            lowest = seat->clock;
        }
    }
    if (lowest != UINT64_MAX) {
        b->floor = lowest;
    }
}

static void release_within_bound(struct kml_barrier *b, struct kml_opening *out)
{
    for (uint32_t w = 0; w < b->capacity && b->held > 0; w++) {
        uint64_t ahead = b->seat[w].clock - b->floor;
        bool free_to_go = b->rule.bound == KML_BARRIER_UNBOUNDED || ahead <= b->rule.bound;
        if (free_to_go && move(b, w, RELEASE)) {
            start_computing(b, w);
            out->released[out->releases++] = w;
        }
    }
}

/* Arrivals, leaves and the end of a window can all open the barrier or free held workers: each ends here. */
static void settle(struct kml_barrier *b, uint64_t now, struct kml_opening *out)
{
    if (is_due(b, now)) {
        open_now(b, out);
    }
    raise_floor(b);
    release_within_bound(b, out);
}

static void clear(struct kml_opening *out)
{
    out->count = 0;
    out->releases = 0;
    out->version = 0;
}

/* Whoever comes into the crew can raise the limit above the number of those that wait. */
static void stop_window_if_too_few(struct kml_barrier *b)
{
    if (b->staged < kml_barrier_limit(b)) {
        b->deadline = KML_BARRIER_NEVER;
    }
}

int kml_barrier_join(struct kml_barrier *b, uint32_t worker, struct kml_err *err)
{
    if (!move(b, worker, JOIN)) {
        return kml_fail(err, KML_CONFLICT, "worker %u is in group %u already (%s)", worker, b->group,
                        kml_seat_name(b->seat[worker].state));
    }
    b->seat[worker].clock = b->floor;
    start_computing(b, worker);
    stop_window_if_too_few(b);
    return 0;
}

void kml_barrier_leave(struct kml_barrier *b, uint32_t worker, uint64_t now, struct kml_opening *out)
{
    clear(out);
    if (move(b, worker, LEAVE)) {
        settle(b, now, out);
    }
}

void kml_barrier_staged(struct kml_barrier *b, uint32_t worker, uint64_t now, struct kml_opening *out)
{
    clear(out);
    if (move(b, worker, STAGE)) {
        settle(b, now, out);
    }
}

void kml_barrier_excuse(struct kml_barrier *b, uint32_t worker, uint64_t now, struct kml_opening *out)
{
    clear(out);
    if (move(b, worker, EXCUSE)) {
        settle(b, now, out);
    }
}

void kml_barrier_readmit(struct kml_barrier *b, uint32_t worker)
{
    if (move(b, worker, READMIT)) {
        start_computing(b, worker);
        stop_window_if_too_few(b);
    }
}

void kml_barrier_tick(struct kml_barrier *b, uint64_t now, struct kml_opening *out)
{
    clear(out);
    settle(b, now, out);
}
