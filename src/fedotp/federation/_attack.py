"""Attacks on a simulated federation: who the attackers are, what they send, what they train on.

With x the server's parameters and u_i what client i would send, an attacker sends, by `name`,

    sign-flip    x - scale (u_i - x)
    scaled       x + scale (u_i - x)
    colluding    mean_j u_j - scale std_j u_j over the honest clients j of the round, number by number: the same from
                 all, and as near to the others as some of them are to each other. "A little is enough" [1], of
                 attackers who know everything.
    label-flip   x + scale (u_i - x), trained with its images of the source labelled as the target
    backdoor     x + scale (u_i - x), trained with the patch on a share of its images, which are labelled as the target:
                 [2], by model replacement [3] where the scale is large

[1] Baruch, Baruch, Goldberg: A little is enough: circumventing defenses for distributed learning, NeurIPS 2019.
[2] Gu, Dolan-Gavitt, Garg: BadNets: identifying vulnerabilities in the machine learning model supply chain, 2017.
[3] Bagdasaryan et al.: How to backdoor federated learning, AISTATS 2020.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch

from fedotp.errors import FedotpError, SettingError
from fedotp.federation._data import Features, FederatedData, Images
from fedotp.federation._random import Ints, draws, order
from fedotp.federation._rule import why_no_average
from fedotp.federation._settings import AttackSettings
from fedotp.methods import Method, Parameters, Task


@dataclass(frozen=True, eq=False)
class Trap:
    """What attackers train on, and what tells whether they succeed.

    `train` and `labels` (2 n,) are the n training images as they are, then as attackers show and label them. `test` are
    the test images as attackers show them; success is measured on `rows` of them, to be taken for the class `target`.
    """

    train: Features
    labels: Ints
    test: Features
    target: Ints
    rows: Ints


def trap_labels(settings: AttackSettings, classes: tuple[str, ...], labels: Ints) -> tuple[Ints, Ints]:
    """The labels (n,) that attackers give, and the rows whose class changes by it."""
    target = _number(classes, "target", settings.target or classes[0])
    changes = labels != target
    if settings.name == "label-flip" and settings.source:
        source = _number(classes, "source", settings.source)
        if source == target:
            raise SettingError("attack.source", repr(settings.source), "another class than attack.target")
        changes = labels == source
    return np.where(changes, target, labels), np.flatnonzero(changes)


def _number(classes: tuple[str, ...], key: str, name: str) -> int:
    if name not in classes:
        raise SettingError(f"attack.{key}", repr(name), f"one of the classes: {', '.join(classes)}")
    return classes.index(name)


class Attack:
    """The attackers of a federation, by their numbers (none without an attack)."""

    def __init__(self, settings: AttackSettings, method: Method, task: Task, members: Ints, seed: int) -> None:
        """Of `members`, who train."""
        self.settings = settings
        self.clients = np.empty(0, np.int64)
        if settings.name == "none":
            return
        if why := why_no_average(method, task):
            raise FedotpError(f'attack.name = "{settings.name}": must be "none", as the server of {method.title} {why}')
        n = max(1, round(settings.share * len(members)))
        if n >= len(members):
            right = f"less: nobody honest is left of {len(members)} clients"
            raise SettingError("attack.share", str(settings.share), right)
        self.clients = np.sort(members[order(draws(seed, "attack"), len(members))[:n]])

    def on_data(self, data: FederatedData, trap: Trap | None, seed: int) -> FederatedData:
        """The federation's images, those of attackers as they show and label them."""
        if not self.settings.is_on_data:
            return data
        if trap is None:
            raise FedotpError(f'attack.name = "{self.settings.name}": a federation needs images to attack with')
        n = len(data.train.labels)
        own = list(data.train.clients)
        for client, stream in zip(self.clients, data.draws(seed, "poison", 0, self.clients), strict=True):
            rows = own[client].copy()
            share = self.settings.poisoned if self.settings.name == "backdoor" else 1.0
            shown = order(stream, len(rows))[: max(1, round(share * len(rows)))]
            rows[shown] += n
            own[client] = rows
        groups = None if data.train.groups is None else np.tile(data.train.groups, 2)
        return replace(data, train=Images(trap.train, trap.labels, tuple(own), groups))

    @torch.no_grad()
    def on_updates(self, server: Parameters, clients: Ints, sent: Parameters) -> Parameters:
        """What `clients` (C,) send (C, ...), attackers among them, of what they would `sent`."""
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


def attacked_test(data: FederatedData, trap: Trap) -> FederatedData:
    """The federation, in which each client tests those of its own images that the attack is to change, as attackers
    show them; the right answer is the attackers'.
    """
    own = tuple(rows[np.isin(rows, trap.rows)] for rows in data.test.clients)
    return replace(data, test=Images(trap.test, trap.target, own))
