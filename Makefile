# Two commands for a newcomer: `make run` shows a failing report, `make test` tests the project.
# Both set up a virtual environment of their own and work as root and as an ordinary user.

PYTHONS := python3.11 python3.12 python3.13
# The first Python that is there and works (a version manager's stub may be there and not work).
PYTHON ?= $(shell for p in $(PYTHONS) python3; do $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
GROUP ?= dev
JOBS ?= 3
LIVE_JOBS ?= $(if $(filter 1,$(JOBS)),1,2)
LIVE := sandbox or docker or ssh or real
BIN := $(VENV)/bin

.PHONY: run test test-one test-all nightly lint format docs bench clean

run: $(VENV)/run.stamp
	$(BIN)/winkle suite quick

test: lint test-all

# The whole suite on the first supported Python that is found.  On each other one what differs there is
# the language: not the kernel and the products, not what thousands of random histories say of an
# algorithm, nor our own text (`once`).
test-all:
	@echo "== $(PYTHON)"
	@$(MAKE) --no-print-directory test-one ARGS="-m 'not ($(LIVE))'"
	@$(MAKE) --no-print-directory test-one ARGS="-m '$(LIVE)'" JOBS=$(LIVE_JOBS)
	@for p in $(filter-out $(PYTHON),$(PYTHONS)); do \
	  $$p -c '' 2>/dev/null || { echo "$$p: not found, skipped"; continue; }; \
	  echo "== $$p"; \
	  $(MAKE) --no-print-directory test-one PYTHON=$$p VENV=.venv-$$p GROUP=test \
	    ARGS="-m 'not ($(LIVE)) and not once'" || exit 1; \
	done

# Several test files at a time, in their order.  Live tests measure time: what computes is apart from
# them, and there are fewer of them at once.
test-one: $(VENV)/$(GROUP).stamp
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Regenerate what the documentation takes from the code.
docs: $(VENV)/dev.stamp
	$(BIN)/python -m docs.generate

# 100,000 random histories of each model, and new ones each time: a quarter of an hour.
nightly: $(VENV)/dev.stamp
	HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest -n $(JOBS) tests/test_checking_oracle.py tests/test_checking_fences.py

bench: $(VENV)/dev.stamp
	$(BIN)/python bench/controller.py
	$(BIN)/python bench/faults.py
	$(BIN)/python bench/checkers.py

$(VENV)/run.stamp: pyproject.toml
	@test -n "$(PYTHON)" || { echo "vanwinkle needs Python 3.11 or newer; none was found"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[all]'
	@touch $@

$(VENV)/$(GROUP).stamp: pyproject.toml
	@$(MAKE) --no-print-directory $(VENV)/run.stamp VENV=$(VENV) PYTHON=$(PYTHON)
	$(BIN)/pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$(BIN)/pip install --quiet --disable-pip-version-check --group $(GROUP)
	@touch $@

clean:
	rm -rf .venv .venv-* build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
