# The same targets for people and for CI. Needs only make and Python 3.11 or later.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=

# Versions come from constraints.txt, those of the build backend too (pip 25.3 and later read the second name).
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test check format bench clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1	\2/p' $(MAKEFILE_LIST)

$(VENV)/.dev: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "No python3 on PATH: install Python 3.11 or later." >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$(PYTHON) is older than Python 3.11: install a newer one or pass PYTHON=/path/to/python." >&2; exit 1; }
	test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet -e '.[bench]'
	@touch $@

demo: $(VENV)/.dev ## a tour of the accountant; then three runs are trained, attacked and judged, in one report
	$(BIN)/python examples/accounting.py
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/gmip audit examples/audit.yaml
	@echo "Open it in a browser: file://$(CURDIR)/runs/demo-audit/report.html"

# One thread for each worker: more of them than cores make every matrix product wait.
test: $(VENV)/.dev ## all tests; make test PYTEST_ARGS='-m "not slow"' leaves out the long ones
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto --dist worksteal $(PYTEST_ARGS)

check: $(VENV)/.dev ## linters, types and import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev ## mend what the linters can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.bench ## ratios against peers, measured in the same run
	$(BIN)/python benchmarks/accounting.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/glir.py

clean: ## remove all that the other targets made, .venv too
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .data .cache runs build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
