# GraphGate's ways in. `make` flattens exit codes to 2: pipelines call `.venv/bin/graphgate`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# What `make gate` hands on; empty means GraphGate's own default.
MODEL ?= all
TIER ?= auto
VLLM ?=
MODES ?=
BREAKABLE ?=
OUT ?= out

PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup gate check test test-scores test-releases test-bisect test-nightly bench clean

help:
	@echo "make setup                  make .venv, on top of PYTHON's vLLM where it has one"
	@echo "make gate MODEL=dsv4        [TIER=] [VLLM=] [MODES=] [BREAKABLE=] [OUT=out]"
	@echo "make check                  ruff, mypy, import-linter"
	@echo "make test                   the tests, with two vLLM releases"
	@echo "make test-scores            the score tier on a CPU, with lm-eval, which is fetched once"
	@echo "make test-releases          the tests over all other releases"
	@echo "make test-bisect            of those, only bisect and the check of pull requests"
	@echo "make test-nightly           whole nightlies on this machine, ten in a row"
	@echo "make bench                  time and size of judging, reports and history; score rules"
	@echo "make clean                  remove .venv, out and the tools' caches"

setup: $(READY)

$(BIN)/python:
	$(PYTHON) graphgate/bootstrap.py $(VENV)

$(READY): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --upgrade "pip>=24.1"
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable ".[dev]"
	@touch $@

gate: setup
	@$(BIN)/graphgate gate --model "$(MODEL)" --tier "$(TIER)" --out "$(OUT)" \
		$(if $(VLLM),--vllm "$(VLLM)") \
		$(if $(MODES),--modes "$(MODES)") \
		$(if $(BREAKABLE),--breakable "$(BREAKABLE)")

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy conftest.py
	$(BIN)/lint-imports --no-cache

test: setup
	$(BIN)/pytest -m "not releases and not nights and not scores" -n 2 --dist loadfile $(PYTEST_ARGS)

test-scores: setup
	$(BIN)/pytest -m scores $(PYTEST_ARGS)

test-releases: setup
	$(BIN)/pytest -m releases $(PYTEST_ARGS)

test-bisect: setup
	$(BIN)/pytest -m releases suites/selftest/test_bisect.py suites/selftest/test_pr.py \
		$(PYTEST_ARGS)

test-nightly: setup
	$(BIN)/pytest -m nights $(PYTEST_ARGS)

bench: setup
	$(BIN)/python -m suites.bench.judge
	$(BIN)/python -m suites.bench.reports
	$(BIN)/python -m suites.bench.history
	$(BIN)/python -m suites.bench.scale
	$(BIN)/python -m suites.bench.scores

# Releases and the children's environment lie in the user's cache folder and are kept.
clean:
	rm -rf $(VENV) out build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
