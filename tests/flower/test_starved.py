"""Answers that come too late, twice, half or never: the server's calls into Flower are retried, and no round waits.

A real SuperLink, and Flower's own connection of a SuperNode; processors that are starved are played by lost answers and
a clock that jumps.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supernode import fleet_http_connection

from fedotp.errors import TransientError
from fedotp.flower.link import _transport
from fedotp.flower.link._flwr import set_sender, use_clock
from fedotp.flower.link._superlink import free_port, superlink
from fedotp.flower.link._transport import Transport, is_lost

pytestmark = pytest.mark.filterwarnings("ignore:GitWildMatch:DeprecationWarning")  # of Flower's own


def content() -> RecordDict:
    arrays = ArrayRecord({"shared": Array(np.arange(6.0)), "more": Array(np.ones(3))})
    return RecordDict({"arrays": arrays, "config": ConfigRecord({"round": 1})})


def pass_seconds(seconds: float) -> None:
    """Let SuperLink's clock be so far ahead."""
    use_clock(lambda: datetime.now(UTC) + timedelta(seconds=seconds))


class Site:
    """A site's end of Flower's connection."""

    def __init__(self, connection: Any, beat: Callable[[], bool]) -> None:
        self.beat = beat
        self.node, self.receive, self.send, _, _, self._pull, self._push, self._confirm = connection

    def take(self) -> Message | None:
        """The next message, without its content; it is not confirmed."""
        received = self.receive()
        return received[0] if received else None

    def pull(self, message: Message) -> dict[str, bytes]:
        """All parts of a message, which is confirmed then."""
        known = get_all_nested_objects(Message(content(), reply_to=message).content)
        parts = {name: self._pull(message.metadata.run_id, name) for name in known}
        self._confirm(message.metadata.run_id, message.metadata.message_id)
        return parts

    def begin_answer(self, message: Message) -> list[Callable[[], None]]:
        """Announce an answer; what is left to do for it, part by part."""
        reply = Message(content(), reply_to=message)
        set_sender(reply, self.node)
        reply.metadata.__dict__["_message_id"] = reply.object_id
        parts = {name: part.deflate() for name, part in get_all_nested_objects(reply).items()}
        missing, session = self.send(reply, get_object_tree(reply), 0.0)
        assert len(missing) > 2
        return [lambda name=name: self._push(reply.metadata.run_id, session, name, parts[name]) for name in missing]


@pytest.fixture
def playing(monkeypatch: pytest.MonkeyPatch, flowers_clock: None) -> Iterator[tuple[Any, Site]]:
    """A run's grid, and a site that is connected to it."""
    monkeypatch.setattr(_transport, "_RETRIES", (0.0,) * 3)
    beats: list[Callable[[], bool]] = []

    def sender(beat: Callable[[], bool]) -> SimpleNamespace:  # which beats when the test says so
        beats.append(beat)
        return SimpleNamespace(start=str, stop=str, is_running=False)

    monkeypatch.setattr(fleet_http_connection, "HeartbeatSender", sender)
    port = free_port()
    with (
        superlink("127.0.0.1", port, None) as link,
        link.run() as grid,
        fleet_http_connection.http_request_response(f"127.0.0.1:{port}", insecure=True) as connection,
    ):
        yield grid, Site(connection, beats[0])


def order(site: Site) -> Message:
    return Message(content(), dst_node_id=site.node, message_type=MessageType.TRAIN, group_id="1")


def meddle(grid: Any, with_: Callable[[httpx.Request, Callable[[], httpx.Response]], httpx.Response]) -> None:
    """Let `with_` come between the grid and SuperLink: it is given a request, and what would send it."""
    client = grid._runtime_client._client
    send = client.send
    client.send = lambda request, **options: with_(request, lambda: send(request, **options))


def once(call: str, what: Callable[[], object]) -> Callable[..., httpx.Response]:
    """Let `what` happen when SuperLink has answered the first such call."""
    happened: list[str] = []

    def between(request: httpx.Request, send: Callable[[], httpx.Response]) -> httpx.Response:
        answer = send()
        if request.url.path.endswith(call) and not happened:
            happened.append(call)
            what()
        return answer

    return between


def lose() -> None:
    raise httpx.ReadTimeout("too late")


FAULTS = {
    "an answer about who is there is lost": ("get-nodes", lose),
    "an answer to a message is lost": ("push-messages", lose),
    "an answer to a part of it is lost": ("push-object", lose),
    "the session of the push expires": ("push-messages", lambda: pass_seconds(200)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_message_that_flower_fails_to_send_is_sent(fault: str, playing: tuple[Any, Site]) -> None:
    grid, site = playing
    transport = Transport(grid, str)
    meddle(grid, once(*FAULTS[fault]))
    assert list(transport.online()) == [site.node]
    waiting = transport.send([order(site)])
    assert list(waiting.values()) == [site.node]
    message = site.take()
    assert message is not None
    assert all(site.pull(message).values())
    for push in site.begin_answer(message):
        push()
        push()  # twice, or SuperNode drops the rest of the answer, and the server waits for it
    assert site.beat()
    (reply,) = transport.collect(waiting).values()
    np.testing.assert_array_equal(reply.content.array_records["arrays"]["shared"].numpy(), np.arange(6.0))


@pytest.mark.parametrize("status", [None, 401])
def test_a_link_that_stays_broken_ends_in_one_line_and_the_run_can_go_on(
    status: int | None, playing: tuple[Any, Site]
) -> None:
    grid, site = playing
    calls: list[str] = []

    def broken(request: httpx.Request, _send: Callable[[], httpx.Response]) -> httpx.Response:
        calls.append(request.url.path)
        if status is None:
            raise httpx.ReadTimeout("never", request=request)
        return httpx.Response(status, request=request, json={})

    meddle(grid, broken)
    transport = Transport(grid, str)
    for call in (transport.online, lambda: transport.send([order(site)]), lambda: transport.collect({"x": site.node})):
        calls.clear()
        with pytest.raises(TransientError, match=r"SuperLink failed .*; continue with --resume"):
            call()
        assert len(calls) == 4, "it was tried again"


def test_an_answer_that_is_half_there_holds_nobody_up(playing: tuple[Any, Site]) -> None:
    """Flower would wait for the rest for three minutes, whatever became of the site."""
    grid, site = playing
    transport = Transport(grid, str)
    waiting = transport.send([order(site)])
    message = site.take()
    assert message is not None
    site.pull(message)
    first, *_ = site.begin_answer(message)
    first()
    assert transport.collect(waiting) == {}
    pass_seconds(61)  # two of Flower's heartbeats are missing
    (reply,) = transport.collect(waiting).values()
    assert is_lost(reply)


def test_a_message_that_was_lost_on_its_way_to_a_site_is_delivered_again(playing: tuple[Any, Site]) -> None:
    grid, site = playing
    transport = Transport(grid, str)
    waiting = transport.send([order(site)])
    first = site.take()  # and the connection breaks
    assert first is not None
    assert site.take() is None
    for seconds, comes_again in ((59, False), (62, True)):
        assert site.beat()
        pass_seconds(seconds)
        assert transport.collect(waiting) == {}
        again = site.take()
        assert (again is not None) is comes_again
    assert again is not None
    assert again.metadata.message_id == first.metadata.message_id
    site.pull(again)
    assert site.beat()
    pass_seconds(121)
    assert transport.collect(waiting) == {}
    assert site.take() is None, "it has it"
