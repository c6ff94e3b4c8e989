"""What comes from others: packages, pinned versions, vendored files, and the terms they are under."""

import ast
import functools
import hashlib
import re
import shutil
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from own_process import python

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
FOR_DEVELOPERS = {"dev", "recipes"}
TOP_LEVEL = metadata.packages_distributions()
OURS = {
    "hatch_build",
    "bench",
    "pfl",  # in an environment of its own (bench/race/README.md)
    "recipes",
    "tests",
    *(path.stem for at in ("tests", "examples", "website") for path in (ROOT / at).rglob("*")),
}
INSTALLED = {canonicalize_name(name) for names in TOP_LEVEL.values() for name in names}
OF_CUDA = ("nvidia-", "cuda-")
OTHERWISE_NAMED = {"mlflow": "mlflow-skinny"}  # modules of packages that may not be installed here
BY_TORCH = {"triton"}  # torch brings it to the machines whose GPUs it drives; elsewhere fedotp does without


def declared(extras: set[str]) -> list[Requirement]:
    lines = [*PROJECT["dependencies"], *(line for extra in sorted(extras) for line in EXTRAS[extra])]
    return [Requirement(line) for line in lines]


def imported(tree: ast.AST) -> Iterator[str]:
    """Modules that a file imports, also inside functions and with `import_module("name")`."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names)
            case ast.ImportFrom(module=str(module), level=0, names=names):
                yield from (f"{module}.{name.name}" for name in names)
            case ast.Call(
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield module


def undeclared(folder: str, extras: set[str]) -> set[str]:
    """Third-party modules that files below `folder` import, and no requirement of fedotp or of `extras` brings."""
    names = {canonicalize_name(requirement.name) for requirement in declared(extras)}
    own = {"fedotp"} if folder == "src" else {"fedotp", *(OURS - TOP_LEVEL.keys())}
    missing = set()
    for path in sorted((ROOT / folder).rglob("*.py")):
        for module in imported(ast.parse(path.read_text())):
            top = module.partition(".")[0]
            if top not in sys.stdlib_module_names and top not in own and not brought_by(module) & names:
                missing.add(f"{path.relative_to(ROOT)}: {module}")
    return missing


@functools.cache
def brought_by(module: str) -> set[str]:
    """The distributions that have a module; where none is installed, its own name has to do."""
    top, _, rest = module.partition(".")
    found = TOP_LEVEL.get(top, [OTHERWISE_NAMED.get(top, top)])
    if len(set(found)) > 1:  # a namespace, such as `google`
        folder = f"{top}/{rest.partition('.')[0]}/"
        found = [name for name in found if any(str(file).startswith(folder) for file in metadata.files(name) or [])]
    return {canonicalize_name(name) for name in found}


def test_what_the_package_imports_is_declared_for_its_users() -> None:
    """Not only in `dev`: what a user installs must not depend on what others happen to bring."""
    missing = undeclared("src", EXTRAS.keys() - FOR_DEVELOPERS)
    assert {line for line in missing if line.rpartition(": ")[2].partition(".")[0] not in BY_TORCH} == set()


@pytest.mark.parametrize("folder", ["tests", "bench", "recipes", "examples", "website"])
def test_what_a_checkout_imports_is_declared(folder: str) -> None:
    assert undeclared(folder, set(EXTRAS)) == set()


def pin_lines() -> list[tuple[Requirement, set[str]]]:
    """Every pin, and the packages that require it: `name==version  # via others`."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line[:1] != "#"]
    parts = [line.partition("# via ") for line in lines]
    return [(Requirement(pin), {name.split()[0] for name in via.split(", ") if name}) for pin, _, via in parts]


def pins() -> list[Requirement]:
    return [pin for pin, _ in pin_lines()]


def test_every_pin_is_required() -> None:
    """By fedotp or by another pin, or the Makefile asks for it; the metadata of what is installed agree."""
    names = {pin.name for pin, _ in pin_lines()} | {"fedotp"}
    (by_makefile,) = re.findall(r"printf '(.*)' \| UV_", (ROOT / "Makefile").read_text())
    checked = 0
    for pin, parents in pin_lines():
        assert parents or pin.name in by_makefile.split("\\n"), f"nothing requires {pin}: make constraints"
        assert {name for name in parents if not name.startswith(OF_CUDA)} <= names
        for parent in (parents & INSTALLED) - {"fedotp"}:
            required = {canonicalize_name(Requirement(line).name) for line in metadata.requires(parent) or []}
            assert pin.name in required | BY_TORCH, f"{parent} does not require {pin}: make constraints"
            checked += 1
    assert checked > 100


def test_whatever_an_installation_brings_is_pinned() -> None:
    """All that is reachable from what is declared, as far as it is installed here; `make constraints` adds the rest."""
    pinned = {canonicalize_name(pin.name) for pin in pins()} | {"fedotp"}
    seen: set[tuple[str, str]] = set()
    waiting = [(requirement, "") for requirement in declared(set(EXTRAS))]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        assert name in pinned or name.startswith(OF_CUDA), f"{name} is not in constraints.txt: make constraints"
        for wanted in {"", *requirement.extras}:
            if name != "fedotp" and (name, wanted) not in seen and name in INSTALLED:
                seen.add((name, wanted))
                waiting += [(Requirement(line), wanted) for line in metadata.requires(name) or []]
    assert len(seen) > 50


def test_pins_are_exact_and_agree_with_what_is_declared() -> None:
    assert all([specifier.operator for specifier in pin.specifier] == ["=="] for pin in pins())
    assert not any(pin.name.startswith(OF_CUDA) for pin in pins())  # torch has others for every CUDA
    assert not any("+" in str(pin.specifier) for pin in pins())  # builds of one index, such as torch's +cpu
    versions: dict[str, list[str]] = {}
    for pin in pins():
        versions.setdefault(canonicalize_name(pin.name), []).append(next(iter(pin.specifier)).version)
    for requirement in declared(set(EXTRAS)):
        for version in versions.get(canonicalize_name(requirement.name), []):
            assert requirement.specifier.contains(version, prereleases=True), f"{requirement} and {version}"


def test_the_image_is_built_with_the_pins() -> None:
    lines = (ROOT / "deploy" / "Dockerfile").read_text().splitlines()
    installs = [line for line in lines if "pip install" in line]
    assert len(installs) == 3
    assert all("-c constraints.txt" in line for line in installs)


def test_vendored_code_is_what_its_makers_published() -> None:
    """NOTICE says from which package it came, and its digest."""
    notice = " ".join((ROOT / "NOTICE").read_text().split())
    vendored = re.search(r"(\S+/echarts\.min\.js): .*npm `echarts` ([\d.]+), SHA-256 ([0-9a-f]{64})", notice)
    assert vendored is not None
    code = (ROOT / vendored[1]).read_bytes()
    assert hashlib.sha256(code).hexdigest() == vendored[3]
    assert f'version="{vendored[2]}"'.encode() in code
    shim = re.search(r"(\S+/shim\.js): .*npm `iframe-worker` [\d.]+, SHA-256 ([0-9a-f]{64})", notice)
    assert shim is not None
    assert hashlib.sha256((ROOT / shim[1]).read_bytes()).hexdigest() == shim[2]
    vocabulary = (
        ROOT / "src/fedotp/clip/bpe_simple_vocab_16e6.txt.gz"
    ).read_bytes()  # OpenAI's, as in their repository
    expected = "924691ac288e54409236115652ad4aa250f48203de50a9e4722a6ecd48d6804a"
    assert hashlib.sha256(vocabulary).hexdigest() == expected


def test_the_weights_of_mini_have_terms_of_their_own() -> None:
    terms = (ROOT / "src/fedotp/clip/mini.LICENSE.txt").read_text()
    card = (ROOT / "docs" / "mini.md").read_text()
    material = re.search(r"## Training material\n(.*?)\nNone", card, re.DOTALL)
    assert material is not None
    rows = re.findall(r"^\| ([^|]+?) \|", material[1], re.MULTILINE)[2:]
    names = [name.split(" (")[0] for row in rows for name in re.split(r", (?=[A-Z])|\) and (?=[A-Z])", row)]
    assert len(names) > 15
    assert [name for name in names if name.split(",")[0].split()[0] not in terms] == []
    readme = (ROOT / "README.md").read_text()
    assert "(src/fedotp/clip/mini.LICENSE.txt)" in readme
    assert "The weights of `mini` are not" in readme


def test_a_wheel_has_all_licences(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    checkout = tmp_path / "fedotp"
    large = shutil.ignore_patterns("__pycache__", "*.safetensors", "*.zip")
    shutil.copytree(ROOT / "src", checkout / "src", ignore=large)
    (checkout / "src/fedotp/clip/mini.safetensors").touch()
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, checkout)
    python("-m", "hatchling", "build", "-t", "wheel", cwd=checkout)
    with zipfile.ZipFile(next((checkout / "dist").glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
        metadata_file = next(name for name in names if name.endswith(".dist-info/METADATA"))
        facts = wheel.read(metadata_file).decode()
    texts = [
        "LICENSE",
        "NOTICE",
        "src/fedotp/clip/mini.LICENSE.txt",
        "src/fedotp/data/box/README.md",
        *(f"src/fedotp/data/box/licences/{path.name}" for path in (ROOT / "src/fedotp/data/box/licences").iterdir()),
        *(f"src/fedotp/report/page/vendor/{name}" for name in ("LICENSE", "LICENSE-d3", "NOTICE")),
    ]
    licences = metadata_file.replace("METADATA", "licenses/")
    assert {name.removeprefix(licences) for name in names if name.startswith(licences)} == set(texts)
    assert {"fedotp/clip/mini.LICENSE.txt", "fedotp/clip/mini.safetensors"} < names  # and beside the weights
    expression = re.search(r"^License-Expression: (.*)$", facts, re.MULTILINE)
    assert expression is not None
    assert {"Apache-2.0", "CC-BY-SA-4.0", "LicenseRef-fedotp-mini"} < set(expression[1].split(" AND "))
    assert "The weights of `mini` are not" in facts  # the README, on the package's page
