#ifndef KML_TESTS_SIM_HOST_NAMES_H
#define KML_TESTS_SIM_HOST_NAMES_H

/*
 * ps/host.c, the shard's side of the data streams, runs in the simulator as it is, but over simulated
 * streams. These names keep its second copy apart from the one of the program, and its streams apart from
 * those of lib/rpc. To be included before ps/host.h.
 */
#define kml_host_create sim_host_create
#define kml_host_destroy sim_host_destroy
#define kml_host_limits sim_host_limits
#define kml_host_opened sim_host_opened
#define kml_host_setup sim_host_setup
#define kml_host_admit sim_host_admit
#define kml_host_dismiss sim_host_dismiss
#define kml_host_commit sim_host_commit
#define kml_host_release sim_host_release
#define kml_host_pin sim_host_pin
#define kml_host_unpin sim_host_unpin
#define kml_host_close sim_host_close
#define kml_host_shard sim_host_shard

#define kml_stream_send sim_stream_send
#define kml_stream_close sim_stream_close
#define kml_stream_cancel sim_stream_cancel
#define kml_stream_pause sim_stream_pause
#define kml_stream_resume sim_stream_resume
#define kml_stream_peer sim_stream_peer
#define kml_stream_queued sim_stream_queued

#endif
