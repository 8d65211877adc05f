#include <grpc/slice.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "rpc/core.h"

/*
 * gRPC has 17 codes and several of ours share one. So the status message that we send starts with the name of
 * our code, "FENCED: worker 3 was replaced", which people and workers in other languages can read too. On
 * receipt the name counts only when it belongs to the gRPC code that came with it.
 */
grpc_slice kml_status_text(const struct kml_err *why)
{
    char text[KML_ERR_TEXT + 32];
    (void)snprintf(text, sizeof text, "%s: %s", kml_code_name(why->code), why->text);
    return grpc_slice_from_copied_string(text);
}

static bool named_code(const char *text, grpc_status_code status, enum kml_code *code, const char **rest)
{
    const char *colon = strstr(text, ": ");
    for (int c = KML_OK + 1; colon != NULL && c < KML_CODE_COUNT; c++) {
        const char *name = kml_code_name((enum kml_code)c);
        if (strlen(name) == (size_t)(colon - text) && strncmp(name, text, strlen(name)) == 0 &&
            kml_code_grpc((enum kml_code)c) == (int)status) {
            *code = (enum kml_code)c;
            *rest = colon + 2;
            return true;
        }
    }
    return false;
}

static enum kml_code plain_code(grpc_status_code status, const char *text)
{
    if (status == GRPC_STATUS_RESOURCE_EXHAUSTED && strstr(text, "larger than max") != NULL) {
        return KML_TOO_LARGE; /* the transport's own message limit */
    }
    return kml_code_of_grpc((int)status);
}

void kml_status_read(grpc_status_code status, grpc_slice slice, const char *from, struct kml_err *why)
{
    *why = (struct kml_err){KML_OK, ""};
    if (status == GRPC_STATUS_OK) {
        return;
    }
    char text[KML_ERR_TEXT + 32];
    size_t size = GRPC_SLICE_LENGTH(slice);
    size = size < sizeof text - 1 ? size : sizeof text - 1;
    memcpy(text, GRPC_SLICE_START_PTR(slice), size);
    text[size] = '\0';
    enum kml_code code;
    const char *rest;
    if (named_code(text, status, &code, &rest)) {
        (void)kml_fail(why, code, "%s", rest);
    } else {
        (void)kml_fail(why, plain_code(status, text), "%s: %s", from,
                       text[0] == '\0' ? "no reason given" : text);
    }
}
