"""The generalisation bound of the paper's Theorem 1, and what of it can be measured in a run."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fedotp.errors import FedotpError
from fedotp.federation import Floats, RoundSettings
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import StoredParameters

LOSS_LIPSCHITZ = math.sqrt(2)
"""Of the cross-entropy in the logits, in the Euclidean norm: its gradient is p - e_y, never longer than this."""


@dataclass(frozen=True)
class Bound:
    """The right-hand side of Theorem 1, a sum of three terms.

    Attributes:
        deviation: sqrt(M / 2 log(N / delta)), as printed.
        complexity: sqrt(d N / M log(e M / d)).
        prompts: L (L_g A_g + L_l A_l).
        deviation_mcdiarmid: sqrt(log(N / delta) / (2 M)), what McDiarmid's inequality gives for a loss in [0, 1]; not
            part of `value`.
        symbols: the numbers that went in, by the paper's names.
        assumptions: what was taken for granted.
    """

    deviation: float
    complexity: float
    prompts: float
    deviation_mcdiarmid: float
    symbols: dict[str, float]
    assumptions: tuple[str, ...] = ()

    @property
    def terms(self) -> dict[str, float]:
        """The three terms by name."""
        return {"deviation": self.deviation, "complexity": self.complexity, "prompts": self.prompts}

    @property
    def value(self) -> float:
        """Their sum."""
        return self.deviation + self.complexity + self.prompts

    @property
    def is_vacuous(self) -> bool:
        """Whether the bound says nothing: a mean loss in [0, 1] differs from another by at most 1 anyway."""
        return self.value >= 1

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "terms": self.terms,
            "value": self.value,
            "assumptions": list(self.assumptions),
            "symbols": self.symbols,
        }


def generalization_bound(
    examples: Sequence[int],
    *,
    vc_dimension: float,
    radius_shared: float,
    radius_private: float | Sequence[float],
    delta: float = 0.05,
    lipschitz_loss: float = LOSS_LIPSCHITZ,
    lipschitz_shared: float = 1.0,
    lipschitz_private: float | Sequence[float] = 1.0,
) -> Bound:
    """Theorem 1: with probability at least 1 - delta, for the learned prompts P^ and the optimal ones P*:

        | sum_i m_i / M (L_emp,i(P^_g, P^_l,i) - L_true,i(P*_g, P*_l,i)) |
            <= sqrt(M / 2 log(N / delta)) + sqrt(d N / M log(e M / d)) + L (L_g A_g + L_l A_l)

    with M = sum_i m_i, L_l = sqrt(sum_i L_l,i^2) and A_l = sqrt(sum_i A_l,i^2). Every argument but the first can only
    be assumed: the defaults are L = sqrt(2), which holds for cross-entropy if f are the logits, and L_g = L_l,i = 1,
    which is a placeholder.

    The formula is the printed one, with two remarks. Its first term grows with the number of examples; Lemma 1 with
    bounded differences 1 / M gives sqrt(log(N / delta) / (2 M)) there (`Bound.deviation_mcdiarmid`). Its second term
    rests on Sauer's lemma, which needs M >= d: for fewer examples than that log(e M / d) is replaced by M / d log 2,
    the logarithm of all 2^M labellings, over d.

    Args:
        examples: (N,) training images m_i of each client.
        vc_dimension: d, of the personalised hypotheses.
        radius_shared: A_g >= |P^_g - P*_g|.
        radius_private: A_l,i >= |P^_l,i - P*_l,i|, one for all clients or (N,).
        lipschitz_loss: L, of the loss in the outputs f.
        lipschitz_shared: L_g, of the outputs in the global prompts.
        lipschitz_private: L_l,i, of the outputs in the local prompts, one for all clients or (N,).
    """
    m = np.asarray(examples, np.float64)
    _require_possible(m, delta, vc_dimension)
    n, total, d = len(m), float(m.sum()), float(vc_dimension)
    lengths = {
        "A_g": radius_shared,
        "A_l": _norm(radius_private, n, "radius_private"),
        "L": lipschitz_loss,
        "L_g": lipschitz_shared,
        "L_l": _norm(lipschitz_private, n, "lipschitz_private"),
    }
    _require_lengths(lengths)
    growth = math.log(math.e * total / d) if total >= d else total / d * math.log(2)
    confidence = math.log(n / delta)
    return Bound(
        deviation=math.sqrt(total / 2 * confidence),
        complexity=math.sqrt(d * n / total * growth),
        prompts=lengths["L"] * (lengths["L_g"] * lengths["A_g"] + lengths["L_l"] * lengths["A_l"]),
        deviation_mcdiarmid=math.sqrt(confidence / (2 * total)),
        symbols={"M": total, "N": n, "d": d, "delta": delta, **lengths},
    )


def _require_possible(examples: Floats, delta: float, vc_dimension: float) -> None:
    """Refuse numbers that the theorem is not about."""
    if examples.ndim != 1 or not len(examples) or not (examples > 0).all():
        raise FedotpError("examples must be one positive number of training images for each client")
    if not 0 < delta < 1:
        raise FedotpError(f"delta = {delta}: must be between 0 and 1, the probability that the bound fails")
    if not vc_dimension > 0:
        raise FedotpError(f"vc_dimension = {vc_dimension}: must be positive")


def _require_lengths(lengths: Mapping[str, float]) -> None:
    for name, value in lengths.items():
        if not 0 <= value < math.inf:
            raise FedotpError(f"{name} = {value}: must be finite and not negative")


def measure_bound(
    run: str | Path | RunDirectory,
    *,
    delta: float = 0.05,
    vc_dimension: float | None = None,
    lipschitz_loss: float = LOSS_LIPSCHITZ,
    lipschitz_shared: float = 1.0,
    lipschitz_private: float | Sequence[float] = 1.0,
) -> Bound:
    """Theorem 1 with what a run provides: M, N and the lengths of its prompts.

    Neither data nor backbone are needed. The optimal prompts are unknown, so A_g and A_l,i are the lengths of the
    learned ones: it is assumed that the optimum is no farther away than the origin. `vc_dimension` is, if not given,
    the number of values a client learns, a stand-in. Clients are those that have trained.
    """
    directory = run if isinstance(run, RunDirectory) else RunDirectory.open(run)
    config = directory.config
    if not config.method.matching.has_plan:
        raise FedotpError(
            f"no bound: Theorem 1 is about prompts that share the patches of an image, as in FedOTP; "
            f"{config.method.title} looks at the image as a whole"
        )
    if directory.is_deployed:
        raise FedotpError("no bound: the private prompts of real sites stay there, their lengths are not known here")
    server, private, owners = StoredParameters.of(directory)
    shared = [value for name, value in server.items() if name not in config.method.fixed]
    clients = directory.partition.clients
    names, domains = directory.manifest["clients"], directory.manifest["domains"]
    away = {*config.federation.held_out(names, domains, config.seed), *config.federation.absent(names)}
    members = [i for i in range(len(clients)) if len(clients[i].train) and i not in away]
    if private:  # those never sampled have learned nothing
        members = [i for i in members if i in owners]
    own = [[value[list(owners).index(i)] for value in private.values()] for i in members]
    learned = sum(value.numel() for value in (*shared, *own[0])) if own else 0
    bound = generalization_bound(
        [len(clients[i].train) for i in members],
        vc_dimension=learned if vc_dimension is None else vc_dimension,
        radius_shared=_length(shared),
        radius_private=[_length(values) for values in own],
        delta=delta,
        lipschitz_loss=lipschitz_loss,
        lipschitz_shared=lipschitz_shared,
        lipschitz_private=lipschitz_private,
    )
    return replace(bound, assumptions=tuple(_assumptions(bound, config.federation, given=vc_dimension is not None)))


def _assumptions(bound: Bound, rounds: RoundSettings, *, given: bool) -> Iterator[str]:
    symbols = bound.symbols
    yield "Measured: M and N, and the lengths of the learned prompts. Everything else is assumed."
    if not given:
        yield "d, the VC dimension, is the number of values a client learns: a stand-in, the true one is unknown."
    yield "A_g and A_l are the lengths of the learned prompts: the optimum is taken to be no farther than the origin."
    yield (
        f"L = {symbols['L']:.3g}, L_g = {symbols['L_g']:.3g}, L_l = {symbols['L_l']:.3g} are not measured; the "
        "defaults are sqrt(2), true of cross-entropy in the logits, and 1 for each prompt, a placeholder."
    )
    yield "The proof takes a loss in [0, 1]; cross-entropy is not bounded."
    if rounds.participation < 1 or rounds.dropout > 0:
        yield "The theorem wants all clients in every round; in this run they were not."
    if symbols["M"] < symbols["d"]:
        yield "M < d: Sauer's lemma says nothing here, and the complexity is that of all labellings, sqrt(N log 2)."
    fixed = bound.value - bound.deviation + bound.deviation_mcdiarmid
    yield (
        "The first term is as printed and grows with M; McDiarmid's inequality gives "
        f"{bound.deviation_mcdiarmid:.3g} in its place, and {fixed:.3g} in all."
    )
    if bound.is_vacuous:
        yield "The value is above 1: the bound is vacuous, it says nothing about this run."


def _length(tensors: Sequence[Tensor]) -> float:
    """Of all values written out as one vector."""
    return math.sqrt(sum(float(value.double().square().sum()) for value in tensors))


def _norm(value: float | Sequence[float], n: int, name: str) -> float:
    """sqrt(sum_i x_i^2) of one value for all clients, or of one each."""
    each = np.asarray(value, np.float64)
    if each.shape not in ((), (n,)):
        raise FedotpError(f"{name} has shape {each.shape}: must be one number, or one for each of the {n} clients")
    return float(np.sqrt(np.sum(np.broadcast_to(each, (n,)) ** 2)))
