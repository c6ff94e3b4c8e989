"""Directories of runs whose numbers are invented: every file that a report reads, in a blink."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedotp.config import Config
from fedotp.data.partition import Client, Partition, PartitionSettings
from fedotp.federation.testing import Evaluation, Predictions, View
from fedotp.runs.directory import RunDirectory, summary_of_views

_SENT = 32_768  # bytes of a client's shared prompts


def invent_run(
    path: Path,
    *,
    clients: Sequence[str] = ("north", "south", "east"),
    classes: Sequence[str] = ("cat", "dog", "hen", "owl"),
    domains: Sequence[str | None] | None = None,
    n_rounds: int = 4,
    n_test: int = 20,
    seed: int = 0,
    split: int = 0,
    controls: Mapping[str, float] | None = None,
    method: str = "fedotp",
    dataset: str = "farm",
    complete: bool = True,
    share: str | None = None,
    views: bool = False,
    spent: float = 0.0,
) -> RunDirectory:
    """A run of `clients` that get better round by round; one that is not complete lacks its last round and the end.

    With `spent` every round spends so much epsilon. With `views` it was seen on base and novel classes, and so was its
    global part.
    `controls` are accuracies, the same for all clients. With `share` ("nothing", "scores" or "predictions"), the
    clients are real sites that tell so much.
    """
    random = np.random.default_rng([split, seed, *method.encode()] if split else [seed, *method.encode()])
    n_clients, n_classes = len(clients), len(classes)
    domains = tuple(domains or [None] * n_clients)
    rows = np.arange(n_clients * n_test).reshape(n_clients, n_test)
    directory = RunDirectory(path)
    tables = {
        "partition": {"scheme": "dirichlet", "alpha": 0.3, "seed": split},
        "federation": {"rounds": n_rounds},
        "seed": seed,
    }
    config = Config.from_dict({"data": {"dataset": dataset}, "method": {"name": method}, **tables})
    parts = tuple(Client(*facts) for facts in zip(clients, domains, rows, rows, strict=True))
    partition = Partition(dataset, "0" * 64, PartitionSettings("dirichlet", alpha=0.3), parts)
    data = {"name": dataset, "digest": "0" * 64, "classes": [*classes], "train_images": 100, "test_images": 100}
    manifest = {
        "fedotp": "0",
        "started": "2026-01-01T00:00:00+0000",
        "seed": config.seed,
        "method": {"title": config.method.title, "reference": config.method.reference},
        "backbone": {"name": "ViT-B/16", "digest": "0" * 64},
        "data": data,
        "clients": [*clients],
        "domains": [*domains],
    }
    if share is not None:
        manifest["deployment"] = {"run": "0" * 32, "sites": n_clients, "train_images": dict.fromkeys(clients, 30)}
    directory.create(config, manifest, partition if share is None else None)

    label = random.integers(0, n_classes, rows.size)
    client = np.repeat(np.arange(n_clients), n_test)
    for round_ in range(n_rounds + complete):
        right = random.random(rows.size) < 0.95 - 0.5 * np.exp(-2 * round_ / n_rounds) - 0.2 * client / n_clients
        predicted = np.where(right, label, random.integers(0, n_classes, rows.size))
        predictions = Predictions(client, rows.ravel(), label, predicted, random.random(rows.size))
        evaluation = Evaluation.of(predictions, n_classes, domains)
        if round_:
            directory.append_metrics(_round(round_, n_clients) | ({"epsilon": spent * round_} if spent else {}))
        if share != "nothing":
            directory.append_metrics({"kind": "evaluation", "round": round_, "seconds": 0.5, **evaluation.as_dict()})
        for view in _views(predictions, n_classes) if views else ():
            directory.append_metrics({"kind": "view", "round": round_, **view.as_dict()})
    made = directory.metrics
    if complete:
        if share in (None, "predictions"):
            directory.save_predictions(predictions)
        directory.save_summary(
            {
                "rounds": n_rounds,
                "final": evaluation.totals() if share != "nothing" else {},
                "best": {"accuracy": evaluation.mean, "round": n_rounds},
                **summary_of_views(made("evaluation"), made("view"), clients),
                "clients": [
                    {"name": name, **evaluation.of_client(place)} for place, name in enumerate(clients) if controls
                ],
                "controls": {
                    name: {"accuracy": accuracy, "clients": [accuracy] * n_clients}
                    for name, accuracy in (controls or {}).items()
                },
                "domains": evaluation.domains() if share != "nothing" else {},
                "communication": dict.fromkeys(("bytes_up", "bytes_down"), n_rounds * n_clients * _SENT),
                "seconds": {"train": 1.0 * n_rounds, "evaluate": 0.5 * (n_rounds + 1)},
            }
        )
    return directory


def _views(predictions: Predictions, n_classes: int) -> list[View]:
    """Numbers that differ from one another."""
    seen = {("base", "personal"): 0, ("novel", "personal"): 1, ("global", "global"): 2, ("personal", "global"): 3}
    views = []
    for (view, model), start in {**seen, ("novel", "global"): 4}.items():
        one_for_all = model == "global" and view != "personal"
        client = 0 * predictions.client if one_for_all else predictions.client
        lines = replace(predictions, client=client, predicted=np.where(np.arange(len(client)) % 5 == start, 0, client))
        lines = replace(lines, predicted=np.where(lines.client + start > 2, lines.label, lines.predicted))
        evaluation = Evaluation.of(lines, n_classes, (None,) * (int(client.max()) + 1))
        views.append(View(view, model, n_classes, len(client), evaluation))  # type: ignore[arg-type]  # a model
    return views


def _round(number: int, n_clients: int) -> dict[str, Any]:
    everyone = list(range(n_clients))
    return {
        "kind": "round",
        "round": number,
        "sampled": everyone,
        "answered": everyone,
        "loss": 1 / number,
        "client_loss": [1 / number] * n_clients,
        "bytes_up": n_clients * _SENT,
        "bytes_down": n_clients * _SENT,
        "images": 100,
        "seconds": 1.0,
        "lr": 0.001,
    }
