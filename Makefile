# Two commands, each doing all of its own set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
JOBS ?= auto

.PHONY: demo test clean

demo: $(VENV)/.demo-ready
	@$(BIN)/sottovoce demo

test: $(VENV)/.test-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/python -m pytest -n $(JOBS)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo-ready: pyproject.toml constraints.txt | $(BIN)/python
	PIP_CONSTRAINT=constraints.txt $(PIP) install --quiet --editable .
	@touch $@

$(VENV)/.test-ready: pyproject.toml constraints.txt | $(BIN)/python
	PIP_CONSTRAINT=constraints.txt $(PIP) install --quiet --editable ".[test]"
	@touch $@ $(VENV)/.demo-ready

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis runs
