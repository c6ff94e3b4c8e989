"""A federation of sites in this process: Flower's grid without a network, and ways to make sites misbehave."""

from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

import fedotp
from fedotp.config import Config
from fedotp.federation import Checkpoint
from fedotp.flower import _wire as wire
from fedotp.flower._agreement import Agreement
from fedotp.flower._wire import to_record
from fedotp.flower.keys import ServerKeys, make_keys
from fedotp.flower.secure import Terms
from fedotp.flower.server import ServerSettings
from fedotp.flower.server._serve import resume_serving, serve
from fedotp.flower.site._app import app
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import prepare
from runs.toy_run import make_config

QUICK = ServerSettings(round_timeout=0.5, start_timeout=20)
Meddle = Callable[[Message, Message], Message | None]
"""Takes a message and a site's answer to it; returns what arrives, None for nothing."""
Forge = Callable[[Message], None]
"""Changes a message of the server's before it reaches the site."""


@dataclass
class NearGrid:
    """Delivers at once. `nodes` are the sites' node configurations; `meddle` changes answers, by node.

    `forge` changes what the server sends: so it lies.
    """

    nodes: dict[int, dict[str, Any]]
    meddle: dict[int, Meddle] = field(default_factory=dict)
    forge: Forge = lambda message: None
    offline: set[int] = field(default_factory=set)
    came: dict[int, str] = field(default_factory=dict)
    sent: list[Message] = field(default_factory=list)
    answered: list[Message] = field(default_factory=list)
    _replies: dict[str, Message] = field(default_factory=dict)

    def __post_init__(self) -> None:
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # of this process, Flower would say

    def get_nodes(self) -> list[SimpleNamespace]:
        there = [node for node in self.nodes if node not in self.offline]
        return [SimpleNamespace(node_id=node, last_activated_at=self.came.get(node, "first")) for node in there]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        return [self._deliver(message) for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [self._replies.pop(number) for number in list(message_ids) if number in self._replies]

    def serve(
        self, config: Config, out: Path, settings: ServerSettings = QUICK, *, known: bool = True, **options: Any
    ) -> RunDirectory:
        """Run the federation of these sites; their names are `known`, as keys would make them certain."""
        return serve(self, config, settings, out, **(named(self) if known else {}), **options)  # type: ignore[arg-type]

    def resume(
        self, path: Path, settings: ServerSettings = QUICK, *, known: bool = True, **options: Any
    ) -> RunDirectory:
        return resume_serving(self, path, settings, **(named(self) if known else {}), **options)  # type: ignore[arg-type]

    def exchanged(self, kind: str, *rounds: int) -> list[tuple[Message, Message]]:
        """Messages of one kind (in these rounds) and the sites' answers to them."""
        pairs = [each for each in zip(self.sent, self.answered, strict=True) if each[0].metadata.message_type == kind]
        return [each for each in pairs if not rounds or each[0].metadata.group_id in map(str, rounds)]

    def _deliver(self, message: Message) -> str:
        number, node = str(uuid4()), message.metadata.dst_node_id
        self.forge(message)
        self.sent.append(message)
        message.metadata.__dict__["_message_id"] = number
        reply: Message | None = _answer(message, node, self.nodes[node])
        assert reply is not None
        reply.metadata.__dict__["_src_node_id"] = node
        self.answered.append(deepcopy(reply))  # the server may change what it has got
        if node in self.meddle:
            reply = self.meddle[node](message, reply)
        if reply is not None:
            self._replies[number] = reply
        return number


def _answer(message: Message, node: int, site: dict[str, Any]) -> Message:
    return app(
        message, Context(run_id=1, node_id=node, node_config=site, state=RecordDict(), run_config={}, series_id=1)
    )


@dataclass
class LyingServer:
    """Sends one unmodified site whatever it likes, and reads what it answers."""

    site: dict[str, Any]
    config: Config

    def __post_init__(self) -> None:
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
        self.task = prepare(self.config).task
        shared = self.config.method.shared(self.task, 1)
        self.prompt = {name: value[0] for name, value in self.config.method.send(shared, None, 1).items()}

    def order(
        self,
        kind: str,
        *changes: str,
        run: str = "a" * 32,
        classes: tuple[str, ...] = (),
        secure: Terms | None = None,
        **told: Any,
    ) -> RecordDict:
        """What the site answers; `changes` are made to what was agreed on."""
        task, config = self.task, self.config.override(list(changes))
        agreement = Agreement(run, config, classes or task.classes, task.template, task.clip.digest, secure)
        record = ConfigRecord({wire.NUMBER: 0, wire.ROUND: 1, wire.ACCEPTED: 0, **told})
        agreement.put(record)
        content = RecordDict({wire.CONFIG: record, wire.ARRAYS: to_record(self.prompt)})
        message = Message(content, dst_node_id=1, message_type=kind)
        message.metadata.__dict__["_message_id"] = "1"
        return _answer(message, 1, self.site).content

    def refusal(self, kind: str, *changes: str, **told: Any) -> str:
        """Why the site refuses; "" if it obeys."""
        found = self.order(kind, *changes, **told)
        return str(found.config_records.get(wire.CONFIG, ConfigRecord()).get(wire.REFUSED, ""))


def interrupted(config: Config, folder: Path, settings: ServerSettings = QUICK) -> NearGrid:
    """Three sites whose run is stopped in its second round."""
    grid = NearGrid(parts(folder, 3), meddle={100: cut_in(2)})
    with pytest.raises(KeyboardInterrupt):
        grid.serve(config, folder / "run", settings)
    return grid


def prompt_in(message: Message) -> np.ndarray:
    """The shared prompt in a message or an update."""
    return np.array(message.content.array_records["arrays"]["shared"].numpy(), np.float64)


def parts(folder: Path, n: int, **options: Any) -> dict[int, dict[str, Any]]:
    """Node configurations of sites that each take one client's part of the configuration's data set."""
    return {100 + i: {"part": i, "name": f"site-{i}", "state": str(folder / f"site-{i}"), **options} for i in range(n)}


def with_keys(folder: Path, n: int, **options: Any) -> tuple[NearGrid, dict[str, str]]:
    """Sites with keys, and their public keys by name."""
    names = [f"site-{i}" for i in range(n)]
    make_keys(folder / "keys", ["localhost"], names)
    sites = parts(folder, n, **options)
    for node, name in zip(sites, names, strict=True):
        sites[node]["keys"] = str(folder / "keys/sites" / name)
    return NearGrid(sites), ServerKeys.read(folder / "keys/server").sites


def make_deployable(inputs: Path, **sections: Any) -> fedotp.Config:
    """The toy federation with three clients, all of them in every round."""
    federation = {"holdout_clients": 0, "participation": 1.0, "rounds": 2, **sections.pop("federation", {})}
    evaluation = {"clients": 0, **sections.pop("evaluation", {})}
    partition = {"n_clients": 3, "alpha": 2.0}
    return make_config(inputs, federation=federation, evaluation=evaluation, partition=partition, **sections)


def when(kind: str, meddle: Meddle, *rounds: int) -> Meddle:
    """Meddle only with answers to messages of one kind (in these rounds)."""

    def meddle_then(message: Message, reply: Message) -> Message | None:
        is_meant = message.metadata.message_type == kind and (
            not rounds or message.metadata.group_id in map(str, rounds)
        )
        return meddle(message, reply) if is_meant else reply

    return meddle_then


def changed(kind: str, change: Callable[[RecordDict], object]) -> Meddle:
    """Change what a site answers to messages of one kind."""

    def changing(_message: Message, reply: Message) -> Message:
        change(reply.content)
        return reply

    return when(kind, changing)


def silent(*rounds: int) -> Meddle:
    """A site that sends no update (in these rounds)."""
    return when("train", lambda message, reply: None, *rounds)


def cut_in(round_: int, kind: str = "train") -> Meddle:
    """Stop the server when a site answers in this round."""

    def cut(_message: Message, _reply: Message) -> Message:
        raise KeyboardInterrupt

    return when(kind, cut, round_)


def named(grid: NearGrid) -> dict[str, Any]:
    """The sites' names by node, as keys would make them certain."""
    return {"nodes": {node: str(config["name"]) for node, config in grid.nodes.items()}}


def answered(run: RunDirectory) -> list[list[int]]:
    """The sites whose updates were accepted, by round."""
    return [record["answered"] for record in run.metrics("round")]


def assert_same_server(run: RunDirectory, expected: RunDirectory, atol: float = 0.0) -> None:
    """Both runs end with the same shared parameters."""
    found, right = (Checkpoint.read(each.checkpoint).server for each in (run, expected))
    torch.testing.assert_close(found, right, atol=atol, rtol=0)
