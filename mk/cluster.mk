# The test cluster: real Kubernetes on this machine, without Docker and without a registry. docs/CLUSTER.md

NODES        ?= 2
IMAGE_PREFIX ?= localhost
IMAGES       := $(BUILD)/images.tar

.PHONY: cluster-deps cluster-build cluster-up cluster-down cluster-env cluster-smoke images kind-up kind-down
cluster-deps: ## install the Debian packages of tools/packages-cluster.txt that are missing (root or sudo)
	@tools/deps tools/packages-cluster.txt

cluster-build: ## build the Kubernetes programs into the cache; once, about 25 minutes
	@tests/cluster/build

images: $(IMAGES) ## our container images in one archive, $(BUILD)/images.tar
$(IMAGES): $(BINARIES) tests/cluster/image
	@tests/cluster/image --bin $(BUILD)/bin --out $@ --prefix $(IMAGE_PREFIX) --tag $(VERSION)

cluster-up: $(IMAGES) ## a cluster with NODES=2 nodes (0 to 50) that has our images; root
	@tests/cluster/up $(NODES)
	@tests/cluster/import $(IMAGES)

cluster-down: ## take the cluster down, leave nothing behind
	@tests/cluster/down

cluster-env: ## print the exports that make kubectl and helm work, for eval
	@tests/cluster/env

cluster-smoke: $(IMAGES) ## bring a cluster up, use it, take it down, prove that nothing is left
	@tests/cluster/smoke $(IMAGES) $(IMAGE_PREFIX) $(VERSION)

# The same on a machine that has Docker and kind.
kind-up: $(IMAGES) ## a kind cluster that has our images
	@command -v kind >/dev/null || { echo "kind is not installed: use make cluster-up" >&2; exit 1; }
	kind create cluster --config deploy/kind.yaml
	kind load image-archive $(IMAGES) --name kunal

kind-down: ## delete the kind cluster of kind-up
	kind delete cluster --name kunal
