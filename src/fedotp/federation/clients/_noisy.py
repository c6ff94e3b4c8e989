"""Local training with differential privacy: DP-SGD of every client, side by side.

A step of a client with n images secretly samples each of its units (images, or groups of them) with probability q. The
gradient is

    (sum_u clip(g_u, C) + z C N(0, 1)) / (q n) + the gradient of terms that do not depend on images,

with g_u the gradient of the loss of unit u with respect to all parameters with noise (Abadi et al., Deep learning with
differential privacy, CCS 2016). q n is a constant, not the number sampled. Post-processing, such as momentum, later
steps and averages, spends no more privacy.

Unless `privacy.private` is set, private parameters train without noise. They could leak through the gradients of shared
parameters, so these gradients are computed with the initial private parameters. Private parameters are trained with the
current shared ones, in the same steps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedotp import ot
from fedotp._values import show
from fedotp.clip import ImageFeatures
from fedotp.errors import FedotpError, SettingError
from fedotp.federation._data import FederatedData
from fedotp.federation._sampling import Ints
from fedotp.federation._settings import Settings
from fedotp.federation.clients._steps import Step, step_gradients
from fedotp.methods import Batch, Method, Parameters, Task
from fedotp.privacy import Canaries, Chance, clipped_sums

_AT_ONCE = (64, 512)  # gradients computed at once, of all clients together, on a CPU and on a GPU


def poisson_steps(
    units: Sequence[Ints], chances: Sequence[Chance], settings: Settings, *, epochs: int
) -> Iterator[Step]:
    """Yield all steps of clients in order of decreasing size, with Poisson sampling of units.

    `units[i]` (m_i,) are the units of the images of client i. A step is as wide as its largest sample.
    """
    sizes = [len(each) for each in units]
    totals = np.array([settings.noisy_steps(n, epochs) for n in sizes])
    n_units = [int(each.max(initial=-1)) + 1 for each in units]
    for step in range(int(totals.max(initial=0))):
        n_active = int((totals > step).sum())
        drawn = []
        for i in range(n_active):
            taken = chances[i].random(n_units[i]) < settings.sampling_rate(sizes[i])
            drawn.append(np.flatnonzero(taken[units[i]]))
        places = np.full((n_active, max(1, *map(len, drawn))), -1, np.int64)
        for row, own in zip(places, drawn, strict=True):
            row[: len(own)] = own
        epoch = [step * settings.federation.batch_size // max(sizes[i], 1) for i in range(n_active)]
        yield Step(places, np.minimum(epoch, epochs - 1))


@dataclass(frozen=True, eq=False)
class GroupNoise:
    """Inputs of private steps of C `clients` (C,) with `sizes` (C,) images.

    `units[i]` (m_i,) are the units of the images of client i, `chances` (C,) the sources of randomness. `blind`
    (C, ...) replaces parameters trained without noise in the gradients of those with noise.
    """

    clients: Ints
    sizes: Ints
    units: Sequence[Ints]
    chances: Sequence[Chance]
    blind: Parameters


class NoisySteps:
    """Gradients of private steps, for parameters with and without noise."""

    def __init__(self, method: Method, task: Task, settings: Settings) -> None:
        """Prepare private steps; requires `settings.privacy.of_steps`."""
        self._method = method
        self._task = task
        self._privacy = settings.privacy
        self._settings = settings
        self._own = frozenset(method.private(task)) - method.publishes
        self.canaries: Canaries | None = None  # of an audit

    def untaught(self, received: Parameters) -> Parameters:
        """Return the initial values, given `received` (C, ...), of the parameters that train without noise."""
        if self._privacy.private:
            return {}
        n_clients = len(next(iter(received.values())))
        initial = {
            name: value.expand(n_clients, *value.shape) for name, value in self._method.private(self._task).items()
        }
        start = self._method.start(received, initial)
        return {name: value for name, value in start.items() if name in self._own}

    def blind(self, params: Parameters, received: Parameters) -> Parameters:
        """Return the replacements in `params` (C, ...) of everything that depends on images without noise."""
        untaught = self.untaught(received)
        known = params | untaught
        n_clients = len(next(iter(known.values())))
        everything = torch.ones(n_clients, len(self._task.classes), dtype=torch.bool, device=self._task.device)
        with torch.no_grad():
            return untaught | self._method.derived(self._task, known, everything)

    def gradients(
        self,
        group: GroupNoise,
        params: Parameters,
        names: Sequence[str],
        received: Parameters,
        batch: Batch,
        places: Ints,
    ) -> tuple[Tensor, Parameters]:
        """Compute a step of the first A clients of `group` on `batch`, the images at `places` (A, B).

        Returns the objective (A,) and its gradients (A, ...) by the trained parameters `names`.
        """
        others = [] if self._privacy.private else [name for name in names if name in self._own]
        noised = [name for name in names if name not in others]
        n = len(places)
        clients, sizes, chances = group.clients[:n], group.sizes[:n], group.chances[:n]
        blind = params | {name: value[:n] for name, value in group.blind.items()}
        numbers = np.stack([_unit_numbers(own, row) for own, row in zip(group.units, places, strict=False)])
        units = torch.from_numpy(numbers).to(self._task.device)
        rates = [self._settings.sampling_rate(int(m)) for m in sizes]
        current = {name: value.detach() for name, value in blind.items()}
        named = {name: value.requires_grad_() for name, value in self._method.leaves(current, noised).items()}
        leaves = list(named.values())
        sums = [torch.zeros_like(leaf, dtype=torch.float64) for leaf in leaves]
        fit = torch.zeros(len(sizes), device=self._task.device, dtype=self._task.dtype)
        at_once = max(1, _AT_ONCE[self._task.device.type == "cuda"] // len(sizes))
        with ot.batched_gradients(), sdpa_kernel(SDPBackend.MATH):  # other backends do not support batched gradients
            for part, whose in _parts(batch, units, at_once):
                each, *penalties = self._method.objective(self._task, current | named, received, part)
                clipped = clipped_sums(each, leaves, whose, self._privacy.clip, chunk=at_once)
                sums = [total + more for total, more in zip(sums, clipped, strict=True)]
                fit += each.detach().sum(1)
        beside = _gradients_of(penalties, leaves)
        drawn = (batch.labels >= 0).sum(1)
        objective = sum((term.detach() for term in penalties), fit / drawn.clamp_min(1))
        expected = [m * rate for m, rate in zip(sizes, rates, strict=True)]
        added = [self._noise(total, chances, self._privacy.clip) for total in sums]
        if self.canaries:
            planted = self.canaries.planted(clients, rates, leaves)
            added = [noise + more for noise, more in zip(added, planted, strict=True)]
            self.canaries.see_sums(clients, rates, added)
        found = {}
        for (name, leaf), total, more, rest in zip(named.items(), sums, added, beside, strict=True):
            count = torch.tensor(expected, dtype=total.dtype, device=total.device).view(-1, *[1] * (leaf.dim() - 1))
            found[name] = ((total + more) / count).to(leaf.dtype) + rest
        found = self._method.gradients(named, found)
        if others:
            objective, plain = step_gradients(self._method, self._task, params, others, received, batch)
            found |= plain
        return objective, {name: found[name] for name in names}

    def released(self, sums: Parameters, chances: Sequence[Chance]) -> Parameters:
        """Add noise to the `sums` (C, ...) of a method in closed form: one release, drawn from `chances` (C,)."""
        most = self._method.sensitivity(self._task)
        return {name: total + self._noise(total, chances, most) for name, total in sums.items()}

    def _noise(self, like: Tensor, chances: Sequence[Chance], most: float) -> Tensor:
        """Draw each client's noise (C, ...) for a sum to which one unit contributes at most `most`."""
        noise = np.stack([chance.standard_normal(tuple(like.shape[1:])) for chance in chances])
        return self._privacy.noise * most * torch.from_numpy(noise).to(like.device)


def _unit_numbers(units: Ints, places: Ints) -> Ints:
    """Return the units of images at `places` (B,), counted from 0 in this step; -1 stays. `units` (m,) of all."""
    drawn = places >= 0
    numbers = np.full(len(places), -1, np.int64)
    numbers[drawn] = np.unique(units[places[drawn]], return_inverse=True)[1]
    return numbers


def _parts(batch: Batch, units: Tensor, most: int) -> Iterator[tuple[Batch, Tensor]]:
    """Yield at least one part of at most `most` units: a batch with separate losses, and its images' units (C, b).

    A gradient passes through the scores of all images of its part, so parts are small, and prompts encoded for each.
    """
    clients = torch.arange(len(units), device=units.device)[:, None]
    for start in range(0, max(int(units.max()) + 1, 1), most):
        taken = (units >= start) & (units < start + most)
        at = taken.int().argsort(dim=1, descending=True, stable=True)[:, : max(1, int(taken.sum(1).max()))]
        here = taken.gather(1, at)
        # A value of one image that is not finite would affect the gradients of all.
        image = ImageFeatures(*(part[clients, at].nan_to_num(0.0, 0.0, 0.0) for part in batch.image))
        labels = torch.where(here, batch.labels.gather(1, at), -1)
        yield Batch(image, labels, apart=True), torch.where(here, units.gather(1, at) - start, -1)


def _gradients_of(penalties: Sequence[Tensor], leaves: Sequence[Tensor]) -> list[Tensor]:
    """Compute the gradients of terms that do not depend on images; 0 if there are none."""
    zeros = [torch.zeros_like(leaf) for leaf in leaves]
    total = sum((term.sum() for term in penalties), torch.zeros(()))
    if not total.requires_grad:
        return zeros
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    return [zero if each is None else each for zero, each in zip(zeros, found, strict=True)]


def require_noisy(method: Method, task: Task, data: FederatedData, settings: Settings) -> None:
    """Raise an error if the steps of a federation do not support the settings of privacy."""
    privacy = settings.privacy
    unit = show(privacy.unit)
    own = frozenset(method.private(task)) - method.publishes
    alone = not (privacy.private or method.in_closed_form or method.initial(task).keys() - method.fixed - own)
    reasons = {
        'the contribution of a group to its sums is not bounded; set privacy.unit = "example"': (
            method.in_closed_form and privacy.unit == "group"
        ),
        "its leave-one-out losses are not bounded; set method.reg to a number": method.closed_form_rounds > 1,
        "it uses the training images in predictions": method.uses_memory,
        "it overrides `loss`, so that images have no separate `terms`": type(method).loss is not Method.loss,
        "its loss couples the images of a batch (authors.batch_solver, method.variant = code)": (
            method.couples_images or task.authors.batch_solver
        ),
        "its loss depends on class counts; set federation.prior = 0": bool(settings.federation.prior),
        "it fine-tunes without noise before predictions": privacy.private and method.finetune_epochs != 0,
        "it has no shared parameters; set privacy.private = true to cover private ones": alone,
    }
    for reason, holds in reasons.items():
        if holds:
            raise FedotpError(f"privacy.unit = {unit}: not supported for {method.title}: {reason}")
    if task.authors.leaked_momentum:
        raise SettingError("authors.leaked_momentum", "true", f"false with privacy.unit = {unit}")
    if settings.compute.precision == "bfloat16":
        raise SettingError("compute.precision", '"bfloat16"', f'"float32" or "float64" with privacy.unit = {unit}')
    rounds = settings.federation
    if privacy.private and (rounds.holdout or rounds.holdout_clients):
        right = "unset with privacy.private = true, as joining clients train without noise"
        raise SettingError("federation.holdout", show(rounds.holdout or rounds.holdout_clients), right)
    if privacy.private and (prior := settings.evaluation.prior):
        right = "0 with privacy.private = true, as predictions would reveal class counts without noise"
        raise SettingError("evaluation.prior", show(prior), right)
    if privacy.unit == "group" and data.train.groups is None:
        raise SettingError("privacy.unit", unit, '"example" for data without groups (data.groups, or a column group)')
