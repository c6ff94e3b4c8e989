"""Task of a federation, common to all clients and the server, and initial draws from its seed."""

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
"""Default precision of the text tower."""
_MOST_VECTORS = 1000  # more than the positions of any text tower (77 for CLIP)


@dataclass(frozen=True)
class PromptSettings:
    """Shape and initialisation of prompts, and KgCoOp's penalty; the defaults are the paper's.

    Attributes:
        space: space of prompts: "context" vectors around the class name, input of the text tower, or changes to the
            text "features" of each class (task residuals, Yu et al., CVPR 2023). The latter need no text tower and work
            for their classes only; they ignore `n_ctx` and `position`.
        n_ctx: number s of context vectors of a prompt.
        position: position of the class name: at the "end" of the vectors, in their "middle" or in "front" of them.
        per_class: train separate context vectors for every class.
        std: standard deviation of the initial vectors, or of the noise added to `words`.
        words: text whose embeddings initialise the vectors, such as "a photo of a"; it determines their number. "" for
            none.
        kgcoop: weight of KgCoOp's penalty on forgetting (Yao et al., CVPR 2023, who use 8): 1 minus the mean cosine of
            the prompts' class features and those of the hand-written template. 0 for none.
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
            raise SettingError(f"prompt.{key}", show(getattr(self, key)), f'{right} if prompt.space = "features"')
        require_from(0, MOST, "prompt.kgcoop", self.kgcoop, " (0: none; KgCoOp's paper uses 8)")


@dataclass(frozen=True, eq=False)
class Task:
    """A frozen backbone, the classes, and the shape of the prompts.

    `template` is the caption of zero-shot CLIP, with {} for the class name; `seed` determines the initial prompts;
    `authors` are the departures of the authors' code.
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
            raise FedotpError(f"template = {self.template!r}: must contain {{}} in place of the class name")

    @property
    def device(self) -> torch.device:
        """Device of the backbone."""
        return self.clip.device

    @property
    def dtype(self) -> torch.dtype:
        """Type of prompts, features and scores: float64 for a tower in float64, else float32."""
        return torch.promote_types(self.clip.dtype, torch.float32)

    def in_precision(self, precision: Precision) -> "Task":
        """Return a copy with the tower in float64 or bfloat16; "float32" does not change it.

        With bfloat16, learned parameters and matching remain in float32.
        """
        dtype = getattr(torch, precision)
        without_tower = precision == "bfloat16" and isinstance(self.clip.config.text, ClassTable)
        if precision == "float32" or self.clip.dtype == dtype or without_tower:
            return self
        return replace(self, clip=_converted(self.clip, dtype))

    def side_by_side(self, n_clients: Sequence[int]) -> "Task":
        """Return a copy for the clients of several runs in a row, with these numbers of clients.

        A prompt shared by all clients of a run is then encoded once for the run. Comparing prompts synchronises with
        the GPU, so use this for predictions only.
        """
        several = copy.copy(self)
        object.__setattr__(several, "_runs", tuple(n_clients))
        return several

    @property
    def bound_to_classes(self) -> str:
        """Reason why its prompts cannot be used with other class names; "" if they can."""
        if self.in_feature_space:
            return 'these prompts are changes to the features of the trained classes (prompt.space = "features")'
        why = "these prompts have separate vectors for each of the trained classes (prompt.per_class)"
        return why if self.prompt.per_class else ""

    @property
    def in_feature_space(self) -> bool:
        """True if prompts are changes to class features, the only possibility without a text tower."""
        return self.prompt.space == "features" or isinstance(self.clip.config.text, ClassTable)

    def require_context(self, why: str) -> None:
        """Require context vectors and a text tower; `why` is the method's reason."""
        if self.prompt.space == "features":
            raise FedotpError(f'prompt.space = "features": must be "context", as {why}')
        _ = self.clip.text  # raises if there is none

    @property
    def logit_scale(self) -> Tensor:
        """The backbone's logarithm of 1 / tau."""
        return self.clip.logit_scale

    def rule(self, matching: Matching) -> Matching:
        """Return `matching` with the solver of the authors' code if `authors.batch_solver` is set."""
        return replace(matching, solver="batch") if self.authors.batch_solver else matching

    @cached_property
    def encoder(self) -> PromptEncoder | FeatureEncoder:
        """Encoder of this task's prompts: the text tower, or the addition to class features."""
        words = self.prompt.words
        return self.encoder_for(len(self.clip.tokenizer.encode(words)) if words else self.prompt.n_ctx)

    def encoder_for(self, n_ctx: int) -> PromptEncoder | FeatureEncoder:
        """Return the encoder of prompts of `n_ctx` vectors, which may differ from the task's length."""
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
        """Return initial context vectors (N, s, d), or (N, K, s, d) per class, or (N, K, e) in feature space.

        They are the same for every client, of the type `dtype`. `n_ctx` is their number s, by default the task's.
        """
        settings = self.prompt
        if settings.space == "features":
            generator = torch.Generator().manual_seed(self.seed)
            drawn = torch.randn(n_prompts, len(self.classes), self.encoder.width, generator=generator)
            return self._rounded(settings.std * drawn.to(self.device))
        n_ctx = self.encoder.n_ctx if n_ctx is None else n_ctx
        self.encoder_for(n_ctx)  # raises if there are too many vectors, before they are drawn
        if settings.words and n_ctx == self.encoder.n_ctx:
            # Without noise, equal prompts would always have equal gradients.
            return self.word_contexts(n_prompts, settings.words, settings.std)
        n_classes = len(self.classes) if settings.per_class else None
        context = random_context(self.clip, n_prompts, n_ctx, n_classes=n_classes, std=settings.std, seed=self.seed)
        return self._rounded(context[0])

    def word_contexts(self, n_prompts: int, words: str, noise: float) -> Tensor:
        """Return context vectors as `contexts` does, initialised with the embeddings of words plus normal `noise`."""
        self.require_context(f"prompts that start as {words!r} are context vectors")
        n_classes = len(self.classes) if self.prompt.per_class else None
        context = word_context(self.clip, words, n_prompts, n_classes=n_classes, noise=noise, seed=self.seed)
        return self._rounded(context[0])

    def word_vectors(self, words: str) -> Tensor:
        """Return the embeddings (n, d) of the n tokens of `words`, cached."""
        if words not in self._words:
            self._words[words] = word_context(self.clip, words, 1)[0, 0].to(self.dtype)
        return self._words[words]

    def _rounded(self, context: Tensor) -> Tensor:
        return (context.half() if self.authors.half_precision else context).to(self.dtype)

    def features(self, *contexts: Tensor | None) -> Tensor:
        """Encode prompts (C, N_i, s_i, d) into class features (C, N, K, e), in the given order.

        Prompts of the same length are encoded together, those shared by all clients (expanded along the client axis)
        once. None is the template; alone it gives (1, 1, K, e), for all clients.
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
        """Return the numbers of clients that share each prompt, () if it is each client's own, and its vectors.

        The template counts as 0 vectors.
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
        """Return class features (1, 1, K, e) of the hand-written template."""
        return self.caption_features(self.template)

    @cached_property
    def name_features(self) -> Tensor:
        """Features (K, e), of length 1, of the bare class names."""
        return F.normalize(self.caption_features("{}")[0, 0], dim=-1)

    @torch.no_grad()
    def caption_features(self, caption: str) -> Tensor:
        """Return class features (1, 1, K, e) of a `caption` with {} for the class name, cached."""
        if caption not in self._captions:
            self._captions[caption] = self._encoded(caption)[None, None].to(self.dtype)
        return self._captions[caption]

    def _encoded(self, caption: str) -> Tensor:
        """Encode a caption into class features (K, e), by the text tower or, without one, by the table of features."""
        table = self.clip.config.text
        if isinstance(table, ClassTable) and caption == table.template:
            return self.clip.class_features[table.rows(self.classes)]
        captions = [caption.replace("{}", name) for name in self.classes]
        ids = self.clip.tokenizer(captions, self.clip.text.context_length)
        return self.clip.encode_text(ids.to(self.device))


@lru_cache(maxsize=2)
def _converted(clip: CLIP, dtype: torch.dtype) -> CLIP:
    """Return a copy of the backbone in another precision, cached; its temperature keeps at least float32."""
    copied = copy.deepcopy(clip).to(dtype)
    copied.logit_scale.data = clip.logit_scale.data.to(torch.promote_types(dtype, torch.float32))
    return copied


def _firsts(sizes: tuple[int, ...]) -> list[int]:
    """Return the starts of consecutive parts of these sizes."""
    return [0, *accumulate(sizes[:-1])]


def uniform(task: Task, purpose: str, *shape: int, bound: float) -> Tensor:
    """Draw from [-bound, bound], the same on every device; `purpose` separates the draws of a seed."""
    drawn = torch.rand(shape, generator=_generator(task, purpose))
    return bound * (2 * drawn.to(task.device, task.dtype) - 1)


def normal(task: Task, purpose: str, *shape: int, std: float) -> Tensor:
    """Draw normal numbers of mean 0 and this standard deviation, as `uniform` does."""
    drawn = torch.randn(shape, generator=_generator(task, purpose))
    return std * drawn.to(task.device, task.dtype)


def constant(task: Task, value: float, *shape: int) -> Tensor:
    """Return a tensor filled with `value`, to initialise biases and norms."""
    return torch.full(shape, value, device=task.device, dtype=task.dtype)


def _generator(task: Task, purpose: str) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(f"{task.seed} {purpose}".encode()))
