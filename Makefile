# The first Python 3.11 or newer; `make PYTHON=/path/to/python3.12` takes another.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

BIN := .venv/bin
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help demo demo-full serve test lint matrix bench soak clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Made again when the dependencies change.
$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; none found on PATH." >&2; exit 1; }
	@rm -rf .venv
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(READY) ## index Python's standard library with jobs, on SQLite
	@$(BIN)/python manage.py demo

demo-full: $(READY) ## the same on PostgreSQL and Valkey, from wheels
	@$(BIN)/python -m tests.full_demo

serve: $(READY) ## the admin of the demo's database
	@$(BIN)/python manage.py runserver

test: $(READY) ## all tests, on PostgreSQL and on SQLite
	@$(BIN)/python -m pytest

lint: $(READY) ## style, types and layers
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports

matrix: ## the tests on the oldest and the newest Python and Django at hand
	@.ci/matrix

bench: $(READY) ## measure, next to raw SQL on the same server
	@$(BIN)/python -m tests.benchmarks

soak: $(READY) ## the tests that run for minutes
	@$(BIN)/python -m pytest -m soak

clean: ## remove everything that make made
	@rm -rf .venv .matrix build dist *.egg-info
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@rm -rf demo.sqlite3 demo.sqlite3-* demo.log demo.mails django_jobs_demo.mails
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
