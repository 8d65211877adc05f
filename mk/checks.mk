# What is checked without running the programs. `make lint` is all of it.

OUR_FOLDERS := $(addprefix lib/,$(LAYERS)) $(PROGRAMS) tests
OUR_C       := $(shell find $(wildcard $(OUR_FOLDERS)) -name '*.[ch]' | sort)
OUR_HEADERS := $(wildcard $(LAYERS:%=lib/%/*.h) $(PROGRAMS:%=%/*.h))
CLANG       ?= clang-14
FORMAT      ?= clang-format-14

# Libraries that only one floor may touch, as header prefix:floor.
ONLY := cblas:math grpc/:rpc google/protobuf-c:wire protobuf-c/:wire zlib:data openssl/:pki jansson:doc yaml:doc microhttpd:obs curl/:kube

.PHONY: lint check-layers check-headers check-banned check-format format
lint: check-layers check-headers check-banned check-format ## all checks of the source: layers, headers, banned functions, format

check-layers: ## refuse an include that climbs floors or reaches into another program
	@tools/check_layers $(foreach l,$(LAYERS) $(PROGRAMS),"$(l):$(USES_$(l))") $(foreach o,$(ONLY),"only:$(o)")

check-headers: $(PROTO_H) $(LAYERS:%=$(BUILD)/inc/%/.made) ## compile every header alone, C11, with gcc and clang
	@tools/check_headers "gcc $(CLANG)" "-std=c11 -D_GNU_SOURCE $(WARN) -Wno-unused -I. $(call layer_includes,$(LAYERS)) $(GEN_INCLUDE)" $(OUR_HEADERS)

check-banned: $(BUILD)/inc/base/.made ## refuse functions that cannot be used safely
	@tools/check_banned "$(CC) $(BASE_CFLAGS) $(call layer_includes,base)" $(OUR_C)

check-format: ## hold the source against .clang-format
	@$(FORMAT) --dry-run -Werror $(OUR_C) || { echo 'format: run "make format"'; exit 1; }
	@echo "format: $(words $(OUR_C)) files are fine"

format: ## put the source into the form of .clang-format
	@$(FORMAT) -i $(OUR_C)
