# make demo and make test are each enough on a fresh machine with Python 3.11 to 3.14. They make .venv and install what they need. Where that
# is a build of torch for the CPU, they make .venv-npu as well, which sees all of .venv and torch_npu: where torch_npu is installed, a plain
# `import torch` wants an NPU.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
NPU := .venv-npu/bin/python
OUT := memdiag-report
FUZZ_SECONDS ?= 10
# A virtual environment with a CUDA build of torch, for test-cuda and gpu-check. === takes it where a build for the CPU is preferred.
CUDA_VENV ?= .venv-cuda
CUDA_TORCH ?= torch===2.13.0
# On how many processes the tests run: one for each processor, 4 at most. WORKERS=0: one after the other, for --pdb and -s.
WORKERS ?= logical
CUDA_PYTHON = $(abspath $(CUDA_VENV))/bin/python
# What the demo and the tests of the recorder record. TORCH= installs none: those tests are then skipped.
TORCH ?= torch==2.13.0
# The first Python on the PATH that is new enough. Set PYTHON=… to choose another.
FITS := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	if $$p -c '$(FITS)' >/dev/null 2>&1; then echo $$p; break; fi; done)
INSTALL = $(BIN)/python tools/install.py
# These look into typer and numba, or at results that pandas, numpy, matplotlib and rich make.
OLDEST_TESTS = tests/cli/test_quick.py tests/trace/test_hasten.py tests/trace/test_compiled.py tests/trace/test_first_run.py tests/test_goldens.py

.NOTPARALLEL:
.PHONY: help demo test oldest lint types contracts docs check bench fuzz test-cuda gpu-check readme pictures study clean distclean

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1|/' | column -t -s '|'

demo: .venv/.core .venv-npu/.torch_npu ## a training runs out of memory on a simulated device: why, and what would have fitted
	@examples/demo.sh $(BIN)/python $(NPU) $(OUT)

test: .venv/.dev .venv-npu/.torch_npu ## run the tests (ARGS='-k name' for some of them)
	@$(BIN)/python -m pytest --numprocesses $(WORKERS) --maxprocesses 4 --dist worksteal $(ARGS)

# The oldest typer uses names of click that its newest version calls deprecated.
oldest: .venv-oldest/.packages ## the tests of start-up, compiled loops and reports with the oldest allowed version of each dependency (Python 3.11, 3.12)
	@NUMBA_CACHE_DIR=$(abspath .venv-oldest/numba) .venv-oldest/bin/python -m pytest -W ignore::DeprecationWarning -p no:cacheprovider $(OLDEST_TESTS) $(ARGS)

lint: .venv/.dev ## ruff: rules and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: .venv/.dev ## mypy, strict
	@$(BIN)/mypy

contracts: .venv/.dev ## import-linter: who may import whom
	@$(BIN)/lint-imports --no-logo

docs: .venv/.docs ## the documentation as a site, in build/site; no network is needed once it is installed
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --clean

check: test oldest lint types contracts docs ## everything that CI runs

bench: .venv/.core ## time memdiag on a big snapshot: SNAPSHOT=big.pickle [BENCH_ARGS='--big big10.pickle --pt-snap … --ptmem …']
	@test -n "$(SNAPSHOT)" || { echo "error: no snapshot" >&2; echo "hint: make bench SNAPSHOT=big.pickle; bench/analyze.py says how to make one" >&2; exit 2; }
	@$(BIN)/python bench/analyze.py "$(SNAPSHOT)" $(BENCH_ARGS)
	@$(BIN)/python bench/startup.py

fuzz: .venv/.dev ## fuzz every reader for a few seconds (FUZZ_SECONDS=10 each)
	@$(BIN)/python -m tests.fuzz.run --seconds $(FUZZ_SECONDS)

test-cuda: .venv/.dev $(CUDA_VENV)/.torch ## the tests of phantom CUDA devices, with torch and the whole toolkit in .venv-cuda (5 GB; no GPU needed)
	@MEMDIAG_TEST_CUDA_PYTHON=$(CUDA_PYTHON) $(BIN)/python -m pytest tests/phantom $(ARGS)

gpu-check: .venv/.core ## with a GPU: the same scripts on the card and on its phantom, sizes and peaks compared
	@test -e /dev/nvidiactl || test -e /dev/dxg || { echo "error: no GPU was found: nothing was compared" >&2; \
		echo "hint: run make gpu-check on a machine with an NVIDIA GPU and its driver" >&2; exit 2; }
	@$(MAKE) $(CUDA_VENV)/.torch
	@$(BIN)/python bench/gpu_check.py --python $(CUDA_PYTHON) $(ARGS)

study: .venv/.core ## the lifecycle study, from recordings: RECORDINGS=folder [SNAPSHOTS=folder]; about half an hour, wants matplotlib in .venv
	@test -n "$(RECORDINGS)" || { echo "error: no recordings" >&2; \
		echo "hint: bench/study/record.py --python VENV/bin/python --out FOLDER makes them, then make study RECORDINGS=FOLDER" >&2; exit 2; }
	@$(BIN)/python bench/study/policies.py --recordings "$(RECORDINGS)" $(if $(SNAPSHOTS),--snapshots "$(SNAPSHOTS)") $(ARGS)

readme: .venv/.core ## regenerate the reports in README.md, the documentation and the pages of findings
	@$(BIN)/python docs/outputs.py
	@$(BIN)/python -m tests.analyzers.page_examples
	@$(BIN)/python -m tests.lint.page_examples
	@NO_COLOR=1 $(BIN)/python -m tests.tui.page_screens

pictures: .venv/.dev ## draw the pictures of the documentation again (needs Chromium)
	@$(BIN)/python docs/pictures.py

$(CUDA_VENV)/.torch:
	@$(PYTHON) -m venv $(CUDA_VENV) && echo "installing $(CUDA_TORCH) into $(CUDA_VENV)" >&2
	@$(CUDA_PYTHON) -m pip install --quiet --disable-pip-version-check --no-input '$(CUDA_TORCH)' numpy transformers
	@touch $@

clean: ## remove reports, caches and builds
	@rm -rf $(OUT) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find memdiag tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## the same, and all virtual environments
	@rm -rf .venv .venv-npu .venv-oldest $(CUDA_VENV)

# ------------------------------------------------------------------------------------------------------------ installation
# A stamp says what .venv holds.

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 to 3.14 found" >&2; echo "hint: install one, or make PYTHON=/path/to/python" >&2; exit 2; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo "error: $(PYTHON) cannot make a virtual environment" >&2; \
		echo "hint: on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 2; }

.venv/.core: pyproject.toml | .venv/bin/python
	@$(INSTALL) packages '.'
	@touch $@

.venv/.dev: pyproject.toml | .venv/bin/python
	@$(INSTALL) packages '.[dev]'
	@touch $@ .venv/.core

.venv-oldest/.packages: pyproject.toml tools/oldest.py
	@$(PYTHON) -m venv .venv-oldest && echo "installing the oldest allowed versions into .venv-oldest" >&2
	@.venv-oldest/bin/python tools/oldest.py | .venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check --no-input -r /dev/stdin 'pytest>=8.3,<10' 'hypothesis>=6.100,<7'
	@.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check --no-input --no-deps --editable .
	@touch $@

.venv/.docs: pyproject.toml | .venv/bin/python
	@$(INSTALL) packages '.[docs]'
	@touch $@ .venv/.core

.venv/.torch: | .venv/.core
	@if [ -n "$(TORCH)" ]; then $(INSTALL) torch '$(TORCH)'; fi
	@touch $@

# torch_npu of torch's own version, and nothing else that is not in .venv. Where it cannot be installed, or torch is a build for CUDA, the
# folder says why, has no Python in it, and the next make tries again.
.venv-npu/.torch_npu: .venv/.torch
	@$(INSTALL) torch_npu .venv-npu
