"""Rounds, sampling of clients, and stateless random numbers.

A draw depends only on the seed, its purpose, the round and the client. So resuming a run needs no saved generators, and
draws are the same for clients trained side by side or alone, and in a simulation or at a real site.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedotp._values import MOST, Words, require, require_choices, require_from, show
from fedotp.errors import FedotpError, SettingError, listed, nearest

Ints = NDArray[np.int64]


def draws(seed: int, purpose: str, *numbers: int) -> np.random.Generator:
    """Return the generator of one purpose, for example `draws(seed, "batches", round, client)`."""
    entropy = np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), *numbers])
    return np.random.Generator(np.random.PCG64(entropy))


def order(rng: np.random.Generator, n: int) -> Ints:
    """Return a random permutation of 0 to n - 1."""
    return np.argsort(rng.random(n), kind="stable")


@dataclass(frozen=True)
class RoundSettings:
    """Rounds and participating clients.

    Attributes:
        rounds: number T of rounds.
        local_epochs: number R of local epochs in a round (in Algorithm 2 an epoch is one batch; in the authors' code
            and here it is a pass over all images).
        batch_size: images per client in a training step.
        drop_last: skip the last, smaller batch of an epoch if the client has at least one full batch.
        prior: factor of the logarithm of the client's class frequencies that is added to its logits in the training
            loss (logit adjustment, Menon et al., ICLR 2021). 0 for none, as in the paper. If set, also set
            `evaluation.prior`.
        participation: share of the clients sampled for a round, at least one client.
        first_round: "sampled" as in the paper's algorithm, or "all" clients train in the first round, as for FedOTP in
            the authors' code.
        dropout: probability that a sampled client fails during the round; its update is lost.
        min_clients: minimum number of answers; the server discards a round with fewer.
        holdout_clients: number of clients, drawn from the seed, that never train; at the end they join and are
            evaluated.
        holdout: clients that never train, by their name or their domain's name: ["sketch"] excludes one domain.
        join_epochs: epochs in which a joining client fits its private parameters; 0 for rounds x local_epochs.
        without: names of clients to exclude. Their images are not used for training or evaluation, and the federation
            runs as if they had never been part of it.
    """

    rounds: int = 10
    local_epochs: int = 5
    batch_size: int = 32
    drop_last: bool = False
    prior: float = 0.0
    participation: float = 1.0
    first_round: Literal["sampled", "all"] = "sampled"
    dropout: float = 0.0
    min_clients: int = 1
    holdout_clients: int = 0
    holdout: Words = ()
    join_epochs: int = 0
    without: Words = ()

    def __post_init__(self) -> None:
        require_from(0, MOST, "federation.rounds", self.rounds)
        require_from(1, MOST, "federation.local_epochs", self.local_epochs)
        require_from(1, MOST, "federation.batch_size", self.batch_size, ", for example 32")
        require_from(0, 10, "federation.prior", self.prior)
        require(0 < self.participation <= 1, "federation.participation", self.participation, "in (0, 1]")
        require_choices(self, "federation.")
        require(0 <= self.dropout < 1, "federation.dropout", self.dropout, "in [0, 1)")
        require_from(1, MOST, "federation.min_clients", self.min_clients)
        require_from(0, MOST, "federation.holdout_clients", self.holdout_clients)
        if self.holdout and self.holdout_clients:
            both = f"[] with holdout_clients = {self.holdout_clients}; set only one of the two"
            raise SettingError("federation.holdout", show(self.holdout), both)
        require_from(0, MOST, "federation.join_epochs", self.join_epochs)

    def absent(self, names: Sequence[str]) -> Ints:
        """Return the excluded clients (`without`) in ascending order."""
        _require_known("without", self.without, list(names), "names of clients")
        away = [number for number, name in enumerate(names) if name in self.without]
        if len(away) == len(names):
            raise _none_left("without", self.without, len(names))
        return np.array(away, np.int64)

    def held_out(self, names: Sequence[str], domains: Sequence[str | None], seed: int) -> Ints:
        """Return the clients that never train, named or drawn, in ascending order, without excluded clients."""
        there = np.setdiff1d(np.arange(len(names)), self.absent(names))
        if self.holdout:
            return np.intersect1d(there, _named(self.holdout, names, domains, there))
        k, n_clients = self.holdout_clients, len(there)
        if k >= n_clients:
            raise FedotpError(f"federation.holdout_clients = {k}: must be less than the number of clients, {n_clients}")
        return np.sort(there[order(draws(seed, "holdout"), n_clients)[:k]])

    def sampled(self, members: Ints, round_: int, seed: int) -> Ints:
        """Return C_t, the clients among `members` sampled for a round, in ascending order (Algorithm 2)."""
        if round_ == 0 and self.first_round == "all":
            return members
        k = self.n_sampled(len(members))
        return np.sort(members[order(draws(seed, "sample", round_), len(members))[:k]])

    def n_sampled(self, n_members: int) -> int:
        """Return the number of members sampled for a round."""
        return max(1, round(self.participation * n_members))

    def survivors(self, clients: Ints, round_: int, seed: int) -> Ints:
        """Return the sampled clients that do not fail during the round."""
        if not self.dropout:
            return clients
        lives = [draws(seed, "dropout", round_, int(client)).random() >= self.dropout for client in clients]
        return clients[np.array(lives, bool)]


def _named(wanted: Sequence[str], names: Sequence[str], domains: Sequence[str | None], there: Ints) -> Ints:
    known = list(dict.fromkeys([*(domain for domain in domains if domain is not None), *names]))
    _require_known("holdout", wanted, known, "names of clients or domains")
    away = [i for i, here in enumerate(zip(names, domains, strict=True)) if not set(here).isdisjoint(wanted)]
    if not len(np.setdiff1d(there, away)):
        raise _none_left("holdout", wanted, len(there))
    return np.array(away, np.int64)


def _require_known(key: str, wanted: Sequence[str], known: list[str], what: str) -> None:
    for name in wanted:
        if name not in known:
            meant = f"; did you mean {show(near)}?" if (near := nearest(name, known)) else ""
            right = f"{what}{meant} ({listed(known)})"
            raise SettingError(f"federation.{key}", show(tuple(wanted)), right)


def _none_left(key: str, wanted: Sequence[str], n_clients: int) -> SettingError:
    right = f"fewer names: these are all {n_clients} clients, and at least one must train"
    return SettingError(f"federation.{key}", show(tuple(wanted)), right)
