# Everything here works on a machine that has Python 3.11 or newer, make and a package index, and nothing else: each
# target first makes the virtual environment it needs. Java comes with the packages.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
READY := $(VENV)/.ready
BESIDE := $(VENV)/.beside
CODE := src tests benchmarks $(wildcard docs/*.py)
OVER_CONNECT := tests/spark/test_connect.py tests/both/test_join.py tests/both/test_where.py tests/spark/test_whole.py

.DEFAULT_GOAL := help
.PHONY: help setup demo test connect test-long lint bench docs dist clean

# Compiled modules are kept: each process of Spark would else compile all sources again.
unexport PYTHONDONTWRITEBYTECODE

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(RUNTIME) ## make the virtual environment with what haply needs to run

demo: $(RUNTIME) ## run the demonstration; its report is out/demo/report.html
	$(BIN)/haply demo

# Tests are begun in the order of tests/conftest.py, which has the long files first: xdist would take those with many
# tests first, and end with one process waiting for the other. It also says which tests one process runs.
# HAPLY_TEST_PYTHONS names interpreters with other versions of PySpark, which test-long runs a short job with:
#   make test-long HAPLY_TEST_PYTHONS="/path/of/one/bin/python /path/of/another/bin/python"
# HAPLY_TEST_CONNECT=1 runs the tests on Spark over Spark Connect: a handful of them here, whole files in test-long.
PYTEST := $(BIN)/python -m pytest -q
export HAPLY_TEST_PYTHONS
TOGETHER := -n 2 --dist loadgroup --no-loadscope-reorder

# Style, types and Connect are tested beside the rest, which leaves the processor time now and then; they report last.
test: $(READY) ## check style and types, and run the tests that take minutes
	@$(MAKE) --no-print-directory lint connect > $(BESIDE) 2>&1 & beside=$$!; \
	  $(PYTEST) $(TOGETHER); failed=$$?; \
	  wait $$beside || failed=1; cat $(BESIDE); exit $$failed

connect: $(READY) ## run a few tests over Spark Connect
	HAPLY_TEST_CONNECT=1 $(PYTEST) tests/spark/test_connect.py

test-long: lint ## run all tests: kills, soaks, every case, every query on both engines, and Spark Connect
	$(PYTEST) $(TOGETHER) --long --engine both
	HAPLY_TEST_CONNECT=1 $(PYTEST) --long --engine spark $(OVER_CONNECT)

lint: $(READY) ## check style and types
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy

bench: $(READY) ## measure against other engines
	$(BIN)/python -m benchmarks

docs: $(READY) ## build the documentation in docs/_build/html
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

# With the pinned build tools, and not in an environment of its own: nothing is fetched.
dist: $(READY) ## build the wheel and the source archive in dist
	rm -rf build dist
	$(BIN)/python -c 'from setuptools import build_meta as b; b.build_sdist("dist"); b.build_wheel("dist")'
	rm -rf build

clean: ## remove everything the other targets made
	rm -rf $(VENV) out build dist docs/_build docs/_pictures docs/reference/api .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	find src tests docs -name __pycache__ -type d -prune -exec rm -rf {} +

# requirements.txt holds the packages that haply needs to run with Spark and charts, requirements-dev.txt those and the
# ones for tests, benches and documentation, each with its version and hashes. They are made from pyproject.toml with
#   LOCK="uv pip compile --universal --generate-hashes --no-header --no-annotate --python-version 3.11 pyproject.toml"
#   $LOCK --extra dev -o requirements-dev.txt
#   $LOCK --extra spark --extra viz -c requirements-dev.txt -o requirements.txt
# PySpark comes as source: the pinned build tools go in first and build it, so that nothing unpinned is fetched.
# Kernels are not compiled here: a query compiles those that it needs.
# The stamps are written last, so that an interrupted set-up is done again.
PIP_INSTALL = $(BIN)/python -m pip install --disable-pip-version-check --quiet --no-build-isolation
ELAPSED = echo "$$(( $$(date +%s) - $$(cat $(VENV)/.begun) )) s for packages"

$(RUNTIME): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "haply needs Python 3.11 or newer, but '$(PYTHON)' is: $$($(PYTHON) --version 2>&1 | tail -n 1)" >&2; \
	  echo "Name another one, for example: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; \
	  exit 1; }
	$(PYTHON) -m venv $(VENV)
	@date +%s > $(VENV)/.begun
	@awk '/^(packaging|setuptools|wheel)==/, !/\\$$/' requirements-dev.txt > $(VENV)/build-tools.txt
	$(PIP_INSTALL) --require-hashes -r $(VENV)/build-tools.txt
	$(PIP_INSTALL) --require-hashes -r requirements.txt
	$(PIP_INSTALL) --no-deps --editable .
	@$(ELAPSED)
	@touch $@

$(READY): $(RUNTIME) requirements-dev.txt
	@date +%s > $(VENV)/.begun
	$(PIP_INSTALL) --require-hashes -r requirements-dev.txt
	@$(ELAPSED)
	@touch $@
