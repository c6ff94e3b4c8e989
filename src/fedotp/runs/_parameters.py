"""The prompts of a run, read from its directory alone: neither data nor backbone are needed."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from fedotp.errors import FedotpError
from fedotp.federation import Ints, load_rows, load_server
from fedotp.methods import Method, Parameters, Task
from fedotp.runs._directory import RunDirectory


class StoredParameters(NamedTuple):
    """What a run holds, by the names its method gives.

    Attributes:
        server: what the server has, no client axis.
        private: (C, ...) what clients keep; empty for a method that keeps nothing.
        clients: (C,) their numbers. A client that has trained nothing yet has no row: it stands at the start.
    """

    server: Parameters
    private: Parameters
    clients: Ints


def stored_parameters(run: str | Path | RunDirectory) -> StoredParameters:
    """The server's parameters and the clients' own, as the latest checkpoint of `run` has them; on the CPU."""
    directory = run if isinstance(run, RunDirectory) else RunDirectory.open(run)
    if not directory.checkpoint.is_file():
        raise FedotpError(f"{directory.path} has no checkpoint yet; go on with `{directory.resume_command}`")
    clients, rows = load_rows(directory.checkpoint, directory.kept)
    private = {name: value for name, value in rows.items() if not name.startswith("optimizer.")}
    return StoredParameters(load_server(directory.checkpoint), private, clients if private else clients[:0])


def kept_by(stored: StoredParameters, method: Method, task: Task, client: int) -> Parameters:
    """What a client keeps, no client axis; one that has trained nothing yet stands at the start."""
    initial = method.private(task)
    if client not in stored.clients:
        return initial
    row = int(np.flatnonzero(stored.clients == client)[0])
    return {name: stored.private[name][row] for name in initial}


def deployed_parameters(
    stored: StoredParameters, method: Method, task: Task, private: Parameters, client: int | None
) -> Parameters:
    """What a client predicts with (1, ...), given what it keeps (no client axis); before fine-tuning, if there is any.

    `client` is its number in the run, None if it is new there.
    """
    server = {name: value.to(task.device, task.dtype) for name, value in stored.server.items()}
    number = None if client is None else torch.tensor([client], device=task.device)
    own = {name: value[None].to(task.device, task.dtype) for name, value in private.items()}
    return method.deployed(method.send(server, number, 1), own)
