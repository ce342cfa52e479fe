# Everything a contributor runs. `make` alone lists the targets.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
CLIENT := vscode-client
# Test processes at once; more than there are cores makes the time limits of tests unreliable.
JOBS ?= 2
PYTEST := $(BIN)/python -m pytest

# The two kernels of the demo: one that is proved, one with a seeded fault that must be refuted.
DEMO_PROVED ?= examples/gemm.py
DEMO_FAULTY ?= examples/faulty_gemm.py

##@ Use

.PHONY: demo
demo: $(VENV)/.base ## Prove a GEMM, and show the counterexample of a faulty one
	@echo '$$ tilewright check --strict $(DEMO_PROVED)'
	# Strict, because "unknown" passes otherwise and would not be a proof.
	$(BIN)/tilewright check --strict $(DEMO_PROVED)
	echo
	echo '$$ tilewright check $(DEMO_FAULTY)'
	status=0; $(BIN)/tilewright check $(DEMO_FAULTY) || status=$$?
	# The faulty kernel must be refuted: status 1 alone could also mean that the file is invalid.
	refuted=$$($(BIN)/tilewright check --format json $(DEMO_FAULTY) | grep -Ec '"verdict": *"refuted"' || true)
	if [[ $$status -ne 1 || $$refuted -eq 0 ]]; then
	  echo "make demo: $(DEMO_FAULTY) should be refuted (status 1), but the status is $$status" \
	    "and $$refuted findings are refutations." >&2
	  exit 1
	fi
	echo
	echo "$(DEMO_PROVED) is proved; $(DEMO_FAULTY) is refuted, as it should be."

.PHONY: editor
editor: $(VENV)/.base $(CLIENT)/node_modules/.package-lock.json ## Open the examples in VS Code in a browser, with the extension installed
	tests/e2e/open_editor.sh

##@ Develop

.PHONY: test
test: lint unit e2e ## Everything a change must pass: lint, types, tests, the editor scenario

.PHONY: test-all
test-all: lint slow mutants e2e ## As test, with the slow tests, all mutants, and the GPU tests where there is a GPU

.PHONY: lint
lint: lint-python lint-client ## Ruff, Pyright (strict), and the same for the extension

.PHONY: unit
unit: $(VENV)/.dev ## The Python tests without the slow ones and without a browser
	$(PYTEST) -n $(JOBS) -m "not slow and not gpu and not e2e" --ignore=tests/bench

.PHONY: slow
slow: $(VENV)/.dev ## All Python tests without a browser
	$(PYTEST) -n $(JOBS) -m "not e2e" --ignore=tests/bench

.PHONY: e2e
e2e: $(VENV)/.dev $(CLIENT)/node_modules/.package-lock.json ## The scenario in a real editor in a real browser
	$(PYTEST) tests/e2e

.PHONY: mutants
mutants: $(VENV)/.dev ## Edit every example in one place at a time: what the verifier misses, and what it alarms falsely
	PYTHONPATH=tests $(BIN)/python -m mutation --jobs $(JOBS) --json out/mutants.jsonl

.PHONY: fuzz
fuzz: $(VENV)/.dev ## Kernels made at random: what is proved of them must hold, what is refuted must show
	PYTHONPATH=tests $(BIN)/python -m mutation.fuzz --jobs $(JOBS)
	$(PYTEST) -n $(JOBS) tests/dsl/frontend/test_fuzz.py tests/dsl/lower/test_random_programs.py \
	  tests/analysis/tags/test_random_rows.py tests/analysis/async_/test_rings.py

.PHONY: kernels
kernels: $(VENV)/.dev ## Lower tilewright.kernels at every configuration into the file that the operators launch from
	$(VENV)/bin/python -m tilewright.kernels.build

.PHONY: bench-gpu
bench-gpu: ## tilewright.kernels against torch, on a machine with a GPU, torch and triton
	PYTHONPATH=dsl python3 tests/bench/gpu/bench_gpu.py --json bench-gpu.json

.PHONY: bench
bench: $(VENV)/.dev ## Latency, verifier time and kernel time, as ratios measured in one run
	$(PYTEST) tests/bench -s

.PHONY: format
format: $(VENV)/.dev ## Let Ruff rewrite what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: clean
clean: ## Remove what make has set up and what tests leave behind
	rm -rf $(VENV) $(CLIENT)/node_modules $(CLIENT)/dist $(CLIENT)/*.vsix out
	rm -rf .pytest_cache .ruff_cache .hypothesis
	find dsl analysis agent server tests -name __pycache__ -prune -exec rm -rf {} +

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z][a-z0-9-]*:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo

.PHONY: lint-python
lint-python: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright

.PHONY: lint-client
lint-client: $(CLIENT)/node_modules/.package-lock.json
	npm --prefix $(CLIENT) run typecheck
	npm --prefix $(CLIENT) run lint

# Set-up steps. Each leaves a stamp, so it runs again only when what it depends on has changed.

$(BIN)/python:
	@for python in $${PYTHON:-python3 python3.13 python3.12 python3.11}; do
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
	    echo "$$python -m venv $(VENV)"
	    exec "$$python" -m venv $(VENV)
	  fi
	done
	echo "make: no Python 3.11 or later found. Install one, or name it: make PYTHON=/path/to/python" >&2
	exit 1

$(VENV)/.base: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ $(VENV)/.base

$(CLIENT)/node_modules/.package-lock.json: $(CLIENT)/package-lock.json
	@command -v npm >/dev/null || { echo "make: npm is missing; the extension needs Node 20 or later." >&2; exit 1; }
	npm --prefix $(CLIENT) ci --no-audit --no-fund --loglevel=error
	touch $@
