"""What is run to see what privacy costs: two federations, and what is promised in each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fedotp.config import Config, load_config
from fedotp.privacy import noise_for
from fedotp.runs import Trial

EPSILONS = (1.0, 2.0, 4.0, 8.0, 0.0)
"""What may be spent in all; 0 stands for a run without privacy."""
SPLITS = range(6)
OTHER_SPLITS = (100, 101)
"""On which steps' lengths are chosen; they count for nothing else."""
RATES = (0.01, 0.03, 0.1, 0.3)
NOISY_RATES = (0.001, 0.003, 0.01, 0.03, 0.1)
CLIPS = (0.03, 0.1, 0.3, 1.0)
DELTA = 1e-4  # of 400 images of a client, or 100 clients
_ROUNDS = 10


@dataclass(frozen=True)
class Setting:
    """A federation in which `unit` is hidden, and the methods run in it, by what a table calls them.

    Units take part in a release with probability `rate`; there are `releases` of them. How long a step is, where there
    is privacy, is decided by `key`, of which `values` are tried; without it is the learning rate.
    """

    unit: str
    changes: tuple[str, ...]
    methods: Mapping[str, tuple[str, ...]]
    rate: float
    releases: int
    key: str
    values: tuple[float, ...]


_START = (
    "evaluation.every=0",
    "prompt.words=a photo of a",  # where noise drowns all, what is left is near zero-shot
    f"federation.rounds={_ROUNDS}",
    f"privacy.delta={DELTA}",
)

SETTINGS = {
    # Five clients with 400 images each, as many as a small hospital might have: 4 steps of about 100 images a round.
    "example": Setting(
        "example",
        (*_START, "federation.batch_size=100", "privacy.clip=1"),  # half of the images' gradients are longer
        {
            "PromptFL": ("method.name=promptfl",),
            "FedOTP": ("method.name=fedotp",),
            "FedOTP, private too": ("method.name=fedotp", "privacy.private=true"),
            "DP-FPL, private too": ("method.name=dp-fpl", "privacy.private=true"),
        },
        rate=100 / 400,
        releases=4 * _ROUNDS,
        key="optimizer.lr",
        values=NOISY_RATES,
    ),
    # A hundred clients with 20 images each, all of them in every round: with five nothing could be hidden.
    "site": Setting(
        "site",
        (*_START, "partition.scheme=dirichlet", "partition.alpha=0.5", "partition.n_clients=100", "optimizer.lr=0.3"),
        {"PromptFL": ("method.name=promptfl",), "FedOTP": ("method.name=fedotp",)},
        rate=1.0,
        releases=_ROUNDS,
        key="privacy.clip",  # nearly every update is longer: a round moves the prompt by about this
        values=CLIPS,
    ),
}


@dataclass(frozen=True)
class Asked:
    """A run that is asked for; `key` tells it from all others, and is the beginning of its line."""

    key: tuple[str, ...]
    trial: Trial

    COLUMNS = ("unit", "method", "epsilon", "step", "split")


def asked(name: str, steps: Mapping[tuple[str, ...], float] | None, *, device: str, toy: bool) -> Iterator[Asked]:
    """The runs of a setting with the `steps` by unit, method and epsilon; without, those that choose them."""
    setting = SETTINGS[name]
    splits = SPLITS if steps is not None else OTHER_SPLITS
    for method, chosen in setting.methods.items():
        for target in EPSILONS[1::3] if toy else EPSILONS:
            where = (name, method, f"{target:g}")
            key, values = (setting.key, setting.values) if target else ("optimizer.lr", RATES)
            for value in (values[1:3] if toy else values) if steps is None else (steps[where],):
                for split in splits[:2] if toy else splits:
                    config = _config(setting, chosen, target, device, toy=toy)
                    config = config.override([f"{key}={value}", f"partition.seed={split}", f"seed={split}"])
                    line = (*where, f"{value:g}", str(split))
                    folder = "/".join(line).replace(",", "").replace(" ", "-")
                    yield Asked(line, Trial(folder, {"method": method, "epsilon": where[-1]}, config))


def _config(setting: Setting, method: tuple[str, ...], target: float, device: str, *, toy: bool) -> Config:
    config = load_config("demo").override([*setting.changes, *method, f"compute.device={device}"])
    if toy:
        few = ["partition.shots=8", "federation.batch_size=4"] if setting.unit == "example" else []
        config = config.override(["federation.rounds=1", *few])
    if not target:
        return config.override(["privacy.unit=none", "privacy.private=false"])
    noise = noise_for(target, setting.releases, DELTA, setting.rate)
    budget = 0 if toy else target
    return config.override([f"privacy.unit={setting.unit}", f"privacy.noise={noise}", f"privacy.epsilon={budget}"])
