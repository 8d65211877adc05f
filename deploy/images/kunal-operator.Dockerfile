# The operator.
#
#   make && docker build -f deploy/images/kunal-operator.Dockerfile -t kunal-operator:0.1.0 .
#
# BASE is an image with the programs' shared libraries (base.Dockerfile); BIN the folder of the built
# programs.
ARG BASE=kunal-base
FROM ${BASE}
ARG BIN=build/release/bin
COPY ${BIN}/kunal-operator /usr/bin/kunal-operator
USER 65532:65532
ENTRYPOINT ["/usr/bin/kunal-operator"]
