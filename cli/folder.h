#ifndef KML_CLI_FOLDER_H
#define KML_CLI_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "job/job.h"

/*
 * The folder of one run:
 *   job.json               the normalised manifest, 0600: env may hold secrets
 *   metrics.jsonl          what PS-0 printed on stdout
 *   kunal-ps-0.log, …      stderr of each process, appended to over restarts
 *   model.safetensors      at the end, unless output.storageUri says where
 *   tls/<role>-<index>/    0700, with --tls
 *   pace.json              with paced workers, and speed-<worker>.txt
 *
 * While it runs also the sockets ps-<index>.sock; when their path is too long for a socket they are in a
 * private folder under $TMPDIR. kml_run_folder_finish takes the sockets away.
 */
struct kml_run_folder {
    char *path;    /* absolute; owned */
    char *sockets; /* where sockets are; owned; may be `path` again */
    bool private_sockets;
    uint32_t shards;
};

/* wanted NULL: ./runs/<name>-<yyyymmdd-hhmmss>, with -2, -3, … when it is there already. KML_EXISTS: `wanted`
 * holds a run. */
int kml_run_folder_make(struct kml_run_folder *f, const char *wanted, const char *name, uint32_t shards,
                        uint64_t wall_ns, struct kml_err *err) KML_MUST_CHECK;
void kml_run_folder_finish(struct kml_run_folder *f);

char *kml_run_folder_file(const struct kml_run_folder *f, const char *name); /* owned by the caller */
char *kml_run_folder_socket(const struct kml_run_folder *f,
                            uint32_t shard); /* "unix:/…/ps-0.sock", the caller's */
int kml_run_folder_write(const struct kml_run_folder *f, const char *name, struct kml_view text,
                         unsigned mode, struct kml_err *err) KML_MUST_CHECK;
int kml_run_folder_job(const struct kml_run_folder *f, const struct kml_job *job,
                       struct kml_err *err) KML_MUST_CHECK;

/* A CA for this run alone, and a pair for each process and for us (driver-0). The CA's key is not written. */
int kml_run_folder_tls(const struct kml_run_folder *f, const char *uid, uint32_t shards, uint32_t workers,
                       uint64_t wall_ns, struct kml_err *err) KML_MUST_CHECK;
char *kml_run_folder_tls_of(const struct kml_run_folder *f, const char *role,
                            uint32_t index); /* the caller's */

#endif
