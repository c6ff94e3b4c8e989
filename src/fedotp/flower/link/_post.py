"""Messages to sites and their answers, whatever becomes of a site in between."""

import logging
import time
from collections.abc import Iterable

import httpx
from flwr.app import Error, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedotp.flower.link._flwr import LOST, ErrorCode, set_sender

log = logging.getLogger("fedotp.server")

_PAUSE = 0.2  # between two looks for answers
_LOOK_AROUND = 2.0  # between two looks for sites that were restarted


class Post:
    """Sends and collects over Flower's grid."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def online(self) -> dict[int, str]:
        """The nodes that are connected, with the moment they came: one that is restarted comes anew."""
        return {node.node_id: node.last_activated_at for node in self._grid.get_nodes()}

    def send(self, messages: Iterable[Message]) -> dict[str, int]:
        """Send; the numbers of the messages and the nodes they go to. What a node cannot be sent is left out."""
        listed = list(messages)
        numbers = self._grid.push_messages(listed) if listed else []
        pairs = zip(numbers, listed, strict=False)  # none at all, if they are too large for Flower
        return {number: message.metadata.dst_node_id for number, message in pairs if number}

    def collect(self, waiting: dict[str, int]) -> dict[int, Message]:
        """The answers that are there, by node; their messages are taken out of `waiting`."""
        answers = {}
        for number, node in list(waiting.items()):
            for reply in self._pull(number, node):
                del waiting[number]
                answers[node] = reply
        return answers

    def _pull(self, number: str, node: int) -> list[Message]:
        """The answer to one message, if it is there. Who sent it is known, whatever the answer says itself."""
        try:
            replies = list(self._grid.pull_messages([number]))[:1]
        except httpx.HTTPError:  # it is the SuperLink that fails
            raise
        except Exception as error:  # a stranger's bytes that Flower cannot read
            what = Error(ErrorCode.UNKNOWN, f"its answer cannot be read ({type(error).__name__})")
            asked = Message(RecordDict(), dst_node_id=node, message_type=MessageType.QUERY)
            replies = [Message(what, reply_to=asked)]
        for reply in replies:
            set_sender(reply, node)
        return replies

    def exchange(self, messages: Iterable[Message], timeout: float, patience: float = 0.0) -> dict[int, Message]:
        """Send and wait: the first answer of every node that gives one in time.

        A node that was restarted has forgotten what it was asked, and is asked again; so is one that was lost and
        comes back within `patience` seconds.
        """
        asked = {message.metadata.dst_node_id: message for message in messages}
        came = self.online()
        waiting = self.send(asked.values())
        answers: dict[int, Message] = {}
        lost: dict[int, float] = {}  # nodes, and when they were lost
        now = time.monotonic()
        end, look_around = now + timeout, now + _LOOK_AROUND
        while (waiting or lost) and now < end:
            for node, reply in self.collect(waiting).items():
                if is_lost(reply) and patience:
                    lost[node] = now
                    log.warning("node %d was lost while it was asked", node)
                else:
                    answers.setdefault(node, reply)
            if now > look_around:
                look_around = now + _LOOK_AROUND
                online = self.online()
                again = [n for n, at in online.items() if n in asked and (at != came.get(n) or n in lost)]
                again = [node for node in again if node not in answers]
                came |= online
                for node in again:
                    log.warning("node %d is there again: asking again", node)
                waiting = {number: node for number, node in waiting.items() if node not in again}
                waiting |= self.send(_again(asked[node]) for node in again)
                lost = {node: at for node, at in lost.items() if node not in again and now - at < patience}
            if waiting or lost:
                time.sleep(_PAUSE)
            now = time.monotonic()
        return answers


def is_lost(reply: Message) -> bool:
    """Whether Flower says that a node, or what it sent, did not arrive; it is not the site that says so."""
    return reply.has_error() and reply.error.code in LOST


def _again(message: Message) -> Message:
    """The same message, once more."""
    meta = message.metadata
    return Message(
        message.content, dst_node_id=meta.dst_node_id, message_type=meta.message_type, group_id=meta.group_id
    )
