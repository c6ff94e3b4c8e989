"""What a run is, without the code of its method: the same as its configuration says, or its refusal."""

import json

from fedotp.config import Config, known_keys, known_methods
from fedotp.methods import METHODS
from fedotp.runs.directory import RunDirectory
from fedotp.runs.directory._provenance import Description, describe


def plain(found: Description) -> object:
    return json.loads(json.dumps([found.title, found.reference, found.tables]))


def test_files_say_what_the_configuration_says(complete: RunDirectory) -> None:
    text = (complete.path / "config.toml").read_text()
    found = describe(complete.manifest, text)
    assert found is not None
    assert plain(found) == plain(Description.of(complete.config))
    assert describe(complete.manifest, text.replace('device = "cpu"\n', 'device = "auto"\n')) is None  # edited


def test_words_are_those_of_the_methods() -> None:
    ours = {name: method.title for name, method in METHODS.items() if method.__module__.startswith("fedotp.")}
    assert known_methods() == ours
    for name in ours:
        tables = Config.preset("demo").override([f"method.name={name}"]).to_dict()
        keys = {f"{key}.{inner}" for key, table in tables.items() if isinstance(table, dict) for inner in table}
        assert known_keys(name).keys() == keys | {"seed"}
