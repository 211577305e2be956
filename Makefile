# `make demo` and `make test` set up all they need; the first line after `##` is what `make help` says.

PYTHON ?= python3
FUZZ_S ?= 3600
VENV := .venv
CHECK := .venv-check
PROTO := .venv-proto
MATRIX := .venv-matrix
TORCH := .venv-torch
ENGINES := .venv-engines
OPENVINO := .venv-openvino
PEERS := .venv-peers
# The oldest runtime the stubs must work with decides the generator: protobuf 6.31, grpcio 1.74.
GRPC_TOOLS := grpcio-tools==1.74.0
NOX := nox>=2025.5.1
# The tests whose results depend on a processor's kernels for 8-bit integers.
OF_INTEGERS := tests/backends/test_onnxruntime_lowering.py $(addprefix tests/onnx_import/test_,microsoft_operators.py ort_tools.py networks.py)
# What libneural_network_runtime is compiled of.
C_LIBRARY := $(addprefix nnrt_client/c/,library.c functions.inc) $(wildcard nnrt_client/c/include/*/*.h)
# Of the schemas that deploy/kubernetes is checked against.
SCHEMAS := kubernetes-validate>=1.36

PROTOS := $(wildcard protos/nnrt_hdi/v2/*.proto)
SERVICES := $(shell grep -l '^service ' $(PROTOS))
SOURCES := nnrt_hdi nnrt_client nnrt_device_service backends tests benchmarks examples docs noxfile.py setup.py

# Tests start many processes: none compiles again what another one has.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/build/bytecode

.DEFAULT_GOAL := help
.PHONY: help demo demo-c fleet-demo quick quick-tests test nightly test-processors check format lint types imports sz house proto proto-check answers docs docs-check c-files pictures tests matrix engines openvino fuzz mutants bench bench-fleet peers networks clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/installed ## Run the digits demo: two daemons, remote inference, the death of one
	@$(VENV)/bin/python examples/digits/demo.py

fleet-demo: $(VENV)/installed ## Run the fleet demo: four daemons in use, killed, drained and restarted
	@PYTHONPATH=examples/digits $(VENV)/bin/python examples/fleet/fleet_demo.py

demo-c: $(VENV)/installed ## Run programs in C on a device, with the library for C
	@$(VENV)/bin/python examples/c/demo.py

quick: $(CHECK)/installed ## Run the checks and the tests that catch most, in under a minute
	@$(MAKE) --no-print-directory -j 4 --output-sync=target lint types imports quick-tests

quick-tests: $(CHECK)/installed
	$(CHECK)/bin/pytest -q -n 3 --dist worksteal --quick

test: check ## Run every check and test, as CI does

check: lint types imports sz house proto-check docs-check tests ## Format, lint, types, import rules, size, the house, generated files, tests

format: $(CHECK)/installed ## Format the sources in place
	$(CHECK)/bin/ruff format -q $(SOURCES)
	$(CHECK)/bin/ruff check -q --fix-only $(SOURCES)

lint: $(CHECK)/installed ## Check format and lint
	$(CHECK)/bin/ruff format --check -q $(SOURCES)
	$(CHECK)/bin/ruff check -q $(SOURCES)

types: $(CHECK)/installed ## Check types (mypy, strict)
	$(CHECK)/bin/mypy

imports: $(CHECK)/installed ## Check who imports whom
	$(CHECK)/bin/lint-imports --no-logo

sz: $(CHECK)/installed ## Print the lines of code of each room, and fail above the budget
	@$(CHECK)/bin/python tests/lines_of_code.py

house: $(CHECK)/installed ## Print circles of imports, large classes and modules, threads and uses of what is private, and bound them
	@$(CHECK)/bin/python tests/house.py

tests: $(CHECK)/installed ## Run the tests, and of long tables of cases a part
	$(CHECK)/bin/pytest -q -n auto --maxprocesses 4 --dist worksteal

nightly: $(CHECK)/installed ## Run all cases of all tests, attack a daemon for ten minutes, prove that the kit bites
	$(CHECK)/bin/pytest -q -n auto --maxprocesses 4 --dist worksteal --whole
	$(MAKE) --no-print-directory fuzz FUZZ_S=600
	PYTHONPATH=tests $(CHECK)/bin/python -m mutants.prove

test-processors: $(CHECK)/installed ## Run the tests of 8-bit integers on an emulated processor without VNNI (needs qemu-user)
	tests/as_haswell.sh $(CHECK)/bin/python -m pytest -q -n 0 --timeout 600 $(OF_INTEGERS)

matrix: $(MATRIX)/installed ## Run the tests on each Python there is, with the oldest and the newest that they may need
	$(MATRIX)/bin/nox $(NOX_ARGS)

engines: $(ENGINES)/installed ## Run the tests of Kubernetes and Ray, with the large packages that they take
	$(ENGINES)/bin/pytest -q tests/on_kubernetes tests/on_ray

openvino: $(OPENVINO)/installed ## Run the tests of examples/backend_openvino, and have the conformance kit try it
	$(OPENVINO)/bin/pytest -q examples/backend_openvino

proto: $(PROTO)/installed ## Generate nnrt_hdi/v2 from protos/
	$(PROTO)/bin/python -m grpc_tools.protoc -I protos --python_out=. --pyi_out=. $(PROTOS)
	$(PROTO)/bin/python -m grpc_tools.protoc -I protos --grpc_python_out=. $(SERVICES)

proto-check: $(PROTO)/installed ## Check that nnrt_hdi/v2 is what protos/ generate
	@rm -rf build/proto && mkdir -p build/proto
	@$(PROTO)/bin/python -m grpc_tools.protoc -I protos --python_out=build/proto --pyi_out=build/proto $(PROTOS)
	@$(PROTO)/bin/python -m grpc_tools.protoc -I protos --grpc_python_out=build/proto $(SERVICES)
	@diff -r -x __init__.py -x __pycache__ build/proto/nnrt_hdi/v2 nnrt_hdi/v2 \
	  || { echo 'nnrt_hdi/v2 differs from what protos/ generate; run `make proto`'; exit 1; }

answers: $(CHECK)/installed ## Compute the answers of the conformance kit's cases, by other people's code
	@PYTHONPATH=tests $(CHECK)/bin/python -W ignore -m operators.answers

docs: $(CHECK)/installed ## Write docs/operators.md, docs/api.md and docs/onnx.md from the declarations
	PYTHONPATH=tests $(CHECK)/bin/python docs/operators_page.py
	$(CHECK)/bin/python docs/api_page.py
	$(CHECK)/bin/python docs/onnx_page.py

docs-check: $(CHECK)/installed ## Check that the pages that are written from declarations say what those say
	@PYTHONPATH=tests $(CHECK)/bin/python docs/operators_page.py --check
	@$(CHECK)/bin/python docs/api_page.py --check
	@$(CHECK)/bin/python docs/onnx_page.py --check
	@$(CHECK)/bin/python -m nnrt_client.c.generated --check

c-files: $(CHECK)/installed ## Write what of the library for C follows from tables in Python
	$(CHECK)/bin/python -m nnrt_client.c.generated

pictures: $(CHECK)/installed ## Draw the pictures of nnrt top anew, from daemons under load
	PYTHONPATH=tests $(CHECK)/bin/python docs/top_picture.py

fuzz: $(CHECK)/installed ## Attack a daemon for FUZZ_S seconds (3600), and print what an honest client had of it
	PYTHONPATH=tests:tests/hostile:. $(CHECK)/bin/python tests/hostile/attacks.py --seconds $(FUZZ_S)

mutants: $(CHECK)/installed ## Prove that the conformance kit bites, by defects seeded into a backend; write docs/conformance.md
	PYTHONPATH=tests $(CHECK)/bin/python -m mutants.prove --write

bench: $(CHECK)/installed ## Measure, print ratios, write docs/performance.md
	PYTHONPATH=tests:tests/onnx_import $(CHECK)/bin/python benchmarks/run.py

peers: $(PEERS)/installed ## Install the server that make bench compares with, if it is there

bench-fleet: $(CHECK)/installed ## Measure pools of daemons under deaths and restarts, write the table of docs/fleet.md
	PYTHONPATH=tests $(CHECK)/bin/python benchmarks/fleets.py --write

networks: $(CHECK)/installed build/networks/exported ## Measure networks of all families, write docs/onnx_networks.md
	PYTHONPATH=tests:tests/onnx_import $(CHECK)/bin/python benchmarks/network_table.py --write

build/networks/exported: $(TORCH)/installed benchmarks/export_networks.py $(wildcard benchmarks/families/*.py)
	$(TORCH)/bin/python benchmarks/export_networks.py build/networks
	@touch $@

clean: ## Remove everything that make has made
	rm -rf $(VENV) $(CHECK) $(PROTO) $(MATRIX) $(TORCH) $(ENGINES) $(OPENVINO) $(PEERS) .nox build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis nnrt_client/c/lib/*.so

$(VENV)/installed: pyproject.toml setup.py $(C_LIBRARY)
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install -q -e .
	@touch $@

$(CHECK)/installed: pyproject.toml setup.py $(C_LIBRARY)
	$(PYTHON) -m venv $(CHECK)
	$(CHECK)/bin/pip install -q -e '.[test,check]'
	@touch $@

$(PROTO)/installed: Makefile
	$(PYTHON) -m venv $(PROTO)
	$(PROTO)/bin/pip install -q $(GRPC_TOOLS) setuptools
	@touch $@

$(TORCH)/installed: pyproject.toml
	$(PYTHON) -m venv $(TORCH)
	$(TORCH)/bin/pip install -q '.[onnxruntime,torch]'
	@touch $@

$(PEERS)/installed: pyproject.toml
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install -q -e '.[peers]'
	@touch $@

$(ENGINES)/installed: pyproject.toml Makefile
	$(PYTHON) -m venv $(ENGINES)
	$(ENGINES)/bin/pip install -q -e '.[test,k8s,ray]' '$(SCHEMAS)'
	@touch $@

$(OPENVINO)/installed: pyproject.toml examples/backend_openvino/pyproject.toml
	$(PYTHON) -m venv $(OPENVINO)
	$(OPENVINO)/bin/pip install -q -e '.[openvino]' -e 'examples/backend_openvino[test]'
	@touch $@

$(MATRIX)/installed: Makefile
	$(PYTHON) -m venv $(MATRIX)
	$(MATRIX)/bin/pip install -q '$(NOX)'
	@touch $@
