# make test   lint, types and tests in a fresh environment
# make demo   the first run: FedOTP and its rivals on a small federation, nothing downloaded but packages
VENV   ?= .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEMO   := $(VENV)/.demo

.PHONY: install lint types unit test demo bench format clean

install: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	touch $(STAMP)

$(DEMO): pyproject.toml
	test -e $(STAMP) || ($(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet -e '.[report]')
	touch $(DEMO)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

unit: install
	$(BIN)/python -m pytest -n auto --dist worksteal

test: lint types unit

demo: $(DEMO)
	$(BIN)/fedotp demo

bench: install
	$(BIN)/python -m bench

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build dist
