#include <grpc/support/log.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "rpc/core.h"

static _Thread_local struct {
    char *text;
    size_t room;
} capture;

void kml_rpc_capture_log(char *text, size_t room)
{
    capture.text = text;
    capture.room = room;
    if (text != NULL) {
        text[0] = '\0';
    }
}

/* gRPC calls "error" what is daily life for a service (a peer that went away), so nothing of it is more than
 * a warning. */
static void to_our_log(gpr_log_func_args *line)
{
    if (capture.text != NULL) {
        size_t used = strlen(capture.text);
        (void)snprintf(capture.text + used, capture.room - used, "%s\n", line->message);
        return;
    }
    enum kml_level level = line->severity == GPR_LOG_SEVERITY_ERROR ? KML_WARN : KML_DEBUG;
    KML_LOG(level, "grpc", kv_s("text", line->message), kv_s("file", line->file), kv_i("line", line->line));
}

void kml_rpc_route_log(void)
{
    gpr_set_log_function(to_our_log);
}
