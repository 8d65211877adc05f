# What every image of ours stands on: Debian 12 with the shared libraries of our programs and a user without
# rights.
#
#   docker build -f deploy/images/base.Dockerfile -t kunal-base .
#
# BASE is any Debian 12 image. Where no registry is to be reached, `make images` makes kunal-base from this
# machine's own libraries instead, and buildah or docker load it from the archive.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
RUN apt-get update -q \
    && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends ca-certificates \
       libgrpc29 libprotobuf-c1 libopenblas0-pthread libjansson4 libyaml-0-2 libcurl4 libmicrohttpd12 \
       libssl3 zlib1g \
    && rm -rf /var/lib/apt/lists/*
RUN echo 'kunal:x:65532:65532:kunal:/:/usr/sbin/nologin' >>/etc/passwd && echo 'kunal:x:65532:' >>/etc/group
USER 65532:65532
WORKDIR /
