"""What is run to see what privacy costs: two federations, and what is promised in each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fedotp.config import Config, load_config
from fedotp.methods import Method
from fedotp.privacy import noise_for
from fedotp.runs.many import Trial

EPSILONS = (1.0, 2.0, 4.0, 8.0, 0.0)
"""What may be spent in all; 0 stands for a run without privacy."""
SPLITS = range(5)
OTHER_SPLITS = (100,)
"""On which steps' lengths are chosen; they count for nothing else."""
CHOSEN_AT = (4.0, 0.0)
"""The epsilons at which they are. At others steps are shorter or longer as noise is more or less than at 4."""
RATES = (0.03, 0.1, 0.3)
NOISY_RATES = (0.01, 0.03, 0.1, 0.3)
CLIPS = (0.03, 0.1, 0.3)
REGS = (0.001, 0.003, 0.01, 0.03, 0.1)
NOISY_REGS = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Of methods in closed form, which make no steps: `method.reg` is chosen instead, and grows with the noise."""
DELTA = 1e-4  # of 400 images of a client, or 100 clients


@dataclass(frozen=True)
class Setting:
    """A federation in which `unit` is hidden, and the methods run in it, by what a table calls them.

    Units take part in a release with probability `rate`; there are `steps` of them in each of `rounds`. How long a step
    is, where there is privacy, is decided by `key`, of which `values` are tried; without it is the learning rate. A
    method in closed form makes one release of all units.
    """

    unit: str
    rounds: int
    changes: tuple[str, ...]
    methods: Mapping[str, tuple[str, ...]]
    rate: float
    steps: int
    key: str
    values: tuple[float, ...]

    def noise(self, epsilon: float, method: Method) -> float:
        """The noise multiplier with which a whole run of a method spends so much."""
        if method.in_closed_form:
            return noise_for(epsilon, 1, DELTA)
        return noise_for(epsilon, self.rounds * self.steps, DELTA, self.rate)

    def tried(self, method: Method, *, private: bool) -> tuple[str, tuple[float, ...]]:
        """What is chosen for a method, and its values."""
        if method.in_closed_form:
            return "method.reg", NOISY_REGS if private else REGS
        return (self.key, self.values) if private else ("optimizer.lr", RATES)


_START = (
    "evaluation.every=0",
    "prompt.words=a photo of a",  # where noise drowns all, what is left is near zero-shot
    f"privacy.delta={DELTA}",
)

# The class prior is each client's own and is not released.
_MORE = {
    "PromptFL, with class prior": ("method.name=promptfl", "evaluation.prior=1"),
    "Ridge": ("method.name=ridge",),
    "Ridge, with class prior": ("method.name=ridge", "evaluation.prior=1"),
}

SETTINGS = {
    # Five clients with 400 images each, as many as a small hospital might have: 4 steps of about 100 images a round.
    # Gradients of single images take long on a CPU, so rounds are few.
    "example": Setting(
        "example",
        3,
        (*_START, "federation.batch_size=100", "privacy.clip=1"),  # half of the images' gradients are longer
        {
            "PromptFL": ("method.name=promptfl",),
            "FedOTP": ("method.name=fedotp",),
            "DP-FPL, private too": ("method.name=dp-fpl", "privacy.private=true"),
            **_MORE,
        },
        rate=100 / 400,
        steps=4,
        key="optimizer.lr",
        values=NOISY_RATES,
    ),
    # A hundred clients with 20 images each, all of them in every round: with five nothing could be hidden.
    "site": Setting(
        "site",
        10,
        (*_START, "partition.scheme=dirichlet", "partition.alpha=0.5", "partition.n_clients=100", "optimizer.lr=0.3"),
        {"PromptFL": ("method.name=promptfl",), "FedOTP": ("method.name=fedotp",), **_MORE},
        rate=1.0,
        steps=1,
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
        for target in CHOSEN_AT if steps is None or toy else EPSILONS:
            where = (name, method, f"{target:g}")
            plain = _config(setting, chosen, target, device, toy=toy)
            key, values = setting.tried(plain.method, private=bool(target))
            if steps is not None:
                values = (_scaled(setting, plain.method, steps, where),)
            for value in values[:2] if toy else values:
                for split in splits[:2] if toy else splits:
                    config = plain.override([f"{key}={value}", f"partition.seed={split}", f"seed={split}"])
                    line = (*where, f"{value:g}", str(split))
                    folder = "/".join(line).replace(",", "").replace(" ", "-")
                    yield Asked(line, Trial(folder, {"method": method, "epsilon": where[-1]}, config))


def _scaled(setting: Setting, method: Method, steps: Mapping[tuple[str, ...], float], where: tuple[str, ...]) -> float:
    """The step chosen at CHOSEN_AT, so much longer that noise moves a prompt as far; without privacy as it is.

    `method.reg` is so much larger that noise is as large beside it.
    """
    name, title, target = where
    if target == "0":
        return steps[where]
    before, now = (setting.noise(epsilon, method) for epsilon in (CHOSEN_AT[0], float(target)))
    chosen = steps[name, title, f"{CHOSEN_AT[0]:g}"]
    return float(f"{chosen * now / before if method.in_closed_form else chosen * before / now:.3g}")


def _config(setting: Setting, method: tuple[str, ...], target: float, device: str, *, toy: bool) -> Config:
    changes = [*setting.changes, *method, f"federation.rounds={setting.rounds}", f"compute.device={device}"]
    config = load_config("demo").override(changes)
    if toy:
        few = ["partition.shots=8", "federation.batch_size=4"] if setting.unit == "example" else []
        config = config.override(["federation.rounds=1", *few])
    if not target:
        return config.override(["privacy.unit=none", "privacy.private=false"])
    budget = 0 if toy else target
    noise = f"privacy.noise={setting.noise(target, config.method)}"
    return config.override([f"privacy.unit={setting.unit}", noise, f"privacy.epsilon={budget}"])
