# make test   lint, types and tests in a fresh environment
# make test-processes   the slow tests: federations of real processes that are killed, kernels compiled, a table rehearsed
# make test-extras   the tests of what needs larger packages: W&B, MLflow, TensorBoard, ONNX, notebooks, Hugging Face's and
#                    Flower's data sets, the documentation's site
# make test-lowest   the help of all commands with the oldest typer, click and rich that are allowed
# make fuzz   10,000 damaged and forged files and messages against every reader of foreign input
# make campaign   half an hour of kills, stalls, sleeps, starved processors, wrong clocks and garbage against real processes
# make docs   the documentation as a site, in build/site
# make reference   the pages generated from the code: commands, configuration, layouts; words for shell completion
# make demo   the first run: FedOTP and its rivals on a small federation, nothing downloaded but packages
# make constraints                    pins what pyproject.toml asks for and constraints.txt does not have yet
# make constraints UPGRADE=--upgrade  moves every pin to the newest version
VENV   ?= .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEMO   := $(VENV)/.demo
DOCS   := $(VENV)/.docs
EXTRAS := $(VENV)/.extras
UV     ?= $(BIN)/uv
PINNED := -c constraints.txt
PIP    := $(BIN)/python -m pip install --quiet

.PHONY: install constraints lint types unit test test-processes test-extras test-lowest docs reference fuzz campaign \
    demo bench format clean

install: $(STAMP)

# What is installed here, and what builds it, has the versions in constraints.txt; `pip install fedotp` is free to choose.
$(VENV)/.pip: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(PINNED) --upgrade pip
	touch $@

$(STAMP): pyproject.toml $(VENV)/.pip
	$(PIP) $(PINNED) --build-constraint constraints.txt -e '.[dev]'
	touch $@

$(DEMO): pyproject.toml $(VENV)/.pip
	test -e $(STAMP) || $(PIP) $(PINNED) --build-constraint constraints.txt -e '.[report]'
	touch $@

$(DOCS): pyproject.toml $(VENV)/.pip
	$(PIP) $(PINNED) --build-constraint constraints.txt -e '.[docs]'
	touch $@

# For all platforms and Pythons at once. Packages of CUDA are left out: torch pins its own, another set for each CUDA.
constraints:
	printf 'pip\neditables\n' | UV_CUSTOM_COMPILE_COMMAND='make constraints' $(UV) pip compile --quiet --universal \
	    --python-version 3.11.4 --all-extras --annotation-style=line $(UPGRADE) --output-file constraints.txt pyproject.toml -
	grep -Ev '^(nvidia|cuda)-' constraints.txt > constraints.new && mv constraints.new constraints.txt

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

unit: install
	$(BIN)/python -m pytest -n auto --dist worksteal -m 'not processes' --durations=40

test: lint types unit

test-processes: install
	$(BIN)/python -m pytest -n auto --dist worksteal -m processes --durations=10

# Of Flower Datasets only itself: it asks for older versions of what its partitioners do not need.
$(EXTRAS): $(STAMP) Makefile
	$(PIP) $(PINNED) --build-constraint constraints.txt -e '.[dev,docs,hf,mlflow,notebook,onnx,tensorboard,wandb]'
	$(PIP) --no-deps flwr-datasets==0.6.1 seaborn==0.13.2
	touch $@

test-extras: $(EXTRAS)
	$(BIN)/python -m pytest tests/extras tests/data/test_csv_tables.py tests/test_site.py

# The floors of pyproject.toml; that of click is typer's.
LOWEST := $(shell sed -nE 's/^ *"(typer|rich)>=([0-9.]+)",.*/\1==\2/p' pyproject.toml) click==8.0.0
test-lowest: install
	rm -rf build/lowest
	$(PIP) --no-deps --target build/lowest $(LOWEST)
	PYTHONPATH=build/lowest $(BIN)/python -m pytest tests/cli/test_help.py tests/cli/test_complete.py

# Whatever is a warning ends it. The variable silences the theme's own advertisement.
docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=website $(BIN)/mkdocs build --strict --config-file website/mkdocs.yml

reference: install
	$(BIN)/python website/reference.py

fuzz: install
	PYTHONPATH=tests $(BIN)/python -m fuzz --cases 10000

demo: $(DEMO)
	$(BIN)/fedotp demo

campaign: install
	PYTHONPATH=.:tests:tests/flower $(BIN)/python -m campaign --save docs/trust/campaign.json

bench: install
	$(BIN)/python -m bench

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build dist
