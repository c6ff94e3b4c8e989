# make test   lint, types and tests in a fresh environment
# make demo   the shortest run that shows what fedotp does
VENV   ?= .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: install lint types unit test demo bench format clean

install: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	touch $(STAMP)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

unit: install
	$(BIN)/python -m pytest -n auto --dist worksteal

test: lint types unit

demo: install
	$(BIN)/python examples/quickstart.py

bench: install
	$(BIN)/python -m bench

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build dist
