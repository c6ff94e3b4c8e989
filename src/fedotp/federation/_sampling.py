"""Who takes part in a round."""

import difflib
from collections.abc import Sequence

import numpy as np

from fedotp._toml import show
from fedotp.errors import FedotpError, SettingError, listed
from fedotp.federation._random import Ints, draws, order
from fedotp.federation._settings import EvaluationSettings, RoundSettings


def held_out(settings: RoundSettings, names: Sequence[str], domains: Sequence[str | None], seed: int) -> Ints:
    """The clients that never train, in ascending order: those named, by their own or their domain's name, or drawn."""
    if settings.holdout:
        return _named(settings.holdout, names, domains)
    k, n_clients = settings.holdout_clients, len(names)
    if k >= n_clients:
        raise FedotpError(
            f"federation.holdout_clients = {k}: must leave at least one of the {n_clients} clients to train"
        )
    return np.sort(order(draws(seed, "holdout"), n_clients)[:k])


def _named(wanted: Sequence[str], names: Sequence[str], domains: Sequence[str | None]) -> Ints:
    known = list(dict.fromkeys([*(domain for domain in domains if domain is not None), *names]))
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
            right = f"names of clients or domains; did you mean {show(near)}? ({listed(known)})"
            raise SettingError("federation.holdout", show(tuple(wanted)), right)
    away = [i for i, here in enumerate(zip(names, domains, strict=True)) if not set(here).isdisjoint(wanted)]
    if len(away) == len(names):
        right = f"fewer names: somebody must be left to train, and these are all {len(names)} clients"
        raise SettingError("federation.holdout", show(tuple(wanted)), right)
    return np.array(away, np.int64)


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
