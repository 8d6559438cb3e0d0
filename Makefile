# `make help` lists the targets. Every target makes what it needs. PYTHON picks the interpreter that the virtual environment is made with.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready


EVERY_DAY := demo test quick lint format emulated docs gpu-test help
LONG_TESTS := coverage sweeps farm frameworks clients toolkits aarch64 cache-faults faults soak store leak fuzz fuzz-kernels checked promises unoptimised guarded assembled fuzz-ptx replay mutants
BUILD_AND_MEASURE := runtime native editor images bench bench-check house gpu-wheels release-check packaging urls clean
.PHONY: $(EVERY_DAY) $(LONG_TESTS) $(BUILD_AND_MEASURE)

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[cu13,tile,dev]'
	touch $@

demo: $(READY)  ## build a fatbin for many architectures, run it on what is here, check the numbers
	$(BIN)/cujit demo

# Where this is set, each of the hundreds of processes of the tests would compile every module that it imports.
unexport PYTHONDONTWRITEBYTECODE

# One process more than there are processors: tests wait for processes and servers.
export PYTEST_XDIST_AUTO_NUM_WORKERS ?= $(shell expr `nproc` + 1)

test: $(READY)  ## everything that needs no GPU (and, where there is one, everything else too)
	$(BIN)/python -m pytest -n auto --dist worksteal

QUICK_S ?= 150
quick: $(READY)  ## the tests of what changed since the main branch; less than three minutes, QUICK_S is the seconds
	CUJIT_QUICK_UNTIL=$$(($$(date +%s) + $(QUICK_S))) $(BIN)/python -m pytest -n auto --dist worksteal $$($(BIN)/python tools/quick.py)

# Left out is what counts a process's own imports and system calls, or fills its disk: coverage has some, too.
UNCOVERED := tests/cache/test_faults.py tests/test_warm_imports.py \
         tests/cache/test_pack.py::test_1000_records_take_a_few_system_calls \
         tests/farm/test_trouble.py::test_hanging_worker_is_ended_at_the_compile_deadline \
         tests/cli/test_worklist.py::test_full_disk_leaves_no_files \
         tests/worklist/test_recording.py::test_size_limited_file_is_reported_once_and_stays_readable
coverage: $(READY)  ## lines and branches of src/cujit that the tests run, held to the floor in pyproject.toml; twice as long
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'coverage>=7.10,<8'
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest -n auto --dist worksteal $(addprefix --deselect ,$(UNCOVERED))
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

# `make test` runs a part of each, which a seed chooses: tests/sweeps.py.
sweeps: $(READY)  ## every point of the sweeps of which `make test` runs a part; some minutes
	CUJIT_SWEEPS=all $(BIN)/python -m pytest -n auto --dist worksteal $$(grep -rl 'sweeps import part' tests)

lint: $(READY)  ## ruff, mypy, the import contracts and the rules of the code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/house.py --check
	$(BIN)/python tools/prose.py

format: $(READY)  ## let ruff format the code and fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

runtime: $(READY)  ## compile the C of the CPU device and of the emulator to LLVM bitcode, which is kept in the package
	$(BIN)/python tools/runtime.py

native: $(READY)  ## build the launcher's C into one shared object for each processor, which is kept in the package
	$(BIN)/python tools/native.py

# ARGS="--shuffle 7" runs in the order of a seed, ARGS="-n 4" in four processes.
# On a machine with a GPU and no package index, `make gpu-wheels` (run elsewhere) leaves in .whl what it lacks;
# then the machine's own python3 runs the tests over it.
gpu-test:  ## the tests that need a GPU
	if [ -d .whl ]; then \
	  python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target .gpu-site .whl/*.whl && \
	  PYTHONPATH=$(CURDIR)/.gpu-site:$(CURDIR)/src python3 -m pytest -m gpu -p no:cacheprovider -p no:benchmark $(ARGS); \
	else \
	  $(MAKE) $(READY) && $(BIN)/python -m pytest -m gpu $(ARGS); \
	fi

GPU_WHEELS ?= nvidia-nvfatbin==13.0.85 nvidia-cuda-crt==13.0.88 nvidia-cuda-cccl==13.0.85 zstandard lz4 pyelftools pytest-xdist execnet
gpu-wheels: $(READY)  ## download the wheels that `make gpu-test` needs on a machine without a package index
	mkdir -p .whl
	for wheel in $(GPU_WHEELS); do \
	  $(BIN)/python -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
	    --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux_2_17_x86_64 \
	    --platform manylinux2014_x86_64 --platform manylinux1_x86_64 -d .whl $$wheel; \
	done

# MPI where the machine has it: Debian's packages are openmpi-bin and libopenmpi-dev.
farm: $(READY)  ## a thousand kernels on processes, Dask and MPI, with workers killed, disks full; some minutes
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'mpi4py>=4'
	CUJIT_FARM=1 $(BIN)/python -m pytest tests/farm tests/test_scale_page.py tests/tuning/test_long.py

# torch, JAX, CuPy and their NumPy are no dependencies of cujit, and torch pins a toolkit of its own: an environment apart.
FRAMEWORKS := .venv-frameworks
frameworks:  ## cujit.torch and cujit.jax, with torch, JAX and CuPy in an environment of their own (some 2 GB)
	test -x $(FRAMEWORKS)/bin/python || $(PYTHON) -m venv $(FRAMEWORKS)
	$(FRAMEWORKS)/bin/python -m pip install --no-compile --quiet --disable-pip-version-check --editable '.[cu13]' 'torch>=2.11' 'jax>=0.10' cupy-cuda13x hypothesis pytest
	$(FRAMEWORKS)/bin/python -m pytest tests/frameworks tests/devices/launcher/test_tensors.py

# Whose programs and tests `cujit emulate` runs: an environment apart for each CUDA, for they bring compilers of their own.
CLIENTS := .venv-clients
clients:  ## other people's CUDA programs with no GPU, by wheels of CUDA 12 and 13, and the tests that they publish; some twenty minutes
	for cuda in 12 13; do \
	  test -x $(CLIENTS)-$$cuda/bin/python || $(PYTHON) -m venv $(CLIENTS)-$$cuda || exit 1; \
	  $(CLIENTS)-$$cuda/bin/python -m pip install --no-compile --quiet --disable-pip-version-check --constraint constraints.txt \
	    --requirement tests/clients/requirements/cuda$$cuda.txt --editable . || exit 1; \
	done
	$(CLIENTS)-13/bin/python -m pip install --no-deps --no-compile --quiet --disable-pip-version-check \
	  --requirement tests/clients/requirements/torch.txt || echo "no index has torch for CPUs: TileLang is left out"
	$(CLIENTS)-12/bin/python -m pytest tests/clients
	CUJIT_CLIENTS=1 $(CLIENTS)-13/bin/python -m pytest -rP tests/clients tests/test_fleets_page.py

EMULATED := tests/devices/cuda tests/devices/launcher $(wildcard tests/devices/test_*.py) tests/test_kernel.py tests/test_globals.py \
         tests/test_program.py tests/test_timing.py tests/test_registry.py tests/test_traveling.py tests/test_embedding_launches.py \
         tests/test_occupancy.py tests/test_streams_page.py tests/test_launch_page.py
emulated: $(READY)  ## the tests of what runs on a GPU, on the one of `cujit emulate`; a minute
	$(BIN)/cujit emulate $(BIN)/python -m pytest -m gpu -n 2 $(EMULATED) $(ARGS)

# Other releases of the toolkit, each in a virtual environment of its own; and the assemblers of many, for the tests
# that compare the instruction table with them. An hour or two on two cores, and 20 GB.
TOOLKITS := .toolkits
RELEASES_13 ?= 13.0 13.1 13.2 13.3 13.4
PARTS := nvrtc,nvjitlink,nvvm,nvfatbin,cudart,cccl,crt,tileiras
ROUTES := tests/toolchain tests/compile tests/test_program.py tests/test_limits.py tests/test_nvvm_routes.py tests/test_routes.py tests/test_link_files.py \
         tests/linking tests/test_cuda12_images.py
EACH_HEADER := tests/toolkits/test_standard_headers.py
toolkits: $(READY)  ## test against CUDA 12.9 and 13.0 to 13.4, and the ptxas of 11.7 to 13.5
	test -x .venv-12.9/bin/pytest || ($(PYTHON) -m venv .venv-12.9 && .venv-12.9/bin/pip install -q -e '.[cu12,dev]')
	for cuda in $(RELEASES_13); do \
	  test -x .venv-$$cuda/bin/pytest || ($(PYTHON) -m venv .venv-$$cuda && .venv-$$cuda/bin/pip install -q -e '.[dev]' \
	    'cuda-bindings>=13.2,<14' "cuda-toolkit[$(PARTS)]==$$cuda.*" "nvidia-nvjitlink==$$cuda.*") || exit 1; \
	done
	$(BIN)/python tests/toolkits/fetch.py $(TOOLKITS)
	for cuda in 12.9 $(RELEASES_13); do \
	  CUJIT_TOOLKITS=$(TOOLKITS) .venv-$$cuda/bin/python -m pytest -n auto $(ROUTES) $(EACH_HEADER) || exit 1; \
	done
	CUJIT_TOOLKITS=$(TOOLKITS) $(BIN)/python -m pytest -n auto -m toolkits tests/toolkits

# Debian's Python for aarch64 and the wheels of that processor, unpacked into .aarch64 (1 GB) and run by QEMU. To make
# them takes two minutes, is done once, and needs to be root, debootstrap and qemu-user-static; the tests take some twenty.
AARCH64 := .aarch64
WAITING := $(addprefix tests/devices/cpu/test_,synchronisation.py calls.py ending.py) tests/kernels
aarch64: $(READY)  ## the demo and some tests of the CPU device on aarch64, in an emulator
	test -x $(AARCH64)/python || tools/aarch64.sh $(BIN)/python $(AARCH64)
	PYTHONPATH=$(CURDIR)/src $(AARCH64)/python -m cujit demo
	PYTHONPATH=$(CURDIR)/src $(AARCH64)/python -m pytest -n auto -m "not gpu" $(WAITING)

cache-faults: $(READY)  ## every errno at every system call of the cache; needs strace
	CUJIT_FAULTS=all $(BIN)/python -m pytest tests/cache/test_faults.py

faults: $(READY)  ## every errno at every call of packs, lists, farms, shared caches, reports and saved launches; an hour
	CUJIT_FAULTS=all $(BIN)/python -m pytest tests/faults

SOAK_S ?= 600
soak: $(READY)  ## 32 threads that do everything at once, with signals and forks, for ten minutes
	CUJIT_SOAK_S=$(SOAK_S) $(BIN)/python -m pytest -p no:cacheprovider tests/soak

store: $(READY)  ## a million forgeries, and the shared cache over nginx (Debian's package of that name)
	CUJIT_FORGERIES=1000000 $(BIN)/python -m pytest tests/remote

bench: $(READY)  ## ratios against floors and peers, all taken in one run
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/reading.py

AGAINST ?= 1e8a532
bench-check: $(READY)  ## this cujit against that of a commit, case by case in turn; fails where one became slower
	$(BIN)/python benchmarks/pairs.py --against $(AGAINST) --check $(ARGS)

leak: $(READY)  ## what 10,000 kernels, compiled on the CPU device and dropped, leave in memory; some ten minutes
	$(BIN)/python benchmarks/leak.py

SECONDS_EACH ?= 60
fuzz: $(READY)  ## every reader of foreign bytes, coverage-guided, SECONDS_EACH seconds each
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'atheris>=3.0'
	$(BIN)/python fuzz/seeds.py .fuzz
	for reader in ptx linking fatbin find_fatbins salvage inspect heads recovered cubin elf ltoir tileir mangling record saved; do \
	  $(BIN)/python fuzz/guided.py $$reader -max_total_time=$(SECONDS_EACH) -timeout=30 \
	    -artifact_prefix=.fuzz/found-$$reader- .fuzz/$$reader || exit 1; \
	done

EFFORT ?= 50
SEED ?= 1000
fuzz-kernels: $(READY)  ## random kernels and programs on the CPU device: for SECONDS_EACH from SEED on, then EFFORT times those of `make test`
	CUJIT_CACHE=0 PYTHONPATH=tests $(BIN)/python tests/property/oracles.py $(SECONDS_EACH) $(SEED)
	CUJIT_EFFORT=$(EFFORT) $(BIN)/python -m pytest -n auto tests/property tests/linking -m "not gpu"

checked: $(READY)  ## what is known to be right is silent under every check of the CPU device
	CUJIT_CHECK=all $(BIN)/python -m pytest -n auto tests/real tests/kernels -m "not gpu"
	CUJIT_EFFORT=$(EFFORT) $(BIN)/python -m pytest -n auto tests/property/test_checks_silent.py tests/devices/cpu/test_checks_cub.py \
	  tests/devices/cpu/test_checks_wmma.py tests/real/test_cub_device.py
	CUJIT_RACES=3000 $(BIN)/python -m pytest tests/devices/cpu/test_checks_random.py

promises: $(READY)  ## hold all code that the tests of the CPU device compile to what tests/promises.py lists
	CUJIT_PROMISES=all $(BIN)/python -m pytest -n auto -m "not gpu" tests/property tests/real tests/instructions \
	  tests/kernels tests/devices

# The tests compare with what a GPU computed, with Python, and (test_unoptimised) with optimised code bit by bit.
unoptimised: $(READY)  ## goldens, real programs and random kernels on the CPU device without LLVM's optimiser; an hour of CPU
	CUJIT_EFFORT=100 $(BIN)/python -m pytest -n auto -m "not gpu" tests/property/test_unoptimised.py
	CUJIT_CPU_OPTIMIZE=0 CUJIT_EFFORT=$(EFFORT) $(BIN)/python -m pytest -n auto -m "not gpu" tests/property tests/real \
	  tests/instructions tests/kernels tests/devices/cpu

guarded: $(READY)  ## the tests of the CPU device with a guard before every instruction; some minutes
	CUJIT_GUARDED=1 CUJIT_CPU_OPTIMIZE=1 $(BIN)/python -m pytest -n auto -m "not gpu" tests/instructions tests/devices tests/kernels tests/real

assembled: $(READY)  ## the tests of the CPU device, each failing where no assembler takes what the device takes; some minutes
	CUJIT_ASSEMBLED=1 $(BIN)/python -m pytest -n auto -m "not gpu" tests/instructions tests/devices tests/kernels tests/real \
	  tests/property --ignore tests/property/test_mutants.py

fuzz-ptx: $(READY)  ## PTX mutated by tokens on the CPU device, SECONDS_EACH seconds: errors of ours, and no others; 1 MB of every shape of text
	CUJIT_CACHE=0 CUJIT_CPU_OPTIMIZE=0 PYTHONPATH=tests $(BIN)/python tests/property/mutants.py $(SECONDS_EACH)
	$(BIN)/python benchmarks/shapes.py --load

replay: $(READY)  ## compare what BEFORE and AFTER (commits; this tree) make of many PTX texts; ARGS=--results for speed alone
	$(BIN)/python tools/replay.py $(or $(BEFORE),$(error BEFORE=<commit>)) $(AFTER) $(ARGS)

N ?= 20
mutants: $(READY)  ## N random mistakes in AREA (a folder or file of src/cujit; all: in each), and which no test sees; ARGS="--seed 7"
	nice $(BIN)/python tools/mutants.py $(or $(AREA),$(error AREA=<room>)) -n $(N) $(ARGS)

# PYTHONS="python3.10 python3.13" names the interpreters; without, those of 3.10 to 3.14 and 3.14t that are found.
release-check: $(READY)  ## build sdist and wheel, and use them as a user would, in an environment of each interpreter
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'build>=1.2' 'twine>=6'
	$(BIN)/python tools/release_check.py $(PYTHONS)

# ARGS="--only conda" does one place. Some ten minutes and 5 GB in TMPDIR.
packaging: $(READY)  ## freeze cujit with PyInstaller, zip it, and lay it out as Bazel, conda and containers do; run each
	$(BIN)/python tools/package_places.py $(ARGS)

house: $(READY)  ## figures of the code: lines, circles of imports, public names, complexity, names used twice
	$(BIN)/python tools/house.py

editor:  ## bundle the editor of `cujit explore` from npm, at the versions of tools/editor/package-lock.json
	cd tools/editor && npm ci --no-audit --no-fund && node build.mjs

images: $(READY)  ## draw the pictures of the README anew
	$(BIN)/python docs/images/occupancy.py
	$(BIN)/python docs/images/roofline.py
	$(BIN)/python docs/images/figures.py

SITE := build/site
docs: $(READY)  ## write the site to build/site, and search it; a warning, such as a link to nothing, is an error
	$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --site-dir $(SITE)
	! command -v chromium > /dev/null || $(BIN)/python tools/site_search.py $(SITE)
	@! grep -rnoE --include=*.html '<(script|img|iframe|link rel="(stylesheet|preconnect)")[^>]*(src|href)="(https?:)?//[^"]*' $(SITE) || \
	  { echo "a page asks another host for something"; exit 1; }

urls:  ## put the repository that publishes a release into pyproject.toml
	test -n "$(GITHUB_REPOSITORY)"
	sed -i 's#OWNER/cujit#$(GITHUB_REPOSITORY)#' pyproject.toml

clean:  ## remove the environments and what was built
	rm -rf $(VENV) .aarch64 .gpu-site .fuzz .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage* build

help:  ## list the targets
	@$(foreach group,EVERY_DAY LONG_TESTS BUILD_AND_MEASURE,echo; echo '$(group):' | tr _A-Z ' a-z'; \
	  for target in $($(group)); do sed -n "s/^$$target:.*## /  $$target:\t/p" Makefile; done | expand -t 18;)
