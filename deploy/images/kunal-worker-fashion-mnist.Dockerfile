# The worker that carries Fashion-MNIST, so that the examples need no volume: the default worker image.
#
#   make && docker build -f deploy/images/kunal-worker-fashion-mnist.Dockerfile \
#       -t kunal-worker-fashion-mnist:0.1.0 .
#
# BASE is an image with the programs' shared libraries (base.Dockerfile); BIN the folder of the built
# programs. DATA is the folder of the data set, copied into the build context:
#   cp -r /usr/share/datasets/fashion-mnist build/
ARG BASE=kunal-base
FROM ${BASE}
ARG BIN=build/release/bin
COPY ${BIN}/kunal-worker /usr/bin/kunal-worker
ARG DATA=build/fashion-mnist
COPY ${DATA} /usr/share/datasets/fashion-mnist
USER 65532:65532
ENTRYPOINT ["/usr/bin/kunal-worker"]
