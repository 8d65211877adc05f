#ifndef KML_WORKER_INPUT_H
#define KML_WORKER_INPUT_H

#include <stdint.h>

#include "base/err.h"
#include "data/dataset.h"
#include "data/order.h"
#include "job/job.h"
#include "kunal/v1/control.pb-c.h"
#include "pki/pki.h"
#include "worker/model.h"

/*
 * What a worker trains with, all of it from the manifest: the job, its data in memory, its model; and the
 * Join message that tells the conductor of them.
 */
struct kml_input {
    struct kml_job job;
    struct kml_dataset data;
    struct kml_model model;
    const char *initial; /* path of model.initialModelUri, borrowed from the job; NULL: none */
};

/* Reads the normalised manifest and the data. Errors name file and field. */
int kml_input_open(struct kml_input *in, const char *manifest, struct kml_err *err) KML_MUST_CHECK;
void kml_input_finish(struct kml_input *in);

enum kml_shuffle kml_input_shuffle(const struct kml_input *in);

/* The Join of this worker. It owns its arrays; strings given in are borrowed. */
struct kml_join {
    Kunal__V1__Join message;
    uint8_t digest[KML_SHA256_BYTES];
};

/*
 * The digest is a SHA-256 of all that the samples are made of. The metadata are what a user of the model file
 * must know: model, activation, features, classes, standardize, mean, scale (one number when all features
 * have the same).
 */
void kml_join_init(struct kml_join *j, const struct kml_model *model, const struct kml_dataset *data,
                   const char *uid, uint32_t index, uint64_t incarnation);
void kml_join_finish(struct kml_join *j);

#endif
