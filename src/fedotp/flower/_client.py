"""A site at work until it is stopped."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from threading import Event
from typing import Any

from flwr.app import Context, Message

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
    try:
        with _until_stopped() as stopped:
            while not stopped.is_set():
                node.watch()
                executor.step()
    finally:
        node.stop()


def _plain(value: Any) -> bool | float | int | str:
    return value if isinstance(value, int) else str(value)


@contextmanager
def _until_stopped() -> Iterator[Event]:
    """An event that is set by Ctrl-C or by whoever manages services; the message in progress is finished first."""
    stopped = Event()
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
