# Six commands, each doing all of its own set-up: `make demo`, `make test`, `make docs`, `make bench`, `make mutants`,
# `make wheel`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
JOBS ?= auto
TORCH ?=
MACHINES ?=
TRIAL := build/trial
# Reports are looked at in Chromium. Only root on Debian gets it unasked; elsewhere those tests skip and say so.
BROWSER := for name in chromium chromium-browser google-chrome chrome; do command -v $$name >/dev/null && exit 0; done; \
	[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && { apt-get update -qq; \
	DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium; } >/dev/null 2>&1 \
	|| echo "No Chromium here: tests that open a report in a browser will skip."

# Compiled Python files are kept, whatever the shell says: pytest and every program that a test starts would compile all
# of them again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test bench mutants docs wheel clean

demo: $(VENV)/.demo-ready
	@$(BIN)/sottovoce demo

test: $(VENV)/.test-ready $(if $(TORCH),$(VENV)/.torch-ready) $(if $(MACHINES),$(VENV)/.machines-ready)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	SOTTOVOCE_MACHINES=$(MACHINES) $(BIN)/python -m pytest -n $(JOBS) --dist loadfile

# Resumes where it stopped; the table is docs/speed.md. Peers get environments of their own (about 6 GB).
bench: $(VENV)/.test-ready
	@echo "First some ratios of times (pytest -m clock): less than a minute, more on a busy machine. After that:"
	@$(BIN)/python -m benchmarks --announce
	$(BIN)/python -m pytest -m clock
	$(BIN)/python -m benchmarks

# Plants some two hundred privacy bugs, one at a time: which test and which audit catch each? The table is docs/mutants.md.
mutants: $(VENV)/.test-ready
	$(BIN)/python -m tests.mutants --write docs/mutants.md

# Into site/, without a network and with warnings as errors; runs every example of the gallery, which one test does with
# fewer rows and rounds.
docs: $(VENV)/.docs-ready
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# Builds the source archive and, from it, the wheel, into dist/; then tries the wheel in an empty environment.
wheel:
	rm -rf dist $(TRIAL)
	$(PYTHON) -m venv $(TRIAL)/builder && $(TRIAL)/builder/bin/python -m pip install --quiet build
	$(TRIAL)/builder/bin/python -m build --outdir dist
	$(PYTHON) -m venv $(TRIAL)/empty
	PIP_CONSTRAINT=constraints.txt $(TRIAL)/empty/bin/python -m pip install --quiet dist/*.whl
	cd $(TRIAL) && unset PYTHONPATH && empty/bin/sottovoce --version && empty/bin/sottovoce demo --quiet && \
	empty/bin/sottovoce run $(CURDIR)/examples/adult.toml --quiet --out run && empty/bin/sottovoce verify run --quiet

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo-ready: pyproject.toml constraints.txt | $(BIN)/python
	PIP_CONSTRAINT=constraints.txt $(PIP) install --quiet --editable .
	@touch $@

# The last step compiles the kernels that tests call, once, in one process: over a minute that tests then need not spend.
# Those of a file that has changed since are compiled again by the first test that calls them.
$(VENV)/.test-ready: pyproject.toml constraints.txt | $(BIN)/python
	PIP_CONSTRAINT=constraints.txt $(PIP) install --quiet --editable ".[test]"
	$(BIN)/python -m tests.kernels
	@$(BROWSER)
	@touch $@ $(VENV)/.demo-ready $(VENV)/.docs-ready

$(VENV)/.docs-ready: pyproject.toml constraints.txt | $(BIN)/python
	PIP_CONSTRAINT=constraints.txt $(PIP) install --quiet --editable ".[docs]"
	@touch $@

# Neural models are tested where PyTorch is. `make test TORCH=1` brings its CPU build, never the GPU stack.
$(VENV)/.torch-ready: $(VENV)/.test-ready
	@PIP_CONSTRAINT=constraints.txt $(PIP) install --quiet --editable ".[torch]" || { echo "PyTorch was not installed. \
	If its CPU build is not among your package sources, name one that has it: PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS"; exit 1; }
	@touch $@

# `make test MACHINES=1` also starts real servers and clients, and a hundred of them in Flower's own simulation.
$(VENV)/.machines-ready: $(VENV)/.test-ready
	PIP_CONSTRAINT=constraints.txt $(PIP) install --quiet --editable ".[simulation]"
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis runs site dist build
