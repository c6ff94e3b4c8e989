"""Messages to sites and their answers, whatever becomes of a site in between."""

import logging
import time
from collections.abc import Iterable

import httpx
from flwr.app import Error, Message, MessageType, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

log = logging.getLogger("fedotp.server")

_PAUSE = 0.2  # between two looks for answers
_LOOK_AROUND = 2.0  # between two looks for sites that were restarted


class Post:
    """Sends and collects over Flower's grid."""

    def __init__(self, grid: Grid) -> None:
        """`grid` is Flower's."""
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
            reply.metadata.__dict__["_src_node_id"] = node
        return replies

    def exchange(self, messages: Iterable[Message], timeout: float) -> dict[int, Message]:
        """Send and wait: the first answer of every node that gives one in time.

        A node that was restarted has forgotten what it was asked, and is asked again.
        """
        asked = {message.metadata.dst_node_id: message for message in messages}
        came = self.online()
        waiting = self.send(asked.values())
        answers: dict[int, Message] = {}
        end = time.monotonic() + timeout
        look_around = time.monotonic() + _LOOK_AROUND
        while waiting and time.monotonic() < end:
            for node, reply in self.collect(waiting).items():
                answers.setdefault(node, reply)
            if time.monotonic() > look_around:
                look_around = time.monotonic() + _LOOK_AROUND
                online = self.online()
                restarted = [n for n, at in online.items() if n in asked and at != came.get(n)]
                came |= online
                again = [node for node in restarted if node not in answers]
                for node in again:
                    log.warning("node %d was restarted while it was asked: asking again", node)
                gone = {number for number, node in waiting.items() if node in again}
                waiting = {number: node for number, node in waiting.items() if number not in gone}
                waiting |= self.send(_again(asked[node]) for node in again)
            if waiting:
                time.sleep(_PAUSE)
        return answers


def _again(message: Message) -> Message:
    """The same message, once more."""
    meta = message.metadata
    return Message(
        message.content, dst_node_id=meta.dst_node_id, message_type=meta.message_type, group_id=meta.group_id
    )
