"""Messages of secure sums, in both directions; keys are made of names instead of drawn, so that records fit."""

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from flwr.app import Context, RecordDict

from fedotp.errors import FedotpError
from fedotp.flower.secure import SiteSession
from fedotp.flower.secure._crypto import KeyPair
from fedotp.flower.server import ServerSettings, _secure_rounds, _serve
from fedotp.flower.site._app import app
from flower.near_sites import NearGrid, make_deployable, named, parts
from fuzz.reader import Reader, inputs_of
from fuzz.readers.runs import toy_inputs
from fuzz.readers.sites import CLASSES, RecordedGrid, kind_of, prepare_process, read_message, write_message

_SITES = 3
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


def _recorded(folder: Path) -> Path:
    """What a server asked and its sites answered, once: recorded-secure/NODE/{asked,answered}/KIND/*.object."""
    made = inputs_of(folder) / "recorded-secure"
    if not made.is_dir():
        with _without_chance():
            grid = NearGrid(parts(inputs_of(folder) / "secure", _SITES))
            _serve_with(grid, folder, inputs_of(folder) / "recorded-secure-run")
        for asked, answered in zip(grid.sent, grid.answered, strict=True):
            place = made / str(asked.metadata.dst_node_id)
            write_message(asked, place / "asked" / kind_of(asked))
            write_message(answered, place / "answered" / kind_of(asked))
    return made


def _make(what: str, folder: Path) -> None:
    recorded = _recorded(folder)
    shutil.copytree(recorded / "100" / what, folder / what)


def _make_answers(folder: Path) -> None:
    _make("answered", folder)


def _make_orders(folder: Path) -> None:
    _make("asked", folder)


def _serve_answers(folder: Path) -> None:
    """A whole run of the server, in which one site's answers are forged."""
    recorded = _recorded(folder)
    with _without_chance():
        _serve_with(RecordedGrid(parts(folder, _SITES), recorded, folder / "answered"), folder, folder / "run")


def _obey(folder: Path) -> None:
    """A site that goes through a sum as it was recorded, one message forged."""
    config = parts(folder / "state", _SITES)[100]
    context = Context(run_id=1, node_id=100, node_config=config, state=RecordDict(), run_config={}, series_id=1)
    with _without_chance():
        for step in _STEPS:
            try:
                message = read_message(folder / "asked" / step)
            except Exception as error:  # Flower's own, before anything of ours is called
                raise FedotpError(f"Flower does not read it: {error}") from error
            if message.has_content() and message.metadata.message_type in _STEPS:
                app(message, context)


_FILES = tuple(f"answered/{step}/*" for step in _STEPS), tuple(f"asked/{step}/*" for step in _STEPS)

READERS = [
    Reader("secure-answers", _make_answers, _serve_answers, files=_FILES[0]),
    Reader("secure-orders", _make_orders, _obey, files=_FILES[1]),
]
