#ifndef KML_BASE_FILE_H
#define KML_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* Files: whole reads with a hard maximum, and writes of which either all or nothing is seen. Errors name the
 * path. */

/* Appends the whole file to `out`; the buffer's maximum bounds it (KML_TOO_LARGE). */
int kml_file_read(const char *path, struct kml_buf *out, struct kml_err *err) KML_MUST_CHECK;

/*
 * Writes `count` parts as one file: "path.tmp-<pid>" in the same folder, fsync, rename, fsync of the folder.
 * On failure the temporary file is gone and whatever was at `path` is still there. Mode as given (0644,
 * 0600).
 */
int kml_file_write(const char *path, const struct kml_view *parts, size_t count, unsigned mode,
                   struct kml_err *err) KML_MUST_CHECK;

/* mkdir -p. An existing folder is fine, an existing file is KML_EXISTS. */
int kml_folder_make(const char *path, unsigned mode, struct kml_err *err) KML_MUST_CHECK;

/* The path of "file:///a/b"; another scheme is KML_UNSUPPORTED, a relative path KML_INVALID. Borrowed from
 * `uri`. */
int kml_file_uri_path(const char *uri, const char **path, struct kml_err *err) KML_MUST_CHECK;

#endif
