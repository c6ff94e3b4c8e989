"""Advice before training: the gains of sites from a class prior, from sharing, and from personal weights.

Five classifiers predict every site's training images: zero-shot CLIP, the same with the class prior, a ridge of the
site alone, one ridge of all sites, and the personal ridge (`PersonalRidge`), in which own images count twice. All are
in closed form, so that leave-one-out predictions are exact; test images are not used. The reg of a ridge minimises the
leave-one-out loss, for the site alone on its own images, for the others on all images.

These accuracies differ from those of test images for two reasons. Leaving an image out makes its class rarer, which is
correct if a site's images are independent draws. If a site has few images and its test images have exactly the class
proportions of its training images, as in simulated partitions, the prior and the site alone are underestimated, and
sharing is overestimated (recipes/advise). And images of one group (patient) are left out one by one, which
overestimates the site alone if it has several images of each group.
"""

from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from fedotp.config import Config
from fedotp.errors import FedotpError
from fedotp.federation import FederatedData, log_frequencies
from fedotp.federation.testing import Predictor
from fedotp.methods import REGS, Batch, PersonalRidge, Task, ZeroShot, left_out
from fedotp.runs.one import prepare
from fedotp.runs.tables import Difference, Pair, paired
from fedotp.runs.watch import Observer

ZERO_SHOT, ZERO_SHOT_PRIOR = "zero-shot", "zero-shot + prior"
ALONE = "site alone + prior"
SHARED, SHARED_PRIOR = "shared ridge", "shared ridge + prior"
PERSONAL = "personal ridge + prior"
SHARING = "sharing"
GAINS = {
    "prior, zero-shot": (ZERO_SHOT_PRIOR, ZERO_SHOT),
    "prior, shared ridge": (SHARED_PRIOR, SHARED),
    SHARING: (PERSONAL, ALONE),
    "personal weights": (PERSONAL, SHARED_PRIOR),
}
"""Compared classifiers: the gain is the accuracy of the first minus that of the second."""
CHOICES = {
    ZERO_SHOT_PRIOR: "zero-shot CLIP with the class prior, without training",
    ALONE: "each site alone, without a federation",
    SHARED_PRIOR: "one ridge of all sites, with the class prior",
    PERSONAL: "the personal ridge",
}
"""Possible recommendations, simplest first."""

_CHUNK = 256  # images per batch
_ROUNDING = 1e-9  # losses that differ by less are equal
_RIDGE = PersonalRidge()

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class SiteAdvice:
    """One site: correctness of each classifier on its n images (n,), and the reg of its ridge alone."""

    name: str
    right: dict[str, Bools]
    reg: float

    @property
    def accuracy(self) -> dict[str, float]:
        """Accuracy of each classifier."""
        return {name: float(right.mean()) for name, right in self.right.items()}

    @cached_property
    def gains(self) -> dict[str, Difference]:
        """Differences of `GAINS`, paired over the site's images."""
        return {gain: _difference(self.right[ours], self.right[theirs]) for gain, (ours, theirs) in GAINS.items()}

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        gains = {gain: asdict(found) for gain, found in self.gains.items()}
        n_images = len(self.right[ALONE])
        return {"name": self.name, "images": n_images, "reg": self.reg, "accuracy": self.accuracy, "gains": gains}


@dataclass(frozen=True, eq=False)
class Advice:
    """All sites, and the regs of the shared ridges; numbers over sites are means, with Student's t intervals."""

    sites: tuple[SiteAdvice, ...]
    regs: dict[str, float]

    @cached_property
    def accuracy(self) -> dict[str, float]:
        """Mean accuracy over sites of each classifier."""
        return {name: float(self._of_sites(name).mean()) for name in self.sites[0].right}

    @cached_property
    def gains(self) -> dict[str, Difference]:
        """Differences of `GAINS`, paired over sites."""
        return {gain: self.difference(*names) for gain, names in GAINS.items()}

    def difference(self, ours: str, theirs: str) -> Difference:
        """Return the accuracy of one classifier minus that of another, paired over sites."""
        return _difference(self._of_sites(ours), self._of_sites(theirs))

    def _of_sites(self, name: str) -> NDArray[np.float64]:
        return np.array([site.accuracy[name] for site in self.sites])

    @property
    def best(self) -> str:
        """The classifier of `CHOICES` with the highest accuracy; the simplest in case of ties."""
        return max(CHOICES, key=lambda name: round(self.accuracy[name], 9))

    @property
    def settings(self) -> list[str]:
        """Settings (as for `--set`) of a run of the recommended classifier; none for sites alone."""
        both = ["method.name=ridge", "method.features=both", f"method.reg={self.regs[SHARED]}", "evaluation.prior=1"]
        return {
            ZERO_SHOT_PRIOR: ["method.name=zeroshot", "evaluation.prior=1"],
            ALONE: [],
            SHARED_PRIOR: both,
            PERSONAL: ["method.name=personal-ridge"],
        }[self.best]

    @property
    def sentences(self) -> list[str]:
        """The recommendation, and simpler choices that are not significantly worse."""
        lines = [f"Recommended: {CHOICES[self.best]}."]
        for name in list(CHOICES)[: list(CHOICES).index(self.best)]:
            found = self.difference(self.best, name)
            if not found.is_above:
                lines.append(
                    f"Not significantly better than {CHOICES[name]}: {found.points} points ({found.interval})."
                )
        sharing = self.gains[SHARING]
        verdict = "helps" if sharing.is_above else "hurts" if sharing.is_below else "has no significant effect"
        gain, lose = (sum(getattr(site.gains[SHARING], at) for site in self.sites) for at in ("is_above", "is_below"))
        return [
            *lines,
            f"Federating {verdict}: {sharing.points} points ({sharing.interval}) over each site alone; of "
            f"{len(self.sites)} sites, {gain} gain significantly on their own images, and {lose} lose.",
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        return {
            "recommended": self.best,
            "settings": self.settings,
            "sentences": self.sentences,
            "accuracy": self.accuracy,
            "gains": {gain: asdict(found) for gain, found in self.gains.items()},
            "regs": self.regs,
            "sites": [site.as_dict() for site in self.sites],
        }


def advise(config: Config, observer: Observer | None = None) -> Advice:
    """Prepare the federation of `config` like a run, and advise its sites."""
    prepared = prepare(config, observer)
    data = prepared.data
    away = config.federation.held_out(data.names, data.domains, config.seed)
    return advise_sites(prepared.task, data.without(away), config.evaluation.smoothing)


@torch.no_grad()
def advise_sites(task: Task, data: FederatedData, smoothing: float) -> Advice:
    """Advise the sites of `data` that have training images; `smoothing` is that of the class prior."""
    there = np.array([i for i, rows in enumerate(data.train.clients) if len(rows)])
    if len(there) < 2:
        raise FedotpError(f"advice needs at least 2 sites with training images, got {len(there)}")
    sites = [_read(task, data, int(i), smoothing) for i in there]
    everyone = _Images(*(torch.cat([getattr(site, part.name) for site in sites]) for part in fields(_Images)))
    n, target = len(everyone.labels), _RIDGE.text * _RIDGE.shared(task, 1)["captions"].mT
    gram, cross = everyone.gram / n, everyone.cross / n
    shared = everyone.judge(gram, cross, target, 1 / n)
    alone, personal = [], []
    for site in sites:
        n_own, more, weight = len(site.labels), _RIDGE.personal / n, (1 + _RIDGE.personal) / n
        alone.append(site.judge(site.gram / n_own, site.cross / n_own, target, 1 / n_own))
        personal.append(site.judge(gram + more * site.gram, cross + more * site.cross, target, weight))
    of_shared = _chosen(shared.losses)
    of_personal = _chosen(np.concatenate([judged.losses for judged in personal], 1))
    advised, start = [], 0
    for i, site in enumerate(sites):
        of_alone, here = _chosen(alone[i].losses), slice(start, start := start + len(site.labels))
        right = {
            ZERO_SHOT: site.is_right(site.zero_shot),
            ZERO_SHOT_PRIOR: site.is_right(site.zero_shot + site.prior),
            ALONE: alone[i].with_prior[of_alone],
            SHARED: shared.without[of_shared, here],
            SHARED_PRIOR: shared.with_prior[of_shared, here],
            PERSONAL: personal[i].with_prior[of_personal],
        }
        advised.append(SiteAdvice(data.names[there[i]], right, REGS[of_alone]))
    return Advice(tuple(advised), {SHARED: REGS[of_shared], PERSONAL: REGS[of_personal]})


@dataclass(frozen=True, eq=False)
class _Judged:
    """For R regs and n images: losses, and correctness with and without the prior, (R, n)."""

    losses: NDArray[np.float64]
    with_prior: Bools
    without: Bools


@dataclass(frozen=True, eq=False)
class _Images:
    """n training images: features (n, e), targets (n, K), labels (n,), and log probabilities of the captions (n, K).

    `prior` (n, K) contains the logarithms of the class frequencies among the site's other images.
    """

    features: Tensor
    targets: Tensor
    labels: Tensor
    zero_shot: Tensor
    prior: Tensor

    @property
    def gram(self) -> Tensor:
        """X'X: (e, e)."""
        return self.features.mT @ self.features

    @property
    def cross(self) -> Tensor:
        """X'Y: (e, K)."""
        return self.features.mT @ self.targets

    def judge(self, gram: Tensor, cross: Tensor, target: Tensor, weight: float) -> _Judged:
        """Evaluate leave-one-out ridges for all `REGS`; the arguments are those of `left_out`, without C."""
        losses, with_prior, without = [], [], []
        found = left_out(self.features[None], self.targets[None], gram[None], cross[None], target[None], weight)
        for (scores,) in found:
            logits = (_RIDGE.sharpness * scores).log_softmax(-1)
            losses.append(_RIDGE.losses_of(scores, self.labels).cpu().numpy())
            with_prior.append(self.is_right(logits + self.prior))
            without.append(self.is_right(logits))
        return _Judged(np.stack(losses), np.stack(with_prior), np.stack(without))

    def is_right(self, logits: Tensor) -> Bools:
        """Return True for each row whose largest logit is that of the label: (n,)."""
        right: Bools = (logits.argmax(-1) == self.labels).cpu().numpy()
        return right


def _read(task: Task, data: FederatedData, client: int, smoothing: float) -> _Images:
    """Read the training images of one client."""
    captions, rows = Predictor.of(ZeroShot(), task, {}), data.train.clients[client]
    parts = []
    for start in range(0, len(rows), _CHUNK):
        image, labels = data.train.read(rows[None, start : start + _CHUNK], 0, task.device, task.dtype, _RIDGE.needs)
        found = captions.log_probabilities(captions.scores(image))
        parts.append([x[0] for x in (*_RIDGE.regression(task, Batch(image, labels)), labels, found)])
    features, targets, labels, zero_shot = map(torch.cat, zip(*parts, strict=True))
    one_hot = F.one_hot(labels, len(task.classes))
    return _Images(features, targets, labels, zero_shot, log_frequencies(one_hot.sum(0) - one_hot, smoothing))


def _chosen(losses: NDArray[np.float64]) -> int:
    """Return the index in `REGS` of the least mean of losses (R, n); the most common in case of ties."""
    means = losses.mean(1) - losses.mean(1).min()
    means[means < _ROUNDING] = 0
    return REGS.index(_RIDGE.reg_of({"losses": torch.from_numpy(means)}).item())


def _difference(ours: NDArray[Any], theirs: NDArray[Any]) -> Difference:
    """Return the paired difference ours - theirs."""
    one, other = (dict[Pair, float](((i, 0), float(x)) for i, x in enumerate(values)) for values in (ours, theirs))
    found = paired(one, other)
    assert found is not None
    return found
