# `make run` and `make test` need a fresh clone and Python >= 3.11, nothing else.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
OUT ?= out

MONDAY := instances/monday-morning.yaml
OPENB := instances/openb/seed42-102.yaml
KAI_SNAPSHOT := instances/kai-snapshots/before-reclaim.zip
SETS := instances/bench/sets
BENCH_ARGS ?= --models default,fast --seeds 1..3
TEST_ARGS ?=
SOAK_MINUTES ?= 10
FUZZ_MINUTES ?= 10
SUITES ?=
PLANE := tests/cluster/plane

# Tests start hundreds of processes: compiled modules are kept, also where the caller's environment says otherwise.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help env kernels run style types test test-rooms test-kai kai-specs campaigns test-cluster soak fuzz image tools test-fast lint bench bench-scale bench-links bench-cluster rehearsal bench-steady bench-http conformance reports report-hour report-openb docs docs-check manifests pictures lock clean

help: ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

env: $(STAMP) ## Make the environment in .venv: locked packages, checked by hash, and kai-solver itself, compiled

$(STAMP): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kai-solver needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; say which: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	@# The lock names every package. With dependencies, pip asks for the newest `coverage[toml]`, which has no hash here.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m compileall -q kai_solver
	@touch $@

# A change to a kernel needs it again; where nothing changed it takes 0.2 s. Two to five minutes of CPU once.
kernels: $(STAMP)
	$(BIN)/kai-solver compile

run: kernels ## What it does, in under a minute once installed: greedy and CP-SAT side by side, a running KAI's snapshot, openb, the controller at work
	@printf '\n1 of 4: Monday morning. Greedy alone, and with CP-SAT (plans go to $(OUT)/)\n\n'
	$(BIN)/kai-solver compare $(MONDAY) --quiet --plans $(OUT)/monday-morning
	$(BIN)/kai-solver validate $(MONDAY) --plan $(OUT)/monday-morning/default.plan.json
	@printf '\n2 of 4: the snapshot of a running KAI\n\n'
	$(BIN)/kai-solver compare $(KAI_SNAPSHOT) --quiet --plans $(OUT)/before-reclaim
	$(BIN)/kai-solver validate $(KAI_SNAPSHOT) --plan $(OUT)/before-reclaim/default.plan.json
	@printf '\n3 of 4: openb, the trace of a cluster of 1,213 unequal nodes with 8,487 gangs\n\n'
	$(BIN)/kai-solver compare $(OPENB) --quiet --budget 5s --plans $(OUT)/openb
	@printf '\n4 of 4: the controller at work on a cluster in memory, for 20 s\n\n'
	$(BIN)/kai-solver controller --embedded --for 20

lint: style types ## Format, style, types and layers

style: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/mypy
	$(BIN)/lint-imports

test: style ## Lint, the documentation, all tests, those on a real control plane last (about 12 minutes on two cores, once Go has built them)
	$(MAKE) --jobs=2 test-rooms types docs-check
	$(MAKE) test-cluster
	$(MAKE) test-kai

test-rooms: tools kernels
	$(BIN)/python -m pytest -n 2 --ignore=$(PLANE) --ignore=tests/kai $(TEST_ARGS)

test-kai: $(STAMP) ## What convert writes, decided by KAI Scheduler itself (under a minute; Go builds it once, in five)
	-$(BIN)/python -m tests.support.gotools kai
	$(BIN)/python -m pytest tests/kai -n 0 $(TEST_ARGS)

test-cluster: $(STAMP) ## All tests on a real control plane, four at a time (about 5 minutes; Go builds it once)
	-$(BIN)/python -m tests.support.gotools kubernetes kwok helm kai
	-$(BIN)/python -m tests.support.image
	@# Real processes on a shared machine: a test that fails is run once more, and the summary lists it as RERUN. Not so
	@# where the checker objects: a later test of the module would be run again, on another cluster.
	$(BIN)/python -m pytest $(PLANE) -n 4 --dist loadscope --no-loadscope-reorder --reruns 1 -raR \
	  --rerun-except 'the checker objects' $(TEST_ARGS)

soak: $(STAMP) ## Ten minutes of random work and random faults on a real control plane (SOAK_MINUTES=10; needs Go once)
	-$(BIN)/python -m tests.support.gotools kubernetes kwok
	KAI_SOLVER_SOAK_MINUTES=$(SOAK_MINUTES) $(BIN)/python -m pytest $(PLANE)/test_soak.py -n 0 -s $(TEST_ARGS)

image: $(STAMP) ## Build the image into out/image, with a list of its files and its bill of materials (Debian 12, no engine)
	$(BIN)/python deploy/image/build.py $(OUT)/image
	$(BIN)/python deploy/image/sbom.py $(OUT)/image

fuzz: $(STAMP) ## Ten minutes of hostile objects, files and answers, and of random clusters, with new seeds (FUZZ_MINUTES=10)
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/fuzz.txt
	$(BIN)/python -m tests.fuzz --minutes $(FUZZ_MINUTES)

tools: $(STAMP)
	-$(BIN)/python -m tests.support.gotools helm kubeconform
	-$(BIN)/python -m tests.support.image
	-$(BIN)/python -m tests.support.browser

test-fast: kernels ## Tests that take less than about a second each: two minutes in all, for daily work
	@# Four processes on two cores, as much of it waits: 122 s in place of 179 s with two (2026-11-23).
	$(BIN)/python -m pytest -n 4 --ignore=$(PLANE) --ignore=tests/kai -m "not slow and not campaign" $(TEST_ARGS)

campaigns: $(STAMP) ## Random campaigns of which `make test` runs a part (half an hour; HYPOTHESIS_PROFILE=explore draws other clusters)
	KAI_SOLVER_CAMPAIGNS=whole $(BIN)/python -m pytest -n 2 --ignore=$(PLANE) --ignore=tests/kai -m campaign $(TEST_ARGS)

bench: kernels ## Measure models on instances/bench against greedy and against what KAI did
	$(BIN)/kai-solver bench instances/bench $(BENCH_ARGS)

bench-scale: kernels ## Measure the set at scale (about 6 minutes, on a quiet machine) and write it into set, docs and plot
	$(BIN)/kai-solver bench $(SETS)/scale.yaml --save instances/bench/runs/scale \
	  --plot docs/images/scale.svg --record docs/benchmarks.md

bench-links: $(STAMP) ## Measure what links between GPUs cost a cycle (about 5 minutes) and write it into set and docs
	$(BIN)/kai-solver bench $(SETS)/links.yaml --clock cpu --record docs/benchmarks.md

bench-cluster: $(STAMP) ## Measure the controller on a real control plane, 500 nodes and 4,000 pods, beside KAI itself (needs Go once, about 10 minutes)
	$(BIN)/python -m tests.cluster.plane.bench

kai-specs: $(STAMP) ## KAI's own end-to-end specs against our controller (25 minutes; Go builds them once, in five)
	$(BIN)/python -m tests.cluster.plane.kai_specs $(SUITES)

rehearsal: $(STAMP) ## Hand over from KAI and go back, 200 nodes with running work on a real control plane (needs Go once, about 3 minutes)
	$(BIN)/python -m tests.cluster.plane.rehearsal

bench-steady: $(STAMP) ## Measure its CPU and memory with 2,000 nodes and 16,000 running pods when nothing changes (about 8 minutes)
	$(BIN)/python -m tests.cluster.plane.bench --only steady

bench-http: $(STAMP) ## Load the controller's ports with 1,000 slow and 200 large connections, and time honest callers (2 minutes)
	$(BIN)/python -m tests.controller.load

reports: report-hour report-openb ## Make both pages of the README in out/reports (about 3 minutes)

report-hour: kernels ## Replay an hour of 500 nodes under two policies, and make its page: out/reports/500-nodes-hour.html
	$(BIN)/kai-solver simulate instances/scenarios/500-nodes-hour.yaml --quiet --output $(OUT)/reports/500-nodes-hour
	$(BIN)/kai-solver report $(OUT)/reports/500-nodes-hour --output $(OUT)/reports/500-nodes-hour.html

report-openb: kernels ## Run the openb experiment, and make its page: out/reports/openb.html
	$(BIN)/kai-solver experiment openb --quiet --output $(OUT)/reports/openb
	$(BIN)/kai-solver report $(OUT)/reports/openb --output $(OUT)/reports/openb.html

conformance: $(STAMP) ## Run the behaviour cases, our own and KAI's
	$(BIN)/kai-solver conformance instances/behaviour
	$(BIN)/kai-solver conformance instances/cases

pictures: kernels ## Draw the figures of README and documentation anew: racks before and after a plan, terminal sessions
	$(BIN)/kai-solver compare $(MONDAY) --quiet --plans $(OUT)/monday-morning >/dev/null
	$(BIN)/kai-solver topology $(MONDAY) --quiet --plot docs/images/monday-before.svg >/dev/null
	$(BIN)/kai-solver topology $(MONDAY) --quiet --plan $(OUT)/monday-morning/default.plan.json \
	  --plot docs/images/monday-after.svg >/dev/null
	$(BIN)/python -m tests.support.session

docs: docs-check ## Build the documentation into site/

manifests: $(STAMP) ## Render deploy/manifests from the chart (helm is built where it is not there; needs Go)
	$(BIN)/python -m tests.support.manifests

docs-check: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lock: ## Pin the packages of pyproject.toml anew, with hashes (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --no-emit-index-url pyproject.toml --output-file requirements/runtime.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --no-emit-index-url --group dev --group docs --all-extras pyproject.toml --output-file requirements/dev.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --no-emit-index-url --group fuzz --constraints requirements/dev.txt --output-file requirements/fuzz.txt
	echo 'hatchling>=1.27' | uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	  --no-annotate --no-emit-index-url --constraints requirements/dev.txt - --output-file requirements/build.txt

clean: ## Remove what was built, the environment too
	rm -rf $(VENV) $(OUT) kai-solver-bundles site dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage
	find kai_solver tests -name __pycache__ -type d -prune -exec rm -rf {} +
