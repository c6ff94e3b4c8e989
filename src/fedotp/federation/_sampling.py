"""Rounds, the clients that take part in each of them, and random numbers without state.

Every draw is named by its purpose: it depends on the seed, the purpose, the round and the client, and on nothing that
happened before. So a resumed run needs no saved generators, clients trained side by side draw what they would draw
alone, and a site that is one client of a real federation draws what the simulator would draw for it.
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
    """The generator of one purpose, for example `draws(seed, "batches", round, client)`."""
    entropy = np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), *numbers])
    return np.random.Generator(np.random.PCG64(entropy))


def order(rng: np.random.Generator, n: int) -> Ints:
    """A random order of 0 to n - 1."""
    return np.argsort(rng.random(n), kind="stable")


@dataclass(frozen=True)
class RoundSettings:
    """Rounds and who takes part in them.

    Attributes:
        rounds: T, how many rounds there are.
        local_epochs: R, passes over its images a client makes in a round (Algorithm 2 draws one batch per epoch; the
            authors' code and this one pass over all images).
        batch_size: images of a client in a training step.
        drop_last: leave out the last, smaller batch of an epoch, where a client has at least one whole batch.
        prior: how much of the logarithm of a client's own class frequencies is added to its logits in the training loss
            (logit adjustment, Menon et al., ICLR 2021), so that prompts learn what the frequencies do not say. 0 for
            none, as in the paper. With it, predict with `evaluation.prior`, too.
        participation: share of the clients sampled for a round, at least one.
        first_round: "sampled" as in the paper's algorithm, or "all", as for FedOTP in the authors' code, where
            every client trains in the first round.
        dropout: probability that a sampled client fails in mid-round; its work of that round is lost.
        min_clients: a round in which fewer clients answer changes nothing at the server.
        holdout_clients: clients, drawn from the seed, that never train; at the end they join and are evaluated.
        holdout: clients that never train, by name or by their domain's name: ["sketch"] leaves one domain out.
        join_epochs: epochs in which a client that joins fits its private prompt; 0 stands for rounds x local_epochs.
        without: clients, by name, that are excluded: their images are not used for training or evaluation, and draws
            are made among the others. The federation is run as if they had never been in it.
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
            drawn = f"left out: holdout_clients = {self.holdout_clients} draws who is held out; give one of the two"
            raise SettingError("federation.holdout", show(self.holdout), drawn)
        require_from(0, MOST, "federation.join_epochs", self.join_epochs)

    def absent(self, names: Sequence[str]) -> Ints:
        """The clients that are excluded (`without`), in ascending order."""
        _require_known("without", self.without, list(names), "names of clients")
        away = [number for number, name in enumerate(names) if name in self.without]
        if len(away) == len(names):
            raise _none_left("without", self.without, len(names))
        return np.array(away, np.int64)

    def held_out(self, names: Sequence[str], domains: Sequence[str | None], seed: int) -> Ints:
        """The clients that never train, in ascending order: those named, by their own or their domain's name, or drawn.

        Excluded clients (`absent`) are not among them.
        """
        there = np.setdiff1d(np.arange(len(names)), self.absent(names))
        if self.holdout:
            return np.intersect1d(there, _named(self.holdout, names, domains, there))
        k, n_clients = self.holdout_clients, len(there)
        if k >= n_clients:
            raise FedotpError(
                f"federation.holdout_clients = {k}: must leave at least one of the {n_clients} clients to train"
            )
        return np.sort(there[order(draws(seed, "holdout"), n_clients)[:k]])

    def sampled(self, members: Ints, round_: int, seed: int) -> Ints:
        """C_t, the clients among `members` sampled for a round, in ascending order (Algorithm 2)."""
        if round_ == 0 and self.first_round == "all":
            return members
        k = self.n_sampled(len(members))
        return np.sort(members[order(draws(seed, "sample", round_), len(members))[:k]])

    def n_sampled(self, n_members: int) -> int:
        """How many of the members are sampled for a round."""
        return max(1, round(self.participation * n_members))

    def survivors(self, clients: Ints, round_: int, seed: int) -> Ints:
        """The sampled clients that do not fail in mid-round."""
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
    right = f"fewer names: a client must be left to train, and these are all {n_clients} clients"
    return SettingError(f"federation.{key}", show(tuple(wanted)), right)
