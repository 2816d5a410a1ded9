# Each target does all of its own set-up: a virtual environment in .venv, everything from the package index by name,
# at the versions and hashes that requirements/*.lock pin. Nothing is assumed but Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test lint types check bench charts lock clean

help: ## Show what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/run.ready ## See it work: a writer and a worker killed, recovery, dead letters, redrive, and all of it in Spark
	@$(BIN)/holdfast demo

test: $(VENV)/dev.ready ## Run all tests
	@$(BIN)/pytest -n auto --dist loadgroup

lint: $(VENV)/dev.ready ## Check style and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/dev.ready ## Check types, strictly
	@$(BIN)/mypy

check: lint types test ## Everything that a change must pass

bench: $(VENV)/dev.ready ## Measure beside peers; keep the figures in benchmarks/results and redraw the charts
	@$(BIN)/python -m benchmarks.log
	@$(BIN)/python -m benchmarks.queue
	@$(BIN)/python -m benchmarks.spark
	@$(BIN)/python -m benchmarks.amqp
	@$(MAKE) --no-print-directory charts

charts: $(VENV)/dev.ready ## Redraw the charts of the README from the kept figures
	@$(BIN)/python -m benchmarks.charts

lock: $(VENV)/dev.ready ## Pin every dependency anew, with hashes
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --upgrade \
	    pyproject.toml --extra server --extra spark --group build -o requirements/run.lock
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --upgrade \
	    pyproject.toml --extra server --extra spark --group build --group test --group check --group bench -o requirements/dev.lock

clean: ## Remove what was made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("Holdfast needs Python 3.11 or newer; this is %s. Try: make PYTHON=python3.12" % sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv $(VENV)

# The build tools are pinned too, so the package itself is installed without reaching for others.
$(VENV)/%.ready: requirements/%.lock pyproject.toml | $(BIN)/python
	@echo "Installing into $(VENV) ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r $<
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
