# Two commands do everything on a machine with git, make and python3: `make demo` and `make test`.
# Recipes use relative paths only, so that a checkout in a path with a space works.

SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The real agent programs that the tests drive; only the tests use them.
AGENTS := .cache/agents
# A machine's own virtual environment or interpreter settings must not reach ours. Without compiled modules, each start
# of a program takes three times as long.
unexport VIRTUAL_ENV PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

# What goes into the wheel; folders too, so that a file that went away is noticed.
SOURCES := pyproject.toml README.md LICENSE $(shell find src -not -name '*.pyc' -not -name __pycache__)

TESTS := $(shell find tests -name '*.py')

COMPILE := $(BIN)/uv pip compile -q --generate-hashes --no-header --no-annotate --universal --python-version 3.11

.PHONY: help demo test unit soak check pytest coverage develop bench own format lock picture dist clean

help:  ## show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name what; do printf '  %-9s %s\n' "$$name" "$$what"; done

demo: $(VENV)/.wheel  ## set up, then review a real change offline
	@$(BIN)/codeloupe demo

# What checks types and what runs tests wait for different things, so both go at once.
test:  ## set up, then run every check and test that decides whether a change is good
	@$(MAKE) --no-print-directory -j3 check pytest

unit: $(VENV)/.dev $(AGENTS)/.installed  ## the tests that start no program and open no socket, on the source tree: in a minute
	@PYTHONPATH=src $(BIN)/python -m pytest tests/unit --tier unit -n 2 --dist worksteal -q $(PYTEST_OPTIONS)

soak: $(VENV)/.dev $(VENV)/.wheel $(AGENTS)/.installed  ## what is large, exhaustive or random; before something is called done
	@CODELOUPE_TESTED=wheel $(BIN)/python -m pytest --tier soak --hypothesis-profile soak --timeout 1800 \
	  -n 2 --dist worksteal $(PYTEST_OPTIONS)

check: $(VENV)/.dev $(VENV)/.wheel  ## formatting, lint, types, layers
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/mypy

pytest: $(VENV)/.tests $(AGENTS)/.installed  ## the tests, on the built wheel
	@CODELOUPE_TESTED=wheel $(BIN)/python -m pytest -n 3 --dist worksteal -q $(PYTEST_OPTIONS)

# A map, not a gate, and it doubles the time of the tests on Python 3.11: so it is asked for.
coverage: PYTEST_OPTIONS += --cov --cov-report=term-missing:skip-covered
coverage: pytest  ## the tests, with a list of the lines and branches that none of them runs

develop: $(VENV)/.dev $(AGENTS)/.installed  ## use the source tree in place of the wheel, until the next `make test`
	@rm -f $(VENV)/.wheel
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .

bench: $(VENV)/.dev $(VENV)/.wheel  ## measure, as ratios in one run
	@$(BIN)/python -m bench

own: $(VENV)/.wheel  ## review our own last hundred commits offline; high findings that are not in the baseline fail
	@$(BIN)/codeloupe commits --since 2000-01-01 --max 100 --reviewer offline --strict --quiet

format: $(VENV)/.dev  ## format and mend what can be mended
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lock: $(VENV)/.uv  ## compile the pinned requirements anew (UPGRADE=1 takes newer versions)
	@$(COMPILE) $(if $(UPGRADE),--upgrade) requirements/bootstrap.in -o requirements/bootstrap.txt
	@$(COMPILE) $(if $(UPGRADE),--upgrade) pyproject.toml -o requirements/base.txt
	@$(COMPILE) $(if $(UPGRADE),--upgrade) pyproject.toml --all-extras --group dev -c requirements/base.txt -o requirements/dev.txt
	@$(COMPILE) pyproject.toml --extra claude --extra api --extra server -c requirements/dev.txt -o requirements/server.txt

picture: $(VENV)/.wheel  ## make the README's picture from the program's real output
	@$(BIN)/codeloupe demo --svg docs/demo.svg

dist: $(VENV)/.dev  ## build the sdist and the wheel that a release publishes, and check them
	@rm -rf dist
	@$(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist
	@$(BIN)/twine --no-color check --strict dist/*

clean:  ## remove everything that was set up
	rm -rf $(VENV) .cache build dist .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/.uv: requirements/bootstrap.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "codeloupe needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "$(PYTHON) cannot make virtual environments. On Debian or Ubuntu: apt install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
	@touch $@

$(VENV)/.base: $(VENV)/.uv requirements/base.txt pyproject.toml
	@echo "Setting up (once) ..." >&2
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/base.txt
	@touch $@

# Users get a wheel, so a wheel is what is shown, tested and measured.
$(VENV)/.wheel: $(VENV)/.base $(SOURCES)
	@rm -rf .cache/wheel
	@$(BIN)/uv build --quiet --wheel --no-build-isolation --python $(BIN)/python --out-dir .cache/wheel
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --reinstall .cache/wheel/*.whl
	@touch $@

$(VENV)/.dev: $(VENV)/.base requirements/dev.txt
	@echo "Setting up the development tools (once) ..." >&2
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/dev.txt
	@touch $@

# Each worker of pytest would compile all tests by itself, at the same time as the others.
$(VENV)/.tests: $(VENV)/.dev $(VENV)/.wheel $(TESTS)
	@CODELOUPE_TESTED=wheel $(BIN)/python -m pytest --collect-only -q >/dev/null || true
	@touch $@

# npm and node come from a Python wheel, so that a machine needs neither; --ignore-scripts: nothing of theirs runs here.
$(AGENTS)/.installed: tests/agents/package.json tests/agents/package-lock.json $(VENV)/.dev
	@echo "Setting up the agent programs for the tests (once) ..." >&2
	@mkdir -p $(AGENTS)
	@cp tests/agents/package.json tests/agents/package-lock.json $(AGENTS)/
	@cd $(AGENTS) && PATH="$$PWD/../../$(BIN):$$PATH" npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@
