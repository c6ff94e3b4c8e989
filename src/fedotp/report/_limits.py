"""Prediction sets and flags of clients on their own test images: half for calibration, the other half for testing."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedotp.classifier import looks_of
from fedotp.errors import FedotpError
from fedotp.federation import Simulator
from fedotp.limits import FLAGGED, Calibration, least_images, prediction_sets, threshold
from fedotp.report._client import Floats, choose
from fedotp.runs.one import Prepared

_CLIENTS, _IMAGES = 12, 256  # maximum of clients, and of images of each
_CHUNK = 32  # images whose similarities to all classes are in memory at a time
_HALVES = 100  # random divisions of a client's images
_ASKED = 0.9


@dataclass(frozen=True)
class ClientLimits:
    """Means over random divisions of a client's test images into halves.

    Attributes:
        images: number of calibration images.
        coverage: share of sets that contain the true class; 95 % of the divisions are between `low` and `high`.
        size: classes in a set.
        by_all: coverage if calibrated with images of all clients; None for one client.
        flagged: share of its own images flagged as unlike its own.
        others_flagged: share of the other clients' images flagged.
    """

    client: str
    images: int
    coverage: float
    low: float
    high: float
    size: float
    by_all: float | None
    flagged: float
    others_flagged: float | None


@dataclass(frozen=True)
class Limits:
    """Limits of some clients, at a coverage of `asked`."""

    asked: float
    clients: tuple[ClientLimits, ...]


@dataclass(frozen=True, eq=False)
class _Judged:
    """Predictions of a client for n of its test images: probabilities (n, K), labels (n,), looks (n, e)."""

    probabilities: Floats
    labels: NDArray[np.int64]
    looks: Floats

    @property
    def scores(self) -> Floats:
        """Nonconformity (lac) of the true classes (n,)."""
        return 1 - self.probabilities[np.arange(len(self.labels)), self.labels]


def measure_limits(prepared: Prepared, simulator: Simulator) -> Limits:
    """Measure the limits of twelve clients, evenly spread, except those with too few images."""
    least = 2 * least_images(_ASKED)
    sizes = dict(zip(prepared.data.names, map(len, prepared.data.test.clients), strict=True))
    able = [name for name in choose(prepared, most=_CLIENTS) if sizes[name] >= least]
    if not able:
        raise FedotpError(f"no prediction sets: a coverage of {_ASKED:g} needs {least} test images of a client")
    judged = {name: _judge(prepared, simulator, name) for name in able}
    rng = np.random.default_rng(0)
    halves = {name: [_half(len(each.labels), rng) for _ in range(_HALVES)] for name, each in judged.items()}
    common = [
        threshold(np.sort(np.concatenate([judged[name].scores[halves[name][i][0]] for name in able])), _ASKED)
        for i in range(_HALVES)
    ]
    return Limits(_ASKED, tuple(_of_client(name, judged, halves[name], common) for name in able))


def _judge(prepared: Prepared, simulator: Simulator, client: str) -> _Judged:
    number, test, task = prepared.data.names.index(client), prepared.data.test, simulator.task
    rows = np.random.default_rng(number).permutation(test.clients[number])[:_IMAGES]
    predictor = simulator.predictor(np.array([number]))
    probabilities, looks = [], []
    for start in range(0, len(rows), _CHUNK):
        image, _ = test.read(rows[None, start : start + _CHUNK], 0, task.device, task.dtype)
        probabilities.append(predictor.log_probabilities(predictor.scores(image))[0].exp().cpu().numpy())
        looks.append(looks_of(image)[0])
    return _Judged(np.concatenate(probabilities), test.labels[rows], np.concatenate(looks))


def _half(n: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    order = rng.permutation(n)
    return order[: n // 2], order[n // 2 :]


def _of_client(
    client: str,
    judged: dict[str, _Judged],
    halves: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
    common: Sequence[float],
) -> ClientLimits:
    own = judged[client]
    others = [each.looks for name, each in judged.items() if name != client]
    covered, sizes, by_all, flagged, others_flagged = [], [], [], [], []
    for (known, new), most in zip(halves, common, strict=True):
        calibration = Calibration.of(own.probabilities[known], own.labels[known], own.looks[known])
        members = calibration.sets(own.probabilities[new], _ASKED)
        covered.append(_share(members, own.labels[new]))
        sizes.append(members.sum(-1).mean())
        by_all.append(_share(prediction_sets(own.probabilities[new], most), own.labels[new]))
        flagged.append((calibration.p_values(own.looks[new]) <= FLAGGED).mean())
        others_flagged += [(calibration.p_values(np.concatenate(others)) <= FLAGGED).mean()] if others else []
    low, high = np.quantile(covered, [0.025, 0.975])
    return ClientLimits(
        client,
        len(halves[0][0]),
        float(np.mean(covered)),
        float(low),
        float(high),
        float(np.mean(sizes)),
        float(np.mean(by_all)) if others else None,
        float(np.mean(flagged)),
        float(np.mean(others_flagged)) if others else None,
    )


def _share(members: NDArray[np.bool_], labels: NDArray[np.int64]) -> float:
    """Return the share of sets (n, K) that contain the true class (n,)."""
    return float(members[np.arange(len(labels)), labels].mean())
