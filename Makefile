# Sets up and runs everything; `make help` lists the targets. Needs Python >= 3.11 and make.
PYTHON ?= python3
# PyTorch of the developers' environment. PyPI's build for Linux includes CUDA; builds for the CPU are much smaller.
TORCH ?= torch==2.13.0
VENV := .venv
VENV_BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
BENCH := .venv-bench
TRUST := .venv-trust
LOWEST := .venv-lowest
MINIMAL := .venv-minimal
PIP := -m pip --disable-pip-version-check install --quiet
# Fits use several threads, so more than a few processes would only slow each other down.
PYTEST := -m pytest -n auto --maxprocesses 4 --dist worksteal
# A quick check that a set of packages works: files, labels, results to the last digits.
SHORT := -m 'not slow' tests/data tests/io tests/store tests/notation tests/test_extras.py tests/test_package.py tests/inference/test_golden.py

.PHONY: demo test test-gpu bench-gpu test-lowest test-minimal test-portable faults docs paper trust bench compare scaling coverage mutants release-check clean help

help:
	@echo "make demo     draw a count tensor, find its order, predict its hidden cells"
	@echo "make test     ruff, mypy, import-linter, pytest"
	@echo "make test-lowest   pytest with the lowest versions of all dependencies (own environment; QUICK=1: some of the tests)"
	@echo "make test-minimal  the tests that need no extras, without extras (own environment; QUICK=1: some of the tests)"
	@echo "make test-portable  pytest with the extras, but without PyTorch (macOS, Windows)"
	@echo "make coverage  branch coverage of src/pltf by the tests"
	@echo "make mutants   mutation testing of the engines and of inference, on a sample (ARGS='--sample 40 --seed 0')"
	@echo "make release-check  build wheel and sdist, check them, install them in empty environments, try them"
	@echo "make test-gpu  the tests that run on a GPU, with the current Python (CUDA, PyTorch, Triton)"
	@echo "make bench-gpu  iterations on a GPU, compared with the least time the GPU needs"
	@echo "make faults   inject faults: kills, full disks, limits, damaged files, signals (10 minutes; QUICK=1: two; Linux)"
	@echo "make docs     the documentation, in docs/_build/html; warnings are errors"
	@echo "make paper    the experiments of the paper: figures, tables, docs/paper.md (an hour; QUICK=1: a few minutes, in paper-output)"
	@echo "make trust    predictions and their uncertainty on real data, compared with other tools: docs/trust.md (own environment; hours, rerun to resume; ARGS='--masks 1 --minutes 30': part of it; QUICK=1: a small part of everything, in trust-output)"
	@echo "make bench    pltf and other tools on the same problems (own environment)"
	@echo "make compare BASE=HEAD~1   benchmarks of a commit and of the working tree, side by side (own environment)"
	@echo "make scaling  time and memory of pltf as the number of non-zeros grows (own environment)"
	@echo "make clean    remove environments and caches"

demo: $(VENV)/.run
	$(VENV)/bin/python examples/demo.py

test: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/python $(PYTEST) $(ARGS)

# Indirect dependencies warn about such old versions; that is not about pltf.
test-lowest: $(LOWEST)/.test
	PLTF_TEST_WITHOUT_TORCH=1 $(LOWEST)/bin/python $(PYTEST) -W ignore::DeprecationWarning -W ignore::FutureWarning --ignore tests/report/test_browser.py $(if $(QUICK),$(SHORT)) $(ARGS)

test-minimal: $(MINIMAL)/.test
	PLTF_TEST_MINIMAL=1 $(MINIMAL)/bin/python $(PYTEST) $(if $(QUICK),$(SHORT)) $(ARGS)

# For systems without builds of PyTorch and Triton.
test-portable: $(VENV)/.plain
	PLTF_TEST_WITHOUT_TORCH=1 $(VENV_BIN)/python $(PYTEST) --ignore tests/report/test_browser.py $(ARGS)

coverage: $(VENV)/.dev
	$(VENV)/bin/python $(PYTEST) --cov --cov-report=term:skip-covered --cov-report=html $(ARGS)

mutants: $(VENV)/.dev
	$(VENV)/bin/python -m tests.mutants $(ARGS)

release-check:
	PYTHON=$(PYTHON) .ci/release

faults: $(VENV)/.dev
	$(VENV)/bin/python -m faults $(if $(QUICK),--quick) $(ARGS)

docs: $(VENV)/.dev
	$(VENV)/bin/sphinx-build -W --keep-going -q -b html docs docs/_build/html

paper: $(VENV)/.run
	$(VENV)/bin/python -m experiments $(if $(QUICK),--quick) $(ARGS)

trust: $(TRUST)/.trust
	$(TRUST)/bin/python -m experiments.trust $(if $(QUICK),--quick) $(ARGS)

bench: $(BENCH)/.bench
	$(BENCH)/bin/python -m benchmarks $(ARGS)
	$(if $(ARGS),,$(BENCH)/bin/python -m benchmarks.convergence)

# On a machine with CUDA, with its own PyTorch and Triton; tests that need another missing package are skipped.
test-gpu:
	PLTF_TEST_GPU=1 PYTHONPATH=src$(if $(PYTHONPATH),:$(PYTHONPATH)) $(PYTHON) -m pytest -p no:cacheprovider --continue-on-collection-errors $(or $(ARGS),tests/test_devices.py tests/test_copies_on_device.py tests/contract tests/engines/torch tests/inference/test_golden.py tests/inference/test_entry_kernels.py tests/inference/test_recording.py tests/inference/test_graphs.py tests/inference/test_batch.py tests/prediction/test_on_device.py tests/cli/test_devices.py tests/data/test_on_device.py tests/test_data_on_device.py)

bench-gpu:
	PYTHONPATH=src$(if $(PYTHONPATH),:$(PYTHONPATH)) $(PYTHON) -m benchmarks.gpu $(ARGS)

compare: $(BENCH)/.bench
	$(BENCH)/bin/python -m benchmarks.compare $(BASE) $(ARGS)

scaling: $(BENCH)/.bench
	$(BENCH)/bin/python -m benchmarks.scaling $(ARGS)

# Refuses a Python that is too old before anything is created.
define environment
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.exit(0 if sys.version_info >= (3, 11) else f"pltf needs Python 3.11 or later, and $(PYTHON) is {v}: name another one, as in make demo PYTHON=python3.12")'
	@test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
endef

$(VENV)/.run: pyproject.toml
	$(call environment,$(VENV))
	$(VENV)/bin/python $(PIP) --editable '.[all]'
	touch $@

$(VENV)/.dev: pyproject.toml
	$(call environment,$(VENV))
	$(VENV)/bin/python $(PIP) $(TORCH)
	$(VENV)/bin/python $(PIP) --editable '.[dev]'
	touch $@ $(VENV)/.run

$(VENV)/.plain: pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.exit(0 if sys.version_info >= (3, 11) else f"pltf needs Python 3.11 or later, and $(PYTHON) is {v}")'
	test -d $(VENV_BIN) || $(PYTHON) -m venv $(VENV)
	$(VENV_BIN)/python $(PIP) --editable '.[test-all]'
	touch $@

$(LOWEST)/.test: pyproject.toml .ci/lowest.py
	$(call environment,$(LOWEST))
	$(PYTHON) .ci/lowest.py > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python $(PIP) --constraint $(LOWEST)/constraints.txt --editable '.[test-all]'
	touch $@

$(MINIMAL)/.test: pyproject.toml
	$(call environment,$(MINIMAL))
	$(MINIMAL)/bin/python $(PIP) --editable '.[test]'
	touch $@

$(BENCH)/.bench: pyproject.toml benchmarks/requirements.txt
	$(call environment,$(BENCH))
	$(BENCH)/bin/python $(PIP) --requirement benchmarks/requirements.txt --editable '.[all]'
	$(BENCH)/bin/python $(PIP) hpfrec || echo "hpfrec cannot be built here (it needs a C compiler): its rows will say so"
	touch $@

$(TRUST)/.trust: pyproject.toml experiments/trust/requirements.txt
	$(call environment,$(TRUST))
	$(TRUST)/bin/python $(PIP) --requirement experiments/trust/requirements.txt --editable '.[all]'
	$(TRUST)/bin/python $(PIP) hpfrec || echo "hpfrec cannot be built here (it needs a C compiler): the page will say so"
	touch $@

clean:
	rm -rf dist htmlcov .coverage $(VENV) $(BENCH) $(TRUST) $(LOWEST) $(MINIMAL) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis demo-output pltf-demo paper-output trust-output docs/_build docs/gallery
