# What people type: help, deps, the test runs, fuzzing, coverage, demo, bench, install.

# Another mode's build stands beside this one: build/release -> build/asan.
MODES      := release debug asan tsan cov fuzz
build_of    = $(if $(filter $(MODES),$(notdir $(BUILD))),$(dir $(BUILD))$(1),$(BUILD)-$(1))
in_mode     = $(MAKE) MODE=$(1) BUILD=$(call build_of,$(1))
FUZZ_SECONDS = $(if $(SECONDS),$(SECONDS),10)
SUM         := tests/tools/run_steps

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(filter-out %.d,$(MAKEFILE_LIST))
	@echo "  make unit-X         unit tests of one layer or program, X of: $(LAYERS) $(PROGRAMS)"
	@echo "  make FILE           one program or test: $(BUILD)/bin/kunal-ps, $(BUILD)/tests/unit/sync/barrier"
	@echo "  MODE=$(MODE) of: $(MODES). BUILD=$(BUILD) CC=$(CC) PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) JOBS=$(JOBS)"
	@echo "  V=1 shows the commands."

.PHONY: deps
deps: ## install the Debian packages of tools/packages.txt that are missing (root or sudo)
	@tools/deps tools/packages.txt
ifneq ($(filter deps,$(MAKECMDGOALS)),)
.NOTPARALLEL: # `make -j deps all`: nothing is built before the packages are there
endif

# ---- Tests. Each step ends with "N passed, N failed"; run_steps adds them up. ----
.PHONY: check test test-long integration
check: ## quick: lint, unit tests in release and under the address and undefined sanitizers
	@$(SUM) "$(MAKE) -k lint" \
	  "$(call in_mode,release) unit" \
	  "$(call in_mode,asan) unit"

test: ## everything; installs what is missing, ends with one line "N passed, N failed"
	@$(MAKE) deps
	@$(SUM) "$(MAKE) -k lint" \
	  "$(call in_mode,release) unit" \
	  "$(call in_mode,asan) unit" \
	  "$(call in_mode,tsan) unit" \
	  "$(call in_mode,fuzz) fuzz-run SECONDS=$(FUZZ_SECONDS)" \
	  "$(call in_mode,cov) cov" \
	  "$(call in_mode,release) integration"

SCRIPT_ENV = KML_BIN="$(abspath $(BUILD)/bin)" PYTHON="$(PYTHON)"
integration: $(BINARIES) $(INTEGRATION_BIN) ## run tests/integration: the programs together
	@$(SUM) $(if $(INTEGRATION_BIN),"tests/tools/run_units $(INTEGRATION_BIN)") \
	  "$(SCRIPT_ENV) tests/tools/run_all tests/integration"

test-long: all ## run tests/long: minutes to hours
	@$(SCRIPT_ENV) tests/tools/run_all tests/long

# ---- Fuzzing ----
.PHONY: fuzz fuzz-run fuzz-bins
fuzz: ## build every tests/fuzz/*.c as a libFuzzer target
	+@$(call in_mode,fuzz) fuzz-bins
fuzz-bins: $(if $(filter fuzz,$(MODE)),$(FUZZ_BIN))
fuzz-run: fuzz ## run each fuzz target for SECONDS=10 seconds from its seeds in tests/fuzz/corpus/<name>/
	@tests/tools/run_fuzz $(call build_of,fuzz) $(FUZZ_SECONDS) $(notdir $(FUZZ_BIN))

# ---- Coverage ----
.PHONY: cov cov-units
cov: ## run the tests written in C with MODE=cov and print the line coverage of lib/
	+@$(call in_mode,cov) cov-units
cov-units: $(UNIT_BINS) $(INTEGRATION_BIN)
	@find $(BUILD) -name '*.gcda' -delete
	@tests/tools/run_units $(UNIT_BINS) $(INTEGRATION_BIN) > $(BUILD)/units.txt || { cat $(BUILD)/units.txt; exit 1; }
	@gcovr --root . --filter lib/ --exclude-unreachable-branches --txt $(BUILD)/coverage.txt --html-details $(BUILD)/coverage.html \
	  $(BUILD) >/dev/null
	@awk '$$1 ~ /^(lib\/|TOTAL)/ && NF > 3 { printf "  %-32s %6s lines %6s\n", $$1, $$2, $$4 }' $(BUILD)/coverage.txt

# ---- Programs ----
.PHONY: demo bench
demo: ## install what is missing, build, train Fashion-MNIST on this machine
	@$(MAKE) deps
	@$(MAKE) all
	$(BUILD)/bin/kunal run examples/fashion-mnist.yaml

bench: all ## measure against the peers, one line each: id, ours, peer, ratio
	@$(SCRIPT_ENV) bench/run

.PHONY: install uninstall clean
BIN := $(DESTDIR)$(PREFIX)/bin
DOC := $(DESTDIR)$(PREFIX)/share/doc/kunal
# The tree's own folders, so that the links of README.md and of the pages lead somewhere.
DOC_FILES = LICENSE README.md $(shell find docs examples proto -type f ! -name '*.pyc')
install: all ## install the programs, kubectl-kunal and the documentation into $(DESTDIR)$(PREFIX)
	install -d $(BIN)
	install -m 755 $(BINARIES) $(BIN)
	ln -sfn kunal $(BIN)/kubectl-kunal
	@for f in $(DOC_FILES); do install -D -m "$$([ -x $$f ] && echo 755 || echo 644)" $$f $(DOC)/$$f; done
	@echo "  documentation: $(DOC)"

uninstall: ## take out what install put there
	rm -f $(foreach p,$(PROGRAMS),$(BIN)/$(NAME_$(p))) $(BIN)/kubectl-kunal
	rm -rf $(DOC)

clean: ## remove all builds
	rm -rf $(foreach m,$(MODES),$(call build_of,$(m))) $(BUILD)
