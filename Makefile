# Everything is set up from here: `make demo`, `make test`, `make bench`. Needs Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BENCH := .venv-bench
PIP := -m pip --disable-pip-version-check install --quiet

.PHONY: demo test bench clean help

help:
	@echo "make demo   draw a count tensor, find its order, predict its hidden cells"
	@echo "make test   ruff, mypy, import-linter, pytest"
	@echo "make bench  pltf beside its peers on the same problems (own environment)"
	@echo "make clean  remove environments and caches"

demo: $(VENV)/.run
	$(VENV)/bin/python examples/demo.py

test: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/python -m pytest

bench: $(BENCH)/.bench
	$(BENCH)/bin/python -m benchmarks $(ARGS)

$(VENV)/.run: pyproject.toml
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python $(PIP) --editable '.[all]'
	touch $@

$(VENV)/.dev: pyproject.toml
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python $(PIP) --editable '.[dev]'
	touch $@ $(VENV)/.run

$(BENCH)/.bench: pyproject.toml benchmarks/requirements.txt
	test -x $(BENCH)/bin/python || $(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python $(PIP) --requirement benchmarks/requirements.txt --editable '.[all]'
	touch $@

clean:
	rm -rf $(VENV) $(BENCH) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis demo-output
