"""`--set key=value`."""

import pytest
from config_made import configs
from hypothesis import given, settings

from fedotp.config import Config, DataSettings, flatten
from fedotp.data.partition import PartitionSettings
from fedotp.errors import FedotpError
from fedotp.methods import FedOTP
from fedotp.methods._fedamp import PromptFLAmp
from fedotp.methods._promptfl import CoOp

PETS = Config(
    DataSettings("oxford_pets"), PartitionSettings("pathological", n_clients=10, shots=16), method=FedOTP(mass=0.7)
)


def _refusal(*assignments: str, config: Config = PETS) -> str:
    with pytest.raises(FedotpError) as caught:
        config.override(assignments)
    return str(caught.value)


@pytest.mark.parametrize(
    ("assignment", "value"),
    [
        ("federation.rounds=1_000", 1000),
        ("method.mass=0.5", 0.5),
        ("optimizer.lr=+2.5E-1", 0.25),
        ('method.rule="classical"', "classical"),
        ("compute.device=cuda:1", "cuda:1"),
        ("data.root=", ""),
        ('data.root="a\\tb"', "a\tb"),
        ("data.root=5\nseed = 3", "5\nseed = 3"),
        ("data.dataset=101", "101"),
        ("prompt.words=true", "true"),
        ("federation.holdout= clip art, 7", ("clip art", "7")),
        ('federation.holdout=["a, b", "c"]', ("a, b", "c")),
        ("federation.holdout=", ()),
    ],
)
def test_values(assignment: str, value: object) -> None:
    changed = flatten(PETS.override([assignment]))[assignment.split("=")[0].strip()]
    assert changed == value
    assert type(changed) is type(value)


@pytest.mark.parametrize(
    ("assignment", "line"),
    [
        ("method.mass.x=1", "unknown key method.mass.x; did you mean method.mass?"),
        ("method.mass", '"method.mass": must be key=value, for example method.mass=0.5'),
        ("method.mass=.5", 'method.mass = ".5": must be a number such as 0.5'),
        ('data.root=["a"]', "data.root = ['a']: must be text such as \"abc\", not a list"),
        ("federation.holdout=[1]", 'federation.holdout = [1]: must be a list of texts such as ["abc", "def"]'),
        (
            "partition.alpha=0.3",
            "partition.alpha = 0.3: must be unset: only for dirichlet, domain-dirichlet, quantity, not pathological",
        ),
    ],
)
def test_one_line(assignment: str, line: str) -> None:
    assert _refusal(assignment) == f"--set: {line}"


def test_another_method_drops_the_options_of_the_old_one() -> None:
    assert PETS.override(["method.name=coop"]).method == CoOp()
    assert PETS.override(['method.name="coop"']).method == CoOp()
    assert PETS.override(["method.name=fedotp"]).method == FedOTP(mass=0.7)
    assert PETS.override(["method.mu=2", "method.name=promptfl-fedamp"]).method == PromptFLAmp(mu=2.0)


def test_an_option_set_for_a_method_without_it_is_refused() -> None:
    expected = "--set: unknown key method.mass: an option of fedotp; the options of coop are: none"
    assert _refusal("method.name=coop", "method.mass=0.5") == expected
    assert _refusal("method.mass=0.5", "method.name=coop") == expected
    assert _refusal("method.beta=0.5").startswith(
        "--set: unknown key method.beta: an option of pfedprompt; the options of fedotp are: "
    )
    assert ": an option of promptfl-fedprox, promptfl-fedamp, " in _refusal("method.mu=0.5")
    assert _refusal("method.name=cop").startswith('--set: method.name = "cop": must be fedotp, ')


def test_another_scheme_drops_what_it_has_no_use_for() -> None:
    dirichlet = PETS.override(["partition.scheme=dirichlet"])
    assert dirichlet.partition == PartitionSettings("dirichlet", n_clients=10, shots=16)
    iid = dirichlet.override(["partition.alpha=0.1", "partition.min_size=2"]).override(["partition.scheme=iid"])
    assert iid.partition == PartitionSettings("iid", n_clients=10, shots=16)
    assert _refusal("partition.scheme=iid", "partition.min_size=4") == (
        "--set: partition.min_size = 4: must be unset: only for dirichlet, domain-dirichlet, quantity, not iid"
    )
    assert _refusal("partition.scheme=diriclet").startswith("--set: partition: unknown scheme 'diriclet'; did you")


@settings(max_examples=50)
@given(configs(), configs())
def test_assignments_lead_from_any_configuration_to_any_other(start: Config, end: Config) -> None:
    assert start.override(_assignments(end)) == end


def _assignments(config: Config) -> list[str]:
    section, lines = "", []
    for line in config.to_toml().splitlines():
        if line.startswith("["):
            section = line.strip("[]") + "."
        elif line:
            lines.append(section + line)
    return lines + [f"{key}=none" for key, value in flatten(config).items() if value is None]
