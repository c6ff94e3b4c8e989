"""Removal of clients from a method in closed form, by subtracting their contributions from the average.

The server of such a method has the average M = sum_i n_i m_i / n of the clients' means m_i over n_i of n images
(Eq. 4). Without the clients A it has

    M' = (n M - sum_{i in A} n_i m_i) / (n - sum_{i in A} n_i),

which needs only the images of A. The private parameters of a client depend only on its own images and on parameters
received before the first average, and do not change. Other weights follow from M'; later rounds are repeated.
"""

import numpy as np
import torch

from fedotp._system import own_seconds
from fedotp._values import show
from fedotp.config import Config
from fedotp.federation import Checkpoint, RoundReport, Simulator
from fedotp.methods import IMAGES
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import Loop, Preparation, opened
from fedotp.runs.watch import Observer, watched

CLOSE = 1e-10
"""Tolerance for numbers of the state, compared with a run without the clients."""
_MARK = {"by": "subtraction"}  # in the line of such a round
_MOST = 1000  # forgotten images per remaining image: above, rounding of the sums would exceed `CLOSE`


def obstacle(before: RunDirectory) -> str:
    """Return why clients of a run cannot be forgotten by subtraction; "" if its configuration permits it."""
    config = before.config
    method, privacy, server = config.method, config.privacy, config.server
    reasons = {
        f"{method.title} learns in steps": not method.in_closed_form,
        f"the server of {method.title} does not average updates": not method.averages,
        f"privacy.unit = {show(privacy.unit)} adds noise": privacy.unit != "none",
        f"server.rule = {show(server.rule)} is not the average": server.rule != "average",
        f"server.name = {show(server.name)} is not the average": server.name != "average",
        f"attack.name = {show(config.attack.name)} changes the updates": config.attack.name != "none",
        "[authors] changes the updates": config.authors != type(config.authors)(),
        "real sites have the images": before.is_deployed,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def subtract(
    before: RunDirectory, after: RunDirectory, config: Config, observer: Observer | None, progress: bool | None
) -> None:
    """Make or complete the run `after` of `config`, which is `before` without some clients and has no `obstacle`.

    The round is repeated if other clients participate, since held-out clients are redrawn, or if too few images remain.
    """
    with watched(observer, progress) as watcher:
        preparation = Preparation(before.config, watcher)
        everyone = preparation.prepare(before.config, before)
        prepared = preparation.prepare(config, after if after.is_begun else None, before.partition)
        whole = Simulator(before.config.method, everyone.task, everyone.data, before.config.settings)
        with opened(prepared, after, watcher) as (loop, left):
            if left.round == 0:
                _subtract_round(before, whole, left, loop)
            loop.go()


def _subtract_round(before: RunDirectory, whole: Simulator, left: Simulator, loop: Loop) -> None:
    """Advance `left` by its round, if possible; `whole` is the federation of `before`, before its round."""
    start = own_seconds()
    rounds, seed, sizes = left.settings.federation, left.settings.seed, whole.data.train.sizes
    stay = rounds.survivors(rounds.sampled(left.members, 0, seed), 0, seed)
    took_part = np.array([client for record in before.metrics("round") for client in record["answered"]], np.int64)
    gone = np.setdiff1d(took_part, stay)
    n_gone, n_left = int(sizes(gone).sum()), int(sizes(stay).sum())
    if not np.isin(stay, took_part).all() or len(stay) < rounds.min_clients or n_gone > _MOST * n_left:
        return
    sent = [whole.upload(clients, result) for clients, result in whole.train(whole.round_work(gone))]
    uploads = {name: torch.cat([part[name] for part in sent]) for name in (sent[0] if sent else ())}
    if any(value.dtype != torch.float64 for value in uploads.values()):  # too coarse for `CLOSE`
        return
    state = Checkpoint.read(before.checkpoint)
    weights = torch.from_numpy(sizes(gone)).to(whole.device, torch.float64)
    left.server.load(state.server)
    for name, value in uploads.items():
        total = (n_gone + n_left) * left.server.params[name]
        left.server.params[name] = (total - torch.tensordot(weights, value, dims=1)) / n_left
    if IMAGES in left.server.params:
        left.server.params[IMAGES] = left.server.params[IMAGES].new_tensor(n_left)
    clients, rows = state.rows(before.kept)
    staying = np.isin(clients, stay)
    left.kept.write(clients[staying], {name: value[staying] for name, value in rows.items()})
    left.round = 1
    report = RoundReport(
        round=1,
        sampled=stay,
        answered=stay,
        loss=np.full(len(stay), np.nan),
        examples=sizes(stay),
        lr=left.lr,
        bytes_down=0,
        bytes_up=sum(value.numel() * value.element_size() for value in uploads.values()),
        n_images=n_gone,
        seconds=own_seconds() - start,
    )
    progress = loop.progress
    progress.round, progress.bytes_up, progress.train_seconds = 1, report.bytes_up, report.seconds
    line = {"kind": "round", **report.as_dict(), **_MARK}
    progress.metrics_bytes, progress.metrics_digest = loop.directory.append_metrics(line)
    left.save(loop.directory.checkpoint, progress)


def is_subtracted(run: RunDirectory) -> bool:
    """True if the round of a run was made by subtraction."""
    return any(record.items() >= _MARK.items() for record in run.metrics("round"))


def is_close(one: RunDirectory, other: RunDirectory) -> bool:
    """True if all parameters of server and clients are equal within `CLOSE`."""
    states = [Checkpoint.read(run.checkpoint) for run in (one, other)]
    (clients, rows), (others, other_rows) = (
        state.rows(run.kept) for state, run in zip(states, (one, other), strict=True)
    )
    if not np.array_equal(clients, others):
        return False
    pairs = ((states[0].server, states[1].server), (rows, other_rows))
    return all(
        mine.keys() == theirs.keys()
        and all(
            value.shape == theirs[name].shape and torch.allclose(value, theirs[name], rtol=0, atol=CLOSE)
            for name, value in mine.items()
        )
        for mine, theirs in pairs
    )
