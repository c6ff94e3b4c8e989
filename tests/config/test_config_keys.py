"""What the keys of a configuration mean."""

import tomllib

import pytest

from fedotp.config import Config, explained, flatten, keys_of, presets
from fedotp.config._keys import sections
from fedotp.methods import METHODS

OURS = [name for name, method in METHODS.items() if method.__module__.startswith("fedotp.")]  # tests add their own


@pytest.mark.parametrize("name", OURS)
def test_every_key_says_what_it_means(name: str) -> None:
    config = Config.preset("demo").override([f"method.name={name}"])
    keys = keys_of(type(config.method))
    assert [key.name for key in keys] == list(flatten(config))
    for key in keys:
        assert len(key.meaning) > 10, f"{key.name} is not under Attributes: in the docstring of its section"
        assert key.line
        assert "\n" not in key.line


def test_sections_say_what_they_are_about() -> None:
    assert list(sections()) == [
        key for key, value in Config.preset("demo").to_dict().items() if isinstance(value, dict)
    ]
    assert all(len(meaning) > 10 for meaning in sections().values())


@pytest.mark.parametrize("name", presets())
def test_an_explained_configuration_reads_back_equal(name: str) -> None:
    config = Config.preset(name)
    assert Config.from_dict(tomllib.loads(explained(config))) == config
