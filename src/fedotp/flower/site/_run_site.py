"""A site at work until it is stopped."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from huggingface_hub import constants

from fedotp._files import held
from fedotp._interrupt import listen
from fedotp.flower._log import start_logging
from fedotp.flower._start import quiet_flower
from fedotp.flower.keys import SiteKeys
from fedotp.flower.link import Executor, SuperNode
from fedotp.flower.site._app import app
from fedotp.flower.site._private import make_private
from fedotp.flower.site._site import SiteSettings

log = logging.getLogger("fedotp.site")


def run_site(settings: SiteSettings, server: str, keys: SiteKeys | None) -> None:
    """Connect to the server at HOST:PORT and do what it asks, until the process is told to stop."""
    os.umask(0o077)  # whatever is written here is its owner's only
    quiet_flower(settings.state / "flower")
    stay_offline()
    start_logging()
    own = {item.name: _plain(getattr(settings, item.name)) for item in fields(settings)}
    own = {key: value for key, value in own.items() if value not in ("", -1)}

    def answer(message: Message, context: Context) -> Message:
        context.node_config = own  # what the site decided, whatever came with the message
        with node.working():
            return app(message, context)

    node = SuperNode(server, keys, settings.state)
    executor = Executor(node.address, node.secret, answer)
    stopping = partial(log.info, "stopping when the message in progress is done; once more stops at once")
    with alone_in(settings.state), listen(stopping) as stop:
        node.start()
        try:
            while not stop.wanted:
                node.require_hope()
                executor.step()
        except KeyboardInterrupt:
            log.info("stopped at once; the server asks for the message in progress again")
            raise
        finally:
            node.stop()


def stay_offline() -> None:
    """Download nothing because a server asks for it.

    The hub's library reads the environment once, and has done so already where the site's images come from the hub.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"
    constants.HF_HUB_OFFLINE = True


def _plain(value: Any) -> bool | float | int | str:
    return value if isinstance(value, int | float) else str(value)


@contextmanager
def alone_in(state: Path) -> Iterator[None]:
    """Hold a site's folder, for its owner only: two processes must not write to it."""
    make_private(state)
    with held(state / "lock", f"{state} is held by another `fedotp client`; stop it, or give another --state"):
        yield
