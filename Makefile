# The same targets for people and for CI. Needs only make and Python 3.11 or later.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
FLOWER := .venv-flower
PYTEST_ARGS ?=
QUICK ?=
OUT ?= results

# Versions come from constraints.txt, those of the build backend too (pip 25.3 and later read the second name).
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test check format docs bench reproduce clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1	\2/p' $(MAKEFILE_LIST)

define python_there
	@test -n "$(PYTHON)" || { echo "No python3 on PATH: install Python 3.11 or later." >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$(PYTHON) is older than Python 3.11: install a newer one or pass PYTHON=/path/to/python." >&2; exit 1; }
	test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
endef

# What the demo needs, and no more: no cluster engines, linters or browsers.
$(VENV)/.demo: pyproject.toml constraints.txt
	$(python_there)
	$(BIN)/python -m pip install --quiet -e '.[audit]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt
	$(python_there)
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet -e '.[bench]'
	@touch $@

# Flower's versions do not go with the pinned ones: it has an environment of its own, on top of the other.
$(FLOWER)/.dev: $(VENV)/.dev constraints-flower.txt
	test -x $(FLOWER)/bin/python || $(BIN)/python -m venv $(FLOWER)
	$(BIN)/python -c 'import site; print("import site; site.addsitedir(%r)" % site.getsitepackages()[0])' \
		> "$$($(FLOWER)/bin/python -c 'import site; print(site.getsitepackages()[0])')/main_environment.pth"
	PIP_CONSTRAINT=constraints-flower.txt PIP_BUILD_CONSTRAINT=constraints-flower.txt \
		$(FLOWER)/bin/python -m pip install --quiet --no-warn-conflicts flwr
	@touch $@

demo: $(VENV)/.demo ## a model that leaks, the noise that limits it, and what that costs; writes a report
	@rm -rf runs/demo
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python examples/demo.py

# One thread for each worker: more of them than cores make every matrix product wait.
test: $(VENV)/.dev $(FLOWER)/.dev ## all tests; make test PYTEST_ARGS='-m "not slow"' leaves out the long ones
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto --dist worksteal $(PYTEST_ARGS)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(FLOWER)/bin/python -m pytest -q tests/unit/integrations/test_flower.py

check: $(VENV)/.dev ## linters, types and import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev ## mend what the linters can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.dev ## the documentation site, into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(VENV)/.bench ## ratios against peers, measured in the same run
	$(BIN)/python benchmarks/accounting.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/glir.py

reproduce: $(VENV)/.dev ## the paper's experiments on the data in GMIP_DATA, 40 CPU minutes; QUICK=1 OUT=runs/quick for 3
	$(BIN)/python -m reproduction $(if $(QUICK),--quick) --out $(OUT)

clean: ## remove all that the other targets made, .venv too
	rm -rf $(VENV) $(FLOWER) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .data .cache runs build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
