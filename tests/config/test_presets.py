"""The presets that come with the package."""

import shlex
import tomllib
from collections.abc import Iterator

from fedotp.config import Config, load_config, presets
from fedotp.config._known import preset_text
from fedotp.data import load_dataset
from fedotp.data._names import names_of
from fedotp.methods import METHODS, FedOTP

NAMES = list(presets())
DEMOS = [name for name in NAMES if name.startswith("demo")]
FIELD = [name for name in NAMES if name.startswith(("holdout", "novel", "pfedmoap-", "promptfolio-"))]
PAPER = [name for name in NAMES if name not in DEMOS + FIELD]


def test_every_preset_loads_reads_back_equal_and_runs_every_method() -> None:
    for name in NAMES:
        config = load_config(name)
        assert config == Config.preset(name)
        assert Config.from_dict(tomllib.loads(config.to_toml())) == config
        for method in METHODS.keys() - {config.method.name}:  # its own has the preset's options
            assert config.override([f"method.name={method}"]).method == METHODS[method](), name


def test_every_command_in_a_comment_is_accepted() -> None:
    for name, command, options in commands():
        assert command in ("run", "sweep")
        assert {option for option, _ in options} <= ({"--set"} if command == "run" else {"--set", "--grid"})
        load_config(name).override([assignment for option, assignment in options if option == "--set"])
        for assignment in (assignment for option, assignment in options if option == "--grid"):
            key, _, values = assignment.partition("=")
            for value in values.split(","):
                load_config(name).override([f"{key}={value}"])


def commands() -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Preset, command and options of every command in a comment."""
    for name in NAMES:
        for line in preset_text(name).splitlines():
            if line[1:].strip().startswith("fedotp "):
                _, command, preset, *options = shlex.split(line[1:])
                assert preset == name
                yield name, command, list(zip(options[::2], options[1::2], strict=True))


def test_the_papers_settings() -> None:
    for name in PAPER:
        config = load_config(name)
        assert config.method == FedOTP(reg=0.1, mass=0.8), name
        assert config.prompt.n_ctx == 16
        assert (config.resolved.optimizer.name, config.resolved.optimizer.lr) == ("sgd", 0.001)
        assert (config.federation.batch_size, config.evaluation.batch_size) == (32, 100)
        few_shot = name.startswith("fewshot-")
        assert config.backbone.name == ("RN50" if few_shot else "ViT-B/16"), name
        assert config.federation.local_epochs == (5 if few_shot else 1), name
        n_clients = config.partition.n_clients
        assert config.federation.participation == (0.1 if n_clients == 100 else 1.0), name
        assert n_clients != 100 or config.federation.rounds == 150, name


def test_one_domain_is_left_out() -> None:
    """In the presets, and with the other data sets that the comment names."""
    others = [[value for _, value in options] for name, _, options in commands() if name == "holdout"]
    named = [load_config("holdout").override(changes) for changes in others if "data.dataset" in str(changes)]
    assert len(named) == 4
    for config in (load_config("demo-vendors"), load_config("holdout"), *named):
        assert config.partition.scheme == "domain"
        assert "holdout" in config.evaluation.views
        (away,) = config.federation.holdout
        name = config.data.dataset
        assert away in (load_dataset(name).domains if name == "emoji" else names_of(name, "domains"))
