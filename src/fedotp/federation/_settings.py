"""How a federation is run: rounds, local training, evaluation, attacks, hardware. Defaults are the paper's."""

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
"""Who predicts: each client with what it has learned, or the method's global part."""
VIEWS = ("personal", "global", "base", "novel", "neighbours", "holdout")
"""What `EvaluationSettings.views` may name."""

SMOOTHING = 0.3
"""Images that every class is given before a client's class frequencies are taken."""
_SMALLEST_LR = 1e-12  # a smaller step changes no prompt
_MOST_THREADS = 1024
_SMALLEST_EPSILON = 1e-12  # its square is still a number, and steps are divided by it


@dataclass(frozen=True)
class OptimizerSettings:
    """How a client's gradient steps are made.

    FedOTP's paper says SGD and 0.001; momentum and weight decay are those of the authors' code.

    Attributes:
        name: which optimizer, "own" for the method's: SGD, but Adam of FedCLIP. "adam" adds the weight decay to the
            gradient, as "sgd" does, "adamw" to the step.
        lr: eta, the learning rate, or where the method's own was found: in its "paper", on the backbone "mini", or
            there with the cosine schedule ("falling"). What a run records is the number.
        momentum: of "sgd"; what the mean direction keeps from step to step.
        weight_decay: how strongly prompts are drawn to zero.
        beta2: of "adam" and "adamw"; how much of the mean square is kept from step to step.
        epsilon: of "adam" and "adamw"; what the root of the mean square is at least, about.
        schedule: how the learning rate changes from round to round, once it is warm.
        warmup_rounds: rounds in which the learning rate rises linearly.
        reset: every client starts each round with a fresh optimizer, as a real deployment must. Without, its momentum
            is kept on the client.
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
        """The same with the method's own optimizer and learning rate in place of words."""
        name: OptimizerName = method.optimizer if self.name == "own" else self.name
        lr = method.own_lr(self.lr) if isinstance(self.lr, str) else self.lr
        return replace(self, name=name, lr=lr)

    @property
    def rate(self) -> float:
        """`lr` of settings that are `of` a method."""
        assert not isinstance(self.lr, str)
        return self.lr

    def rate_at(self, round_: int, rounds: int) -> float:
        """The learning rate of a round, counted from 0: linear warm-up, then the schedule down to (almost) 0."""
        warmup = self.warmup_rounds
        if round_ < warmup:
            return self.rate * (round_ + 1) / (warmup + 1)
        done = min(1.0, (round_ - warmup) / max(rounds - warmup, 1))
        if self.schedule == "cosine":
            return self.rate * (1 + math.cos(math.pi * done)) / 2
        return self.rate * (1 - done) if self.schedule == "linear" else self.rate


@dataclass(frozen=True)
class ServerStepSettings:
    """What the server does with the average of a round; the equations are in `fedotp.federation.ServerStep`.

    The defaults are those of FedAvgM (Hsu et al., 2019) and of FedAdam and FedYogi (Reddi et al., ICLR 2021). Only an
    `lr` of 1 is rarely right for the latter two: with them it is about how far a steady change moves each number of a
    prompt in a round. Try 0.01 to 0.1.

    Attributes:
        name: "average" takes the average itself, "momentum" is FedAvgM, "adam" FedAdam, "yogi" FedYogi. "average" reads
            none of the numbers, "momentum" `lr` and `momentum`, the others `lr`, `beta1`, `beta2` and `epsilon`.
        lr: eta, the server's learning rate.
        momentum: beta of FedAvgM, how much of the last step is made again.
        beta1: how much of the mean direction is kept from round to round.
        beta2: how much of the mean square is kept from round to round.
        epsilon: tau; the larger, the less a step adapts to the size of changes.
        rule: what is averaged of the updates of a round (`fedotp.federation.Rule`), so that a few bad ones do little:
            "average" all as they are, "bounded" none longer than `bound`, "median" and "trimmed" number by number,
            "krum" the one nearest to the others, "multi-krum" the mean of the nearest.
        malicious: how many updates of a round "trimmed" and Krum assume to be bad: a number, or below 1 a share,
            rounded down, but at least one.
        bound: of "bounded": how far an update may move the prompts; 0 for the median of the round's.
        kept: of "multi-krum": how many updates are averaged; 0 for all but the assumed bad ones.
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
        require_from(0, MOST, "server.bound", self.bound, " (0: the median of the round's)")
        require_from(0, MOST, "server.kept", self.kept, " (0: all but the assumed bad ones)")


@dataclass(frozen=True)
class EvaluationSettings:
    """When and on whom the clients' classifiers are tested.

    Attributes:
        every: evaluate after every so many rounds, always before the first and after the last; 0: only after the last.
        clients: how many clients to evaluate after a round, drawn anew each time; 0 for all. The last evaluation is of
            all clients.
        batch_size: images of a client that are predicted at once.
        patience: stop when mean accuracy has not risen for so many evaluations; 0: never. It is test accuracy: a number
            obtained this way is chosen on the data it is reported on.
        min_delta: how much more accuracy counts as a rise.
        views: on which images, among which names and by which model; "personal", each client on its own test images, is
            always among them. "global": the method's global part. "base": every client on all test images of the
            classes trained on. "novel": every client on those of the novel classes, with their names (data.classes).
            "neighbours": on those of classes it has no training image of. "holdout": held-out clients before and
            after they join.
        prior: strength of the class prior: how much of the logarithm of a client's own class frequencies is added to
            the logarithms of its probabilities. 0: nothing, 1: as Bayes' rule has it, "cv": the best for its training
            images, each left out of the counts in turn, "method": the method's own, 0 for those of papers. The counts
            are of these images and stay with the client.
        smoothing: images that every class is given before frequencies are taken, for the prior here and in the loss.
        views_every: views are evaluated with every so many of the evaluations, and with the last; 0: with the last
            only. All test images are shown to all clients: they cost as much as so many evaluations as there are
            clients.
    """

    every: int = 1
    clients: int = 0
    batch_size: int = 100
    patience: int = 0
    min_delta: float = 0.0
    views: Words = ("personal",)
    prior: float | Literal["method", "cv"] = "method"
    smoothing: float = SMOOTHING
    views_every: int = 0

    def __post_init__(self) -> None:
        if not set(self.views) <= set(VIEWS):
            raise SettingError("evaluation.views", show(self.views), f"a list of {alternatives(VIEWS)}")
        for key in ("every", "clients", "patience", "views_every"):
            require_from(0, MOST, f"evaluation.{key}", getattr(self, key))
        require_from(1, MOST, "evaluation.batch_size", self.batch_size, ", for example 100")
        require_from(0, 1, "evaluation.min_delta", self.min_delta)
        if isinstance(self.prior, str):
            require(self.prior in ("method", "cv"), "evaluation.prior", self.prior, 'from 0 to 10, "method" or "cv"')
        else:
            require_from(0, 10, "evaluation.prior", self.prior, ', "method" or "cv"')
        require(
            0 < self.smoothing <= MOST, "evaluation.smoothing", self.smoothing, f"more than 0 (for example {SMOOTHING})"
        )

    def of(self, method: Method) -> "EvaluationSettings":
        """The same with the method's own strength of the prior in place of the word."""
        return replace(self, prior=method.prior) if self.prior == "method" else self

    def drawn(self, everyone: Ints, round_: int, seed: int) -> Ints | None:
        """The clients among `everyone` that are evaluated after a round, in ascending order; None for all."""
        if not 0 < self.clients < len(everyone):
            return None
        return np.sort(everyone[order(draws(seed, "evaluate", round_), len(everyone))[: self.clients]])


@dataclass(frozen=True)
class ComputeSettings:
    """Where and how to compute; none of it changes the result beyond rounding.

    Attributes:
        device: "auto" for a GPU where there is one, or for example "cpu" or "cuda:1".
        precision: what the text tower computes in; prompts and matching are in float32 with "bfloat16" too.
        group_size: clients trained side by side; 1: one by one, 0: as many as memory allows.
        threads: of the CPU, in training and evaluation; 0 for one where the text tower is small and gains nothing by
            more, else as many as PyTorch would take. Sums are rounded otherwise with another number; a run that is
            resumed keeps the number it began with.
    """

    device: str = "auto"
    precision: Precision = PRECISION
    group_size: int = 0
    threads: int = 0

    def __post_init__(self) -> None:
        require_choices(self, "compute.")
        require_from(0, MOST, "compute.group_size", self.group_size, " (0: what fits)")
        require_from(0, _MOST_THREADS, "compute.threads", self.threads, " (0: chosen by the size of the text tower)")


@dataclass(frozen=True)
class AttackSettings:
    """Clients that mean harm, in a simulation; they are not evaluated (`fedotp.federation.Attack`).

    Attributes:
        name: "none"; "label-flip": they train with wrong labels; "sign-flip": they send the opposite of what they have
            learned; "scaled": many times of it; "colluding": all send the same, as far from the mean of the honest
            updates as some of these are; "backdoor": they train images with a coloured patch to be of one class.
        share: how many of the clients that train, at least one; drawn from the seed.
        scale: by what an attacker's update is multiplied, of "colluding" how many standard deviations it is away; 0 for
            10 of "scaled", 1.5 of "colluding" and 1 of all others.
        target: of "label-flip" and "backdoor": the class that others are to be taken for; "" for the first.
        source: of "label-flip": the class whose images are labelled as the target; "" for all.
        patch: of "backdoor": the side of the patch, as a share of the image's shorter side.
        poisoned: of "backdoor": the share of its images that an attacker paints the patch on.
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
        require_from(0, MOST, "attack.scale", self.scale, " (0: as it suits the attack)")

    @property
    def is_on_data(self) -> bool:
        """Whether attackers train on other images or labels than they have."""
        return self.name in ("label-flip", "backdoor")

    @property
    def factor(self) -> float:
        """By what an attacker's update is multiplied, or how many standard deviations it is away."""
        return self.scale or _SCALES.get(self.name, 1.0)

    def labels(self, classes: tuple[str, ...], labels: Ints) -> tuple[Ints, Ints]:
        """The labels (n,) that attackers give instead of `labels`, and the rows whose class changes by it."""
        target = _class_number(classes, "target", self.target or classes[0])
        changes = labels != target
        if self.name == "label-flip" and self.source:
            source = _class_number(classes, "source", self.source)
            if source == target:
                raise SettingError("attack.source", repr(self.source), "another class than attack.target")
            changes = labels == source
        return np.where(changes, target, labels), np.flatnonzero(changes)


def _class_number(classes: tuple[str, ...], key: str, name: str) -> int:
    if name not in classes:
        raise SettingError(f"attack.{key}", repr(name), f"one of the classes: {', '.join(classes)}")
    return classes.index(name)


def rounds_of(method: Method, rounds: RoundSettings) -> RoundSettings:
    """The rounds of a method: as they are, or as many as a closed form takes, of all clients and images."""
    if not method.in_closed_form:
        return rounds
    n_rounds = min(method.closed_form_rounds, rounds.rounds)
    return replace(rounds, rounds=n_rounds, local_epochs=1, participation=1.0)


@dataclass(frozen=True)
class Settings:
    """Everything that drives a federation, apart from data, backbone and method."""

    federation: RoundSettings = field(default_factory=RoundSettings)
    optimizer: OptimizerSettings = OptimizerSettings()
    server: ServerStepSettings = ServerStepSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    compute: ComputeSettings = ComputeSettings()
    seed: int = 0
    privacy: PrivacySettings = field(default_factory=PrivacySettings)
    attack: AttackSettings = field(default_factory=AttackSettings)

    def of(self, method: Method) -> "Settings":
        """The same with the method's own optimizer, learning rate, number of rounds and class prior."""
        rounds = rounds_of(method, self.federation)
        if method.in_closed_form:
            rounds = replace(rounds, batch_size=MOST)  # one release of all images
        evaluation = self.evaluation.of(method)
        return replace(self, optimizer=self.optimizer.of(method), federation=rounds, evaluation=evaluation)

    def in_common(self) -> "Settings":
        """What federations side by side must agree on; all else is each one's own, and is the default here."""
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
        """q, the probability with which each of the images is in a step."""
        return min(1.0, self.federation.batch_size / max(n, 1))

    def noisy_steps(self, n: int, epochs: int | None = None) -> int:
        """Steps in so many epochs, by default those of a round: each image is seen once in an epoch, on average."""
        epochs = self.federation.local_epochs if epochs is None else epochs
        return max(1, round(epochs * n / self.federation.batch_size)) if n else 0

    def images_epsilon(self, n: int, steps: int) -> float:
        """The epsilon that so many noisy steps spend of the images' privacy."""
        return epsilon(self.privacy.noise, steps, self.privacy.delta, self.sampling_rate(n))
