"""Who takes part in a round."""

from collections.abc import Sequence

import numpy as np

from fedotp._values import show
from fedotp.errors import FedotpError, SettingError, listed, nearest
from fedotp.federation._random import Ints, draws, order
from fedotp.federation._settings import EvaluationSettings, RoundSettings


def absent(settings: RoundSettings, names: Sequence[str]) -> Ints:
    """The clients that have no part in anything (`federation.without`), in ascending order."""
    _require_known("without", settings.without, list(names), "names of clients")
    away = [number for number, name in enumerate(names) if name in settings.without]
    if len(away) == len(names):
        raise _nobody_left("without", settings.without, len(names))
    return np.array(away, np.int64)


def held_out(settings: RoundSettings, names: Sequence[str], domains: Sequence[str | None], seed: int) -> Ints:
    """The clients that never train, in ascending order: those named, by their own or their domain's name, or drawn.

    Those that have no part in anything (`absent`) are not among them.
    """
    there = np.setdiff1d(np.arange(len(names)), absent(settings, names))
    if settings.holdout:
        return np.intersect1d(there, _named(settings.holdout, names, domains, there))
    k, n_clients = settings.holdout_clients, len(there)
    if k >= n_clients:
        raise FedotpError(
            f"federation.holdout_clients = {k}: must leave at least one of the {n_clients} clients to train"
        )
    return np.sort(there[order(draws(seed, "holdout"), n_clients)[:k]])


def _named(wanted: Sequence[str], names: Sequence[str], domains: Sequence[str | None], there: Ints) -> Ints:
    known = list(dict.fromkeys([*(domain for domain in domains if domain is not None), *names]))
    _require_known("holdout", wanted, known, "names of clients or domains")
    away = [i for i, here in enumerate(zip(names, domains, strict=True)) if not set(here).isdisjoint(wanted)]
    if not len(np.setdiff1d(there, away)):
        raise _nobody_left("holdout", wanted, len(there))
    return np.array(away, np.int64)


def _require_known(key: str, wanted: Sequence[str], known: list[str], what: str) -> None:
    for name in wanted:
        if name not in known:
            meant = f"; did you mean {show(near)}?" if (near := nearest(name, known)) else ""
            right = f"{what}{meant} ({listed(known)})"
            raise SettingError(f"federation.{key}", show(tuple(wanted)), right)


def _nobody_left(key: str, wanted: Sequence[str], n_clients: int) -> SettingError:
    right = f"fewer names: somebody must be left to train, and these are all {n_clients} clients"
    return SettingError(f"federation.{key}", show(tuple(wanted)), right)


def sampled(settings: RoundSettings, members: Ints, round_: int, seed: int) -> Ints:
    """C_t, the clients among `members` sampled for a round, in ascending order (Algorithm 2)."""
    if round_ == 0 and settings.first_round == "all":
        return members
    k = n_sampled(settings, len(members))
    return np.sort(members[order(draws(seed, "sample", round_), len(members))[:k]])


def n_sampled(settings: RoundSettings, n_members: int) -> int:
    """How many of the members are sampled for a round."""
    return max(1, round(settings.participation * n_members))


def survivors(settings: RoundSettings, clients: Ints, round_: int, seed: int) -> Ints:
    """Those of the sampled clients that do not fail in mid-round."""
    if not settings.dropout:
        return clients
    lives = [draws(seed, "dropout", round_, int(client)).random() >= settings.dropout for client in clients]
    return clients[np.array(lives, bool)]


def drawn_for_evaluation(settings: EvaluationSettings, everyone: Ints, round_: int, seed: int) -> Ints | None:
    """Those of `everyone` that are evaluated after a round, in ascending order; None for all."""
    if not 0 < settings.clients < len(everyone):
        return None
    return np.sort(everyone[order(draws(seed, "evaluate", round_), len(everyone))[: settings.clients]])
