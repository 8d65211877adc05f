# The programs of bench/, built with the tree's own rules: make -f Makefile -f bench/bench.mk bench-programs
BENCH_BIN := $(BUILD)/bench/rawtcp $(BUILD)/bench/push $(BUILD)/bench/step
BENCH_FLAGS = $(BASE_CFLAGS) -I. $(call layer_includes,$(USES_worker)) $(GEN_INCLUDE) $(call pkg_cflags,libprotobuf-c)
BENCH_OBJ   = $(filter-out $(BUILD)/worker/main.o,$(OBJ_worker))

.PHONY: bench-programs
bench-programs: all $(BENCH_BIN)

# The peer stands alone: nothing of ours is in it.
$(BUILD)/bench/rawtcp: bench/rawtcp.c bench/bench.mk
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -O3 -march=native -o $@ $<

$(BUILD)/bench/push $(BUILD)/bench/step: $(BUILD)/bench/%: bench/%.c bench/bench.mk $(BENCH_OBJ) $(call layer_libs,$(USES_worker))
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(BENCH_FLAGS) $(LDFLAGS_$(MODE)) -o $@ $< $(BENCH_OBJ) $(call layer_libs,$(USES_worker)) \
	  $(call pkg_libs,$(call layer_pkgs,$(USES_worker))) $(LDLIBS_COMMON)

# The scheduler's decisions stand on lib/sched alone: make -f Makefile -f bench/bench.mk bench-sched
SCHED_LAYERS := sched $(USES_sched)
$(BUILD)/bench/sched/decide: bench/sched/decide.c bench/bench.mk $(call layer_libs,$(SCHED_LAYERS))
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(BASE_CFLAGS) $(call layer_includes,$(SCHED_LAYERS)) $(LDFLAGS_$(MODE)) -o $@ $< \
	  $(call layer_libs,$(SCHED_LAYERS)) $(call pkg_libs,$(call layer_pkgs,$(SCHED_LAYERS))) $(LDLIBS_COMMON)

.PHONY: bench-sched
bench-sched: $(BUILD)/bench/sched/decide
	@$(BUILD)/bench/sched/decide
