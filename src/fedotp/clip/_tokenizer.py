"""CLIP's byte-pair encoding by the `tokenizers` library."""

import gzip
import html
import json
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import resources

import tokenizers
import torch
from tokenizers import Regex, decoders, models, pre_tokenizers
from torch import Tensor

from fedotp._text import one_line
from fedotp.errors import FedotpError

_SOT, _EOT = "<|startoftext|>", "<|endoftext|>"
_N_MERGES = 49152 - 256 - 2  # CLIP uses fewer merges than the file lists
_MOST_STEPS = 8
# Contractions, runs of letters, single digits, runs of anything else.
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+"


class Tokenizer:
    """Conversion of text to token ids and back.

    Text is cleaned as in CLIP: HTML entities resolved (twice), white space collapsed, lower case. Of CLIP's repair of
    encodings by `ftfy` only the NFC normalisation is done. Special tokens in text, such as "<|endoftext|>", are encoded
    as ordinary characters.
    """

    def __init__(self, bpe: tokenizers.Tokenizer, *, sot: int, eot: int) -> None:
        """Wrap a trained `tokenizers.Tokenizer` with these start- and end-of-text ids."""
        self._bpe = bpe
        self.sot = sot
        self.eot = eot

    @classmethod
    def clip(cls) -> "Tokenizer":
        """Return CLIP's tokenizer of 49,408 tokens."""
        return _clip_tokenizer()

    @classmethod
    def from_json(cls, text: str, *, origin: str = "tokenizer JSON") -> "Tokenizer":
        """Parse the text of a `tokenizers` JSON file with CLIP's special tokens; `origin` is its name in errors."""
        with _one_line_errors(f"{origin} is not a `tokenizers` JSON file"):
            _check_steps(json.loads(text))
            bpe = tokenizers.Tokenizer.from_str(text)
            bpe.no_padding()
            bpe.no_truncation()
            last_id = max(bpe.get_vocab().values(), default=0)
        sot_id, eot_id = bpe.token_to_id(_SOT), bpe.token_to_id(_EOT)
        if sot_id is None or eot_id is None:
            raise FedotpError(f"{origin} lacks the special tokens {_SOT!r} and {_EOT!r}")
        if last_id >= bpe.get_vocab_size():
            raise FedotpError(f"{origin}: token ids must be less than {bpe.get_vocab_size()}, got {last_id}")
        return cls(bpe, sot=sot_id, eot=eot_id)

    def to_json(self) -> str:
        """Return the vocabulary for `from_json`."""
        text: str = self._bpe.to_str()
        return text

    @property
    def vocab_size(self) -> int:
        """Number of token ids, including special tokens."""
        size: int = self._bpe.get_vocab_size()
        return size

    def encode(self, text: str) -> list[int]:
        """Return the ids of the text, without start and end of text.

        >>> Tokenizer.clip().encode("a photo of a dog.")
        [320, 1125, 539, 320, 1929, 269]
        """
        with _one_line_errors("the tokenizer cannot encode a text"):
            ids: list[int] = self._bpe.encode(clean(text), add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the (cleaned) text of ids, without start and end of text."""
        text: str = self._bpe.decode([i for i in ids if i not in (self.sot, self.eot)])
        return text.strip()

    def __call__(self, texts: Sequence[str], context_length: int) -> Tensor:
        """Return ids (n, context_length), int64: start of text, the text, end of text, zeros."""
        ids = torch.zeros(len(texts), context_length, dtype=torch.long)
        for row, text in zip(ids, texts, strict=True):
            tokens = [self.sot, *self.encode(text), self.eot]
            if len(tokens) > context_length:
                raise FedotpError(f"text of {len(tokens)} tokens: must be at most {context_length}: {text!r}")
            row[: len(tokens)] = torch.tensor(tokens)
        return ids


def clean(text: str) -> str:
    """Resolve HTML entities, compose accents, collapse white space, convert to lower case."""
    text = unicodedata.normalize("NFC", html.unescape(html.unescape(text)))
    return " ".join(text.split()).lower()


@contextmanager
def _one_line_errors(what: str) -> Iterator[None]:
    """Convert errors of `tokenizers`, whose panics are not `Exception`s, into `FedotpError`."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise FedotpError(f"{what}: {one_line(error)}") from error


def _check_steps(stored: object) -> None:
    """Reject steps that could expand a short text without limit, such as repeated replacements.

    The library rejects malformed steps.
    """
    if not isinstance(stored, dict):
        raise ValueError("not a JSON object")
    for section in ("normalizer", "pre_tokenizer", "decoder"):
        waiting, n_steps = [stored.get(section)], 0
        while waiting:
            step = waiting.pop()
            if not isinstance(step, dict):
                continue
            waiting += [inner for parts in step.values() if isinstance(parts, list) for inner in parts]
            n_steps += 1
            if n_steps > _MOST_STEPS or step.get("type") == "Precompiled" or len(str(step.get("content", ""))) > 1:
                limits = f"{_MOST_STEPS} steps, none compiled, with replacements of one character"
                raise ValueError(f"its {section} must have at most {limits}")


@cache
def _clip_tokenizer() -> Tokenizer:
    packed = resources.files("fedotp.clip").joinpath("bpe_simple_vocab_16e6.txt.gz").read_bytes()
    lines = gzip.decompress(packed).decode("utf-8").splitlines()
    merges = [(left, right) for left, right in map(str.split, lines[1 : 1 + _N_MERGES])]
    symbols = _byte_symbols()
    tokens = [*symbols, *(s + "</w>" for s in symbols), *(a + b for a, b in merges), _SOT, _EOT]
    vocab = {token: i for i, token in enumerate(tokens)}
    bpe = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges, end_of_word_suffix="</w>"))
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Replace("</w>", " ")])
    return Tokenizer(bpe, sot=len(tokens) - 2, eot=len(tokens) - 1)


def _byte_symbols() -> list[str]:
    """Return one printable character per byte, in the order of CLIP's vocabulary.

    Printable Latin-1 bytes are themselves and come first; the others are characters from 256 up.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    n_others = 256 - len(printable)
    return [chr(c) for c in [*printable, *range(256, 256 + n_others)]]
