# How the tree is built: one archive a layer, one program a folder, one test binary a file.

all_layers_of = $(1) $(USES_$(1))
layer_pkgs    = $(foreach l,$(1),$(PKGS_$(l)))
layer_libs    = $(foreach l,$(1),$(BUILD)/lib/libkml_$(l).a)

# Each floor sees only itself and the floors below: a leak upwards does not compile, and would not link.
layer_includes = $(foreach l,$(1),-I$(BUILD)/inc/$(l))

# Headers are reached as "layer/file.h" through a folder of links that holds just that layer.
$(foreach l,$(LAYERS),$(eval $(BUILD)/inc/$(l)/.made: ; @mkdir -p $$(@D) && ln -sfn $(abspath lib/$(l)) $$(@D)/$(l) && touch $$@))

# ---- Generated protobuf-c code: part of lib/wire ----
PROTOS    := $(wildcard proto/kunal/v1/*.proto)
PROTO_C   := $(PROTOS:proto/%.proto=$(BUILD)/gen/wire/%.pb-c.c)
PROTO_H   := $(PROTO_C:.c=.h)
$(BUILD)/gen/wire/%.pb-c.c $(BUILD)/gen/wire/%.pb-c.h &: proto/%.proto
	@mkdir -p $(BUILD)/gen/wire
	$(call say,GEN,$<)
	$(Q)protoc-c --proto_path=proto --c_out=$(BUILD)/gen/wire $<
GEN_INCLUDE := -isystem $(BUILD)/gen/wire -isystem $(BUILD)/gen

define layer_rules
SRC_$(1) := $$(wildcard lib/$(1)/*.c)
OBJ_$(1) := $$(SRC_$(1):%.c=$(BUILD)/%.o)
$$(OBJ_$(1)): $(BUILD)/%.o: %.c Makefile mk/rules.mk $$(foreach l,$$(call all_layers_of,$(1)),$(BUILD)/inc/$$(l)/.made)
	@mkdir -p $$(@D)
	$$(call say,CC,$$<)
	$$(Q)$$(CC) $$(BASE_CFLAGS) $$(call layer_includes,$$(call all_layers_of,$(1))) $$(EXTRA_$(1)) $$(call pkg_cflags,$$(PKGS_$(1))) -MMD -MP -c $$< -o $$@
$(BUILD)/lib/libkml_$(1).a: $$(OBJ_$(1)) $$(MORE_OBJ_$(1))
	@mkdir -p $$(@D)
	@rm -f $$@
	$$(call say,AR,$$@)
	$$(Q)$$(AR) rcs $$@ $$(OBJ_$(1)) $$(MORE_OBJ_$(1))
-include $$(OBJ_$(1):.o=.d)
endef
MORE_OBJ_wire := $(PROTO_C:.c=.o)
EXTRA_wire    := $(GEN_INCLUDE)
$(foreach l,$(LAYERS),$(eval $(call layer_rules,$(l))))
$(OBJ_wire): $(PROTO_H)

# protobuf-c's output is not ours: its warnings are not ours either.
$(MORE_OBJ_wire): %.o: %.c $(PROTO_H)
	$(call say,CC,$<)
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE $(CFLAGS_$(MODE)) $(GEN_INCLUDE) $(call pkg_cflags,libprotobuf-c) -c $< -o $@

define program_rules
SRC_$(1) := $$(wildcard $(1)/*.c)
OBJ_$(1) := $$(SRC_$(1):%.c=$(BUILD)/%.o)
$$(OBJ_$(1)): $(BUILD)/%.o: %.c Makefile mk/rules.mk $(PROTO_H) $$(foreach l,$(LAYERS),$(BUILD)/inc/$$(l)/.made)
	@mkdir -p $$(@D)
	$$(call say,CC,$$<)
	$$(Q)$$(CC) $$(BASE_CFLAGS) -I. $$(call layer_includes,$$(USES_$(1))) $(GEN_INCLUDE) $$(call pkg_cflags,libprotobuf-c) -MMD -MP -c $$< -o $$@
$(BUILD)/bin/$$(NAME_$(1)): $$(OBJ_$(1)) $$(call layer_libs,$$(USES_$(1)))
	@mkdir -p $$(@D)
	$$(call say,LD,$$@)
	$$(Q)$$(CC) $$(LDFLAGS_$(MODE)) -o $$@ $$(OBJ_$(1)) $$(call layer_libs,$$(USES_$(1))) $$(call pkg_libs,$$(call layer_pkgs,$$(USES_$(1)))) $$(LDLIBS_COMMON)
-include $$(OBJ_$(1):.o=.d)
endef
$(foreach p,$(PROGRAMS),$(eval $(call program_rules,$(p))))

BINARIES := $(foreach p,$(PROGRAMS),$(BUILD)/bin/$(NAME_$(p)))
.PHONY: all
all: ## build kunal, kunal-ps and kunal-worker into $(BUILD)/bin
all: $(BINARIES)

# ---- The simulator (tests/sim): the conductor and the shards of ps/ over a virtual clock and network ----
SIM_LIB      := $(BUILD)/lib/libkml_sim.a
SIM_OBJ      := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/sim/*.c))
SIM_PS_OBJ   := $(patsubst %,$(BUILD)/ps/%.o,conductor members decide evaluate balance shard hello)
$(SIM_OBJ): $(BUILD)/%.o: %.c Makefile mk/rules.mk $(PROTO_H) $(foreach l,$(LAYERS),$(BUILD)/inc/$(l)/.made)
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(BASE_CFLAGS) -I. $(call layer_includes,$(USES_ps)) $(GEN_INCLUDE) -MMD -MP -c $< -o $@
$(SIM_LIB): $(SIM_OBJ) $(SIM_PS_OBJ)
	@mkdir -p $(@D)
	@rm -f $@
	$(call say,AR,$@)
	$(Q)$(AR) rcs $@ $(SIM_OBJ) $(SIM_PS_OBJ)
-include $(SIM_OBJ:.o=.d)
UNIT_MORE_ps := $(SIM_LIB)

# ---- Unit tests: tests/unit/<layer or program>/<name>.c, one cmocka binary each ----
define unit_rules
UNIT_SRC_$(1) := $$(wildcard tests/unit/$(1)/*.c)
UNIT_BIN_$(1) := $$(UNIT_SRC_$(1):%.c=$(BUILD)/%)
UNIT_LAYERS_$(1) := $$(if $$(filter $(1),$(LAYERS)),$$(call all_layers_of,$(1)),$$(USES_$(1)))
# A program's own objects, but for its main, are linked into its unit tests.
UNIT_OBJ_$(1) := $$(if $$(filter $(1),$(PROGRAMS)),$$(filter-out $(BUILD)/$(1)/main.o,$$(OBJ_$(1))))
$$(UNIT_BIN_$(1)): $(BUILD)/%: %.c Makefile mk/rules.mk $$(UNIT_OBJ_$(1)) $$(UNIT_MORE_$(1)) $$(call layer_libs,$$(UNIT_LAYERS_$(1))) $(PROTO_H)
	@mkdir -p $$(@D)
	$$(call say,TEST,$$@)
	$$(Q)$$(CC) $$(BASE_CFLAGS) -I. -Itests $$(call layer_includes,$$(UNIT_LAYERS_$(1))) $(GEN_INCLUDE) $$(call pkg_cflags,cmocka libprotobuf-c) -MMD -MP -MF $$@.d $$(LDFLAGS_$(MODE)) -o $$@ $$< \
	  $$(UNIT_OBJ_$(1)) $$(UNIT_MORE_$(1)) $$(call layer_libs,$$(UNIT_LAYERS_$(1))) $$(call pkg_libs,$$(call layer_pkgs,$$(UNIT_LAYERS_$(1))) cmocka) $$(LDLIBS_COMMON)
-include $$(UNIT_BIN_$(1):%=%.d)
.PHONY: unit-$(1)
unit-$(1): $$(UNIT_BIN_$(1))
	@tests/tools/run_units $$(UNIT_BIN_$(1))
endef
$(foreach l,$(LAYERS) $(PROGRAMS),$(eval $(call unit_rules,$(l))))
# Under the thread sanitizer only what locks is run: the rest is pure and would only cost time.
TSAN_LAYERS ?= base obs
UNIT_SET    := $(if $(filter tsan,$(MODE)),$(TSAN_LAYERS),$(LAYERS) $(PROGRAMS))
UNIT_BINS   := $(foreach l,$(UNIT_SET),$(UNIT_BIN_$(l)))
.PHONY: unit
unit: $(UNIT_BINS) ## run the unit tests; MODE=asan, MODE=tsan with sanitizers, unit-<layer> one layer
	@tests/tools/run_units $(UNIT_BINS)

# ---- Tests and fuzz targets over all floors: one file, one binary. Fuzz targets do without the network's floor. ----
all_floors_flags = $(BASE_CFLAGS) -I. -Itests $(call layer_includes,$(1)) $(GEN_INCLUDE) $(call pkg_cflags,libprotobuf-c $(2))
all_floors_libs  = $(call layer_libs,$(call downwards,$(1))) $(call pkg_libs,$(call layer_pkgs,$(1)) $(2)) $(LDLIBS_COMMON)
# The link line wants users before what they use; LAYERS is written from the ground up.
downwards = $(if $(1),$(call downwards,$(wordlist 2,$(words $(1)),$(1))) $(firstword $(1)))

INTEGRATION_BIN := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/integration/*.c))
$(INTEGRATION_BIN): $(BUILD)/%: %.c Makefile mk/rules.mk $(call layer_libs,$(LAYERS)) $(PROTO_H)
	@mkdir -p $(@D)
	$(call say,TEST,$@)
	$(Q)$(CC) $(call all_floors_flags,$(LAYERS),cmocka) -MMD -MP -MF $@.d $(LDFLAGS_$(MODE)) -o $@ $< $(call all_floors_libs,$(LAYERS),cmocka)
-include $(INTEGRATION_BIN:%=%.d)

FUZZ_LAYERS := $(filter-out rpc,$(LAYERS))
FUZZ_BIN    := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/fuzz/*.c))
$(FUZZ_BIN): $(BUILD)/%: %.c Makefile mk/rules.mk $(call layer_libs,$(FUZZ_LAYERS)) $(PROTO_H)
	@mkdir -p $(@D)
	$(call say,FUZZ,$@)
	$(Q)$(CC) $(call all_floors_flags,$(FUZZ_LAYERS)) -fsanitize=fuzzer -MMD -MP -MF $@.d $(LDFLAGS_$(MODE)) -o $@ $< $(call all_floors_libs,$(FUZZ_LAYERS))
-include $(FUZZ_BIN:%=%.d)
