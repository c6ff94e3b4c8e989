"""The worker of a site: takes messages of the server from the local SuperNode and answers them.

Flower would start a process for every message, which would load the backbone every time, and run the code that came
with the run. This worker stays, and runs nothing but the installed fedotp.
"""

import logging
import time
from collections.abc import Callable
from functools import partial

import httpx
from flwr.app import Context, Error, Message

from fedotp.flower.link._flwr import (
    FAILURES,
    ErrorCode,
    HeartbeatSender,
    RuntimeHttpClient,
    SubStatus,
    TaskType,
    acquire_task,
    pull_task_input,
    push_message,
    push_task_output,
    runtime_client,
    send_heartbeat,
)

log = logging.getLogger("fedotp.site")

App = Callable[[Message, Context], Message]
_NAME = "fedotp client"
_PAUSE = 0.1


class Executor:
    """Works for the SuperNode at `address`, whose Runtime API asks for `secret`."""

    def __init__(self, address: str, secret: bytes, app: App) -> None:
        """Nothing is connected yet."""
        self._address = address
        self._app = app
        self._client = runtime_client(address, _NAME, secret=secret)

    def step(self) -> bool:
        """Do one piece of work, if there is one; whether there was."""
        try:
            token = acquire_task(self._client, TaskType.CLIENT_APP)
        except httpx.HTTPError as error:  # the SuperNode is not up yet, or gone, or on its way
            log.debug("no work from the SuperNode: %s", error)
            time.sleep(_PAUSE)
            return False
        if not token:
            time.sleep(_PAUSE)
            return False
        try:
            self._work(token)
        except FAILURES as error:
            log.warning(
                "an answer is lost, SuperNode did not take it (%s); the server asks again", type(error).__name__
            )
        except Exception:  # a message that cannot be read must not end the site
            log.exception("a message could not be taken or answered")
        return True

    def _work(self, token: str) -> None:
        client = runtime_client(self._address, _NAME, token=token)
        heartbeat = HeartbeatSender(partial(_send_heartbeat, client))
        heartbeat.start()
        try:
            message, context, _, _ = pull_task_input(client)
            status, details = SubStatus.COMPLETED, ""
            try:
                reply = self._app(message, context)
            except Exception as error:  # the server receives any error, and the site continues
                log.exception("the message could not be worked on")
                status, details = SubStatus.FAILED, f"{type(error).__name__}; the site's own log says more"
                reply = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, details), reply_to=message)
            push_message(client, reply, context)
            push_task_output(client, context, status, details)
        finally:
            heartbeat.stop()
            client.close()


def _send_heartbeat(client: RuntimeHttpClient) -> bool:
    """Report to SuperNode that its message is in progress; False: retry soon.

    A SuperNode that was restarted does not know the message; Flower's own worker would then exit.
    """
    try:
        send_heartbeat(client)
    except httpx.TransportError:
        return False
    except httpx.HTTPError as error:
        log.debug("the SuperNode does not know the message that is worked on: %s", error)
    return True
