"""A site at work until it is stopped."""

import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from threading import Event
from typing import Any

from flwr.app import Context, Message

from fedotp._files import cannot_write
from fedotp.errors import FedotpError
from fedotp.flower._executor import Executor
from fedotp.flower._keys import SiteKeys
from fedotp.flower._log import start_logging
from fedotp.flower._site import SiteSettings
from fedotp.flower._supernode import SuperNode, quiet_flower


def run_site(settings: SiteSettings, server: str, keys: SiteKeys | None) -> None:
    """Connect to the server at HOST:PORT and do what it asks, until the process is told to stop."""
    start_logging()
    quiet_flower(settings.state / "flower")
    os.environ["HF_HUB_OFFLINE"] = "1"  # a site downloads nothing because a server asks for it
    from fedotp.flower.client_app import app  # Flower reads the environment when it is imported

    own = {item.name: _plain(getattr(settings, item.name)) for item in fields(settings)}
    own = {key: value for key, value in own.items() if value not in ("", -1)}

    def answer(message: Message, context: Context) -> Message:
        context.node_config = own  # what the site decided, whatever came with the message
        return app(message, context)

    node = SuperNode(server, keys, settings.state)
    executor = Executor(node.address, node.secret, answer)
    with alone_in(settings.state), _until_stopped() as stopped:
        try:
            while not stopped.is_set():
                node.watch()
                executor.step()
        finally:
            node.stop()


def _plain(value: Any) -> bool | float | int | str:
    return value if isinstance(value, int) else str(value)


@contextmanager
def alone_in(state: Path) -> Iterator[None]:
    """Hold a site's folder, for its owner only: two processes must not write to it."""
    path = state / "lock"
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = open(path, "a")  # noqa: SIM115  (closed below, after the lock)
    except OSError as error:
        raise cannot_write(path, error) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FedotpError(f"{state} is held by another `fedotp client`; stop it, or give another --state") from None
        yield


@contextmanager
def _until_stopped() -> Iterator[Event]:
    """An event that is set by Ctrl-C or by whoever manages services; the message in progress is finished first.

    Whoever asks twice does not want to wait for it.
    """
    stopped = Event()

    def handle(*_: object) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
