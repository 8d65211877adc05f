#ifndef KML_SCHED_NET_H
#define KML_SCHED_NET_H

#include <stdint.h>

#include "base/rng.h"

/*
 * The recurrent network of Auto-WLBS: one layer of gated recurrent units (Cho et al. 2014) and a linear
 * read-out, in double. That the sources' network is of this kind is our reading: they name none.
 *
 *     z  = sigmoid(Wz x + Uz h + bz)          r = sigmoid(Wr x + Ur h + br)
 *     n  = tanh(Wn x + r o (Un h) + bn)
 *     h' = (1 - z) o n + z o h                y = v . h' + c
 *
 * It is trained with truncated backpropagation through time over KML_NET_WINDOW steps from a state that is
 * given (the one that the run had there), the Huber loss with delta KML_NET_HUBER at each step, the gradient
 * cut to norm KML_NET_CLIP, Adam (Kingma, Ba 2015) with KML_NET_RATE, KML_NET_LATE_RATE after KML_NET_EARLY
 * updates. The read-out begins with zeros: an untrained network says 0.
 *
 * Many sequences run side by side, as lanes: all arrays are [...][lanes], lanes <= KML_NET_LANES. exp is our
 * own, so the bytes are the same on every machine and do not depend on the number of lanes. Pure.
 */
#define KML_NET_INPUTS 7
#define KML_NET_HIDDEN 12
#define KML_NET_WINDOW 16
#define KML_NET_LANES 64
#define KML_NET_GATES (3 * KML_NET_HIDDEN) /* rows z, r, n */
/* W [GATES][INPUTS], U [GATES][HIDDEN], b [GATES], v [HIDDEN], c */
#define KML_NET_PARAMETERS (KML_NET_GATES * (KML_NET_INPUTS + KML_NET_HIDDEN + 1) + KML_NET_HIDDEN + 1)

#define KML_NET_HUBER 0.1
#define KML_NET_CLIP 1.0
#define KML_NET_RATE 1e-2
#define KML_NET_LATE_RATE 3e-3
#define KML_NET_EARLY 200

struct kml_net {
    double p[KML_NET_PARAMETERS];
    double m[KML_NET_PARAMETERS], v[KML_NET_PARAMETERS]; /* Adam's */
    double first, second;                                /* 0.9^updates, 0.999^updates */
    uint64_t updates;
};

/* A mini-batch: lanes sequences of KML_NET_WINDOW steps. */
struct kml_net_batch {
    uint32_t lanes;
    double x[KML_NET_WINDOW][KML_NET_INPUTS * KML_NET_LANES]; /* per step [INPUTS][lanes] */
    double h[KML_NET_HIDDEN * KML_NET_LANES]; /* state before the first step, [HIDDEN][lanes] */
    double target[KML_NET_WINDOW][KML_NET_LANES];
};

/* What the forward pass keeps for the backward pass. Large (about 700 KB): on the heap. */
struct kml_net_tape;
struct kml_net_tape *kml_net_tape_create(void);
void kml_net_tape_destroy(struct kml_net_tape *t);

void kml_net_init(struct kml_net *net, struct kml_rng *rng);

/* One step: x [INPUTS][lanes]; h [HIDDEN][lanes] is replaced; y [lanes]. */
void kml_net_step(const struct kml_net *net, uint32_t lanes, const double *x, double *h, double *y);

/* Mean loss of a batch; with g != NULL its gradient, [KML_NET_PARAMETERS], not clipped. */
double kml_net_loss(const struct kml_net *net, const struct kml_net_batch *batch, struct kml_net_tape *tape,
                    double *g);

/* Cuts g to KML_NET_CLIP and takes one step of Adam. A gradient that is not finite is left out. */
void kml_net_update(struct kml_net *net, double *g);

#endif
