"""CLIP: an image tower and a text tower with a common embedding space and OpenAI's tensor names."""

import hashlib
import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedotp.clip._config import ClassTable, ClipConfig, ResNetConfig, TextConfig
from fedotp.clip._preprocess import preprocess
from fedotp.clip._tokenizer import Tokenizer
from fedotp.clip._towers import ModifiedResNet, Transformer, VisionTransformer
from fedotp.errors import FedotpError
from fedotp.images import ImageLike

_TABLE = "class_features"


class ImageFeatures(NamedTuple):
    """Features of B images in the common embedding space, *not* normalised."""

    pooled: Tensor
    """(B, e): the class token (ViT) or the attention-pooled feature (ResNet)."""
    tokens: Tensor
    """(B, V, e): one feature per patch, row by row from the top left, without the class token."""

    def __repr__(self) -> str:
        return f"<ImageFeatures: pooled {tuple(self.pooled.shape)}, tokens {tuple(self.tokens.shape)}>"


class CLIP(nn.Module):
    """The two towers; `state_dict()` has the names of OpenAI's checkpoints.

    >>> from fedotp.clip import CLIP, TINY
    >>> model = CLIP.random(TINY)
    >>> model.encode_image(torch.zeros(2, 3, 32, 32)).tokens.shape
    torch.Size([2, 16, 32])
    >>> model.encode_text(model.tokenizer(["a photo of a dog."], 77)).shape
    torch.Size([1, 32])
    """

    def __init__(self, config: ClipConfig, *, tokenizer: Tokenizer | None = None) -> None:
        """Create a trainable model with random weights by CLIP's scheme.

        The default `tokenizer` is CLIP's, if the vocabulary has the same size.
        """
        super().__init__()
        self.config = config
        self.visual = (
            ModifiedResNet(config.vision, config.embed_dim)
            if isinstance(config.vision, ResNetConfig)
            else VisionTransformer(config.vision, config.embed_dim, config.activation)
        )
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
        self.custom_tokenizer = tokenizer
        self.file_digests: tuple[str, str] | None = None  # of a file: of the towers, and of a table of class features
        if isinstance(config.text, ClassTable):
            self.class_features = nn.Parameter(torch.randn(len(config.text.names), config.embed_dim))
            return
        text = config.text
        self.transformer = Transformer(text.width, text.layers, text.heads, config.activation)
        self.token_embedding = nn.Embedding(text.vocab_size, text.width)
        self.positional_embedding = nn.Parameter(0.01 * torch.randn(text.context_length, text.width))
        self.ln_final = nn.LayerNorm(text.width)
        self.text_projection = nn.Parameter(text.width**-0.5 * torch.randn(text.width, config.embed_dim))
        nn.init.normal_(self.token_embedding.weight, std=0.02)
        if tokenizer is not None and (tokenizer.eot, tokenizer.vocab_size) != (text.eot, text.vocab_size):
            raise FedotpError(
                f"the tokenizer has {tokenizer.vocab_size} tokens and end-of-text {tokenizer.eot}, "
                f"the model has {text.vocab_size} and {text.eot}; use the tokenizer that it was trained with"
            )

    @classmethod
    def random(cls, config: ClipConfig, *, seed: int = 0, tokenizer: Tokenizer | None = None) -> "CLIP":
        """Create a frozen model with random weights from `seed`; the global random state does not change."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            return cls(config, tokenizer=tokenizer).freeze()

    def __repr__(self) -> str:
        kind = "ResNet" if isinstance(self.config.vision, ResNetConfig) else "ViT"
        size, width = self.config.image_size, self.config.embed_dim
        n_patches = self.config.vision.grid**2
        return f"<CLIP, {kind}: images of {size} x {size} in {n_patches} patches, e = {width}>"

    def freeze(self) -> "CLIP":
        """Switch to evaluation mode and disable gradients of the weights."""
        return self.eval().requires_grad_(False)

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self._weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the weights; the temperature may have a higher one."""
        return self._weight.dtype

    @property
    def _weight(self) -> Tensor:
        return next(self.visual.parameters())

    @property
    def text(self) -> TextConfig:
        """Configuration of the text tower; raises an error if there is none."""
        return self.config.text_tower

    @property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the text tower: its own, or CLIP's if the vocabulary has the same size."""
        wanted = self.text.vocab_size
        tokenizer = self.custom_tokenizer or Tokenizer.clip()
        if tokenizer.vocab_size != wanted:
            raise FedotpError(
                f"no tokenizer for the vocabulary of {wanted} tokens; load the model with "
                "tokenizer=Tokenizer.from_json(...)"
            )
        return tokenizer

    @property
    def digest(self) -> str:
        """SHA-256 of names, shapes and float32 values, equal for every file format of the same weights.

        For a loaded model it is that of the values in the file, in any current precision.
        """
        towers, table = self.file_digests or digests_of(self.state_dict())
        if not isinstance(self.config.text, ClassTable):
            return towers
        return hashlib.sha256(f"{towers} {table} {self.config.to_json()}".encode()).hexdigest()

    @property
    def image_digest(self) -> str:
        """Digest for stored image features: of everything except a table of class features."""
        return (self.file_digests or digests_of(self.state_dict()))[0]

    def preprocess(self, image: ImageLike) -> Tensor:
        """Preprocess a path, an image, an array or a tensor into normalised pixels (3, H, W)."""
        return preprocess(image, self.config.image_size)

    def encode_image(self, pixels: Tensor) -> ImageFeatures:
        """Encode normalised pixels (B, 3, H, W) into pooled (B, e) and token (B, V, e) features."""
        size = self.config.image_size
        if pixels.shape[1:] != (3, size, size):
            raise ValueError(f"expected pixels of shape (B, 3, {size}, {size}), got {tuple(pixels.shape)}")
        x = self.visual(pixels.to(self.dtype))  # (B, 1 + V, e)
        return ImageFeatures(pooled=x[:, 0], tokens=x[:, 1:])

    def encode_text(self, ids: Tensor) -> Tensor:
        """Encode token ids (B, L), L <= context_length, into features (B, e), not normalised.

        The feature is that at the first end-of-text token. The tower is causal, so later columns are not computed.
        """
        is_eot = ids == self.text.eot
        if not is_eot.any(dim=1).all():
            raise ValueError(f"every row of ids must contain the end-of-text token ({self.text.eot})")
        eot = is_eot.int().argmax(dim=1)  # (B,) argmax returns the first one
        length = int(eot.max()) + 1
        return self.encode_embeddings(self.token_embedding(ids[:, :length]), eot)

    def encode_embeddings(self, x: Tensor, eot: Tensor) -> Tensor:
        """Encode token embeddings (B, L, d), without positions, into features (B, e) at the positions eot (B,).

        With learned vectors in some rows of x, this is the reference implementation of prompt learning.
        """
        length = x.shape[1]
        if length > self.text.context_length:
            raise ValueError(f"{length} tokens: must be at most {self.text.context_length}, the model's context")
        x = self.transformer(x + self.positional_embedding[:length], causal=True)  # (B, L, d)
        at_eot = x[torch.arange(len(x), device=x.device), eot]  # (B, d)
        features: Tensor = self.ln_final(at_eot) @ self.text_projection
        return features


def digests_of(tensors: Mapping[str, Tensor]) -> tuple[str, str]:
    """Return the digest of everything except a table of class features, and that of the table."""
    towers = {name: tensor for name, tensor in tensors.items() if name != _TABLE}
    return tensors_digest(towers), tensors_digest({_TABLE: tensors[_TABLE]}) if _TABLE in tensors else ""


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of the floating-point tensors by name: name, shape, little-endian float32 values."""
    sha = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        if tensor.is_floating_point():
            values = tensor.detach().cpu().float().contiguous().numpy().astype("<f4", copy=False)
            sha.update(f"{name} {tuple(tensor.shape)}\n".encode())
            sha.update(values.data)
    return sha.hexdigest()
