"""Whatever a site sends, it is that site's fault, and nothing is raised in the server."""

import math
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MessageType, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedotp.errors import FedotpError
from fedotp.flower import _wire as wire
from fedotp.flower.server import ServerSettings
from fedotp.flower.server._registration import Member, Registration, Registry, State
from fedotp.flower.server._updates import checked_update, reported_scores

EXPECTED = {"shared": torch.ones(2, 3)}
WORDS = sorted(
    value for name, value in vars(wire).items() if name.isupper() and isinstance(value, str)
)  # keys that the server looks for

scalars = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.sampled_from([0, 1, 3, 6, 10**9, math.nan, math.inf, -0.0, 5e-324]),
)
texts = st.one_of(st.text(max_size=20), st.sampled_from(["site", "\x1b[2J", "\u202e", "a" * 500, ""]))
keys = st.one_of(st.sampled_from(WORDS), st.text(max_size=5))
metrics = st.dictionaries(
    keys, st.one_of(scalars, st.lists(st.integers(-5, 5), max_size=3), st.lists(st.floats(), max_size=3)), max_size=6
)
configs = st.dictionaries(
    keys, st.one_of(scalars, texts, st.booleans(), st.binary(max_size=9), st.lists(texts, max_size=4)), max_size=6
)
dtypes = st.sampled_from(["float32", "float64", "int64", "int8", "complex64", "U3", "bool"])
values = st.builds(
    lambda shape, dtype, fill: np.full(shape, fill).astype(dtype),
    st.sampled_from([(2, 3), (6,), (3,), (), (0,), (1, 2, 3)]),
    dtypes,
    st.sampled_from([0, 1, 3e38, -3e38, math.nan, math.inf, 1.5]),
)
arrays = st.one_of(
    values.map(Array),
    st.builds(
        lambda dtype, shape, stype, data: Array(dtype=dtype, shape=shape, stype=stype, data=data),
        st.one_of(dtypes, texts),
        st.lists(st.integers(-3, 10**12), max_size=3).map(tuple),
        st.sampled_from(["numpy.ndarray", "torch", ""]),
        st.one_of(st.binary(max_size=99), st.sampled_from([b"PK\x03\x04", b"\x93NUMPY\x01\x00\x10\x00{'descr': ((("])),
    ),
)
names = st.sampled_from(["shared", *wire.COLUMNS, "", "private"])
records = st.one_of(
    metrics.map(MetricRecord), configs.map(ConfigRecord), st.dictionaries(names, arrays, max_size=4).map(ArrayRecord)
)
contents = st.dictionaries(st.sampled_from(WORDS), records, max_size=5).map(RecordDict)
answers = st.one_of(contents, st.builds(Error, st.integers(-9, 9), st.one_of(st.none(), texts)), st.none())
many = settings(
    deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def answer(what: RecordDict | Error | None) -> Message:
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    asked = Message(RecordDict(), dst_node_id=1, message_type=MessageType.TRAIN)
    asked.metadata.__dict__["_message_id"] = "1"
    reply = Message(RecordDict() if what is None else what, reply_to=asked)
    if what is None:  # neither content nor error, as no honest site would send
        reply.__dict__["_content"] = None
    return reply


@pytest.mark.filterwarnings("ignore")  # NumPy's about the numbers above
@many
@given(what=answers)
def test_no_answer_to_training_raises_in_the_server(what: Any) -> None:
    member = Member("site", train_images=6, agreed=6)
    with suppress(FedotpError):
        update = checked_update(answer(what), EXPECTED, member, 10)
        assert update is None or all(value.isfinite().all() for value in update.prompts.values())


@pytest.mark.filterwarnings("ignore")
@many
@given(what=answers)
def test_no_answer_to_an_evaluation_raises_in_the_server(what: Any) -> None:
    evaluation, _ = reported_scores({0: answer(what)}, [Member("site", test_images=3)], 3)
    assert evaluation is None or 0 <= evaluation.mean <= 1


@pytest.mark.filterwarnings("ignore")
@many
@given(what=answers, known=st.booleans())
def test_no_answer_to_hello_raises_in_the_server(what: Any, known: bool) -> None:
    registry = Registry([Member("site")], {1: "site"} if known else None)
    registration = Registration(SimpleNamespace(), registry, SimpleNamespace(classes=()), ServerSettings())  # type: ignore[arg-type]
    member = registry.meet(1, "first")
    member.state = State.ASKED
    registration._take(member, answer(what))
    assert all(one.state is not State.ASKED for one in registry.everyone)
    assert all(0 <= one.train_images <= 10**9 and one.name.isprintable() for one in registry.everyone)
