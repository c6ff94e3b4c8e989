"""Attacks on a simulated federation: selection of attackers, their updates and training images.

With x the server's parameters and u_i the honest update of client i, an attacker sends, by `name`,

    sign-flip    x - scale (u_i - x)
    scaled       x + scale (u_i - x)
    colluding    mean_j u_j - scale std_j u_j over the honest clients j of the round, number by number: equal updates
                 within the spread of the honest ones, "a little is enough" [1] with full knowledge
    label-flip   x + scale (u_i - x), trained with its images of the source labelled as the target
    backdoor     x + scale (u_i - x), trained with the patch on a share of its images, which are labelled as the target
                 [2]; with a large scale model replacement [3]

[1] Baruch, Baruch, Goldberg: A little is enough: circumventing defenses for distributed learning, NeurIPS 2019.
[2] Gu, Dolan-Gavitt, Garg: BadNets: identifying vulnerabilities in the machine learning model supply chain, 2017.
[3] Bagdasaryan et al.: How to backdoor federated learning, AISTATS 2020.
"""

from dataclasses import replace

import numpy as np
import torch

from fedotp.errors import FedotpError, SettingError
from fedotp.federation._data import Backdoor, FederatedData, Images
from fedotp.federation._sampling import Ints, draws, order
from fedotp.federation._settings import AttackSettings
from fedotp.methods import Parameters


class Attack:
    """The attackers of a federation, by their numbers (none without an attack)."""

    def __init__(self, settings: AttackSettings, members: Ints, absent: Ints, seed: int) -> None:
        """Draw attackers among `members`, which train, and `absent` clients, so that these do not affect the draw."""
        self.settings = settings
        self.seed = seed
        self.clients = np.empty(0, np.int64)
        if settings.name == "none":
            return
        possible = np.union1d(members, absent)
        n = max(1, round(settings.share * len(possible)))
        if n >= len(possible):
            right = f"smaller, so that at least one of {len(possible)} clients is honest"
            raise SettingError("attack.share", str(settings.share), right)
        drawn = possible[order(draws(seed, "attack"), len(possible))[:n]]
        self.clients = np.intersect1d(drawn, members)

    def on_data(self, data: FederatedData, backdoor: Backdoor | None) -> FederatedData:
        """Return the federation's images, with the modified images and labels of attackers."""
        if not self.settings.is_on_data:
            return data
        if backdoor is None:
            raise FedotpError(f'attack.name = "{self.settings.name}": needs the images of a `backdoor`')
        n = len(data.train.labels)
        own = list(data.train.clients)
        for client, stream in zip(self.clients, data.draws(self.seed, "poison", 0, self.clients), strict=True):
            rows = own[client].copy()
            share = self.settings.poisoned if self.settings.name == "backdoor" else 1.0
            shown = order(stream, len(rows))[: max(1, round(share * len(rows)))]
            rows[shown] += n
            own[client] = rows
        groups = None if data.train.groups is None else np.tile(data.train.groups, 2)
        return replace(data, train=Images(backdoor.train, backdoor.labels, tuple(own), groups))

    @torch.no_grad()
    def on_updates(self, server: Parameters, clients: Ints, sent: Parameters) -> Parameters:
        """Replace the updates `sent` (C, ...) of the attackers among `clients` (C,)."""
        bad = np.isin(clients, self.clients)
        if not bad.any() or (self.settings.is_on_data and self.settings.factor == 1):
            return sent
        at, others = (torch.from_numpy(np.flatnonzero(which)) for which in (bad, ~bad))
        factor = -self.settings.factor if self.settings.name == "sign-flip" else self.settings.factor
        changed = {}
        for name, value in sent.items():
            own, honest, start = (x.double() for x in (value[at], value[others], server[name]))
            if self.settings.name != "colluding":
                own = start + factor * (own - start)
            elif len(honest):
                own = (honest.mean(0) - factor * honest.std(0, correction=0)).expand_as(own)
            changed[name] = value.index_copy(0, at.to(value.device), own.to(value.dtype))
        return changed
