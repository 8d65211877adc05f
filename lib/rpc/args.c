#include <grpc/grpc.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "rpc/core.h"

/*
 * Measured on loopback and through delay lines. Without the bandwidth probe the connection's window stays
 * near 1 MiB: three times faster where the round trip is under half a millisecond, seven times slower at 5
 * ms. Hence two profiles: "lan", and KUNAL_NET_PROFILE=wan.
 */
static bool is_wan(void)
{
    const char *profile = getenv("KUNAL_NET_PROFILE");
    return profile != NULL && strcmp(profile, "wan") == 0;
}

/* KUNAL_KEEPALIVE_MS: the tests' way to a keepalive that does not take half a minute. */
static int keepalive_ms(void)
{
    const char *text = getenv("KUNAL_KEEPALIVE_MS");
    long ms = text == NULL ? 0 : strtol(text, NULL, 10);
    return ms > 0 && ms < INT_MAX ? (int)ms : 20000;
}

/* How long an answer may take. Not shorter on a busy machine, whatever the interval: that would be a false
 * alarm. */
static int keepalive_timeout_ms(void)
{
    int half = keepalive_ms() / 2;
    return half < 2000 ? 2000 : half;
}

static void add(struct kml_rpc_args *a, const char *key, int value)
{
    KML_BUG_ON(a->list.num_args == KML_RPC_ARGS);
    /* The library wants char * and writes to none of them. */
    union {
        const char *in;
        char *out;
    } name = {key};
    a->arg[a->list.num_args++] =
        (grpc_arg){.type = GRPC_ARG_INTEGER, .key = name.out, .value.integer = value};
}

static void common(struct kml_rpc_args *a, size_t receive_max)
{
    a->list = (grpc_channel_args){0, a->arg};
    add(a, GRPC_ARG_HTTP2_BDP_PROBE, is_wan());
    add(a, GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 256 << 10);
    add(a, GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4 << 20);
    add(a, GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, receive_max > INT_MAX ? INT_MAX : (int)receive_max);
    add(a, GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, -1);
    add(a, GRPC_ARG_KEEPALIVE_TIME_MS, keepalive_ms());
    add(a, GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive_timeout_ms());
    add(a, GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    add(a, GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    /* A small message must not unpack into a large one: compressed ones are refused by the peer that gets
     * them. */
    add(a, GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0);
    add(a, GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
}

void kml_rpc_server_args(struct kml_rpc_args *a, size_t receive_max)
{
    common(a, receive_max);
    add(a, GRPC_ARG_ALLOW_REUSEPORT, 0); /* else two servers would share a port in silence */
    add(a, GRPC_ARG_MAX_CONCURRENT_STREAMS, 128);
    /* Without this a peer's keepalive is answered with ENHANCE_YOUR_CALM and the connection is closed. */
    add(a, GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, keepalive_ms() / 2);
}

void kml_rpc_channel_args(struct kml_rpc_args *a, size_t receive_max)
{
    common(a, receive_max);
    add(a, GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1); /* a connection of its own for each channel */
    add(a, GRPC_ARG_ENABLE_RETRIES, 0);            /* a retry buffer would hold on to payloads */
    add(a, GRPC_ARG_ENABLE_HTTP_PROXY, 0);         /* pods often have http_proxy set */
    add(a, GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
    add(a, GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    add(a, GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000); /* in fact how long one attempt to connect may take */
    add(a, GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
    add(a, GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS,
        1000); /* a pod that was made again has a new address */
}
