# `make demo` and `make test` set up all they need; the first line after `##` is what `make help` says.

PYTHON ?= python3
FUZZ_S ?= 3600
ENV := .venv
NOX := $(ENV)/bin/nox -s
# The tests whose results depend on a processor's kernels for 8-bit integers.
OF_INTEGERS := tests/backends/test_onnxruntime_lowering.py $(addprefix tests/onnx_import/test_,microsoft_operators.py ort_tools.py networks.py)
# What libneural_network_runtime is compiled of.
C_LIBRARY := $(addprefix nnrt_client/c/,library.c functions.inc) $(wildcard nnrt_client/c/include/*/*.h)
SOURCES := nnrt_hdi nnrt_client nnrt_device_service backends tests benchmarks deploy examples docs noxfile.py setup.py

# Tests start many processes: none compiles again what another one has.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/build/bytecode

.DEFAULT_GOAL := help
.PHONY: help demo demo-c demo-fleet demo-generate demo-serve demo-torch quick quick-tests test nightly tests-without-vnni check format lint types imports sz house proto proto-check answers docs c-files c-check pictures collected tests matrix engines test-torch openvino fuzz mutants bench bench-fleet bench-torch bench-gpu peers networks clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2} /^## /{print "\n" substr($$0, 4)}' $(MAKEFILE_LIST)

## See it run

demo: $(ENV)/demo ## Run two daemons, classify digits on them, kill one
	@$(ENV)/bin/python examples/digits/demo.py

demo-fleet: $(ENV)/demo ## Use four daemons as one device while they are killed, drained and restarted
	@PYTHONPATH=examples/digits $(ENV)/bin/python examples/fleet/fleet_demo.py

demo-serve: $(ENV)/serving ## Serve a model to clients in any language while it is upgraded and a daemon is killed
	@PYTHONPATH=examples/digits:examples/fleet $(ENV)/bin/python examples/serving/serving_demo.py

demo-generate: $(ENV)/generate ## Write text by a small decoder on two devices while one is killed
	@PYTHONPATH=examples/digits $(ENV)/bin/python examples/generate/generate_demo.py

demo-torch: $(ENV)/test ## Do what `make demo` does on the torch backend (installs torch)
	@$(NOX) torch -- demo

demo-c: $(ENV)/demo ## Compile programs in C and run them on a device
	@$(ENV)/bin/python examples/c/demo.py

## While you work

quick: $(ENV)/test ## Run the checks and the tests that catch most, in under a minute
	@$(MAKE) --no-print-directory -j 4 --output-sync=target lint types imports quick-tests

quick-tests: $(ENV)/test
	$(ENV)/bin/pytest -q -n 3 --dist worksteal --quick

format: $(ENV)/test ## Format the sources, and mend what ruff can mend
	$(ENV)/bin/ruff format -q $(SOURCES)
	$(ENV)/bin/ruff check -q --fix-only $(SOURCES)

clean: ## Remove everything that make has made
	rm -rf $(ENV) .nox build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis nnrt_client/c/lib/*.so

## What CI runs

test: check ## Run every check and every test, as CI does
check: $(ENV)/test
	@$(MAKE) --no-print-directory -j 4 --output-sync=target types docs collected lint imports sz house proto-check c-check
	@$(MAKE) --no-print-directory tests

lint: $(ENV)/test ## Check format, style and docstrings (ruff)
	$(ENV)/bin/ruff format --check -q $(SOURCES)
	$(ENV)/bin/ruff check -q $(SOURCES)

types: $(ENV)/test ## Check types (mypy, strict)
	$(ENV)/bin/mypy

imports: $(ENV)/test ## Check which room imports which (import-linter)
	$(ENV)/bin/lint-imports --no-logo

sz: $(ENV)/test ## Print the lines of code of each room; fail above the budget
	@$(ENV)/bin/python tests/lines_of_code.py

house: $(ENV)/test ## Print import cycles, large classes and modules, threads, private names in tests; fail above the bounds
	@$(ENV)/bin/python tests/house.py

proto-check: $(ENV)/test ## Check that nnrt_hdi/v2 is what protos/ generate
	@$(NOX) proto -- --check

c-check: $(ENV)/test ## Check that the generated files of the C library are up to date
	@$(ENV)/bin/python -m nnrt_client.c.generated --check

docs: $(ENV)/test ## Build the site into build/site; fail on warnings
	$(ENV)/bin/sphinx-build -q -E -j auto -W --keep-going -d build/doctrees docs build/site

# Import all tests once: pytest compiles them, and each of its workers would do so by itself.
collected: $(ENV)/test
	@mkdir -p build
	@$(ENV)/bin/pytest -qq --collect-only > build/collected.txt || (cat build/collected.txt; false)

tests: $(ENV)/test ## Run the tests; of long tables of cases a seeded part
	$(ENV)/bin/pytest -q -n auto --maxprocesses 5 --dist worksteal

## After larger changes

nightly: $(ENV)/test ## Run all cases of all tests, attack a daemon for ten minutes, use one for an hour, prove that the conformance kit finds defects
	$(ENV)/bin/pytest -q -n auto --maxprocesses 5 --dist worksteal --whole
	$(MAKE) --no-print-directory fuzz FUZZ_S=600
	PYTHONPATH=tests:tests/onnx_import $(ENV)/bin/python benchmarks/soak_models.py --seconds 3600
	PYTHONPATH=tests $(ENV)/bin/python -m mutants.prove

tests-without-vnni: $(ENV)/test ## Run the tests of 8-bit integers on an emulated processor without VNNI (needs qemu-user)
	tests/as_haswell.sh $(ENV)/bin/python -m pytest -q -n 0 --timeout 600 $(OF_INTEGERS)

matrix: $(ENV)/test ## Run the tests on each installed Python, with the oldest and the newest requirements
	$(NOX) tests

engines: $(ENV)/test ## Run the tests of Kubernetes and Ray (installs large packages)
	$(NOX) engines

test-torch: $(ENV)/test ## Test the torch backend (installs torch)
	$(NOX) torch -- test

openvino: $(ENV)/test ## Test examples/backend_openvino, and try it with the conformance kit
	$(NOX) openvino

fuzz: $(ENV)/test ## Attack a daemon for FUZZ_S seconds (3600), and print what an honest client noticed; then a server of models
	PYTHONPATH=tests:tests/hostile:. $(ENV)/bin/python tests/hostile/attacks.py --seconds $(FUZZ_S)
	PYTHONPATH=tests:. $(ENV)/bin/python tests/serving/fuzzed_requests.py --seconds $(FUZZ_S)

mutants: $(ENV)/test ## Seed defects into a backend; write which of them the conformance kit finds
	PYTHONPATH=tests $(ENV)/bin/python -m mutants.prove --write

## Write generated files

proto: $(ENV)/test ## Generate nnrt_hdi/v2 from protos/
	$(NOX) proto

c-files: $(ENV)/test ## Generate the files of the C library that follow from tables in Python
	$(ENV)/bin/python -m nnrt_client.c.generated

answers: $(ENV)/test ## Compute the answers of the conformance kit's cases with other people's code
	@PYTHONPATH=tests $(ENV)/bin/python -W ignore -m operators.answers

pictures: $(ENV)/test ## Draw the pictures of `nnrt top` anew, from daemons under load
	PYTHONPATH=tests $(ENV)/bin/python docs/site/top_picture.py

## Measure

bench: $(ENV)/test ## Measure, and write the tables of docs/reference/performance
	PYTHONPATH=tests:tests/onnx_import:examples/generate $(ENV)/bin/python benchmarks/run.py

bench-fleet: $(ENV)/test ## Measure pools of daemons under deaths and restarts, and write the table
	PYTHONPATH=tests $(ENV)/bin/python benchmarks/fleets.py --write

bench-torch: $(ENV)/test ## Measure networks on the torch backend, and write the page (installs torch)
	@$(NOX) torch -- bench --write

bench-gpu: $(ENV)/test ## Measure networks on a GPU by the torch backend; print the tables (installs torch)
	@$(NOX) torch -- bench --device cuda:0

peers: $(ENV)/test ## Install the servers that `make bench` compares with
	$(NOX) peers mlserver

networks: $(ENV)/test build/networks/exported ## Measure networks of all families, and write docs/reference/networks
	PYTHONPATH=tests:tests/onnx_import $(ENV)/bin/python benchmarks/network_table.py --write

build/networks/exported: $(ENV)/test $(wildcard benchmarks/families/*.py benchmarks/export_networks.py)
	$(NOX) networks
	@touch $@

# One environment: the demos install what they need, the rest adds to it.
$(ENV)/demo: pyproject.toml setup.py $(C_LIBRARY)
	$(PYTHON) -m venv --upgrade-deps $(ENV)
	$(ENV)/bin/pip install -q --no-compile -e .
	@touch $@

$(ENV)/serving: $(ENV)/demo
	$(ENV)/bin/pip install -q --no-compile -e '.[serving,protocol-clients]'
	@touch $@

$(ENV)/generate: $(ENV)/demo
	$(ENV)/bin/pip install -q --no-compile -e '.[onnxruntime]'
	@touch $@

$(ENV)/test: pyproject.toml setup.py $(C_LIBRARY)
	$(PYTHON) -m venv --upgrade-deps $(ENV)
	$(ENV)/bin/pip install -q --no-compile -e '.[test,check,docs]'
	@touch $@ $(ENV)/demo $(ENV)/generate $(ENV)/serving
