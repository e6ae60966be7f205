# Each target does all the set-up it needs, in this folder: a virtual environment in .venv, caches in .cache.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin

export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_BUILD_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_CACHE_DIR := $(CURDIR)/.cache/pip
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export XDG_CACHE_HOME := $(CURDIR)/.cache
export MPLCONFIGDIR := $(CURDIR)/.cache/matplotlib
export TMPDIR := $(CURDIR)/.cache/tmp
export PRE_COMMIT_HOME := $(CURDIR)/.cache/pre-commit

.PHONY: help demo test test-fast test-long test-rllib lint bench wheel clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: .venv/ready ## Watch an agent learn in a world that changes: about two minutes once installed
	$(BIN)/neoteny demo --out demo

test: lint test-rllib ## Everything but the long tests
	$(BIN)/pytest -m "not long" -n 2 --dist loadfile

test-fast: .venv/ready ## The tests that take seconds
	$(BIN)/pytest -m "not slow and not long" -n 2 --dist loadfile

test-long: .venv/ready ## The tests that take minutes
	$(BIN)/pytest -m long -n 2 --dist worksteal

test-rllib: .venv-rllib/ready ## The tests of RLlib's integration, in an environment of its own
	.venv-rllib/bin/pytest tests/rllib

lint: .venv/ready ## Style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/ready ## What replay costs on this machine
	$(BIN)/neoteny bench replay

wheel: .venv/ready ## Build the wheel into dist/
	$(BIN)/python -m build --outdir dist

clean: ## Remove what the other targets made
	rm -rf .venv .venv-rllib .cache dist demo laws.png .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"Neoteny needs Python 3.11 or newer; $(PYTHON) is {sys.version.split()[0]}: make PYTHON=... names another")'
	mkdir -p $(TMPDIR)
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet pip
	$(BIN)/python -m pip install --quiet --group dev --editable ".[train,dmc,atari,minatar,box2d]"
	touch $@

.venv-rllib/ready: export PIP_CONSTRAINT := $(CURDIR)/constraints-rllib.txt
.venv-rllib/ready: pyproject.toml constraints-rllib.txt
	mkdir -p $(TMPDIR)
	$(PYTHON) -m venv --clear .venv-rllib
	.venv-rllib/bin/python -m pip install --quiet pip
	.venv-rllib/bin/python -m pip install --quiet pytest scipy --editable ".[rllib]"
	touch $@
