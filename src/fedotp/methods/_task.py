"""What all clients and the server of a federation agree on before the first round, and what is drawn from its seed."""

import copy
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import accumulate, groupby
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedotp._authors import AuthorsSettings
from fedotp._values import MOST, require_choices, require_from, show
from fedotp.clip import CLIP, ClassTable
from fedotp.errors import FedotpError, SettingError
from fedotp.matching import Matching
from fedotp.prompts import N_CTX, POSITION, STD, FeatureEncoder, Position, PromptEncoder, random_context, word_context

Precision = Literal["float32", "bfloat16", "float64"]
PRECISION: Precision = "float32"
"""Of the text tower's computation."""
_MOST_VECTORS = 1000  # no text tower has so many positions: CLIP's has 77


@dataclass(frozen=True)
class PromptSettings:
    """The shape and the start of a prompt, and what it must not forget; the defaults are the paper's.

    Attributes:
        space: what a prompt is: "context" vectors around the class name, which the text tower reads, or a change to the
            text "features" of each class (task residuals, Yu et al., CVPR 2023). The latter needs no text tower and is
            bound to its classes; `n_ctx` and `position` have no effect then.
        n_ctx: s, the context vectors of a prompt.
        position: where the class name stands: at the "end" of the vectors, in their "middle" or in "front" of them.
        per_class: every class has its own context vectors.
        std: standard deviation of the normal draws that the vectors start as, or that are added to `words`.
        words: text whose embeddings the vectors start as, such as "a photo of a"; it fixes their number. "" for none.
        kgcoop: weight of a penalty on what prompts forget, 0 for none. It is KgCoOp's (Yao et al., CVPR 2023): 1 less
            the mean cosine of their class features and those of the hand-written template. That paper uses 8.
    """

    space: Literal["context", "features"] = "context"
    n_ctx: int = N_CTX
    position: Position = POSITION
    per_class: bool = False
    std: float = STD
    words: str = ""
    kgcoop: float = 0.0

    def __post_init__(self) -> None:
        require_from(1, _MOST_VECTORS, "prompt.n_ctx", self.n_ctx, f" (the paper uses {N_CTX})")
        require_choices(self, "prompt.")
        require_from(0, MOST, "prompt.std", self.std, f" (the paper uses {STD})")
        if self.space == "features" and (self.per_class or self.words):
            key, right = ("per_class", "false") if self.per_class else ("words", '""')
            raise SettingError(f"prompt.{key}", show(getattr(self, key)), f'{right} with prompt.space = "features"')
        require_from(0, MOST, "prompt.kgcoop", self.kgcoop, " (0: none; KgCoOp's paper uses 8)")


@dataclass(frozen=True, eq=False)
class Task:
    """A frozen backbone, the classes to distinguish, and the shape of the prompts.

    `template` is the caption of zero-shot CLIP, with {} for the class name; `seed` draws the initial prompts; `authors`
    says what is done as in the authors' code.
    """

    clip: CLIP
    classes: tuple[str, ...]
    prompt: PromptSettings = field(default_factory=PromptSettings)
    template: str = "a photo of a {}."
    seed: int = 0
    authors: AuthorsSettings = field(default_factory=AuthorsSettings)
    _encoders: dict[int, PromptEncoder | FeatureEncoder] = field(default_factory=dict, init=False, repr=False)
    _captions: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)
    _words: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)
    _runs: tuple[int, ...] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        if "{}" not in self.template:
            raise FedotpError(f"template {self.template!r} has no {{}} where the class name goes")

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.clip.device

    @property
    def dtype(self) -> torch.dtype:
        """Of prompts, features and scores: float64 for a tower in float64, float32 otherwise."""
        return torch.promote_types(self.clip.dtype, torch.float32)

    def in_precision(self, precision: Precision) -> "Task":
        """The same task with its tower in float64 or bfloat16; "float32" leaves the tower as it is.

        In bfloat16 only the text tower computes so; what is learned, and the matching, stay in float32.
        """
        dtype = getattr(torch, precision)
        without_tower = precision == "bfloat16" and isinstance(self.clip.config.text, ClassTable)
        if precision == "float32" or self.clip.dtype == dtype or without_tower:
            return self
        return replace(self, clip=_converted(self.clip, dtype))

    def side_by_side(self, n_clients: Sequence[int]) -> "Task":
        """The same task for the clients of several runs in a row, so many of each.

        A prompt that is one for all clients of a run is then encoded once for the run. To find out, prompts are
        compared, and a GPU waited for: this is for predictions.
        """
        several = copy.copy(self)
        object.__setattr__(several, "_runs", tuple(n_clients))
        return several

    @property
    def bound_to_classes(self) -> str:
        """Why its prompts cannot be put before other class names, in a sentence; "" where they can."""
        if self.in_feature_space:
            return 'these prompts change the features of their own classes (prompt.space = "features"), not of others'
        why = "these prompts have vectors for every class (prompt.per_class): they cannot be put before other names"
        return why if self.prompt.per_class else ""

    @property
    def in_feature_space(self) -> bool:
        """Whether prompts are changes to class features; nothing else can be without a text tower."""
        return self.prompt.space == "features" or isinstance(self.clip.config.text, ClassTable)

    def require_context(self, why: str) -> None:
        """Refuse prompts in feature space, and backbones without a text tower, to a method that says `why`."""
        if self.prompt.space == "features":
            raise FedotpError(f'prompt.space = "features": {why}; right is "context"')
        _ = self.clip.text  # refused where there is none

    @property
    def logit_scale(self) -> Tensor:
        """Logarithm of 1 / tau, the backbone's own."""
        return self.clip.logit_scale

    def rule(self, matching: Matching) -> Matching:
        """`matching` as it is computed here: with the solver of the authors' code where that is asked for."""
        return replace(matching, solver="batch") if self.authors.batch_solver else matching

    @cached_property
    def encoder(self) -> PromptEncoder | FeatureEncoder:
        """The text tower on this task's prompts, or what adds them to class features."""
        words = self.prompt.words
        return self.encoder_for(len(self.clip.tokenizer.encode(words)) if words else self.prompt.n_ctx)

    def encoder_for(self, n_ctx: int) -> PromptEncoder | FeatureEncoder:
        """The text tower on prompts of `n_ctx` vectors, which need not be as long as the task's."""
        if n_ctx not in self._encoders:
            settings = self.prompt
            self._encoders[n_ctx] = (
                FeatureEncoder(self.template_features()[0, 0])
                if self.in_feature_space
                else PromptEncoder(
                    self.clip, self.classes, n_ctx=n_ctx, position=settings.position, per_class=settings.per_class
                )
            )
        return self._encoders[n_ctx]

    def contexts(self, n_prompts: int, n_ctx: int | None = None) -> Tensor:
        """Initial context vectors (N, s, d), or (N, K, s, d) per class, or (N, K, e) in feature space.

        They are the same for every client, and float64 for a tower in float64, float32 otherwise. `n_ctx` is their
        number s, the task's if not given.
        """
        settings = self.prompt
        if settings.space == "features":
            generator = torch.Generator().manual_seed(self.seed)
            drawn = torch.randn(n_prompts, len(self.classes), self.encoder.width, generator=generator)
            return self._rounded(settings.std * drawn.to(self.device))
        n_ctx = self.encoder.n_ctx if n_ctx is None else n_ctx
        self.encoder_for(n_ctx)  # refuses more vectors than the text tower has positions before they are drawn
        if settings.words and n_ctx == self.encoder.n_ctx:
            # A second prompt equal to the first would get equal gradients for ever.
            return self.word_contexts(n_prompts, settings.words, settings.std)
        n_classes = len(self.classes) if settings.per_class else None
        context = random_context(self.clip, n_prompts, n_ctx, n_classes=n_classes, std=settings.std, seed=self.seed)
        return self._rounded(context[0])

    def word_contexts(self, n_prompts: int, words: str, noise: float) -> Tensor:
        """Context vectors as of `contexts` that start as the embeddings of words, and normal `noise` on them."""
        self.require_context(f"prompts that start as {words!r} are context vectors")
        n_classes = len(self.classes) if self.prompt.per_class else None
        context = word_context(self.clip, words, n_prompts, n_classes=n_classes, noise=noise, seed=self.seed)
        return self._rounded(context[0])

    def word_vectors(self, words: str) -> Tensor:
        """The embeddings (n, d) of the n tokens of `words`, looked up once and then kept."""
        if words not in self._words:
            self._words[words] = word_context(self.clip, words, 1)[0, 0].to(self.dtype)
        return self._words[words]

    def _rounded(self, context: Tensor) -> Tensor:
        return (context.half() if self.authors.half_precision else context).to(self.dtype)

    def features(self, *contexts: Tensor | None) -> Tensor:
        """Class features (C, N, K, e) of prompts (C, N_i, s_i, d) set side by side, in the order given.

        Prompts of one length are encoded together, those that are one for all clients (expanded along the client axis)
        once. None stands for the template; alone it gives (1, 1, K, e), for all clients.
        """
        n_clients = max((len(context) for context in contexts if context is not None), default=1)
        parts = []
        for (copies, n_ctx), group in groupby(contexts, self._shape):
            some = [context for context in group if context is not None]
            if copies:
                some = [context[:1] if len(copies) == 1 else context[_firsts(copies)] for context in some]
            encode = self.encoder_for(n_ctx) if some else None
            part = encode(some[0] if len(some) == 1 else torch.cat(some, dim=1)) if encode else self.template_features()
            part = part.to(self.dtype)
            if len(copies) > 1:
                part = part.repeat_interleave(torch.tensor(copies, device=part.device), dim=0)
            parts.append(part.expand(n_clients, -1, -1, -1))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _shape(self, context: Tensor | None) -> tuple[tuple[int, ...], int]:
        """How many clients each different prompt is for, none where it is each client's own; and its number of vectors.

        The template, for which nothing is known yet, has 0 vectors.
        """
        if context is None:
            return (1,), 0
        n_clients, n_ctx = len(context), context.shape[-2]
        if n_clients > 1 and context.stride(0) == 0:
            return (n_clients,), n_ctx
        if n_clients > len(self._runs) > 0:
            of_runs = context[_firsts(self._runs)].repeat_interleave(torch.tensor(self._runs, device=context.device), 0)
            return (self._runs if torch.equal(of_runs, context) else ()), n_ctx
        return (), n_ctx

    def template_features(self) -> Tensor:
        """Class features (1, 1, K, e) of the hand-written template."""
        return self.caption_features(self.template)

    @cached_property
    def name_features(self) -> Tensor:
        """Features (K, e), of length 1, of the bare class names."""
        return F.normalize(self.caption_features("{}")[0, 0], dim=-1)

    @torch.no_grad()
    def caption_features(self, caption: str) -> Tensor:
        """Class features (1, 1, K, e) of a `caption` with {} for the class name, encoded once and then kept."""
        if caption not in self._captions:
            self._captions[caption] = self._encoded(caption)[None, None].to(self.dtype)
        return self._captions[caption]

    def _encoded(self, caption: str) -> Tensor:
        """Class features (K, e) of a caption: the text tower's, or for a backbone without one those of its table."""
        table = self.clip.config.text
        if isinstance(table, ClassTable) and caption == table.template:
            return self.clip.class_features[table.rows(self.classes)]
        captions = [caption.replace("{}", name) for name in self.classes]
        ids = self.clip.tokenizer(captions, self.clip.text.context_length)
        return self.clip.encode_text(ids.to(self.device))


@lru_cache(maxsize=2)
def _converted(clip: CLIP, dtype: torch.dtype) -> CLIP:
    """A copy of the backbone in another precision, one for all runs of a process; its temperature keeps all digits."""
    copied = copy.deepcopy(clip).to(dtype)
    copied.logit_scale.data = clip.logit_scale.data.to(torch.promote_types(dtype, torch.float32))
    return copied


def _firsts(sizes: tuple[int, ...]) -> list[int]:
    """Where parts of these sizes, one after the other, begin."""
    return [0, *accumulate(sizes[:-1])]


def uniform(task: Task, purpose: str, *shape: int, bound: float) -> Tensor:
    """Numbers from -bound to bound, the same on every device; `purpose` separates them from other draws of the seed."""
    drawn = torch.rand(shape, generator=_generator(task, purpose))
    return bound * (2 * drawn.to(task.device, task.dtype) - 1)


def normal(task: Task, purpose: str, *shape: int, std: float) -> Tensor:
    """Normal numbers of this standard deviation around 0, otherwise as `uniform`."""
    drawn = torch.randn(shape, generator=_generator(task, purpose))
    return std * drawn.to(task.device, task.dtype)


def constant(task: Task, value: float, *shape: int) -> Tensor:
    """The same number everywhere: what biases and norms start from."""
    return torch.full(shape, value, device=task.device, dtype=task.dtype)


def _generator(task: Task, purpose: str) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(f"{task.seed} {purpose}".encode()))
