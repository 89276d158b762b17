# Each target does its own set-up: a virtual environment in .venv from the hashed lock file.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# Three processes on two cores: each waits for its control plane about half of the time.
JOBS   ?= 3

.DEFAULT_GOAL := help
.PHONY: help setup run test test-long check format lint types layers unit bench lock manifests wheels sbom clean

help: ## print this
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: $(STAMP) ## make the virtual environment

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Berth needs Python 3.11 or newer; this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

run: setup ## everything on this machine: control plane, API, operator, examples
	$(BIN)/berth up

test: setup ## every test, the ones on a real control plane included
	sh tests/prepare
	$(BIN)/berth devcluster prepare
	$(BIN)/pytest -n $(JOBS) --dist worksteal || { code=$$?; \
	  [ $$code -eq 1 ] || exit $$code; \
	  echo "once more, one at a time: what ran out of time beside others"; \
	  $(BIN)/pytest --last-failed --last-failed-no-failures none -p no:xdist; }

test-long: setup ## the fault bench with its long numbers
	$(BIN)/berth devcluster prepare
	$(BIN)/python -m tests.faults.long

check: setup format lint types layers unit ## format, lint, types, layers, unit tests: under a minute

format: setup
	$(BIN)/ruff format --check src tests bench

lint: setup
	$(BIN)/ruff check src tests bench

types: setup
	$(BIN)/mypy

layers: setup
	$(BIN)/lint-imports

unit: setup
	$(BIN)/pytest -q -n $(JOBS) -m "not cluster and not postgres and not faults and not slow"

bench: setup ## the benchmarks, one JSON object a line
	$(BIN)/berth devcluster prepare
	$(BIN)/berth bench all

lock: ## write requirements.lock anew from pyproject.toml (needs uv)
	uv pip compile pyproject.toml --extra dev --universal --generate-hashes --no-header --no-annotate \
	  --no-emit-index-url --no-emit-find-links --python-version 3.11 --output-file requirements.lock

manifests: setup ## write deploy/ and docs/settings.md anew
	for part in crds rbac webhooks operator api all; do $(BIN)/berth manifests $$part > deploy/$$part.yaml; done
	for one in $$($(BIN)/python -c "from berth.dialects import ALL_DIALECTS; print(*ALL_DIALECTS)"); do \
	  $(BIN)/berth manifests bundle --dialects $$one > deploy/$$one.yaml; done
	$(BIN)/berth manifests bundle --dialects vip --namespace vip-allocator-operator --no-make-namespace \
	  > deploy/bundle.yaml
	$(BIN)/berth manifests chart-files --into deploy/charts/berth-operator
	$(BIN)/berth manifests kustomize --into deploy/kustomize
	$(BIN)/berth manifests clusterctl --into deploy/clusterctl
	$(BIN)/python tools/settings_page.py > docs/settings.md

# For another Python or system: make wheels WHEELS_FOR="--python-version 3.12 --platform manylinux_2_28_aarch64"
WHEELS_FOR ?=
wheels: setup ## carry every wheel of the lock file, and Berth's own, in ./wheels: for networks without internet
	rm -rf wheels
	$(BIN)/pip download --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary :all: $(WHEELS_FOR) \
	  --requirement requirements.lock --dest wheels
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir wheels .

sbom: ## write sbom.cdx.json: the bill of materials, CycloneDX, from the lock file
	$(PYTHON) tools/supply.py sbom requirements.lock > sbom.cdx.json

clean: ## remove what the targets above made here (not the cache of the control plane)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache dist build wheels sbom.cdx.json
