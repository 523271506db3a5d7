# Everything that a newcomer needs: `make demo` and `make test` set up what they lack.
PYTHON ?= python3.11
VENV := .venv
WORKERS ?= 2
BIN := $(VENV)/bin
export UV_SYSTEM_CERTS := 1

.PHONY: help setup demo down test test-long test-browser bench lint format requirements clean

help: ## Show what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.ready ## Make the environment: Python packages, Java, jars
	@$(BIN)/tidemark stack jars

$(VENV)/.ready: requirements.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 is missing: install it, or name it: make PYTHON=/path/to/python3.11"; exit 2; }
	@echo "Making the environment in $(VENV) (some minutes the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep ^uv== requirements.txt)"
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python requirements.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	@touch $@

demo: setup ## Run the pipeline on real services with sample data (KEEP=1 leaves the stack running)
	@$(BIN)/tidemark demo $(if $(KEEP),--keep)

down: $(VENV)/.ready ## End the stack that `make demo KEEP=1` left, and the one of `tidemark stack up`
	@TIDEMARK_HOME=$(CURDIR)/.tidemark/demo $(BIN)/tidemark stack down
	@$(BIN)/tidemark stack down

test: setup lint ## Check, and test on real services, without what test-long and test-browser do (WORKERS=1 for one stack instead of two)
	@$(BIN)/pytest --numprocesses $(WORKERS) --no-loadscope-reorder

test-long: setup ## Attack it longer: services ended, disks filled, executors and tasks killed (as root)
	@$(BIN)/pytest --numprocesses $(WORKERS) --no-loadscope-reorder tests/long

test-browser: setup ## Test the readiness board in a real Chromium, which has to be installed
	@$(BIN)/pytest tests/browser

bench: setup ## Measure speed, beside others, into bench.json (LINES=200000 for a quick look, ROUNDS=1)
	@$(BIN)/python -m bench $(if $(LINES),--lines $(LINES)) $(if $(ROUNDS),--rounds $(ROUNDS))

lint: $(VENV)/.ready ## Check style, types and import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: $(VENV)/.ready ## Format the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

requirements: $(VENV)/.ready ## Compile requirements.txt from requirements.in
	@$(BIN)/uv pip compile --quiet --upgrade --python-version 3.11 requirements.in --output-file requirements.txt

clean: ## Remove the environment and all state
	@[ ! -x $(BIN)/tidemark ] || $(MAKE) --no-print-directory down
	@rm -rf $(VENV) .tidemark .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
