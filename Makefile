# make demo    train a patch forest and a random forest on handwritten digits, print a table
# make test    the short test suite, with the examples of all docstrings, in up to four processes
# make test-all    the slow tests, too
# make coverage    the short suite; the share of lines and branches that it runs, at least 95 %
# make sanitize    tests with the address and undefined behaviour sanitizers of gcc in every kernel
# make fuzz    load damaged models for a minute; FUZZ_ARGS="--seconds 600 --seed 1", or "--guided"
# make mutants    the short suite against seeded faults; MUTANTS="co2 onnx" takes those of such names
# make guides    the worked examples of docs/extending; GUIDES="loss" takes those of such names
# make docs | notebooks | lint | bench | clean
#
# Each needs Python >= 3.11, a C compiler and make; the first call creates .venv and builds.
# Variables: PYTHON, VENV, PYTEST_ARGS="-k forest", BENCH=measure.manifold, BENCH_ARGS="--data FOLDER".

NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(firstword $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$p; done) python3)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
export PIP_QUIET ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK ?= 1
# The modules of tests are compiled once, not in every process and run.
unexport PYTHONDONTWRITEBYTECODE

KERNELS := $(wildcard $(foreach ext,pyx pxd h,skforest/*.$(ext) skforest/_kernels/*/*.$(ext)))
NOTEBOOKS := $(wildcard notebooks/*.ipynb)
BENCH ?= measure.manifold
# Both builds share what they read, so that it is read once.
SPHINX_ARGS = -q -W --keep-going -d docs/_build/doctrees
# PyTorch for tests, documentation and notebooks; empty: they run without skforest.torch.
TORCH ?= torch==2.13.0

.PHONY: demo test test-all coverage sanitize fuzz mutants guides build docs notebooks lint bench clean
.DEFAULT_GOAL := test

demo: build $(VENV)/.extra-plot
	$(BIN)/python benchmarks/demo.py

# One thread for BLAS, OpenMP and PyTorch each: every process of pytest has a core.
test: build $(VENV)/.extra-test $(VENV)/.extra-torch
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal $(PYTEST_ARGS)

test-all:
	$(MAKE) test PYTEST_ARGS='-m "slow or not slow" $(PYTEST_ARGS)'

coverage: build $(VENV)/.extra-test $(VENV)/.extra-torch
	$(PIP) install pytest-cov
	$(MAKE) test PYTEST_ARGS='--cov --cov-report=term $(PYTEST_ARGS)'

# Outside the source tree, whose kernels have no sanitizers. PyTorch does not run with them.
sanitize: build $(VENV)/.extra-test
	SKFOREST_SANITIZE=1 $(BIN)/python setup.py --quiet build
	rm -rf build/sanitized && mkdir -p build/sanitized && cp -r tests pyproject.toml build/sanitized
	cd build/sanitized && PYTHONPATH="$$(echo $(CURDIR)/build/release-sanitize/lib-*)" \
		LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" \
		ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc \
		$(abspath $(BIN))/python -m pytest -n auto --maxprocesses 4 --ignore tests/test_architecture.py \
		--ignore-glob 'tests/use/test_torch*' $(PYTEST_ARGS)

fuzz: build $(VENV)/.extra-test
	$(BIN)/python tests/fuzz.py $(FUZZ_ARGS)

mutants: build $(VENV)/.extra-test $(VENV)/.extra-torch
	$(BIN)/python tests/mutants/run.py $(MUTANTS)

guides: build $(VENV)/.extra-test $(VENV)/.extra-torch
	$(BIN)/python tests/guides/run.py $(GUIDES)

docs: build $(VENV)/.extra-docs $(VENV)/.extra-torch
	$(BIN)/python -m sphinx $(SPHINX_ARGS) -b html docs docs/_build/html
	$(BIN)/python -m sphinx $(SPHINX_ARGS) -b doctest docs docs/_build/doctest

# Executed copies go to build/; CONTRIBUTING.md says how to store a notebook with its outputs.
notebooks: build $(VENV)/.extra-test $(VENV)/.extra-bench $(VENV)/.extra-torch
	$(BIN)/python .ci/check_notebooks.py $(NOTEBOOKS)
	$(BIN)/python -m nbconvert --log-level WARN --to notebook --execute \
		--output-dir build/notebooks $(NOTEBOOKS)

lint: $(VENV)/.extra-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PATH="$(abspath $(BIN)):$$PATH" cython-lint $(filter %.pyx %.pxd,$(KERNELS))

bench: build $(VENV)/.extra-plot $(VENV)/.extra-bench
	$(BIN)/python -m benchmarks.$(BENCH) $(BENCH_ARGS)

clean:
	rm -rf $(VENV) build dist *.egg-info docs/_build docs/auto_examples docs/notebooks docs/performance skforest/*.so skforest/*.pyd skforest/_kernels/*/*.so skforest/_kernels/*/*.pyd
	rm -rf .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

build: $(VENV)/.built

$(VENV)/.created:
	@$(PYTHON) -c '$(NEW_ENOUGH)' || { echo "$(PYTHON) is not Python >= 3.11: make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python .ci/requirements.py build | $(PIP) install -r /dev/stdin
	@touch $@

# An editable install compiles everything, in parallel. If it is newer than the metadata, only
# kernels have changed, and the in-place build compiles those alone.
$(VENV)/.built: $(VENV)/.created pyproject.toml setup.py $(KERNELS)
	@if [ $(VENV)/.installed -nt pyproject.toml ] && [ $(VENV)/.installed -nt setup.py ]; then \
		echo "compiling what changed"; $(BIN)/python setup.py --quiet build_ext --inplace; \
	else \
		echo "installing skforest into $(VENV)"; \
		$(PIP) install --no-build-isolation --editable . && touch $(VENV)/.installed; \
	fi
	@touch $@

$(VENV)/.extra-torch: $(VENV)/.created Makefile
	$(if $(TORCH),$(PIP) install "$(TORCH)" && touch $@)

$(VENV)/.extra-%: $(VENV)/.created pyproject.toml
	$(BIN)/python .ci/requirements.py $* | $(PIP) install -r /dev/stdin
	@touch $@
