# make setup   a virtual environment with everything (quick when nothing has changed)
# make demo    a heatmap, without any settings
# make test    style, types and the quick tests
# make test-real   the tests that need a real model or server
# make bench   the measurements of docs/performance.md

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
EXTRAS := hf,view,tiktoken,frames,mlflow,tensorboard,wandb,dev

.PHONY: setup demo test test-real bench clean
.DEFAULT_GOAL := test

setup: $(STAMP)

# torch first and by this exact version: any other spelling may bring gigabytes of CUDA packages.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Leadline needs Python 3.11 or newer: make PYTHON=python3.11")'
	@test -x $(BIN)/python || { echo "making $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing (a few minutes the first time)"
	@$(PIP) install "torch==2.13.0"
	@$(PIP) install -e ".[$(EXTRAS)]"
	@$(BIN)/python tests/support/chromium.py
	@touch $@

demo: setup
	@$(BIN)/leadline demo

test: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/pytest -m "not real" -n auto

test-real: setup
	@$(PIP) install -e ".[ray]"
	@$(BIN)/pytest -m real

bench: setup
	@$(PIP) install -e ".[bench]"
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
