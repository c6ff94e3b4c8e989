"""The parameters of a run, read from its directory, and those of a client that joins after training."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from fedotp._files import write_atomically
from fedotp.data import Dataset, OnProgress, load_dataset
from fedotp.data.partition import Client
from fedotp.data.store import EncodedDataset
from fedotp.errors import FedotpError, listed
from fedotp.federation import Checkpoint, FederatedData, Ints, Simulator
from fedotp.federation.testing import Evaluation
from fedotp.methods import Method, Parameters, Task
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one._inputs import encode_for, load_backbone, make_task


class StoredParameters(NamedTuple):
    """The stored parameters of a run, by their names in its method.

    Attributes:
        server: parameters of the server, no client axis.
        private: (C, ...) private parameters of clients; empty for a method without any.
        clients: (C,) their numbers. A client that has not trained yet has no row and uses the initial parameters.
    """

    server: Parameters
    private: Parameters
    clients: Ints

    @classmethod
    def of(cls, run: str | Path | RunDirectory) -> "StoredParameters":
        """Read the latest checkpoint of `run`, on the CPU."""
        directory = RunDirectory.open(run)
        if not directory.checkpoint.is_file():
            raise FedotpError(f"{directory.path} has no checkpoint yet; resume it with `{directory.resume_command}`")
        stored = Checkpoint.read(directory.checkpoint)
        clients, rows = stored.rows(directory.kept)
        private = {name: value for name, value in rows.items() if not name.startswith("optimizer.")}
        return cls(stored.server, private, clients if private else clients[:0])

    def kept_by(self, method: Method, task: Task, client: int) -> Parameters:
        """Return the private parameters of a client, no client axis; the initial ones if it has not trained yet."""
        initial = method.private(task)
        if client not in self.clients:
            return initial
        row = int(np.flatnonzero(self.clients == client)[0])
        return {name: self.private[name][row] for name in initial}

    def deployed(self, method: Method, task: Task, private: Parameters, client: int | None) -> Parameters:
        """Return the parameters (1, ...) of a client's predictions before fine-tuning, given its `private` ones.

        `client` is its number in the run, None if it is new.
        """
        server = {name: _placed(value, task) for name, value in self.server.items()}
        number = None if client is None else torch.tensor([client], device=task.device)
        own = {name: _placed(value[None], task) for name, value in private.items()}
        return method.deployed(method.send(server, number, 1), own)


def join(
    path: str | Path,
    data: str | Path,
    *,
    site: str | None = None,
    name: str | None = None,
    epochs: int = 0,
    on_progress: OnProgress | None = None,
) -> dict[str, Any]:
    """Fit a private prompt for a new client of the run at `path`, and evaluate it on its own test images.

    The server's parameters do not change. The result is written to `joined/<name>/` in the run's directory:
    `private.safetensors`, and `result.json`, which is also returned; its "before" is the client with the run's shared
    prompt and an untrained private one, "after" with the fitted one.

    Args:
        data: a folder of images, a table of them, or the name of a data set; its classes must be among the run's.
        site: use only the images of this site (or domain).
        name: the name of the client; default: that of the site or of the data set.
        epochs: local epochs; 0 for as many as a client of the run trained in all its rounds.
        on_progress: called as images are encoded, as by `fedotp.data.store.encode`.
    """
    run = RunDirectory.open(path)
    stored = StoredParameters.of(run)
    config, classes = run.config, run.manifest["data"]["classes"]
    dataset = load_dataset(data) if site is None else load_dataset(data).of_site(site)
    number = class_numbers(classes, dataset, "the run")
    name = name or site or dataset.name
    folder = _new_folder(run, name)
    clip = load_backbone(config.backbone.source, config.compute.device)
    run.require_same("backbone", config.backbone.name, clip.digest)
    own_data = replace(config.data, window=config.data.window_of(name))
    encoded = encode_for(replace(config, data=own_data), dataset, clip, on_progress)
    images = _as_one_client(encoded, name, number)
    task = make_task(config, clip, classes, run.manifest["template"])
    rounds, evaluation = config.federation, replace(config.evaluation, views=("personal",))
    rounds = replace(rounds, holdout_clients=0, holdout=(), without=(), join_epochs=epochs or rounds.join_epochs)
    settings = replace(config.settings, federation=rounds, evaluation=evaluation)
    simulator = Simulator(config.method, task, images, settings)
    simulator.server.load(stored.server)
    alone = np.zeros(1, np.int64)
    predictions = {"before": simulator.predict_new(alone), "after": simulator.join(alone)}
    evaluations = {when: Evaluation.of(lines, len(task.classes), (None,)) for when, lines in predictions.items()}
    private = simulator.kept.read(alone, simulator.device)
    tensors = {key: private[key][0].cpu().contiguous() for key in simulator.private_names}
    dataset = encoded.dataset
    result = {
        "client": name,
        "data": {"name": dataset.name, "digest": dataset.digest, "split": dataset.split_note},
        "train_images": len(dataset.train),
        "test_images": len(dataset.test),
        "skipped": list(dataset.skipped),
        **{when: evaluation.of_client(0) for when, evaluation in evaluations.items()},
        "prior": simulator.tester.class_prior(0),
    }
    write_atomically(folder / "private.safetensors", safetensors.torch.save(tensors))
    write_atomically(folder / "result.json", json.dumps(result, indent=2) + "\n")
    return result


def _new_folder(run: RunDirectory, name: str) -> Path:
    """Return the folder of a new client in a run; raise an error if it exists or its name is invalid."""
    folder = run.path / "joined" / name
    if Path(name).name != name or name in (".", ".."):
        raise FedotpError(f"--name {name!r}: must be a valid folder name without separators")
    if folder.exists():
        raise FedotpError(f"{folder} already exists; choose another --name")
    return folder


def _as_one_client(encoded: EncodedDataset, name: str, number: Ints) -> FederatedData:
    """Return all images as those of one client; `number` are the numbers of its classes in the run."""
    client = Client(name, None, np.arange(len(encoded.train)), np.arange(len(encoded.test)))
    images = FederatedData.of(encoded, [client])
    return replace(
        images,
        train=replace(images.train, labels=number[images.train.labels]),
        test=replace(images.test, labels=number[images.test.labels]),
    )


def class_numbers(known: Sequence[str], dataset: Dataset, where: str) -> Ints:
    """Return the indices in `known` of the classes of `dataset`, which can be fewer."""
    unknown = [name for name in dataset.classes if name not in known]
    if unknown:
        raise FedotpError(
            f"{dataset.name} has the class {unknown[0]!r}, which is unknown to {where}; its classes are {listed(known)}"
        )
    return np.array([known.index(name) for name in dataset.classes])


def _placed(value: Tensor, task: Task) -> Tensor:
    """Move a tensor to the task's device and precision, except for sums in float64."""
    return value.to(task.device, value.dtype if value.dtype == torch.float64 else task.dtype)
