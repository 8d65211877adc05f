#include "sched/net.h"

#include <math.h>
#include <string.h>

#include "base/clones.h"
#include "base/mem.h"

#define IN KML_NET_INPUTS
#define HID KML_NET_HIDDEN
#define GATES KML_NET_GATES
#define STEPS KML_NET_WINDOW
#define LANES KML_NET_LANES

/* Where the parts of the parameters begin. */
enum {
    AT_W = 0,
    AT_U = AT_W + GATES * IN,
    AT_B = AT_U + GATES * HID,
    AT_V = AT_B + GATES,
    AT_C = AT_V + HID
};

struct kml_net_tape {
    double h[STEPS + 1][HID * LANES];  /* h[t]: state before step t */
    double gate[STEPS][GATES * LANES]; /* z, r, n */
    double un[STEPS][HID * LANES];     /* Un h */
    double y[STEPS][LANES];
};

struct kml_net_tape *kml_net_tape_create(void)
{
    return KML_NEW(struct kml_net_tape);
}

void kml_net_tape_destroy(struct kml_net_tape *t)
{
    kml_free(t);
}

void kml_net_init(struct kml_net *net, struct kml_rng *rng)
{
    *net = (struct kml_net){.first = 1, .second = 1};
    double width = 1 / sqrt(HID);
    for (int i = 0; i < AT_B; i++) {
        net->p[i] = width * (2 * kml_rng_unit(rng) - 1);
    }
}

/* e^x for |x| <= 100: x = k ln 2 + r, |r| <= ln(2) / 2, Taylor to r^13 / 13!; 2^k is made of bits. */
static inline double exp_of(double x)
{
    const double shift = 0x1.8p52; /* adding it rounds to whole numbers */
    double shifted = x * 0x1.71547652b82fep0 + shift;
    double k = shifted - shift;
    double r = (x - k * 0x1.62e42fefa0000p-1) - k * 0x1.cf79abc9e3b39p-40;
    double e = 1.0 / 6227020800;
    e = e * r + 1.0 / 479001600;
    e = e * r + 1.0 / 39916800;
    e = e * r + 1.0 / 3628800;
    e = e * r + 1.0 / 362880;
    e = e * r + 1.0 / 40320;
    e = e * r + 1.0 / 5040;
    e = e * r + 1.0 / 720;
    e = e * r + 1.0 / 120;
    e = e * r + 1.0 / 24;
    e = e * r + 1.0 / 6;
    e = e * r + 0.5;
    e = e * r + 1;
    e = e * r + 1;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 52) + UINT64_C(0x3ff0000000000000);
    double power;
    memcpy(&power, &bits, sizeof power);
    return e * power;
}

/* Held to +-40 by sums and absolute values: comparisons would keep the loop from being vectorised. */
KML_CLONES static void sigmoid(double *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double held = 0.5 * (fabs(x[i] + 40) - fabs(x[i] - 40));
        x[i] = 1 / (1 + exp_of(-held));
    }
}

/* Rows are pointers, and indices as wide as one, so that the compiler sees straight runs of memory. */
static inline void add_scaled(double *restrict out, const double *restrict x, double factor, size_t lanes)
{
    for (size_t l = 0; l < lanes; l++) {
        out[l] += factor * x[l];
    }
}

/* Four at a time: `out` is fetched and stored once for them. */
static inline void add_four(double *restrict out, const double *restrict x, const double *factor,
                            size_t lanes)
{
    for (size_t l = 0; l < lanes; l++) {
        double first = factor[0] * x[l] + factor[1] * x[lanes + l];
        double second = factor[2] * x[2 * lanes + l] + factor[3] * x[3 * lanes + l];
        out[l] += first + second;
    }
}

/* out[rows][lanes] += a[rows][columns] x[columns][lanes] */
KML_CLONES static void multiply(double *out, const double *a, const double *x, size_t rows, size_t columns,
                                size_t lanes)
{
    for (size_t i = 0; i < rows; i++) {
        size_t k = 0;
        for (; k + 4 <= columns; k += 4) {
            add_four(out + i * lanes, x + k * lanes, a + i * columns + k, lanes);
        }
        for (; k < columns; k++) {
            add_scaled(out + i * lanes, x + k * lanes, a[i * columns + k], lanes);
        }
    }
}

/* out[columns][lanes] += transposed a[rows][columns] x[rows][lanes] */
KML_CLONES static void multiply_back(double *out, const double *a, const double *x, size_t rows,
                                     size_t columns, size_t lanes)
{
    for (size_t i = 0; i < columns; i++) {
        for (size_t k = 0; k < rows; k++) {
            add_scaled(out + i * lanes, x + k * lanes, a[k * columns + i], lanes);
        }
    }
}

/* Eight sums that run side by side, so that they can share an instruction. */
static inline double dot(const double *restrict a, const double *restrict b, size_t n)
{
    double sum[8] = {0};
    size_t l = 0;
    for (; l + 8 <= n; l += 8) {
        for (size_t j = 0; j < 8; j++) {
            sum[j] += a[l + j] * b[l + j];
        }
    }
    for (; l < n; l++) {
        sum[l % 8] += a[l] * b[l];
    }
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

/* out[rows][columns] += d[rows][lanes] transposed x[columns][lanes] */
KML_CLONES static void outer(double *out, const double *d, const double *x, size_t rows, size_t columns,
                             size_t lanes)
{
    for (size_t i = 0; i < rows; i++) {
        for (size_t k = 0; k < columns; k++) {
            out[i * columns + k] += dot(d + i * lanes, x + k * lanes, lanes);
        }
    }
}

static void fill_rows(double *out, const double *value, size_t rows, size_t lanes)
{
    for (size_t i = 0; i < rows; i++) {
        double *row = out + i * lanes;
        for (size_t l = 0; l < lanes; l++) {
            row[l] = value[i];
        }
    }
}

/* n holds Wn x + bn, and gets twice the argument of the candidate state: tanh(a) = 2 sigmoid(2 a) - 1. */
KML_CLONES static void twice_candidate(double *restrict n, const double *restrict r,
                                       const double *restrict un, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        n[i] = 2 * (n[i] + r[i] * un[i]);
    }
}

/* n holds the sigmoid of that, and gets the candidate state. */
KML_CLONES static void mix(double *restrict h_new, const double *restrict h, const double *restrict z,
                           double *restrict n, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        n[i] = 2 * n[i] - 1;
        h_new[i] = n[i] + z[i] * (h[i] - n[i]);
    }
}

/* `gate` [GATES][lanes] and `un` [HID][lanes] get what the backward pass needs: z, r, n, and Un h. */
static void forward(const struct kml_net *net, uint32_t lanes, const double *x, const double *h, double *gate,
                    double *un, double *h_new, double *y)
{
    const double *u = net->p + AT_U;
    size_t block = (size_t)HID * lanes;
    fill_rows(gate, net->p + AT_B, GATES, lanes);
    multiply(gate, net->p + AT_W, x, GATES, IN, lanes);
    multiply(gate, u, h, 2 * HID, HID, lanes);
    memset(un, 0, block * sizeof *un);
    multiply(un, u + 2 * HID * HID, h, HID, HID, lanes);
    sigmoid(gate, 2 * block);
    twice_candidate(gate + 2 * block, gate + block, un, block);
    sigmoid(gate + 2 * block, block);
    mix(h_new, h, gate, gate + 2 * block, block);
    fill_rows(y, net->p + AT_C, 1, lanes);
    multiply(y, net->p + AT_V, h_new, 1, HID, lanes);
}

void kml_net_step(const struct kml_net *net, uint32_t lanes, const double *x, double *h, double *y)
{
    KML_BUG_ON(lanes > LANES);
    double gate[GATES * LANES];
    double un[HID * LANES];
    double h_new[HID * LANES];
    forward(net, lanes, x, h, gate, un, h_new, y);
    memcpy(h, h_new, (size_t)HID * lanes * sizeof *h);
}

static double huber(double e)
{
    double a = fabs(e);
    return a <= KML_NET_HUBER ? 0.5 * e * e : KML_NET_HUBER * (a - 0.5 * KML_NET_HUBER);
}

static double huber_slope(double e)
{
    return e > KML_NET_HUBER ? KML_NET_HUBER : e < -KML_NET_HUBER ? -KML_NET_HUBER : e;
}

static double run_forward(const struct kml_net *net, const struct kml_net_batch *batch,
                          struct kml_net_tape *tape)
{
    uint32_t lanes = batch->lanes;
    double loss = 0;
    memcpy(tape->h[0], batch->h, (size_t)HID * lanes * sizeof(double));
    for (uint32_t t = 0; t < STEPS; t++) {
        forward(net, lanes, batch->x[t], tape->h[t], tape->gate[t], tape->un[t], tape->h[t + 1], tape->y[t]);
        for (uint32_t l = 0; l < lanes; l++) {
            loss += huber(tape->y[t][l] - batch->target[t][l]);
        }
    }
    return loss / (STEPS * lanes);
}

/* From the slope of the state to those of the gates before their functions. `d_gate` gets dz, dr, dn in the
 * rows of z, r, n; `d_un` the slope of Un h; `dh` becomes the part that goes straight to the state before. */
KML_CLONES static void gate_slopes(const double *restrict gate, const double *restrict un,
                                   const double *restrict h, double *restrict dh, double *restrict d_gate,
                                   double *restrict d_un, size_t block)
{
    for (size_t i = 0; i < block; i++) {
        double z = gate[i];
        double r = gate[block + i];
        double n = gate[2 * block + i];
        double dn = dh[i] * (1 - z) * (1 - n * n);
        d_gate[i] = dh[i] * (h[i] - n) * z * (1 - z);
        d_gate[block + i] = dn * un[i] * r * (1 - r);
        d_gate[2 * block + i] = dn;
        d_un[i] = dn * r;
        dh[i] *= z;
    }
}

static void add_lanes(double *out, const double *d, uint32_t rows, uint32_t lanes)
{
    for (uint32_t i = 0; i < rows; i++) {
        for (uint32_t l = 0; l < lanes; l++) {
            out[i] += d[i * lanes + l];
        }
    }
}

static void step_back(const struct kml_net *net, const struct kml_net_batch *batch,
                      const struct kml_net_tape *tape, uint32_t t, double *dh, double *g)
{
    uint32_t lanes = batch->lanes;
    size_t block = (size_t)HID * lanes;
    double dy[LANES];
    double d_gate[GATES * LANES];
    double d_un[HID * LANES];
    for (uint32_t l = 0; l < lanes; l++) {
        dy[l] = huber_slope(tape->y[t][l] - batch->target[t][l]) / (STEPS * lanes);
    }
    outer(g + AT_V, dy, tape->h[t + 1], 1, HID, lanes);
    add_lanes(g + AT_C, dy, 1, lanes);
    multiply_back(dh, net->p + AT_V, dy, 1, HID, lanes);

    gate_slopes(tape->gate[t], tape->un[t], tape->h[t], dh, d_gate, d_un, block);
    outer(g + AT_W, d_gate, batch->x[t], GATES, IN, lanes);
    add_lanes(g + AT_B, d_gate, GATES, lanes);
    outer(g + AT_U, d_gate, tape->h[t], 2 * HID, HID, lanes);
    outer(g + AT_U + 2 * HID * HID, d_un, tape->h[t], HID, HID, lanes);
    multiply_back(dh, net->p + AT_U, d_gate, 2 * HID, HID, lanes);
    multiply_back(dh, net->p + AT_U + 2 * HID * HID, d_un, HID, HID, lanes);
}

double kml_net_loss(const struct kml_net *net, const struct kml_net_batch *batch, struct kml_net_tape *tape,
                    double *g)
{
    KML_BUG_ON(batch->lanes == 0 || batch->lanes > LANES);
    double loss = run_forward(net, batch, tape);
    if (g != NULL) {
        double dh[HID * LANES] = {0};
        memset(g, 0, KML_NET_PARAMETERS * sizeof *g);
        for (uint32_t t = STEPS; t > 0; t--) {
            step_back(net, batch, tape, t - 1, dh, g);
        }
    }
    return loss;
}

void kml_net_update(struct kml_net *net, double *g)
{
    double square = 0;
    for (int i = 0; i < KML_NET_PARAMETERS; i++) {
        square += g[i] * g[i];
    }
    if (!isfinite(square)) {
        return;
    }
    double cut = square > KML_NET_CLIP * KML_NET_CLIP ? KML_NET_CLIP / sqrt(square) : 1;
    double rate = net->updates < KML_NET_EARLY ? KML_NET_RATE : KML_NET_LATE_RATE;
    net->updates++;
    net->first *= 0.9;
    net->second *= 0.999;
    for (int i = 0; i < KML_NET_PARAMETERS; i++) {
        double slope = cut * g[i];
        net->m[i] += 0.1 * (slope - net->m[i]);
        net->v[i] += 0.001 * (slope * slope - net->v[i]);
        double scaled = sqrt(net->v[i] / (1 - net->second)) + 1e-8;
        net->p[i] -= rate * net->m[i] / (1 - net->first) / scaled;
    }
}
