"""The prompts a run has learned, from its directory and the backbone, and the words they are near to."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from fedotp.clip import CLIP
from fedotp.errors import FedotpError
from fedotp.methods import Kind, Parameters, Task
from fedotp.report._client import SHOWN_CLIENTS, spread
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import StoredParameters, load_backbone, make_task

_CHUNK = 64  # vectors compared with the whole vocabulary at a time


class LearnedPrompts:
    """The prompts of a run, before fine-tuning if its method does that; on the device of the backbone."""

    def __init__(self, run: RunDirectory) -> None:
        """Load the backbone and read the run's parameters."""
        self.run = run
        self.stored = StoredParameters.of(run)
        manifest = run.manifest
        self.task: Task = make_task(run.config, backbone_of(run), manifest["data"]["classes"], manifest["template"])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The clients that have learned something of their own which is kept here."""
        return tuple(self.run.manifest["clients"][number] for number in self.stored.clients)

    def common(self) -> list[Tensor]:
        """The contexts (s, d), or (K, s, d), of the prompts that are the same for all clients."""
        untrained = self.run.config.method.private(self.task)
        return [context for kind, context in self._prompts(self._params(untrained, None)) if kind == Kind.GLOBAL]

    def of(self, client: str) -> list[tuple[Kind, Tensor]]:
        """Kinds and contexts (s, d), or (K, s, d), of what is a client's own, one of `names`."""
        number = self.run.manifest["clients"].index(client)
        private = self.stored.kept_by(self.run.config.method, self.task, number)
        prompts = self._prompts(self._params(private, number))
        return [(kind, context) for kind, context in prompts if kind not in (Kind.GLOBAL, Kind.OTHERS)]

    def _params(self, private: Parameters, number: int | None) -> Parameters:
        return self.stored.deployed(self.run.config.method, self.task, private, number)

    def _prompts(self, params: Parameters) -> list[tuple[Kind, Tensor]]:
        prompts = self.run.config.method.prompts(self.task, params)
        return [(kind, each) for kind, context in prompts if context is not None for each in context[0]]


def backbone_of(run: RunDirectory) -> CLIP:
    """The backbone a run began with."""
    clip = load_backbone(run.config.backbone.source, run.config.compute.device)
    run.require_same("backbone", run.config.backbone.name, clip.digest)
    return clip


@dataclass(frozen=True)
class VectorWords:
    """The words nearest to one context vector, nearest first, and their Euclidean distances."""

    words: tuple[str, ...]
    distances: tuple[float, ...]


@dataclass(frozen=True)
class PromptWords:
    """The words nearest to each vector of one prompt; `client` is None for a prompt all share."""

    client: str | None
    kind: str
    vectors: tuple[VectorWords, ...]


@torch.no_grad()
def nearest_words(clip: CLIP, vectors: Tensor, k: int = 5) -> list[VectorWords]:
    """The `k` tokens of the vocabulary whose embeddings are nearest to each of `vectors` (n, d), as CoOp looks them up.

    A token that is a whole word, or ends one, is written as it is; one that goes on is followed by "…". Start and end
    of text and tokens that are no readable text by themselves are left out. Near does not mean close: compare the
    distances with those between words.
    """
    table = clip.token_embedding.weight.detach()
    written = clip.tokenizer.words[: len(table)]
    ids = torch.tensor([i for i, text in enumerate(written) if text is not None], device=table.device)
    table = table[ids].float()
    found = []
    for part in vectors.to(table.device, table.dtype).split(_CHUNK):
        exact = torch.cdist(part, table, compute_mode="donot_use_mm_for_euclid_dist")
        distances, nearest = exact.topk(min(k, len(table)), largest=False)
        for row, places in zip(distances.tolist(), ids[nearest].tolist(), strict=True):
            found.append(VectorWords(tuple(written[i] or "" for i in places), tuple(row)))
    return found


def prompt_words(
    run: str | Path | RunDirectory, clients: Sequence[str] | None = None, *, k: int = 5
) -> list[PromptWords]:
    """The words nearest to the vectors of the global prompts of a run and of those of `clients` (three, if not given).

    The backbone is needed, the data are not.
    """
    directory = RunDirectory.open(run)
    if directory.config.prompt.per_class:
        raise FedotpError("no words: every class has context vectors of its own, too many to show")
    learned = LearnedPrompts(directory)
    chosen = spread(learned.names, SHOWN_CLIENTS) if clients is None else clients
    prompts: list[tuple[str | None, Kind, Tensor]] = [(None, Kind.GLOBAL, context) for context in learned.common()]
    prompts += [(name, *prompt) for name in learned.names if name in chosen for prompt in learned.of(name)]
    if not prompts:
        raise FedotpError(f"no words: {directory.config.method.title} has learned no vectors that are kept here")
    found = iter(nearest_words(learned.task.clip, torch.cat([context for _, _, context in prompts]), k))
    return [PromptWords(client, kind, tuple(next(found) for _ in context)) for client, kind, context in prompts]
