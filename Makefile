# make demo       measure a small model and draw its heatmap (installs only what that needs)
# make test       style, types and the quick tests (installs everything)
# make test-slow  simulations, full products, processes and kills
# make test-real  the tests that need a real model or server
# make coverage   the quick and the slow tests with line coverage
# make docs       build the documentation site into site/
# make bench      the measurements of docs/performance.md
# make setup      the environment of `make test`, without running anything
# make lock       the newest versions into constraints.txt, from which all of the above install

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/.installed-demo
STAMP := $(VENV)/.installed
DOCS := $(VENV)/.installed-docs
CONSTRAINTS ?= constraints.txt
TORCH ?= torch==2.13.0
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
INSTALL = $(PIP) install --constraint $(CONSTRAINTS)
EXTRAS := hf,view,tiktoken,frames,mlflow,tensorboard,wandb,dev

.PHONY: setup demo lint types test test-slow test-real coverage docs bench lock clean
.DEFAULT_GOAL := test

setup: $(STAMP)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Leadline needs Python 3.11 or newer: make PYTHON=python3.11")'
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# torch first and by this exact version: any other requirement may pull in gigabytes of CUDA packages.
# --no-compile: Python compiles the few modules that the demo imports instead of all 15,000.
# --no-build-isolation: an isolated build would take the newest setuptools instead of the locked one.
$(DEMO): pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	@echo "installing what the demo needs, once: 306 MB of packages (190 of them torch for CPUs), then 93 MB of weights"
	@$(INSTALL) --no-compile setuptools "$(TORCH)"
	@$(INSTALL) --no-compile --no-build-isolation -e ".[hf]"
	@touch $@

$(STAMP): pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	@echo "installing everything (a few minutes the first time)"
	@$(INSTALL) setuptools "$(TORCH)"
	@$(INSTALL) --no-build-isolation -e ".[$(EXTRAS)]"
	@$(BIN)/python tests/support/chromium.py
	@touch $(DEMO) $@

$(DOCS): pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	@$(INSTALL) setuptools
	@$(INSTALL) --no-build-isolation -e ".[docs]"
	@touch $@

lowest.txt: pyproject.toml
	@$(PYTHON) .ci/versions.py lowest > $@

lock: | $(BIN)/python
	@$(BIN)/python .ci/versions.py lock > constraints.new
	@mv constraints.new constraints.txt

demo: $(DEMO)
	@$(BIN)/leadline demo

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: setup
	@$(BIN)/mypy

test: lint types
	@$(BIN)/pytest -m "not real and not slow" -n auto --dist worksteal

test-slow: setup
	@$(BIN)/pytest -m "slow and not real" -n auto --dist worksteal

test-real: setup
	@$(INSTALL) --no-build-isolation -e ".[ray]"
	@OMP_NUM_THREADS=$$(( ($$(getconf _NPROCESSORS_ONLN) + 1) / 2 )) $(BIN)/pytest -m real -n 2 --dist loadfile

coverage: setup
	@$(BIN)/pytest -m "not real" -n auto --dist worksteal --cov --cov-report=term:skip-covered --cov-report=xml

docs: $(DOCS)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "site/index.html"

bench: setup
	@$(INSTALL) --no-build-isolation -e ".[bench]"
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage coverage.xml build dist site lowest.txt
