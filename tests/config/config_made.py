"""Configurations drawn at random, all of them valid."""

from dataclasses import fields, replace
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from hypothesis import strategies as st

from fedotp._values import Words
from fedotp.config import Config
from fedotp.config._schema import SECTIONS, bare_kind, kinds_of
from fedotp.data.partition import SCHEMES, PartitionSettings
from fedotp.federation import AttackSettings
from fedotp.methods import METHODS, Method, Rate

# Where a value of the right type is not always a right value.
_SPECIAL: dict[str, st.SearchStrategy[Any]] = {
    "data.dataset": st.text(min_size=1),
    "data.template": st.sampled_from(["", 'a "photo" of\n{}.', "\\ {}"]),
    "data.window": st.sampled_from(["file", "full", "data", "40/400", "-0.5..4095"]),
    "data.windows": st.sampled_from(["", "oslo=-600/1500", "oslo=file, b=0..65535"]),
    "data.groups": st.sampled_from(["", "patient([0-9]+)", r"^\w+"]),
    "backbone.name": st.text(min_size=1),
    "data.crops": st.integers(0, 10_000),
    "compute.threads": st.integers(0, 1024),
    "prompt.n_ctx": st.integers(1, 1000),
    "method.n_shared": st.integers(1, 100),
    "method.n_private": st.integers(1, 100),
    "method.experts": st.integers(1, 256),
    "method.n_ctx": st.integers(1, 1000),
    "method.groups": st.integers(5, 256),
    "method.drawn": st.integers(1, 5),
    "method.vectors": st.integers(1, 4),
    "method.rho": st.floats(0, 1),
    "method.mass": st.floats(1e-6, 1),
    "method.dial": st.none() | st.floats(0, 1) | st.just("confidence"),
    "method.strength": st.floats(0, 1),
    "method.theta": st.floats(0, 1),
    "method.rank": st.integers(1, 256),
    "federation.participation": st.floats(0, 1, exclude_min=True),
    "federation.dropout": st.floats(0, 1, exclude_max=True),
    "optimizer.lr": st.sampled_from(get_args(Rate)) | st.floats(1e-6, 1e6),
    "server.malicious": st.floats(0, 0.49) | st.integers(1, 1000),
    "privacy.noise": st.floats(1e-3, 1e6),
    "privacy.delta": st.floats(0, 1, exclude_min=True, exclude_max=True),
    **{key: st.floats(0, 1, exclude_min=True) for key in ("attack.share", "attack.patch", "attack.poisoned")},
    "evaluation.prior": st.just("method") | st.floats(0, 10),
    "federation.prior": st.floats(0, 10),
    "evaluation.views": st.lists(st.sampled_from(["personal", "global", "base", "neighbours"])).map(tuple),
    **{
        key: st.floats(0, 1, exclude_max=True)
        for key in ("optimizer.momentum", "optimizer.beta2", "server.momentum", "server.beta1", "server.beta2")
    },
}
_BY_TYPE: dict[object, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(1, 10**6),
    float: st.floats(1e-6, 1e6) | st.integers(1, 1000),
    str: st.text(),
    Words: st.lists(st.text(), max_size=3).map(tuple),
}


def _values(key: str, kind: object) -> st.SearchStrategy[Any]:
    bare, optional = bare_kind(kind)
    if get_origin(bare) is Literal:
        return st.sampled_from(get_args(bare))
    if get_origin(bare) in (UnionType, Union):  # a number or a word
        return st.one_of(_values(key, each) for each in get_args(bare))
    values = _SPECIAL[key] if key in _SPECIAL else _BY_TYPE[bare]
    return values | st.none() if optional else values


@cache
def _section(name: str, cls: type[Any]) -> st.SearchStrategy[Any]:
    if cls is PartitionSettings:
        return st.sampled_from(sorted(SCHEMES)).flatmap(_partition)
    if cls is Method:
        return st.sampled_from(sorted(METHODS)).flatmap(lambda method: _section(name, METHODS[method]))
    required = {"dataset"}
    apart = {"holdout_clients": "holdout", "per_class": "space", "words": "space"}  # one or the other
    keys = {key: _values(f"{name}.{key}", kind) for key, kind in kinds_of(cls).items()}
    return st.fixed_dictionaries(
        {key: values for key, values in keys.items() if key in required},
        optional={key: values for key, values in keys.items() if key not in required},
    ).map(lambda chosen: cls(**{key: value for key, value in chosen.items() if apart.get(key) not in chosen}))


@cache
def _partition(scheme: str) -> st.SearchStrategy[PartitionSettings]:
    draws_sizes = PartitionSettings(scheme).draws_sizes
    return st.builds(
        PartitionSettings,
        scheme=st.just(scheme),
        n_clients=st.none() | st.integers(1, 10**6),
        alpha=st.none() | st.floats(1e-6, 1e6) if draws_sizes else st.none(),
        shots=st.none() | st.integers(1, 64),
        min_size=st.integers(1, 100) if draws_sizes else st.just(1),
        seed=st.integers(0, 2**63 - 1),
    )


def _agreeing(**sections: Any) -> Config:
    """One whose sections go together: labels are wrong for one reason only, privacy alone bounds updates."""
    if sections["data"].labels != "true":
        sections["authors"] = replace(sections["authors"], mispaired_labels=False)
    if (sections["data"].labels != "true" or sections["authors"].mispaired_labels) and sections["attack"].is_on_data:
        sections["attack"] = AttackSettings()
    if sections["authors"].normalisation != "clip":
        sections["data"] = replace(sections["data"], crops=0)
    if sections["authors"].evaluate_sampled:
        sections["evaluation"] = replace(sections["evaluation"], clients=0)
    if sections["privacy"].unit == "site":
        sections["server"] = replace(sections["server"], rule="average")
    return Config(**sections)


@cache
def configs() -> st.SearchStrategy[Config]:
    """Any configuration."""
    assert {item.name for item in fields(Config)} == {*SECTIONS, "seed"}
    return st.builds(
        _agreeing, **{name: _section(name, cls) for name, cls in SECTIONS.items()}, seed=st.integers(0, 2**63 - 1)
    )
