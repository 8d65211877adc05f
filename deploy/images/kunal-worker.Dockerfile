# The worker; the data comes from a volume or over the network.
#
#   make && docker build -f deploy/images/kunal-worker.Dockerfile -t kunal-worker:0.1.0 .
#
# BASE is an image with the programs' shared libraries (base.Dockerfile); BIN the folder of the built
# programs.
ARG BASE=kunal-base
FROM ${BASE}
ARG BIN=build/release/bin
COPY ${BIN}/kunal-worker /usr/bin/kunal-worker
USER 65532:65532
ENTRYPOINT ["/usr/bin/kunal-worker"]
