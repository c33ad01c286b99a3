# Two commands: `make demo` trains with two workers on this host, `make test` passes everything.
# Both do their own set-up and ask for nothing.  Needs Debian 12 or Ubuntu 22.04, Python 3.8-3.11.

PYTHON ?= python3
VENV ?= .venv
BUILD ?= build
JOBS ?= $(shell nproc)

PACKAGES := git g++ cmake ninja-build pkg-config libzmq3-dev libsodium-dev libprotozero-dev libhwloc-dev libnuma-dev \
            libgtest-dev libgmock-dev libbenchmark-dev libgomp1 python3-venv python3-dev iproute2
# Clang's runtime stands in a package of its own on Debian, and in one that comes with it on Ubuntu.
FUZZ_PACKAGES := clang
FUZZ_PACKAGES_DEBIAN := libclang-rt-14-dev
# Lines are enough for a report: all of -g takes the compiler a third longer, and -O2 instead of -O1 another.
RELEASE_FLAGS := -O2 -g1 -DNDEBUG
SANITIZE_FLAGS := -O1 -g1 -DNDEBUG
# Of the tests' own code, which nobody waits for: half the compiler's time.
TEST_FLAGS := -DBS_TEST_FLAGS="-O0 -g1"
FUZZERS := meta zmtp server body
# Runs of each: as many as a test run can afford; `make fuzz FUZZ_RUNS=10000000` for more.
FUZZ_RUNS ?= 300000

BIN := $(VENV)/bin
SOURCES := $(shell git ls-files -co --exclude-standard -- setup.py pyproject.toml CMakeLists.txt \
             _bytescheduler_command.py bytescheduler src include 3rdparty python)

.PHONY: demo test setup release cpp sanitize fuzz fuzzers check lint python bench clean

demo: setup  ## train a classifier with 1 scheduler, 2 servers, 2 workers to 95 % accuracy
	$(BIN)/bslaunch --local -w 2 -s 2 --timeout 120 -- $(BIN)/python example/image-classification/train_mnist.py \
	  --target-accuracy 0.95

test: setup cpp sanitize $(VENV)/.fuzz-packages  ## everything .ci/run does
	@# The processes of jobs wait a good deal for each other: linters and fuzzers take what processor time that leaves.
	$(MAKE) -j 3 lint fuzz python

setup: $(VENV)/.installed  ## system packages, a virtual environment, the package itself

# Installs only what is missing, so a second run needs neither network nor root.
# $(call install,packages,those that only some distributions have)
define install
	@absent() { for p in "$$@"; do dpkg -s $$p 2>/dev/null | grep -q '^Status: .* installed' || printf ' %s' $$p; done; }; \
	missing=$$(absent $(1)); \
	if [ -n "$$missing" ]; then \
	  if [ $$(id -u) = 0 ]; then sudo=; elif command -v sudo >/dev/null; then sudo=sudo; \
	  else echo "Not root and no sudo.  Please install:$$missing" >&2; exit 1; fi; \
	  $$sudo apt-get update -q || exit 1; \
	  for p in $(2); do ! apt-cache show $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	  $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $$missing || exit 1; \
	fi
	@mkdir -p $(VENV) && touch $@
endef

$(VENV)/.packages: Makefile
	$(call install,$(PACKAGES),)

$(VENV)/.fuzz-packages: $(VENV)/.packages
	$(call install,$(FUZZ_PACKAGES),$(FUZZ_PACKAGES_DEBIAN))

$(VENV)/.venv: $(VENV)/.packages
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 8) <= v <= (3, 11) else "MXNet 1.9.1 needs Python 3.8 to 3.11, this is %d.%d: make PYTHON=python3.11 ..." % v)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip==24.0
	@touch $@

$(VENV)/.installed: $(VENV)/.venv $(SOURCES)
	$(BIN)/python -m pip install -q -e ".[mxnet,test]"
	@touch $@

release: $(VENV)/.packages
	cmake -S . -B $(BUILD)/release -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DBS_BUILD_BENCHMARKS=ON \
	  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="$(RELEASE_FLAGS)" $(TEST_FLAGS)
	cmake --build $(BUILD)/release -j $(JOBS)

cpp: release  ## the C++ tests
	ctest --test-dir $(BUILD)/release --output-on-failure -j $(JOBS)

sanitize: $(VENV)/.packages  ## the C++ tests under the address, undefined and thread sanitizers
	cmake -S . -B $(BUILD)/asan -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DBS_SANITIZE=address,undefined \
	  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="$(SANITIZE_FLAGS)" $(TEST_FLAGS)
	cmake --build $(BUILD)/asan -j $(JOBS)
	ctest --test-dir $(BUILD)/asan --output-on-failure -j $(JOBS)
	cmake -S . -B $(BUILD)/tsan -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DBS_SANITIZE=thread \
	  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="$(SANITIZE_FLAGS)" $(TEST_FLAGS)
	cmake --build $(BUILD)/tsan -j $(JOBS)
	TSAN_OPTIONS="halt_on_error=1 suppressions=$(CURDIR)/tests/tsan.supp" \
	  ctest --test-dir $(BUILD)/tsan --output-on-failure -j $(JOBS) -LE one-thread

fuzz: $(addprefix fuzz-,$(FUZZERS))  ## a short run of each fuzzer

fuzzers: $(VENV)/.fuzz-packages
	cmake -S . -B $(BUILD)/fuzz -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_COMPILER=clang++ \
	  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="$(RELEASE_FLAGS)" \
	  -DBS_BUILD_FUZZERS=ON -DBS_SANITIZE=fuzzer-no-link,address,undefined
	nice -n 19 cmake --build $(BUILD)/fuzz -j $(JOBS) --target fuzzers
	$(BUILD)/fuzz/tests/fuzz/fuzz_corpus $(addprefix $(BUILD)/fuzz/corpus/,$(FUZZERS))

fuzz-%: fuzzers
	test -n "$$(ls $(BUILD)/fuzz/corpus/$*)"
	ASAN_OPTIONS=malloc_context_size=2:quarantine_size_mb=16 \
	  nice -n 19 $(BUILD)/fuzz/tests/fuzz/$*_fuzz -runs=$(FUZZ_RUNS) -max_len=4096 -timeout=20 \
	    -artifact_prefix=$(BUILD)/fuzz/found- $(BUILD)/fuzz/corpus/$* >$(BUILD)/fuzz/$*.log 2>&1 || \
	  { tail -n 60 $(BUILD)/fuzz/$*.log; exit 1; }
	grep '^Done' $(BUILD)/fuzz/$*.log

check: setup cpp  ## formatters, linters, types, house rules
	$(MAKE) lint

lint:  # what `check` does, when all is built
	PATH="$(CURDIR)/$(BIN):$$PATH" BUILD=$(BUILD)/release JOBS=$(JOBS) nice -n 19 sh tests/check.sh

python: setup  ## the Python tests: units, then whole jobs of real processes
	@# Some 80 MB that one test opens a timeline with; where they are not to be had it says so.
	-$(BIN)/python -m pip install -q --no-deps -r tests/e2e/requirements-perfetto.txt
	$(BIN)/pytest -q -rs tests/python tests/e2e

bench: setup release  ## the C++ benchmarks, as JSON; those of jobs are in docs/performance.md
	set -e; for b in scheduler reduce; do $(BIN)/python -m benchmarks.$$b \
	  --binary $(BUILD)/release/benchmarks/$${b}_benchmark --out $(BUILD)/$$b.json; done

clean:
	rm -rf $(BUILD) $(VENV) *.egg-info dist
