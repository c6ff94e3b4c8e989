"""Settings of a federation: rounds, local training, evaluation, attacks, hardware. Defaults are the paper's."""

import math
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from fedotp._values import MOST, Words, alternatives, require, require_choices, require_from, require_one_of, show
from fedotp.errors import SettingError
from fedotp.federation._sampling import Ints, RoundSettings, draws, order
from fedotp.methods import PRECISION, Method, OptimizerName, Precision, Rate
from fedotp.privacy import PrivacySettings, epsilon

_SCALES = {"scaled": 10.0, "colluding": 1.5}

Model = Literal["personal", "global"]
"""The model that predicts: each client's own, or the method's global part."""
VIEWS = ("personal", "global", "base", "novel", "neighbours", "holdout")
"""Values of `EvaluationSettings.views`."""

SMOOTHING = 0.3
"""Number added to a client's image count of every class before its class frequencies are computed."""
_SMALLEST_LR = 1e-12  # smaller steps change nothing
_MOST_THREADS = 1024
_SMALLEST_EPSILON = 1e-12  # its square is not 0 in float32, and steps are divided by it


@dataclass(frozen=True)
class OptimizerSettings:
    """The clients' optimizer.

    FedOTP's paper states SGD and 0.001; momentum and weight decay are those of the authors' code.

    Attributes:
        name: optimizer; "own" for the method's, SGD except for FedCLIP (Adam). "sgd" and "adam" add the weight decay to
            the gradient, "adamw" to the step.
        lr: learning rate eta, or the source of the method's own: its "paper", a search on the backbone "mini", or the
            same with the cosine schedule ("falling"). A run records the number.
        momentum: momentum of "sgd" ("adam" and "adamw" always use 0.9).
        weight_decay: weight decay.
        beta2: decay of the mean square of "adam" and "adamw".
        epsilon: number added to the root of the mean square, for "adam" and "adamw".
        schedule: schedule of the learning rate over the rounds after the warm-up.
        warmup_rounds: rounds in which the learning rate rises linearly.
        reset: start every round with a new optimizer, as real deployments must. If false, the client keeps its
            optimizer state between rounds.
    """

    name: Literal["own", "sgd", "adam", "adamw"] = "own"
    lr: float | Rate = "paper"
    momentum: float = 0.9
    weight_decay: float = 5e-4
    beta2: float = 0.999
    epsilon: float = 1e-8
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    warmup_rounds: int = 0
    reset: bool = True

    def __post_init__(self) -> None:
        require_choices(self, "optimizer.")
        if isinstance(self.lr, str):
            require_one_of(Rate, "optimizer.lr", self.lr)
        else:
            require_from(_SMALLEST_LR, MOST, "optimizer.lr", self.lr, " (FedOTP's paper uses 0.001)")
        for key in ("momentum", "beta2"):
            require(0 <= getattr(self, key) < 1, f"optimizer.{key}", getattr(self, key), "in [0, 1)")
        require_from(0, MOST, "optimizer.weight_decay", self.weight_decay)
        require_from(_SMALLEST_EPSILON, MOST, "optimizer.epsilon", self.epsilon, " (torch uses 1e-08)")
        require_from(0, MOST, "optimizer.warmup_rounds", self.warmup_rounds)

    def of(self, method: Method) -> "OptimizerSettings":
        """Return a copy with the method's own optimizer and learning rate in place of "own" and `Rate`."""
        name: OptimizerName = method.optimizer if self.name == "own" else self.name
        lr = method.own_lr(self.lr) if isinstance(self.lr, str) else self.lr
        return replace(self, name=name, lr=lr)

    @property
    def rate(self) -> float:
        """Numeric `lr` of settings returned by `of`."""
        assert not isinstance(self.lr, str)
        return self.lr

    def rate_at(self, round_: int, rounds: int) -> float:
        """Return the learning rate of a round, counted from 0: linear warm-up, then the schedule."""
        warmup = self.warmup_rounds
        if round_ < warmup:
            return self.rate * (round_ + 1) / (warmup + 1)
        done = min(1.0, (round_ - warmup) / max(rounds - warmup, 1))
        if self.schedule == "cosine":
            return self.rate * (1 + math.cos(math.pi * done)) / 2
        return self.rate * (1 - done) if self.schedule == "linear" else self.rate


@dataclass(frozen=True)
class ServerStepSettings:
    """The server's optimizer and aggregation rule; the equations are in `fedotp.federation.ServerStep`.

    The defaults are those of FedAvgM (Hsu et al., 2019) and of FedAdam and FedYogi (Reddi et al., ICLR 2021), except
    that the latter two need a smaller `lr`, 0.01 to 0.1: about the change per round of a number that moves steadily.

    Attributes:
        name: "average" for the plain average, "momentum" for FedAvgM, "adam" for FedAdam, "yogi" for FedYogi. Of the
            numbers below, "momentum" uses `lr` and `momentum`, "adam" and "yogi" `lr`, `beta1`, `beta2` and `epsilon`.
        lr: server learning rate eta.
        momentum: momentum beta of FedAvgM.
        beta1: decay of the mean update of "adam" and "yogi".
        beta2: decay of the mean square of "adam" and "yogi".
        epsilon: tau, added to the root of the mean square; the larger, the less adaptive the steps.
        rule: aggregation rule (`fedotp.federation.Rule`), which limits the effect of malicious updates: "average";
            "bounded" clips updates to the length `bound`; "median" and "trimmed" act on each number; "krum" takes the
            update nearest to the others, "multi-krum" the mean of the nearest.
        malicious: assumed number of malicious updates in a round, for "trimmed" and Krum; below 1 it is a share,
            rounded down, at least one.
        bound: maximum length of an update, for "bounded"; 0 for the median length of the round.
        kept: number of updates averaged by "multi-krum"; 0 for all but the assumed malicious ones.
    """

    name: Literal["average", "momentum", "adam", "yogi"] = "average"
    lr: float = 1.0
    momentum: float = 0.9
    beta1: float = 0.9
    beta2: float = 0.99
    epsilon: float = 1e-3
    rule: Literal["average", "bounded", "median", "trimmed", "krum", "multi-krum"] = "average"
    malicious: float = 0.2
    bound: float = 0.0
    kept: int = 0

    def __post_init__(self) -> None:
        require_choices(self, "server.")
        require_from(_SMALLEST_LR, MOST, "server.lr", self.lr, " (with adam and yogi for example 0.02)")
        for key in ("momentum", "beta1", "beta2"):
            require(0 <= getattr(self, key) < 1, f"server.{key}", getattr(self, key), "in [0, 1)")
        require_from(_SMALLEST_EPSILON, MOST, "server.epsilon", self.epsilon, " (the paper uses 0.001)")
        share_or_number = 0 <= self.malicious < 0.5 or (1 <= self.malicious <= MOST and not self.malicious % 1)
        require(share_or_number, "server.malicious", self.malicious, "a share in [0, 0.5) or a whole number")
        require_from(0, MOST, "server.bound", self.bound, " (0: the median length of the round)")
        require_from(0, MOST, "server.kept", self.kept, " (0: all but the assumed malicious ones)")


@dataclass(frozen=True)
class EvaluationSettings:
    """Evaluation of the clients' classifiers.

    Attributes:
        every: number of rounds between evaluations, besides those before the first and after the last round; 0 for
            after the last only.
        clients: number of clients evaluated after a round, drawn each time; 0 for all. The last evaluation is of all.
        batch_size: images per client in a prediction step.
        views: evaluations by images, class names and model; "personal", each client on its own test images, is always
            included. "global": the method's global part. "base": every client on all test images of the trained
            classes. "novel": every client on those of the novel classes, with their names (data.classes).
            "neighbours": every client on those of classes it has no training image of. "holdout": held-out clients
            before and after they join.
        prior: factor of the logarithm of the client's class frequencies that is added to its log-probabilities. 0 for
            none, 1 for Bayes' rule, "method" for the method's own: 0 for published methods. The counts stay with the
            client.
        smoothing: number added to the image count of every class before frequencies are computed, for the prior here
            and in the training loss.
        views_every: evaluate views at every n-th evaluation and at the last; 0 for the last only. Views show all test
            images to all clients and so cost as much as one evaluation per client.
    """

    every: int = 1
    clients: int = 0
    batch_size: int = 100
    views: Words = ("personal",)
    prior: float | Literal["method"] = "method"
    smoothing: float = SMOOTHING
    views_every: int = 0

    def __post_init__(self) -> None:
        if not set(self.views) <= set(VIEWS):
            raise SettingError("evaluation.views", show(self.views), f"a list of {alternatives(VIEWS)}")
        for key in ("every", "clients", "views_every"):
            require_from(0, MOST, f"evaluation.{key}", getattr(self, key))
        require_from(1, MOST, "evaluation.batch_size", self.batch_size, ", for example 100")
        if isinstance(self.prior, str):
            require(self.prior == "method", "evaluation.prior", self.prior, 'from 0 to 10, or "method"')
        else:
            require_from(0, 10, "evaluation.prior", self.prior, ', or "method"')
        require(
            0 < self.smoothing <= MOST, "evaluation.smoothing", self.smoothing, f"more than 0 (for example {SMOOTHING})"
        )

    def of(self, method: Method) -> "EvaluationSettings":
        """Return a copy with the method's own factor of the prior in place of "method"."""
        return replace(self, prior=method.prior) if self.prior == "method" else self

    @property
    def strength(self) -> float:
        """Numeric `prior` of settings returned by `of`."""
        assert not isinstance(self.prior, str)
        return self.prior

    def drawn(self, everyone: Ints, round_: int, seed: int) -> Ints | None:
        """Return the clients among `everyone` that are evaluated after a round, in ascending order; None for all."""
        if not 0 < self.clients < len(everyone):
            return None
        return np.sort(everyone[order(draws(seed, "evaluate", round_), len(everyone))[: self.clients]])


@dataclass(frozen=True)
class ComputeSettings:
    """Hardware settings, which change results only by rounding.

    Attributes:
        device: "auto" for a GPU if there is one, or for example "cpu" or "cuda:1".
        precision: number format of the text tower; with "bfloat16" prompts and matching remain in float32.
        group_size: number of clients trained side by side; 0 for as many as fit into memory.
        threads: CPU threads for training and evaluation; 0 for PyTorch's default, or one if the text tower is small.
            Rounding depends on it, so a resumed run keeps its number.
    """

    device: str = "auto"
    precision: Precision = PRECISION
    group_size: int = 0
    threads: int = 0

    def __post_init__(self) -> None:
        require_choices(self, "compute.")
        require_from(0, MOST, "compute.group_size", self.group_size, " (0: as many as fit into memory)")
        require_from(0, _MOST_THREADS, "compute.threads", self.threads, " (0: chosen by the size of the text tower)")


@dataclass(frozen=True)
class AttackSettings:
    """Simulated attackers, which are not evaluated (`fedotp.federation.Attack`).

    Attributes:
        name: attack: "none"; "label-flip": train with wrong labels; "sign-flip": send the negative update; "scaled":
            multiply the update; "colluding": all send the same update, `scale` standard deviations from the mean of the
            honest ones; "backdoor": train images with a coloured patch as one class.
        share: share of the training clients that attack, at least one, drawn from the seed.
        scale: factor of an attacker's update, or the number of standard deviations of "colluding"; 0 for the default:
            10 for "scaled", 1.5 for "colluding", 1 for others.
        target: class that the attack makes the model predict, for "label-flip" and "backdoor"; "" for the first.
        source: class whose images are labelled as the target, for "label-flip"; "" for all.
        patch: side of the patch of "backdoor", as a share of the image's shorter side.
        poisoned: share of an attacker's images that get the patch, for "backdoor".
    """

    name: Literal["none", "label-flip", "sign-flip", "scaled", "colluding", "backdoor"] = "none"
    share: float = 0.2
    scale: float = 0.0
    target: str = ""
    source: str = ""
    patch: float = 0.25
    poisoned: float = 0.5

    def __post_init__(self) -> None:
        require_choices(self, "attack.")
        for key in ("share", "patch", "poisoned"):
            require(0 < getattr(self, key) <= 1, f"attack.{key}", getattr(self, key), "in (0, 1]")
        require_from(0, MOST, "attack.scale", self.scale, " (0: the default of the attack)")

    @property
    def is_on_data(self) -> bool:
        """True if the attack changes training images or labels."""
        return self.name in ("label-flip", "backdoor")

    @property
    def factor(self) -> float:
        """Factor of an attacker's update, or its distance from the mean in standard deviations."""
        return self.scale or _SCALES.get(self.name, 1.0)

    def labels(self, classes: tuple[str, ...], labels: Ints) -> tuple[Ints, Ints]:
        """Return the attackers' labels (n,) in place of `labels`, and the rows whose label changes."""
        target = _class_number(classes, "target", self.target or classes[0])
        changes = labels != target
        if self.name == "label-flip" and self.source:
            source = _class_number(classes, "source", self.source)
            if source == target:
                raise SettingError("attack.source", repr(self.source), "a different class from attack.target")
            changes = labels == source
        return np.where(changes, target, labels), np.flatnonzero(changes)


def _class_number(classes: tuple[str, ...], key: str, name: str) -> int:
    if name not in classes:
        raise SettingError(f"attack.{key}", repr(name), f"one of the classes: {', '.join(classes)}")
    return classes.index(name)


def rounds_of(method: Method, rounds: RoundSettings) -> RoundSettings:
    """Return the rounds of a method; a closed form has its own number of rounds, with all clients and images."""
    if not method.in_closed_form:
        return rounds
    n_rounds = min(method.closed_form_rounds, rounds.rounds)
    return replace(rounds, rounds=n_rounds, local_epochs=1, participation=1.0)


@dataclass(frozen=True)
class Settings:
    """All settings of a federation except data, backbone and method."""

    federation: RoundSettings = field(default_factory=RoundSettings)
    optimizer: OptimizerSettings = OptimizerSettings()
    server: ServerStepSettings = ServerStepSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    compute: ComputeSettings = ComputeSettings()
    seed: int = 0
    privacy: PrivacySettings = field(default_factory=PrivacySettings)
    attack: AttackSettings = field(default_factory=AttackSettings)

    def of(self, method: Method) -> "Settings":
        """Return a copy with the method's own optimizer, learning rate, number of rounds and class prior."""
        rounds = rounds_of(method, self.federation)
        if method.in_closed_form:
            rounds = replace(rounds, batch_size=MOST)  # one release of all images
        evaluation = self.evaluation.of(method)
        return replace(self, optimizer=self.optimizer.of(method), federation=rounds, evaluation=evaluation)

    def in_common(self) -> "Settings":
        """Return a copy with only the settings that federations side by side must share; others are defaults."""
        rounds = self.federation
        return Settings(
            RoundSettings(
                local_epochs=rounds.local_epochs,
                batch_size=rounds.batch_size,
                drop_last=rounds.drop_last,
                prior=rounds.prior,
            ),
            replace(self.optimizer, lr=OptimizerSettings.lr, schedule=OptimizerSettings.schedule, warmup_rounds=0),
            ServerStepSettings(),
            EvaluationSettings(
                batch_size=self.evaluation.batch_size, prior=self.evaluation.prior, smoothing=self.evaluation.smoothing
            ),
            self.compute,
            privacy=self.privacy,
        )

    # Private steps of a client with n training images ------------------------------------------------------

    def sampling_rate(self, n: int) -> float:
        """Return q, the probability that an image is in a step."""
        return min(1.0, self.federation.batch_size / max(n, 1))

    def noisy_steps(self, n: int, epochs: int | None = None) -> int:
        """Return the steps of `epochs`, by default those of a round: an epoch shows each image once on average."""
        epochs = self.federation.local_epochs if epochs is None else epochs
        return max(1, round(epochs * n / self.federation.batch_size)) if n else 0

    def images_epsilon(self, n: int, steps: int) -> float:
        """Return the epsilon of the images' privacy that `steps` noisy steps spend."""
        return epsilon(self.privacy.noise, steps, self.privacy.delta, self.sampling_rate(n))
