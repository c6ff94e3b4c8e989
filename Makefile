# make test   lint, types and tests in a fresh environment
# make test-processes   the slow tests: federations of real processes that are killed, kernels compiled, a table rehearsed
# make test-extras   the tests of what needs larger packages: W&B, MLflow, TensorBoard, ONNX, notebooks, Hugging Face,
#                    the documentation's site
# make package        wheel and sdist in dist/, checked; the wheel is installed in a fresh environment and makes a run
# make sbom           a software bill of materials of a site's installation, as CycloneDX JSON in build/
# make test-pythons   some 600 tests of the wheel with each of PYTHONS
# make test-lowest    the same tests with the lowest versions that pyproject.toml allows
# make fuzz   10,000 damaged and forged files and messages against every reader of foreign input
# make campaign   half an hour of kills, stalls, sleeps, starved processors, wrong clocks and garbage against real processes
# make docs   the documentation as a site, in build/site
# make reference   the pages generated from the code: commands, configuration, layouts; words for shell completion
# make demo   the first run: FedOTP and its rivals on a small federation, nothing downloaded but packages
# make constraints                    pins what pyproject.toml asks for and constraints.txt does not have yet
# make constraints UPGRADE=--upgrade  moves every pin to the newest version
VENV   ?= .venv
PYTHON ?= python3
PYTHONS ?= python3.11 python3.12 python3.13
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEMO   := $(VENV)/.demo
DOCS   := $(VENV)/.docs
EXTRAS := $(VENV)/.extras
RELEASE := $(VENV)/.release
UV     ?= $(BIN)/uv
PINNED := -c constraints.txt
PIP    := $(BIN)/python -m pip install --quiet

.PHONY: install constraints lint types unit test test-processes test-extras test-pythons test-lowest docs reference fuzz \
    campaign demo bench dist package sbom format clean

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
	    --python-version 3.11.4 --all-extras --group release --annotation-style=line $(UPGRADE) \
	    --output-file constraints.txt pyproject.toml -
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

# The validator of Kubernetes' manifests without its dependencies, which the environment has or it does not need.
$(EXTRAS): $(STAMP) Makefile
	$(PIP) $(PINNED) --build-constraint constraints.txt -e '.[dev,docs,hf,mlflow,notebook,onnx,tensorboard,wandb]'
	$(PIP) --no-deps kubernetes-validate==1.37.0 importlib-resources==7.1.0
	touch $@

test-extras: $(EXTRAS)
	$(BIN)/python -m pytest tests/extras tests/data/test_csv_tables.py tests/test_site.py

# Tests that take half a minute: those of every installation, and those of the extra `site`.
CORE_TESTS := $(addprefix tests/,test_files.py cli/test_help.py cli/test_complete.py config clip/test_mini.py ot/test_solve.py \
    data/test_folder.py runs/test_run.py report/test_page_cli.py)
SITE_TESTS := $(addprefix tests/,data/test_dicom.py data/test_decoders.py flower/test_keys.py flower/test_secure_sites.py \
    flower/test_agreement.py privacy/test_account.py cli/test_real_sites_cli.py cli/test_medical_cli.py)
# -I: fedotp is the wheel's, even if PYTHONPATH contains src.
PYTEST := bin/python -I -m pytest -q -m 'not processes'
TESTERS := hypothesis pytest pytest-timeout
VERSION := $(shell sed -nE 's/^__version__ = "(.*)"/\1/p' src/fedotp/__init__.py)
WHEEL := dist/fedotp-$(VERSION)-py3-none-any.whl

$(RELEASE): pyproject.toml $(VENV)/.pip
	$(PIP) $(PINNED) --group release
	touch $@

dist: $(RELEASE)
	rm -rf dist
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m build

package: dist
	grep -q '^version: $(VERSION:.dev0=)$$' CITATION.cff && grep -q '^## $(VERSION:.dev0=) ' CHANGELOG.md
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents $(WHEEL)
	$(PYTHON) -m venv --clear build/package
	$(BIN)/pip --python build/package install --quiet $(PINNED) $(WHEEL)
	build/package/bin/fedotp --version
	build/package/bin/fedotp run demo --quiet --set federation.rounds=1 --set partition.shots=8 --out build/package/run

sbom: dist
	$(PYTHON) -m venv --clear --without-pip build/sbom
	$(BIN)/pip --python build/sbom install --quiet $(PINNED) '$(WHEEL)[site]'
	$(BIN)/cyclonedx-py environment --output-file build/fedotp-$(VERSION).cdx.json build/sbom

test-pythons: dist
	for python in $(PYTHONS); do \
	    $$python -m venv --clear build/python && \
	    $(BIN)/pip --python build/python install --quiet $(PINNED) '$(WHEEL)[report,site]' $(TESTERS) && \
	    build/python/$(PYTEST) $(CORE_TESTS) $(SITE_TESTS) || exit; \
	done

# The lowest versions of direct dependencies, torch too (without UV_TORCH_BACKEND=cpu it is CUDA's build, 3 GB); old packages
# give warnings that the pinned ones do not. In the last two lines rich is older than Flower permits, and click is typer's.
INSTALL := $(UV) pip install --quiet --python build/lowest
test-lowest: dist
	$(PYTHON) -m venv --clear build/lowest
	$(INSTALL) --resolution lowest-direct -r pyproject.toml --extra report --extra site
	$(INSTALL) --no-deps $(WHEEL)
	$(INSTALL) $(PINNED) $(TESTERS)
	build/lowest/$(PYTEST) -W ignore $(CORE_TESTS) $(SITE_TESTS)
	$(INSTALL) --no-deps click==8.0.0 $(shell sed -nE 's/.*"(rich)>=([0-9.]+)".*/\1==\2/p' pyproject.toml)
	build/lowest/$(PYTEST) -W ignore tests/cli/test_help.py tests/cli/test_complete.py

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
