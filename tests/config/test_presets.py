"""The presets that come with the package."""

import shlex
import tomllib

import pytest

from fedotp.config import Config, load_config, presets
from fedotp.config._known import preset_text, preset_texts
from fedotp.data import _domains, load_dataset
from fedotp.methods import METHODS, FedOTP

NAMES = list(presets())
DEMOS = [name for name in NAMES if name.startswith("demo")]
FIELD = [name for name in NAMES if name.startswith(("holdout-", "novel-", "pfedmoap-", "promptfolio-"))]
PAPER = [name for name in NAMES if name not in DEMOS + FIELD]

SWEEPS = [("sweep", {"--grid"}), ("sweep", {"--set", "--grid"})]


def test_the_list() -> None:
    assert NAMES[:4] == DEMOS == ["demo", "demo-novel", "demo-sites", "demo-vendors"]
    assert set(NAMES) >= {
        *(f"fewshot-{name}" for name in ("caltech", "dtd", "flowers", "food", "pets")),
        *("cifar10", "cifar100", "domainnet", "domainnet-domain", "office", "office-domain"),
        *("coarse-cifar100", "curves"),
    }
    assert presets()["cifar10"].endswith("(Table 3)")
    assert all(20 < len(summary) < 118 for summary in presets().values())


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_loads_and_reads_back_equal(name: str) -> None:
    config = load_config(name)
    assert config == Config.preset(name)
    assert Config.from_dict(tomllib.loads(config.to_toml())) == config


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_opens_with_its_command(name: str) -> None:
    root = "" if name in DEMOS else " --set data.root=~/data"
    assert preset_text(name).startswith(f"# fedotp run {name}{root}\n#\n# {presets()[name]}\n#\n")


@pytest.mark.parametrize("name", NAMES)
def test_every_command_in_a_comment_is_accepted(name: str) -> None:
    commands = [line[1:].strip() for line in preset_text(name).splitlines() if line[1:].strip().startswith("fedotp ")]
    for command in commands:
        _, run, preset, *options = shlex.split(command)
        assert preset == name
        assert (run, set(options[::2])) in (("run", set()), ("run", {"--set"}), *SWEEPS)
        for i in range(len(options) // 2):
            key, _, values = options[2 * i + 1].partition("=")
            chosen = values.split(",") if options[2 * i] == "--grid" else [values]
            for value in chosen:
                load_config(preset).override([f"{key}={value}"])


@pytest.mark.parametrize("name", NAMES)
def test_every_method_runs_on_every_preset(name: str) -> None:
    config = load_config(name)
    for method in METHODS.keys() - {config.method.name}:  # its own has the preset's options
        assert config.override([f"method.name={method}"]).method == METHODS[method]()


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_is_short_and_narrow(name: str) -> None:
    lines = preset_text(name).splitlines()
    assert all(len(line) <= 120 for line in lines)
    assert len(lines) < 60


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_settings(name: str) -> None:
    config = load_config(name)
    assert config.method == FedOTP(reg=0.1, mass=0.8)
    assert config.prompt.n_ctx == 16
    assert (config.resolved.optimizer.name, config.resolved.optimizer.lr) == ("sgd", 0.001)
    assert (config.federation.batch_size, config.evaluation.batch_size) == (32, 100)
    few_shot = name.startswith("fewshot-")
    assert config.backbone.name == ("RN50" if few_shot else "ViT-B/16")
    assert config.federation.local_epochs == (5 if few_shot else 1)
    n_clients = config.partition.n_clients
    assert config.federation.participation == (0.1 if n_clients == 100 else 1.0)
    if n_clients == 100:
        assert config.federation.rounds == 150


def test_the_texts_are_read_once() -> None:
    assert preset_texts() is preset_texts()


BASE_TO_NOVEL = {  # rounds, epochs, batch, shots, scheme
    "novel-fedpgp": (25, 2, 16, 16, "pathological"),
    "novel-fedmgp": (10, 2, 8, 16, "pathological"),
    "novel-pfedmma": (100, 1, 32, 16, "pathological"),
    "novel-flip": (50, 1, 16, 8, "dirichlet"),
}


@pytest.mark.parametrize("name", [name for name in NAMES if "novel" in name])
def test_base_to_novel(name: str) -> None:
    config = load_config(name)
    assert config.data.classes == "base"
    assert config.evaluation.views == ("personal", "global", "base", "novel")
    assert config.evaluation.views_every == 1  # last, best and the mean of the last five are of several
    if name in FIELD:
        rounds = config.federation
        found = (rounds.rounds, rounds.local_epochs, rounds.batch_size, config.partition.shots, config.partition.scheme)
        assert found == BASE_TO_NOVEL[name]


@pytest.mark.parametrize("name", ["demo-vendors", *(name for name in NAMES if name.startswith("holdout-"))])
def test_one_domain_is_left_out(name: str) -> None:
    config = load_config(name)
    assert config.partition.scheme == "domain"
    assert "holdout" in config.evaluation.views
    (away,) = config.federation.holdout
    assert away in domains_of(config.data.dataset)


def domains_of(dataset: str) -> tuple[str, ...]:
    return load_dataset(dataset).domains if dataset == "emoji" else getattr(_domains, dataset.upper())
