"""All that is asked of Ray: a connection, tasks on nodes, and a mailbox for their messages."""

import logging
import os
import socket
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # before Ray is imported: no usage statistics

import ray
from ray import ObjectRef, exceptions
from ray.util.queue import Queue
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fedotp._imports import VARIABLE
from fedotp._text import one_line
from fedotp.errors import FedotpError
from fedotp.runs.many._node import Cancelled, Failed, Lost, Message
from fedotp.runs.many._trials import why

Task = ObjectRef[Any]  # of what a function returned on a node
Need = tuple[int, float]  # CPUs and GPUs

_TURN = 1.0  # seconds of one wait
_ANSWER = 20.0  # seconds in which a cluster answers
_HANDED_ON = (VARIABLE, "FEDOTP_CACHE", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
_LOST = (
    exceptions.NodeDiedError,
    exceptions.WorkerCrashedError,
    exceptions.LocalRayletDiedError,
    exceptions.OutOfMemoryError,
)


class Cluster:
    """A connection, which lasts as long as this process: what nodes have loaded for it they keep."""

    def __init__(self) -> None:
        if ray.is_initialized():
            return
        address = _address()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # advice on settings of Ray's own
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise _no_cluster(one_line(error, 160)) from error

    def room(self, need: Need) -> int:
        """For how many tasks at a time there is room."""
        cpus, gpus = need
        rooms = 0
        for node in ray.nodes():
            has = node["Resources"] if node["Alive"] else {}
            by_cpus = has.get("CPU", 0) // cpus
            rooms += int(min(by_cpus, has.get("GPU", 0) / gpus) if gpus else by_cpus)
        return rooms

    def start(self, need: Need, function: Callable[..., object], *arguments: object) -> Task:
        """Call a function of fedotp on a node, when there is room; it has those GPUs and this environment."""
        handed_on = {name: os.environ[name] for name in _HANDED_ON if name in os.environ}
        cpus, gpus = need
        there = ray.remote(function).options(
            num_cpus=cpus, num_gpus=gpus, max_retries=0, runtime_env={"env_vars": handed_on}
        )
        return there.remote(*arguments)

    def cancel(self, tasks: Iterable[Task], *, force: bool) -> None:
        """Interrupt tasks as Ctrl-C does; with `force`, end their processes."""
        for task in tasks:
            ray.cancel(task, force=force)

    def result(self, task: Task) -> Any:
        """What it returned; or it was lost, cancelled, or failed."""
        try:
            return ray.get(task)
        except exceptions.TaskCancelledError as error:
            raise Cancelled from error
        except _LOST as error:
            raise Lost(one_line(str(error).partition(". ")[0])) from error
        except exceptions.RayTaskError as error:
            cause = error.cause if isinstance(error.cause, Exception) else error
            if isinstance(cause, exceptions.RaySystemError):  # it has no such code
                what = one_line(str(cause).partition("traceback: ")[0])
                raise Failed(f"a node could not begin ({what}): all need the same fedotp as this machine") from error
            raise Failed(why(cause)) from error
        except exceptions.RayError as error:
            raise Failed(one_line(error, 300)) from error

    @contextmanager
    def mailbox(self) -> "Iterator[Mailbox]":
        """One on this very node, so that it is not lost with another."""
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        queue = Queue(actor_options={"num_cpus": 0, "scheduling_strategy": here})
        try:
            yield Mailbox(queue.actor)
        finally:
            queue.shutdown(force=True)


def _address() -> str:
    """Of $RAY_ADDRESS or of the last `ray start` here.

    Ray alone would also take another user's cluster on this machine, and wait for minutes if none answers.
    """
    last = Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir()), "ray", "ray_current_cluster")
    address = os.environ.get("RAY_ADDRESS", "auto")
    if address in ("", "auto"):
        if not last.is_file():
            raise _no_cluster("there is none yet")
        address = last.read_text().strip()
    host, _, port = address.rpartition(":")
    if "/" in host or not port.isdecimal():
        raise FedotpError(f"RAY_ADDRESS = {address}: must be HOST:PORT, of a cluster that this machine is a node of")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(f"no answer at {address}") from error
    return address


def _no_cluster(why: str) -> FedotpError:
    return FedotpError(
        "no Ray cluster: start one with `ray start --head` on this machine, and with what that prints on the others, "
        f"or name one by RAY_ADDRESS ({why})"
    )


class Mailbox:
    """The messages of nodes, one after the other."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._next = self._actor.get.remote()

    @property
    def send(self) -> Callable[[object], object]:
        """For nodes: send a message, and do not wait until it has come."""
        return partial(_send, self._actor)

    def wait(self, tasks: Sequence[Task]) -> tuple[list[Message], list[Task]]:
        """Wait a moment for a message or the end of one of `tasks`; return what there is of both."""
        refs = [self._next, *tasks]
        ray.wait(refs, timeout=_TURN)
        ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
        messages = []
        if self._next in ready:
            ready.remove(self._next)
            messages.append(ray.get(self._next))
            self._next = self._actor.get.remote()
        return messages, ready


def _send(actor: Any, message: object) -> None:
    actor.put_nowait.remote(message)
