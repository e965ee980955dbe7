# Two commands on a machine with Python >= 3.11 and make: `make run` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# The job of `make run`; by default on data found on every machine.
INPUT ?= out/stdlib-identifiers.tsv
OUTPUT ?= out/released
FORMAT ?= tsv
EPSILON ?= 1
DELTA ?= 1e-5
MAX_DEGREE ?= 100
ALGORITHM ?= pooled_gaussian
ARGS ?=

.PHONY: run test test-slow lint format clean

run: $(VENV)/installed $(filter out/stdlib-identifiers.tsv,$(INPUT))
	$(BIN)/python -m pipelines.partition_selection --input '$(INPUT)' --input_format $(FORMAT) \
		--output '$(OUTPUT)' --report '$(OUTPUT).json' --epsilon $(EPSILON) --delta $(DELTA) \
		--max_degree $(MAX_DEGREE) --algorithm $(ALGORITHM) $(ARGS)

out/stdlib-identifiers.tsv: $(VENV)/installed
	mkdir -p out
	$(BIN)/python -m examples.stdlib_identifiers $@

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n 2 -m "not slow" $(ARGS)

test-slow: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n 2 -m slow $(ARGS)

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) out build dist *.egg-info

$(VENV)/installed: setup.py
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -e .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	touch $@
