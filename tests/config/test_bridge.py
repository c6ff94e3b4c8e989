"""`bridge = "authors"`: one word that becomes keys."""

import tomllib
from pathlib import Path

import pytest

from fedotp.config import Config, DataSettings, difference, load_config, presets
from fedotp.data.partition import PartitionSettings

ALWAYS = {"authors.half_precision": True, "federation.drop_last": True, "authors.leaked_momentum": True}
FEDOTP = {"authors.batch_solver": True, "federation.first_round": "all"}
CASES = {
    "fewshot-pets": {"data.crops": 50, "authors.partition": True, "partition.seed": 2023, "federation.batch_size": 16},
    "cifar10": {"authors.normalisation": "cifar10", "authors.partition": True, "evaluation.every": 1},
    "cifar100": {
        "authors.normalisation": "cifar100",
        "authors.partition": True,
        "partition.seed": 12345,
        "prompt.n_ctx": 4,
        "evaluation.every": 1,
    },
    "office": {
        "data.crops": 10,
        "authors.shuffled_names": True,
        "authors.mispaired_labels": True,
        "authors.partition": True,
    },
    "office-domain": {"data.crops": 10, "authors.shuffled_names": True},
}


def _changed(before: Config, after: Config) -> dict[str, object]:
    return {key: value for key, (_, value) in difference(before, after).items()}


@pytest.mark.parametrize("preset", CASES)
def test_it_sets_what_the_authors_code_does_otherwise(preset: str) -> None:
    config = load_config(preset)
    assert _changed(config, config.override(["bridge=authors"])) == ALWAYS | FEDOTP | CASES[preset]


def test_every_preset_can_be_bridged_and_the_word_is_not_kept() -> None:
    for preset in presets():
        config = load_config(preset).override(["bridge=authors"])
        assert "bridge" not in config.to_toml()
        assert Config.from_dict(tomllib.loads(config.to_toml())) == config
        assert config.override(["bridge=authors"]) == config, preset


@pytest.mark.parametrize(
    ("method", "own"),
    [
        ("promptfl", {}),  # which tests everyone after every round
        ("promptfl-fedprox", {"authors.detached_proximal": True, "authors.evaluate_sampled": True}),
        ("coop", {"federation.rounds": 1, "authors.evaluate_sampled": True}),
        ("zeroshot", {"authors.evaluate_sampled": True}),
        ("fedpgp", {}),  # which is not in their code
    ],
)
def test_methods_have_their_own_first_round_and_tests(method: str, own: dict[str, object]) -> None:
    pets = Config(DataSettings("oxford_pets"), PartitionSettings("iid")).override([f"method.name={method}"])
    assert _changed(pets, pets.override(["bridge=authors"])) == ALWAYS | {"data.crops": 50} | own


def test_what_is_said_beside_it_wins(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('bridge = "authors"\n[data]\ndataset = "cifar10"\n[federation]\ndrop_last = false\n')
    config = load_config(path)
    assert (config.federation.drop_last, config.federation.first_round, config.authors.normalisation) == (
        False,
        "all",
        "cifar10",
    )
    changed = load_config("cifar10").override(
        ["authors.leaked_momentum=false", "bridge=authors", "authors.normalisation=clip"]
    )
    authors = changed.authors
    assert (authors.leaked_momentum, authors.normalisation, authors.half_precision) == (False, "clip", True)
