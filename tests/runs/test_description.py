"""What a run is, without the code of its method: the same as its configuration says, or its refusal."""

import json
from pathlib import Path

import pytest
from toy_run import make_config

import fedotp
from fedotp.config import Config, known_keys, known_methods
from fedotp.methods import METHODS
from fedotp.runs.directory import RunDirectory
from fedotp.runs.directory._provenance import Description, describe


@pytest.fixture(scope="module")
def made(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = make_config(inputs, federation={"rounds": 1}, partition={"shots": 2})
    return fedotp.run(config, tmp_path_factory.mktemp("described") / "run").path


def fresh(made: Path, folder: Path) -> RunDirectory:
    """Its configuration and manifest, to be changed."""
    folder.mkdir()
    for name in ("config.toml", "manifest.json"):
        (folder / name).write_text((made / name).read_text())
    return RunDirectory(folder)


def by_files(run: RunDirectory) -> Description | None:
    return describe(run.manifest, (run.path / "config.toml").read_text())


def plain(found: Description) -> object:
    return json.loads(json.dumps([found.title, found.reference, found.tables]))


def test_files_say_what_the_configuration_says(made: Path) -> None:
    found = by_files(RunDirectory(made))
    assert found is not None
    assert plain(found) == plain(Description.of(Config.read(made / "config.toml")))


def test_where_things_are_may_be_edited(made: Path, tmp_path: Path) -> None:
    run = fresh(made, tmp_path / "run")
    path = run.path / "config.toml"
    path.write_text(path.read_text().replace('device = "cpu"\n', 'device = "auto"\n'))
    assert by_files(run) is None
    assert run.description.tables["compute"]["device"] == "auto"


def test_words_are_those_of_the_methods() -> None:
    ours = {name: method.title for name, method in METHODS.items() if method.__module__.startswith("fedotp.")}
    assert known_methods() == ours
    for name in ours:
        tables = Config.preset("demo").override([f"method.name={name}"]).to_dict()
        keys = {f"{key}.{inner}" for key, table in tables.items() if isinstance(table, dict) for inner in table}
        assert known_keys(name).keys() == keys | {"seed"}
