"""Who takes part in a round."""

import numpy as np

from fedotp.errors import FedotpError
from fedotp.federation._random import Ints, draws, order
from fedotp.federation._settings import EvaluationSettings, RoundSettings


def held_out(settings: RoundSettings, n_clients: int, seed: int) -> Ints:
    """The clients that never train, in ascending order."""
    k = settings.holdout_clients
    if k >= n_clients:
        raise FedotpError(
            f"federation.holdout_clients = {k}: must leave at least one of the {n_clients} clients to train"
        )
    return np.sort(order(draws(seed, "holdout"), n_clients)[:k])


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
