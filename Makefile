# The project's commands; `make` alone lists them. CONTRIBUTING.md says more.
#
# Settings are passed on as they are: `make run PORT=9000 DATA_DIR=/tmp/second`, or from the
# environment. ARGS reaches the tool behind a target: `make test ARGS="-k allocation -x"`.

SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := msgnode policies registry spark
SOURCES := $(PACKAGES) manage.py $(wildcard tests bench docs)
PARALLEL := -n auto --dist loadgroup
# Tests wait, for a server to start or a limit to pass, for a third of their time.
MORE_PARALLEL = -n $(shell $(BIN)/python -c 'import os; print(os.cpu_count() * 3 // 2)') --dist loadgroup
# make's own notes would stand between the lines of the node.
MAKEFLAGS += --no-print-directory

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev lock run second test test-long test-nightly test-bare test-again coverage mutants simulate lint types imports drawing docs check audit sbom wheel release bench clean

help:  ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.run  ## Make .venv with what a running node needs
	@:

setup-dev: $(VENV)/.dev  ## Make .venv with what the checks need as well
	@:

# A stamp is written last: an installation that broke off is taken up again. A node starts without
# what only reports need; it has that installed once it is ready.
$(VENV)/.start: requirements.lock
	@command -v $(PYTHON) >/dev/null || { echo "There is no $(PYTHON): install Python 3.11 or newer, or name one with PYTHON=" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; name one with PYTHON=")'
	@$(PYTHON) .ci/install $(VENV) requirements --without-reports
	@touch $@

$(VENV)/.run: requirements.lock | $(VENV)/.start
	@$(PYTHON) .ci/install $(VENV) requirements
	@touch $@

WHEN_READY = NODE_WHEN_READY="$$([ $(VENV)/.run -nt requirements.lock ] || echo make setup)"

$(VENV)/.dev: requirements-dev.lock $(VENV)/.run
	@$(PYTHON) .ci/install $(VENV) requirements-dev
	@touch $@

lock: $(VENV)/.run  ## Lock what requirements*.txt allow, with digests (UPGRADE=all, or a package)
	@.ci/lock

run: $(VENV)/.start  ## Start a node in the foreground (PORT HOST DOMAIN DATA_DIR WORKERS DATABASE_URL REDIS_URL)
	@$(WHEN_READY) $(BIN)/python manage.py run

second: $(VENV)/.start  ## Start a second node beside the first, of the domain second.<domain>, on the next port
	@$(WHEN_READY) $(BIN)/python manage.py run --second

test: $(VENV)/.dev  ## Run the tests, without the long ones
	$(BIN)/python -m pytest $(MORE_PARALLEL) -m "not long" $(ARGS)

test-long: $(VENV)/.dev  ## Run the long tests
	$(BIN)/python -m pytest $(MORE_PARALLEL) -m "long and not nightly" $(ARGS)

test-nightly: $(VENV)/.dev  ## Run the tests of the night (tests/nightly.toml); ends after two hours
	timeout --signal=INT 7200 $(BIN)/python -m pytest $(PARALLEL) -m nightly $(ARGS)

test-bare: $(VENV)/.dev  ## Run the short tests that choose a server as on a machine that has none (as root)
	.ci/bare $(BIN)/python -m pytest $(PARALLEL) -m "not long" -rs \
		tests/redis tests/workers/test_{cluster,homes,interest}.py \
		tests/storage/test_{migrating,postgresql}.py tests/e2e/test_two_workers.py

test-again: $(VENV)/.dev  ## Run what a change touches twenty times under load
	$(BIN)/python -m tests.again $(ARGS)

coverage: $(VENV)/.dev  ## Run the tests, without the long ones, and list what they do not cover
	$(BIN)/python -m pytest $(PARALLEL) -m "not long" --cov --cov-report=term:skip-covered $(ARGS)

simulate: $(VENV)/.dev  ## Run simulated workers, with what a seed breaks (SEEDS=1000, FIRST=1), or the deliberate bugs (MUTANTS=1)
	@$(BIN)/python -W ignore -m tests.simulation $(or $(FIRST),1) $$(( $(or $(FIRST),1) + $(or $(SEEDS),1000) - 1 )) $(if $(MUTANTS),--mutants,--kept) $(ARGS)

mutants: $(VENV)/.dev  ## Change the source in small ways and see whether a test notices (an hour)
	nice -n 15 $(BIN)/python -m tests.mutants $(ARGS)

lint: $(VENV)/.dev  ## Look for mistakes in the source
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/bandit --quiet --recursive --severity-level high --configfile pyproject.toml $(PACKAGES)
	DATA_DIR=.ruff_cache/data $(BIN)/python manage.py check --fail-level WARNING
	@$(BIN)/python .ci/js/lint
	@$(BIN)/python .ci/licences
	@$(BIN)/python .ci/audit $(BIN)/pip-audit requirements.lock

types: $(VENV)/.dev  ## Check the types
	DATA_DIR=.mypy_cache/data $(BIN)/mypy $(PACKAGES) $(wildcard bench)

imports: $(VENV)/.dev  ## Check which room imports which
	$(BIN)/lint-imports

drawing: $(VENV)/.dev  ## Draw the packages and their imports into docs/architecture.md
	$(BIN)/python -m tests.architecture

docs: $(VENV)/.dev  ## Build the site of docs/ into var/site; fail for a link that leads nowhere
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # --quiet would hide warnings from --strict
	@echo "The documentation is at var/site/index.html; .venv/bin/mkdocs serve shows it with search."

check:  ## Everything that must pass before a change is taken
	@$(MAKE) --jobs=2 --output-sync=target $(BESIDE) lint types imports docs
	@$(MAKE) test
	@$(MAKE) test-long

audit: $(VENV)/.dev  ## Look up known vulnerabilities; fail if any dependency was not looked up
	@$(BIN)/python .ci/audit --strict $(BIN)/pip-audit requirements.lock

sbom: $(VENV)/.dev  ## Write what a node consists of to var/sbom.json (CycloneDX)
	@mkdir -p var
	@$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --mc-type application --output-reproducible \
		--validate --output-file var/sbom.json requirements.lock
	@echo "The bill of materials is var/sbom.json."

wheel: $(VENV)/.dev  ## Make the wheel of the node in dist/
	@$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/messaging_node-*.whl

release: $(VENV)/.dev  ## Make all that is published from a clean clone, twice, and try what runs (RELEASE_KEY=file)
	@$(BIN)/python .ci/release $(ARGS)

bench: $(VENV)/.dev  ## Measure the node (PART= names one measurement)
	@PART="$(PART)" $(BIN)/python -m bench $(ARGS)

clean:  ## Remove .venv and caches; var/ with the node's data stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
