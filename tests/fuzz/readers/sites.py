"""Keys, Flower's messages in both directions, and what a site keeps."""

import contextlib
import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import flwr.supercore.inflatable.inflatable_object as objects
from flwr.app import Context, Message, RecordDict
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

import fedotp.flower.link._transport
import fedotp.flower.server._registration
from fedotp.errors import FedotpError
from fedotp.flower.keys import ServerKeys, SiteKeys, key_facts, make_keys
from fedotp.flower.secure import SiteSession
from fedotp.flower.secure._crypto import KeyPair
from fedotp.flower.server import ServerSettings, _secure_rounds, _serve
from fedotp.flower.server._deployed import Deployed
from fedotp.flower.server._serve import resume_serving, serve
from fedotp.flower.site._app import app
from flower.near_sites import NearGrid, make_deployable, named, parts
from fuzz.reader import Reader, inputs_of
from fuzz.reader import fedotp as command
from fuzz.readers.runs import Deadly, StoppedError, forge_run, toy_inputs

_SITES = 2
CLASSES = ("blue", "green", "red")


# A message on disk is a folder of Flower's objects, the message itself first -----------------------------------


def write_message(message: Message, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, each) in enumerate(reversed(objects.get_all_nested_objects(message).items())):
        (folder / f"{number:02d}-{name}.object").write_bytes(each.deflate())


def read_message(folder: Path) -> Message:
    """As Flower does. Ids are not compared with contents: who forges an object gives it the right id."""
    contents = {path.stem[3:]: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
    message = inflate_object_from_contents(next(iter(contents)), contents)
    if not isinstance(message, Message):
        raise ValueError("not a message")
    return message


# A federation, recorded ----------------------------------------------------------------------------------------


def _record(made: Path, nodes: dict[int, dict[str, Any]], run: Callable[[NearGrid, Path], object]) -> Path:
    """What a server asked and its sites answered, once: made/NODE/{asked,answered}/KIND/*.object."""
    if not made.is_dir():
        grid = NearGrid(nodes)
        run(grid, made.with_name(f"{made.name}-run"))
        for asked, answered in zip(grid.sent, grid.answered, strict=True):
            place = made / str(asked.metadata.dst_node_id)
            write_message(asked, place / "asked" / kind_of(asked))
            write_message(answered, place / "answered" / kind_of(asked))
    return made


def _recorded(folder: Path) -> Path:
    prepare_process()
    run = partial(_served, folder=folder, timeout=30, classes=())
    return _record(inputs_of(folder) / "recorded", _nodes(inputs_of(folder)), lambda grid, out: run(grid, out=out))


def _nodes(folder: Path) -> dict[int, dict[str, Any]]:
    return parts(folder, _SITES, share="predictions")


def _served(
    grid: Any, folder: Path, out: Path, timeout: float, *, n_rounds: int = 1, unit: str = "none", **options: Any
) -> None:
    rounds = {"rounds": n_rounds, "min_clients": 1}
    config = make_deployable(toy_inputs(folder), federation=rounds, privacy={"unit": unit})
    serve(grid, config, ServerSettings(round_timeout=timeout), out, **named(grid), **options)


def kind_of(message: Message) -> str:
    """What is asked: "query", "train", "evaluate", or "hello" where the server does not know the classes yet."""
    kind = str(message.metadata.message_type)
    agreement = str(message.content.config_records["config"]["agreement"])
    return "hello" if kind == "query" and not json.loads(agreement)["classes"] else kind


@dataclass
class RecordedGrid:
    """Sites that answer what was recorded; the answers of the first are in `forged`."""

    nodes: dict[int, dict[str, Any]]
    recorded: Path
    forged: Path
    _waiting: dict[str, Path] = field(default_factory=dict)
    _numbers: Iterable[int] = field(default_factory=count)

    def get_nodes(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(node_id=node, last_activated_at="first") for node in self.nodes]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        return [self._deliver(message) for message in messages]

    def _deliver(self, message: Message) -> str:
        number, node = str(next(iter(self._numbers))), message.metadata.dst_node_id
        folder = self.forged if node == min(self.nodes) else self.recorded / str(node) / "answered"
        self._waiting[number] = folder / kind_of(message)
        return number

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [read_message(self._waiting.pop(number)) for number in list(message_ids) if number in self._waiting]


def _make(what: str, recorded: Callable[[Path], Path], folder: Path) -> None:
    """What the first site was "asked", or has "answered"."""
    shutil.copytree(min(recorded(folder).iterdir()) / what, folder / what)


def _serve_answers(unit: str, classes: tuple[str, ...], folder: Path) -> None:
    """A whole run of the server, in which one site's answers are forged."""
    grid = RecordedGrid(_nodes(folder), _recorded(folder), folder / "answered")
    _served(grid, folder, folder / "run", 1, classes=classes, unit=unit)


def _honest(folder: Path) -> RecordedGrid:
    recorded = _recorded(folder)
    return RecordedGrid(_nodes(folder), recorded, recorded / str(min(_nodes(folder))) / "answered")


def _make_stopped(folder: Path) -> None:
    """A private run of real sites that was killed after its first round."""
    grid = _honest(folder)
    with contextlib.suppress(StoppedError), mock.patch.object(Deployed, "on_round", Deadly.on_round):
        _served(grid, folder, folder / "run", 1, n_rounds=2, unit="site", classes=CLASSES)


def _resume(folder: Path) -> None:
    grid = _honest(folder)
    resume_serving(grid, folder / "run", ServerSettings(round_timeout=1), **named(grid))


def prepare_process() -> None:
    """Do not pause between two looks, log nothing, and know which run this is, as Flower would say."""
    fedotp.flower.server._registration._PAUSE = fedotp.flower.link._transport._PAUSE = 0.0
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    logging.disable(logging.CRITICAL)


# A site ----------------------------------------------------------------------------------------------------------


def _context(node: int, config: dict[str, Any]) -> Context:
    return Context(run_id=1, node_id=node, node_config=config, state=RecordDict(), run_config={}, series_id=1)


def _deliver(folder: Path, context: Context, kinds: tuple[str, ...]) -> None:
    """Give a site one message, unless Flower does not read it or knows no application for it."""
    try:
        message = read_message(folder)
    except Exception as error:  # Flower's own, before anything of ours is called
        raise FedotpError(f"Flower does not read it: {error}") from error
    if message.has_content() and message.metadata.message_type in kinds:
        app(message, context)


def _obey(folder: Path) -> None:
    """A site that gets all that was recorded, one message forged."""
    prepare_process()
    context = _context(*min(_nodes(folder / "state").items()))
    for kind in sorted((folder / "asked").iterdir()):
        _deliver(kind, context, ("query", "train", "evaluate"))


def _make_private(folder: Path) -> None:
    """A site that has trained for a round, and is asked to go on from there."""
    _make("asked", _recorded, folder)
    _obey(folder)
    for path in folder.rglob("*"):
        if path.is_file() and "state" in path.parts and path.name not in ("private.safetensors", "releases.jsonl"):
            path.unlink()


def _train_again(folder: Path) -> None:
    """The same orders, but the last accepted round is the first."""
    prepare_process()
    context = _context(*min(_nodes(folder / "state").items()))
    message = read_message(folder / "asked" / "train")
    message.content.config_records["config"]["accepted"] = 1
    message.content.config_records["config"]["server-round"] = 2
    app(message, context)


# Keys ------------------------------------------------------------------------------------------------------------


def _make_keys(folder: Path) -> None:
    make_keys(folder / "keys", ["fl.example.org"], ["north", "south"])


def _use_keys(folder: Path) -> None:
    key_facts(folder / "keys")
    key_facts(folder / "keys" / "sites" / "north")
    ServerKeys.read(folder / "keys" / "server")
    SiteKeys.read(folder / "keys" / "sites" / "north")


def _manage_keys(folder: Path) -> None:
    command("keys", "show", folder / "keys")
    command("keys", "sign", folder / "keys", folder / "keys/sites/north/north.csr")
    command("keys", "revoke", folder / "keys", "north")
    command("keys", "renew", folder / "keys")


_ANSWERED, _ASKED = (partial(_make, what, _recorded) for what in ("answered", "asked"))


def _answers(name: str, unit: str = "none") -> Reader:
    """A server that knows the classes: whatever one site answers, the run goes on."""
    known = tuple(f"answered/{kind}/*" for kind in ("query", "train", "evaluate"))
    return Reader(name, _ANSWERED, partial(_serve_answers, unit, CLASSES), files=known, may_refuse=False)


READERS = [
    Reader(
        "site-hello", _ANSWERED, partial(_serve_answers, "none", ()), files=("answered/hello/*", "answered/query/*")
    ),
    _answers("site-answers"),
    _answers("site-answers-dp", unit="site"),
    Reader("server-resume", _make_stopped, _resume, seal=forge_run, files=("run/*.*", "run/state/*")),
    Reader("server-orders", _ASKED, _obey),
    Reader("private-file", _make_private, _train_again, files=("state/**/private.safetensors", "state/**/*.jsonl")),
    Reader("keys", _make_keys, _use_keys, files=("keys/server/*", "keys/sites/*/*")),
    Reader("keys-managed", _make_keys, _manage_keys),
]


_SECURE_SITES = 3
_STEPS = ("query.secure_keys", "query.secure_shares", "train", "query.secure_survivors", "query.secure_signatures")
_begin = SiteSession.__init__


def _foreseeable(site: SiteSession, session: Any, number: int, name: str, identity: Any, **counts: int) -> None:
    """A site whose keys and seed are digests of its name."""
    _begin(site, session, number, name, identity, **counts)
    letters, masks, seed = (hashlib.sha256(f"{name} {what}".encode()).digest() for what in ("letters", "masks", "seed"))
    site._letters, site._masks, site._seed = KeyPair.of(letters), KeyPair.of(masks), seed
    site.advert = replace(site.advert, letters=site._letters.public, masks=site._masks.public)


@contextmanager
def _without_chance() -> Iterator[None]:
    prepare_process()
    same = {"uuid": SimpleNamespace(uuid4=lambda: SimpleNamespace(hex="0" * 32))}
    with (
        mock.patch.object(SiteSession, "__init__", _foreseeable),
        mock.patch.object(_secure_rounds.secrets, "token_hex", lambda n: "1" * 2 * n),
        mock.patch.multiple(_serve, **same),
        mock.patch.multiple(_secure_rounds, _FIRST_PAUSE=0.0, _MOST_VOID=1),
    ):
        yield


def _serve_with(grid: Any, folder: Path, out: Path) -> None:
    inputs = toy_inputs(folder).resolve()  # the same wherever it is read: sites sign the agreement
    config = make_deployable(inputs, federation={"rounds": 1, "min_clients": 1})
    settings = ServerSettings(round_timeout=1, patience=0, secure=True)
    _serve.serve(grid, config, settings, out, classes=CLASSES, **named(grid))


def _secure_recorded(folder: Path) -> Path:
    inputs = inputs_of(folder)
    with _without_chance():
        sites = parts(inputs / "secure", _SECURE_SITES)
        return _record(inputs / "recorded-secure", sites, lambda grid, out: _serve_with(grid, folder, out))


def _secure_serve_answers(folder: Path) -> None:
    """A whole run of the server, in which one site's answers are forged."""
    recorded = _secure_recorded(folder)
    with _without_chance():
        _serve_with(RecordedGrid(parts(folder, _SECURE_SITES), recorded, folder / "answered"), folder, folder / "run")


def _secure_obey(folder: Path) -> None:
    """A site that goes through a sum as it was recorded, one message forged."""
    context = _context(100, parts(folder / "state", _SECURE_SITES)[100])
    with _without_chance():
        for step in _STEPS:
            _deliver(folder / "asked" / step, context, _STEPS)


_ANSWERS, _ORDERS = (tuple(f"{what}/{step}/*" for step in _STEPS) for what in ("answered", "asked"))
SECURE = [
    Reader("secure-answers", partial(_make, "answered", _secure_recorded), _secure_serve_answers, files=_ANSWERS),
    Reader("secure-orders", partial(_make, "asked", _secure_recorded), _secure_obey, files=_ORDERS),
]
