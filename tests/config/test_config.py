"""Configurations: defaults, reading, writing, what keys mean."""

import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from config_made import configs
from hypothesis import given, settings
from hypothesis import strategies as st

from fedotp._values import write_scalar, write_tables
from fedotp.config import BackboneSettings, Config, DataSettings, difference, explained, flatten, load_config, presets
from fedotp.config._keys import keys_of
from fedotp.config._schema import SECTIONS, all_kinds, bare_kind, kinds_of
from fedotp.data.partition import PartitionSettings
from fedotp.methods import METHODS, FedOTP, PromptSettings

PETS = Config(DataSettings("oxford_pets"))


@settings(max_examples=50)
@given(configs())
def test_a_configuration_reads_back_equal_and_has_every_key(config: Config) -> None:
    text = config.to_toml()
    assert Config.from_dict(tomllib.loads(text)) == config
    assert Config.from_dict(config.to_dict()) == config
    assert Config.from_dict(tomllib.loads(text)).to_toml() == Config.from_dict(config.to_dict()).to_toml()
    assert list(flatten(config)) == list(all_kinds(type(config.method)))
    assert list(config.to_dict()) == ["seed", *SECTIONS]


@given(st.text() | st.floats(allow_nan=False) | st.integers(-(2**63), 2**63 - 1) | st.booleans())
def test_scalars_are_written_as_toml(value: str | float | int | bool) -> None:
    text = write_scalar(value)
    (back,) = tomllib.loads(f"value = {text}").values()
    assert back == value
    assert type(back) is type(value)
    assert len(text.splitlines()) == 1 if text else True


def test_tables_come_after_scalars_and_none_is_left_out() -> None:
    assert write_tables({"t": {"a": 1, "b": None}, "x": None, "y": "é\t\x00\U0001f600\u2028"}) == (
        'y = "é\\t\\u0000😀\\u2028"\n\n[t]\na = 1\n'
    )


def test_what_toml_cannot_say_is_the_default() -> None:
    for cls in (*(cls for cls in SECTIONS.values()), *METHODS.values()):
        for item in fields(cls):
            optional = bare_kind(kinds_of(cls)[item.name])[1]
            assert not optional or item.default is None, f"{cls.__name__}.{item.name}"


def test_defaults_are_the_papers() -> None:
    config = Config.from_dict({"data": {"dataset": "oxford_pets"}})
    assert config == PETS
    assert config.partition == PartitionSettings("pathological")
    assert config.backbone == BackboneSettings("ViT-B/16")
    assert config.prompt == PromptSettings(n_ctx=16, position="end", std=0.02)
    assert config.method == FedOTP(n_shared=1, n_private=1, rule="unbalanced", reg=0.1, mass=0.8)
    assert (config.federation.rounds, config.federation.local_epochs, config.federation.batch_size) == (10, 5, 32)
    optimizer = config.resolved.optimizer
    assert (optimizer.name, optimizer.lr, config.evaluation.batch_size) == ("sgd", 0.001, 100)


def test_reading_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(b'\xef\xbb\xbf[data]\r\ndataset = "x"\r\n')  # as Windows editors write it
    assert Config.read(path) == load_config(str(path)) == load_config(path) == Config(DataSettings("x"))


def test_home_and_empty_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    data = DataSettings("~/mine", root="~/data", store="")
    assert (data.source, data.root_folder, data.store_folder) == (
        "/home/someone/mine",
        Path("/home/someone/data"),
        None,
    )
    assert DataSettings("x", store="tokens").store_folder == Path("tokens")
    assert BackboneSettings("~/clip.pt").source == "/home/someone/clip.pt"
    assert BackboneSettings().source == "ViT-B/16"


def test_difference() -> None:
    assert difference(PETS, PETS) == {}
    assert difference(PETS, PETS.override(["seed=3", "partition.shots=4"])) == {
        "seed": (0, 3),
        "partition.shots": (None, 4),
    }
    prox = PETS.override(["method.name=promptfl-fedprox"])
    changed = difference(PETS, prox)
    assert changed["method.name"] == ("fedotp", "promptfl-fedprox")
    assert changed["method.mass"] == (0.8, None)
    assert changed["method.mu"] == (None, 0.5)


# What keys mean --------------------------------------------------------------------------------------------------

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


@pytest.mark.parametrize("name", presets())
def test_an_explained_configuration_reads_back_equal(name: str) -> None:
    config = Config.preset(name)
    assert Config.from_dict(tomllib.loads(explained(config))) == config
