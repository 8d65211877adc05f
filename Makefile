# Kunal ML: one Makefile for everything. `make help` lists what it can do.

VERSION  := 0.1.0
MODE     ?= release
BUILD    ?= build/$(MODE)
ifeq ($(origin CC),default)
CC       := gcc
endif
PREFIX   ?= /usr/local
DESTDIR  ?=
PKG      := pkg-config
PYTHON   ?= /usr/bin/python3

# ---- Floors: who may use whom. Data, not prose: the include path and the link line of every layer follow from it. ----
LAYERS     := base math sched sync wire rpc data store pki doc job kube obs
USES_base  :=
USES_math  := base
USES_sched := math base
USES_sync  := math base
USES_wire  := base
USES_rpc   := wire base
USES_data  := base
USES_store := base
USES_pki   := base
USES_doc   := base
USES_job   := doc base
USES_kube  := doc base
USES_obs   := base
USES_ps     := rpc wire job doc store sync sched math obs pki base
USES_worker := rpc wire job doc data store sync math obs pki base
USES_cli    := rpc wire job doc data store obs pki base

PKGS_math := openblas
PKGS_wire := libprotobuf-c
PKGS_rpc  := grpc
PKGS_data := zlib libdeflate
PKGS_pki  := libcrypto
PKGS_doc  := jansson yaml-0.1
PKGS_kube := libcurl
PKGS_obs  := libmicrohttpd
PROGRAMS  := ps worker cli
NAME_ps     := kunal-ps
NAME_worker := kunal-worker
NAME_cli    := kunal

# ---- Compiler ----
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition -Wvla \
        -Wformat=2 -Wundef -Wpointer-arith -Wcast-qual -Wwrite-strings -Wimplicit-fallthrough -Werror
CFLAGS_release := -O3 -g -fno-math-errno -fstack-protector-strong -D_FORTIFY_SOURCE=2
CFLAGS_debug   := -O0 -g3
CFLAGS_asan    := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all -DKML_SANITIZED
CFLAGS_tsan    := -O1 -g -fno-omit-frame-pointer -fsanitize=thread -DKML_SANITIZED
CFLAGS_cov     := -O0 -g --coverage -DKML_SANITIZED
CFLAGS_fuzz    := -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -DKML_SANITIZED
LDFLAGS_release := -Wl,-z,relro,-z,now -Wl,--as-needed
LDFLAGS_debug   := -Wl,--as-needed
LDFLAGS_asan    := -fsanitize=address,undefined
LDFLAGS_tsan    := -fsanitize=thread
LDFLAGS_cov     := --coverage
LDFLAGS_fuzz    := -fsanitize=address,undefined
# Instrumented code misleads the compiler's flow analysis; the plain modes keep these two warnings.
ifneq ($(filter asan tsan cov fuzz,$(MODE)),)
WARN += -Wno-unknown-warning-option -Wno-format-truncation -Wno-maybe-uninitialized
endif
ifeq ($(MODE),fuzz)
override CC := clang-14
endif
ifeq ($(filter $(MODE),release debug asan tsan cov fuzz),)
$(error MODE is one of release debug asan tsan cov fuzz)
endif
# clang looks into the macros of protobuf-c, which cast const away; gcc takes them as a system header's. gcc checks ours.
ifneq ($(findstring clang,$(CC)),)
WARN := $(filter-out -Wcast-qual,$(WARN))
endif
BASE_CFLAGS := -std=c11 -D_GNU_SOURCE -pthread -fvisibility=hidden -DKML_VERSION='"$(VERSION)"' $(WARN) $(CFLAGS_$(MODE)) -include base/banned.h
LDLIBS_COMMON := -pthread -lm

# Packages are only asked for when something is built, so that `make help` works on a bare machine and `make deps all`
# in one run; an answer is kept, a refusal is not.
pkg_cflags = $(foreach p,$(1),$(call pkg_ask,cflags,$(p)))
pkg_libs   = $(foreach p,$(1),$(call pkg_ask,libs,$(p)))
pkg_ask    = $(if $(filter undefined,$(origin pkg_$(1)_of_$(2))),$(call pkg_keep,$(1),$(2),$(shell $(PKG) --$(1) $(2) 2>/dev/null)))$(pkg_$(1)_of_$(2))
pkg_keep   = $(if $(filter 0,$(.SHELLSTATUS)),$(eval pkg_$(1)_of_$(2) := $(3)),$(error $(PKG) does not know $(2): run "make deps"))

# All cores, unless the command line says otherwise.
JOBS ?= $(shell nproc)
ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(JOBS) --no-print-directory
endif

# `make V=1` shows the whole command lines.
Q   := $(if $(V),,@)
say  = $(if $(V),,@printf '  %-5s %s\n' $(1) $(patsubst $(BUILD)/%,%,$(2)))

.DEFAULT_GOAL := all
.SECONDARY:
.DELETE_ON_ERROR:
include mk/rules.mk
include mk/checks.mk
include mk/targets.mk
include mk/cluster.mk
