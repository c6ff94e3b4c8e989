"""Messages to sites and their answers, with retries for sites that disconnect or restart."""

import logging
import time
from collections.abc import Callable, Container, Iterable
from typing import TypeVar

from flwr.app import Error, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedotp.errors import TransientError
from fedotp.flower.link._flwr import FAILURES, LOST, ErrorCode, set_sender

log = logging.getLogger("fedotp.server")

_PAUSE = 0.2  # seconds between polls for answers
_LOOK_AROUND = 2.0  # seconds between polls for restarted sites
_RETRIES = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)  # seconds before each retry

_Result = TypeVar("_Result")


class Transport:
    """Sends and collects messages over Flower's grid, with retries. `name_of` maps nodes to sites' names, for the log.

    Nodes that are not, or no longer, in `nodes` count as disconnected (None: all are accepted).
    All calls are idempotent: a message that is pushed twice counts once, and a lost answer is requested again. A
    permanent failure raises TransientError.
    """

    def __init__(self, grid: Grid, name_of: Callable[[int], str], nodes: Container[int] | None = None) -> None:
        self._grid, self._name_of, self._nodes = grid, name_of, nodes
        self.lost_since: dict[int, float] = {}  # nodes that disconnected during a request (`time.monotonic`)

    def online(self) -> dict[int, str]:
        """Return the connected nodes and their times of connection, which change when a site restarts."""
        nodes = _retried(self._grid.get_nodes)
        return {node.node_id: node.last_activated_at for node in nodes if self._accepts(node.node_id)}

    def _accepts(self, node: int) -> bool:
        return self._nodes is None or node in self._nodes

    def send(self, messages: Iterable[Message]) -> dict[str, int]:
        """Send messages; return their numbers and nodes, without those that Flower did not accept."""
        listed = list(messages)
        numbers = list(_retried(lambda: self._grid.push_messages(listed))) if listed else []
        numbers += [""] * (len(listed) - len(numbers))  # Flower returns none if they are too large
        nodes = [message.metadata.dst_node_id for message in listed]
        for number, node in zip(numbers, nodes, strict=True):
            if not number:
                log.warning("site %s: cannot send the request", self._name_of(node))
        return {number: node for number, node in zip(numbers, nodes, strict=True) if number}

    def collect(self, waiting: dict[str, int]) -> dict[int, Message]:
        """Return the answers that have arrived, by node, and remove their messages from `waiting`."""
        answers = {}
        for number, node in list(waiting.items()):
            for reply in self._pull(number, node):
                del waiting[number]
                answers[node] = reply
        return answers

    def _pull(self, number: str, node: int) -> list[Message]:
        """Return the answer to a message, if it has arrived, with the requested node as its sender."""
        try:
            replies = list(_retried(lambda: self._grid.pull_messages([number])))[:1]
        except TransientError:  # a failure of the SuperLink
            raise
        except Exception as error:  # untrusted bytes that Flower cannot parse
            what = Error(ErrorCode.UNKNOWN, f"cannot parse its answer ({type(error).__name__})")
            asked = Message(RecordDict(), dst_node_id=node, message_type=MessageType.QUERY)
            replies = [Message(what, reply_to=asked)]
        for reply in replies:
            set_sender(reply, node)
        return replies

    def exchange(self, messages: Iterable[Message], timeout: float, patience: float = 0.0) -> dict[int, Message]:
        """Send, wait, and return the first answer of every node within `timeout` seconds.

        Repeat a request to a node that has restarted, or that reconnects within `patience` seconds.
        """
        asked = {message.metadata.dst_node_id: message for message in messages}
        came = self.online()
        waiting = self.send(asked.values())
        answers: dict[int, Message] = {}
        lost: dict[int, float] = {}  # times of disconnection, by node
        now = time.monotonic()
        end, look_around = now + timeout, now + _LOOK_AROUND
        while (waiting or lost) and now < end:
            waiting = {number: node for number, node in waiting.items() if self._accepts(node)}
            lost = {node: at for node, at in lost.items() if self._accepts(node)}
            for node, reply in self.collect(waiting).items():
                if is_lost(reply) and patience:
                    lost[node] = self.lost_since[node] = now
                    name, group = self._name_of(node), asked[node].metadata.group_id
                    log.warning("site %s disconnected during round %s; waiting %.0f s", name, group, patience)
                else:
                    answers.setdefault(node, reply)
            if now > look_around:
                look_around = now + _LOOK_AROUND
                online = self.online()
                again = [n for n, at in online.items() if n in asked and (at != came.get(n) or n in lost)]
                again = [node for node in again if node not in answers]
                came |= online
                for node in again:
                    self.lost_since.pop(node, None)
                    log.info("site %s reconnected; repeating the request", self._name_of(node))
                waiting = {number: node for number, node in waiting.items() if node not in again}
                waiting |= self.send(_again(asked[node]) for node in again)
                lost = {node: at for node, at in lost.items() if node not in again and now - at < patience}
            if waiting or lost:
                time.sleep(_PAUSE)
            now = time.monotonic()
        return {node: reply for node, reply in answers.items() if self._accepts(node)}


def _retried(call: Callable[[], _Result]) -> _Result:
    """Call into Flower, with retries."""
    for pause in _RETRIES:
        try:
            return call()
        except FAILURES as error:
            log.debug("Flower: %s: %s; retrying in %.1f s", type(error).__name__, error, pause)
        time.sleep(pause)
    try:
        return call()
    except FAILURES as error:
        raise TransientError(
            f"connection to the internal SuperLink failed ({type(error).__name__}); continue with --resume"
        ) from error


def is_lost(reply: Message) -> bool:
    """True if Flower, not the site, reports that a node or its answer was lost."""
    return reply.has_error() and reply.error.code in LOST


def _again(message: Message) -> Message:
    meta = message.metadata
    return Message(
        message.content, dst_node_id=meta.dst_node_id, message_type=meta.message_type, group_id=meta.group_id
    )
