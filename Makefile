# Each target does all of its own set-up: a virtual environment in .venv, everything from the package index by name,
# at the versions and hashes that requirements/*.lock pin. Nothing is assumed but Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1) + 4)  # four more than cores: many tests wait
unexport PYTHONDONTWRITEBYTECODE  # tests start hundreds of processes: without .pyc files each one compiles the package

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-quick tools lint types check bench compare charts docs docs-serve lock clean

help: ## Show what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/run.ready ## See it work: writers, workers and a server killed, dead letters, the page, a backup, a lost machine, and all of it in Spark
	@$(BIN)/holdfast demo

test: $(VENV)/spark-classes.jsa ## Run every test, with seeded samples of the exhaustive sweeps
	@$(BIN)/pytest -n $(WORKERS) --dist loadgroup --durations 15

test-all: $(VENV)/spark-classes.jsa ## Run every test, with all of the exhaustive sweeps
	@HOLDFAST_TEST_ALL=1 $(BIN)/pytest -n $(WORKERS) --dist loadgroup --durations 15

PKG ?=
test-quick: $(VENV)/dev.ready ## Run the tests of one package that need no JVM, browser or server: make test-quick PKG=queue
	@$(BIN)/pytest -n $(WORKERS) --dist loadgroup -m "not slow and not heavy" tests/$(PKG)

tools: ## Install what some tests use beside Python, on Debian as root; without them those tests are skipped
	@for tool in chromium prometheus rabbitmqadmin; do command -v $$tool; done | wc -l | grep -qx 3 || { \
	    echo "Installing Chromium, Prometheus and RabbitMQ's tools ..."; \
	    apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends \
	        chromium prometheus rabbitmq-server >/dev/null; }

lint: $(VENV)/dev.ready ## Check style and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/dev.ready ## Check types, strictly
	@$(BIN)/mypy && $(BIN)/python -m tests.doc_types

check: lint types test ## Everything that a change must pass

bench: $(VENV)/dev.ready ## Measure beside peers; keep the figures in benchmarks/results and redraw the charts
	@$(BIN)/python -m benchmarks.log
	@$(BIN)/python -m benchmarks.queue
	@$(BIN)/python -m benchmarks.spark
	@$(BIN)/python -m benchmarks.amqp
	@$(BIN)/python -m benchmarks.table
	@$(BIN)/python -m benchmarks.web
	@$(BIN)/python -m benchmarks.replica
	@$(MAKE) --no-print-directory charts

OLD ?= HEAD
compare: $(VENV)/dev.ready ## Measure this tree and another revision in turns: make compare OLD=v0.1.0
	@$(BIN)/python -m benchmarks.compare $(OLD)

charts: $(VENV)/dev.ready ## Redraw the charts of the README from the kept figures
	@$(BIN)/python -m benchmarks.charts

docs: $(VENV)/dev.ready ## Build the site of the docs into site/; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

docs-serve: $(VENV)/dev.ready ## Show the docs on http://127.0.0.1:8000/, and every change at once
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

lock: $(VENV)/dev.ready ## Pin every dependency anew, with hashes
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --upgrade \
	    pyproject.toml --extra encryption --extra replica --extra schemas --extra server --extra spark --extra tracing --group build -o requirements/run.lock
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --upgrade \
	    pyproject.toml --extra encryption --extra replica --extra schemas --extra server --extra spark --extra tracing --group build --group test --group check --group bench -o requirements/dev.lock

$(VENV)/spark-classes.jsa: $(VENV)/dev.ready
	@echo "Noting the classes that Spark loads, so that each Java of the tests starts faster ..."
	@$(BIN)/python -m tests.class_archive || touch $@  # an empty archive is ignored: tests pass without one, too

clean: ## Remove what was made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis site

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("Holdfast needs Python 3.11 or newer; this is %s. Try: make PYTHON=python3.12" % sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv $(VENV)

# The build tools are pinned too, so the package itself is installed without reaching for others.
$(VENV)/%.ready: requirements/%.lock pyproject.toml | $(BIN)/python
	@echo "Installing into $(VENV) ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r $<
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
