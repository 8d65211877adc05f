# The parameter server: the job's conductor or one shard of the model.
#
#   make && docker build -f deploy/images/kunal-ps.Dockerfile -t kunal-ps:0.1.0 .
#
# BASE is an image with the programs' shared libraries (base.Dockerfile); BIN the folder of the built
# programs.
ARG BASE=kunal-base
FROM ${BASE}
ARG BIN=build/release/bin
COPY ${BIN}/kunal-ps /usr/bin/kunal-ps
USER 65532:65532
ENTRYPOINT ["/usr/bin/kunal-ps"]
