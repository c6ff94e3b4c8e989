"""`bridge = "authors"`: one word that becomes keys."""

import tomllib
from pathlib import Path

import pytest

from fedotp.config import Config, DataSettings, difference, load_config, presets
from fedotp.data import PartitionSettings
from fedotp.errors import FedotpError

ALWAYS = {
    "prompt.half": True,
    "federation.drop_last": True,
    "federation.first_round": "all",
    "optimizer.leak": True,
}
BASELINE = {
    "evaluation.of": "sampled",
    "optimizer.schedule": "cosine",
    "optimizer.warmup_rounds": 1,
    "optimizer.schedule_rounds": 40,
}
CASES = {
    "fewshot-pets": {
        "method.solver": "batch",
        "data.views": 50,
        "partition.variant": "authors",
        "partition.seed": 2023,
        "federation.batch_size": 16,
    },
    "cifar10": {"method.solver": "batch", "data.look": "cifar", "partition.variant": "authors"},
    "cifar100": {
        "method.solver": "batch",
        "data.look": "cifar",
        "partition.variant": "authors",
        "prompt.n_ctx": 4,
    },
    "office": {"method.solver": "batch", "data.views": 10, "data.names": "shuffled", "data.labels": "mispaired"},
    "office-domain": {"method.solver": "batch", "data.views": 10, "data.names": "shuffled"},
}


def _changed(before: Config, after: Config) -> dict[str, object]:
    return {key: value for key, (_, value) in difference(before, after).items()}


@pytest.mark.parametrize("preset", CASES)
def test_it_sets_what_the_authors_code_does_otherwise(preset: str) -> None:
    config = load_config(preset)
    assert _changed(config, config.override(["bridge=authors"])) == ALWAYS | CASES[preset]


@pytest.mark.parametrize("preset", presets())
def test_every_preset_can_be_bridged_and_the_word_is_not_kept(preset: str) -> None:
    config = load_config(preset).override(["bridge=authors"])
    assert "bridge" not in config.to_toml()
    assert Config.from_dict(tomllib.loads(config.to_toml())) == config
    assert config.override(["bridge=authors"]) == config


def test_baselines_have_their_own_schedule_and_tests() -> None:
    pets = Config(DataSettings("oxford_pets"), PartitionSettings("iid")).override(["method.name=promptfl-fedprox"])
    changed = _changed(pets, pets.override(["bridge=authors"]))
    assert changed == ALWAYS | BASELINE | {"method.detached": True, "data.views": 50}


def test_what_is_said_beside_it_wins(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('bridge = "authors"\n[data]\ndataset = "cifar10"\n[federation]\ndrop_last = false\n')
    config = load_config(path)
    assert (config.federation.drop_last, config.federation.first_round, config.data.look) == (False, "all", "cifar")
    changed = load_config("cifar10").override(["optimizer.leak=false", "bridge=authors", "data.look=clip"])
    assert (changed.optimizer.leak, changed.data.look, changed.prompt.half) == (False, "clip", True)


def test_another_word_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedotpError, match=r'^--set: bridge = "author": must be authors; did you mean authors\?$'):
        load_config("demo").override(["bridge=author"])
    path = tmp_path / "mine.toml"
    path.write_text('bridge = 3\n[data]\ndataset = "cifar10"\n')
    with pytest.raises(FedotpError, match=r"mine.toml: bridge = 3: must be authors$"):
        load_config(path)


def test_crops_do_not_go_with_the_look_of_cifar() -> None:
    with pytest.raises(FedotpError, match=r'data.views = 3: must be 0 beside data.look = "cifar"'):
        load_config("cifar10").override(["data.views=3", "data.look=cifar"])
    with pytest.raises(FedotpError, match=r'evaluation.clients = 3: must be 0 beside evaluation.of = "sampled"'):
        load_config("cifar10").override(["evaluation.clients=3", "evaluation.of=sampled"])
