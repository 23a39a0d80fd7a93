# Everything here works on a bare machine that has Python 3.11 or later, Go, apt, git and make.
# What is compiled or downloaded goes to $SPECFLEET_CACHE (default ~/.cache/specfleet), so a second clone is quick.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

PYTHON ?= python3
CACHE := $(or $(SPECFLEET_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/specfleet)
OWN_UV := $(CACHE)/uv/bin/uv
UV := $(if $(wildcard $(OWN_UV)),$(OWN_UV),$(or $(shell command -v uv 2>/dev/null),$(OWN_UV)))
BIN := .venv/bin
SYNCED := .venv/.synced
TESTBED := $(BIN)/python -m tests.testbed
PYTEST := $(BIN)/python -m pytest
# Files side by side, one process a core; what a file's tests share (an API server, say) is made once in a process.
SIDE_BY_SIDE := -n auto --maxprocesses 4 --dist loadfile
IMAGE ?= ghcr.io/specfleet/specfleet:0.1.0
BUILDER ?= docker build

export UV_PYTHON_DOWNLOADS := never
export PYTHONUNBUFFERED := 1

# Phases of `make test`, cheapest first: a mistake is reported after seconds, not after the node is up.
PHASES := lint test-unit test-render test-envoy test-cluster test-node-smoke

.PHONY: help
help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z.-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ The two that matter

.PHONY: demo
demo: .venv ## bring up a node, serve a real model in two pools, and watch speculation go off on one route
	$(BIN)/python -m tests.node.demo

.PHONY: test
test: .venv ## lint and all tests, one node smoke included; brings what it needs and takes it down again
	@begun=$$SECONDS; summary=""; \
	for phase in $(PHASES); do \
	  started=$$SECONDS; echo "==> $$phase"; \
	  $(MAKE) $$phase || { echo "==> $$phase FAILED after $$((SECONDS - started)) s; run it alone with: make $$phase" >&2; exit 1; }; \
	  summary+="$$(printf '%8d s  %s' $$((SECONDS - started)) $$phase)"$$'\n'; \
	done; \
	printf '==> all phases passed\n%s%8d s  in all\n' "$$summary" $$((SECONDS - begun))

##@ Phases of the tests

.PHONY: lint
lint: .venv ## ruff, mypy --strict, import rules, generated files up to date
	$(UV) lock --check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict operator/specfleet tests tools manifests charts/specfleet/files/check.py
	$(BIN)/lint-imports
	$(BIN)/python -m specfleet.api.crd --check
	$(BIN)/python -m specfleet.api.reference --check
	$(BIN)/python -m specfleet.engines.reference --check
	@diff -r crds charts/specfleet/files/crds || { echo "crds/ and charts/specfleet/files/crds differ: run make crds" >&2; exit 1; }

.PHONY: test-unit
test-unit: .venv tool-helm tool-kubectl bed-prometheus ## pure units, and the chart as Helm renders it
	$(PYTEST) $(SIDE_BY_SIDE) tests --ignore=tests/render --ignore=tests/node -m "not envoy and not engine and not cluster and not node"

.PHONY: test-render
test-render: .venv bed-vllm ## golden files of what is rendered; command lines against vLLM's own parser
	$(PYTEST) tests/render

.PHONY: test-envoy
test-envoy: .venv tool-envoy bed-prometheus ## the router's configuration in a real Envoy, on loopback
	$(PYTEST) tests -m envoy

.PHONY: test-cluster
test-cluster: .venv bed-prometheus tool-etcd tool-kube-apiserver tool-kube-controller-manager tool-kubectl tool-helm tool-envoy ## API, operator and chart on a real API server
	$(PYTEST) $(SIDE_BY_SIDE) tests -m "cluster and not faults"

.PHONY: test-faults
test-faults: .venv bed-prometheus tool-etcd tool-kube-apiserver tool-kube-controller-manager tool-kubectl tool-envoy ## the longer fault tests on a real API server: a kill at each step, 1,000 routes (10 min)
	$(PYTEST) $(SIDE_BY_SIDE) tests -m faults

.PHONY: test-node-smoke
test-node-smoke: .venv tool-helm bed-vllm bed-model ## one run of the demo's script, with a shorter load, on a whole node
	$(call with_bed,$(PYTEST) --capture=no tests/node/test_smoke.py)

.PHONY: test-node
test-node: .venv tool-helm bed-prometheus bed-vllm bed-model ## all tests on the whole node (long)
	$(call with_bed,$(PYTEST) tests/node -m node)

##@ How good the tests of the decision are

# An environment of its own, so that .venv is what the operator's tests need and no more.
MUTATION_ENV := build/mutation-env
$(MUTATION_ENV)/.synced: pyproject.toml uv.lock | $(UV)
	UV_PROJECT_ENVIRONMENT=$(CURDIR)/$(MUTATION_ENV) $(UV) sync --frozen --no-install-project --group mutation --python $(PYTHON)
	@touch $@

# Some modules only: make mutation MODULES="rule evidence"
.PHONY: mutation
mutation: $(MUTATION_ENV)/.synced ## small changes to the decision rule, one at a time: which do its unit tests miss (minutes)
	$(MUTATION_ENV)/bin/python -m tools.mutation --jobs $(or $(JOBS),$(shell nproc)) $(MODULES)

.PHONY: coverage
coverage: $(MUTATION_ENV)/.synced ## branch coverage of decision/ by its unit tests, without those that draw their input; less than 100 % fails
	@mkdir -p build
	COVERAGE_FILE=build/coverage $(MUTATION_ENV)/bin/python -m coverage run --branch --source operator/specfleet/decision -m pytest -q -m "not hypothesis" tests/unit/decision
	COVERAGE_FILE=build/coverage $(MUTATION_ENV)/bin/python -m coverage report --show-missing --skip-covered --fail-under 100

# Runs a command on the whole node. A node that was up before (a demo, say) is used and left; one that was brought up
# for the command goes again with it, unless KEEP_TESTBED is set.
define with_bed
@up_before=yes; $(TESTBED) status >/dev/null 2>&1 || up_before=no; \
end() { if [ $$up_before = no ] && [ -z "$${KEEP_TESTBED:-}" ]; then $(TESTBED) down; fi; }; \
trap end EXIT; \
$(TESTBED) up; \
$(1)
endef

# Parts are made before pytest starts: it would hide their progress.
tool-%: .venv
	@$(TESTBED) tools $* >/dev/null

bed-%: .venv
	@$(TESTBED) $* >/dev/null

##@ The node

.PHONY: testbed
testbed: .venv ## bring up the whole node and leave it running
	$(TESTBED) up
	@echo "to use it: eval \"\$$($(TESTBED) env)\""

.PHONY: testbed-down
testbed-down: .venv ## end the node and remove all that it left on the machine
	$(TESTBED) down

.PHONY: demo-down
demo-down: testbed-down ## end the demo, its node with it

##@ Benchmarks (results in build/)

.PHONY: bench-switch
bench-switch: .venv tool-helm bed-vllm bed-model ## switches under load: failed requests, incomplete streams, time from decision to served
	@mkdir -p build
	$(call with_bed,$(BIN)/python -m tests.bench.switch --out build/bench-switch.json)

.PHONY: bench-curves
bench-curves: .venv bed-vllm bed-model ## the real engine's step time by running batch, with and without speculation (100 min)
	@mkdir -p build
	$(BIN)/python -m tests.bench.curves --out build/bench-curves.json

.PHONY: bench-break-even
bench-break-even: .venv tool-helm bed-vllm bed-model ## the measured break-even line against a load run, real vLLM (100 min)
	@mkdir -p build
	$(call with_bed,$(BIN)/python -m tests.bench.break_even --out build/bench-break-even.json)

# By a result of bench-curves: make bench-mixed CURVES=docs/results/bench-curves-2026-11-30.json
CURVES ?= build/bench-curves.json
.PHONY: bench-mixed
bench-mixed: .venv tool-helm ## mixed traffic with speculation always on, always off and by route, on equal hardware
	@mkdir -p build
	$(call with_bed,$(BIN)/python -m tests.bench.mixed --curves $(CURVES) --out build/bench-mixed.json)

.PHONY: bench-router
bench-router: .venv tool-envoy ## Envoy's CPU an event, with and without our filters
	@mkdir -p build
	$(BIN)/python -m tests.bench.router --out build/bench-router.json

.PHONY: bench-decision
bench-decision: .venv ## the decision rule beside six others on simulated routes: false switches a day, time lost; JSON and SVG
	@mkdir -p build
	$(BIN)/python -m tests.bench.decision --out build/bench-decision.json

.PHONY: bench-fleet
bench-fleet: .venv ## a whole fleet in closed loop for 30 days: limit cycles, switches by peaks of load
	@mkdir -p build
	$(BIN)/python -m tests.bench.fleet --out build/bench-fleet.json

##@ Generated files and the image

.PHONY: crds
crds: .venv tool-helm ## generate from the models: crds/, docs/reference, the chart's parts, manifests/install
	$(BIN)/python -m specfleet.api.crd
	$(BIN)/python -m specfleet.api.reference
	$(BIN)/python -m specfleet.engines.reference
	@mkdir -p charts/specfleet/files/crds
	@rm -f charts/specfleet/files/crds/*.yaml
	cp crds/*.yaml charts/specfleet/files/crds/
	$(BIN)/python -m manifests.render_install
	$(BIN)/python -m manifests.render_values

# A release that is not in the data file yet is added by its name: make engine-facts ENGINE=vLLM RELEASE=0.34.0
.PHONY: engine-facts
engine-facts: .venv | $(UV) ## read flags, keys and methods from released wheels (ENGINE=vLLM RELEASE=0.34.0; default: renew all)
	PYTHONPATH=operator $(BIN)/python -m tools.engine_facts read --uv $(UV) $(if $(ENGINE),--engine $(ENGINE)) $(addprefix --release ,$(RELEASE))

.PHONY: engine-facts-diff
engine-facts-diff: .venv | $(UV) ## what changed between two releases (ENGINE=vLLM OLD=0.32.0 NEW=0.33.0)
	@PYTHONPATH=operator $(BIN)/python -m tools.engine_facts diff --uv $(UV) $(ENGINE) $(OLD) $(NEW)

.PHONY: image
image: ## build the operator image (IMAGE=name:tag, BUILDER="docker build" or "buildah bud")
	$(BUILDER) -t $(IMAGE) --build-arg REVISION=$$(git rev-parse HEAD) .

##@ The environment

.PHONY: .venv
.venv: $(SYNCED) ## the locked Python environment (uv is brought where there is none)

$(SYNCED): pyproject.toml uv.lock | $(UV)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "expected Python 3.11 or later, found $$($(PYTHON) --version): name another with PYTHON=..." >&2; exit 1; }
	$(UV) sync --frozen --python $(PYTHON)
	@touch $@

$(OWN_UV):
	@echo "uv is not on PATH: installing it into $(CACHE)/uv"
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "this Python has no venv: installing python3-venv"; apt-get update -qq; apt-get install --yes -qq python3-venv; }
	$(PYTHON) -m venv $(CACHE)/uv
	$(CACHE)/uv/bin/pip install --quiet uv

.PHONY: clean
clean: ## remove the environment, build results and caches of the checkout
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
