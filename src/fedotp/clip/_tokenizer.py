"""CLIP's byte-pair encoding, run by the `tokenizers` library."""

import gzip
import html
import json
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import resources
from pathlib import Path

import tokenizers
import torch
from tokenizers import Regex, decoders, models, pre_tokenizers
from torch import Tensor

from fedotp._files import read_regular
from fedotp._text import one_line
from fedotp.errors import FedotpError

_SOT, _EOT = "<|startoftext|>", "<|endoftext|>"
_MOST_BYTES = 64 << 20  # of a vocabulary
_N_MERGES = 49152 - 256 - 2  # the file lists more merges than CLIP was trained with
_MOST_STEPS = 8
# Contractions, runs of letters, single digits, runs of anything else.
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+"


class Tokenizer:
    """Text to token ids and back.

    Text is cleaned as CLIP does: HTML entities resolved (twice), white space collapsed, lower case. CLIP also
    runs `ftfy` over it, which mends broken encodings; of that we keep only the NFC normalisation, so
    mis-decoded text is taken as it stands. The special tokens cannot be written in text: "<|endoftext|>" is
    encoded as the ordinary characters it is made of.
    """

    def __init__(self, bpe: tokenizers.Tokenizer, *, sot: int, eot: int) -> None:
        """Wrap a trained `tokenizers.Tokenizer` whose start- and end-of-text ids are given."""
        self._bpe = bpe
        self.sot = sot
        self.eot = eot

    @classmethod
    def clip(cls) -> "Tokenizer":
        """CLIP's own vocabulary of 49,408 tokens, which ships with the package."""
        return _clip_tokenizer()

    @classmethod
    def from_file(cls, path: str | Path, *, sot: str = _SOT, eot: str = _EOT) -> "Tokenizer":
        """A vocabulary stored as a `tokenizers` JSON file with the special tokens of these names."""
        try:
            text = read_regular(path, _MOST_BYTES).decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise FedotpError(f"cannot read tokenizer {path}: {error}") from error
        return cls.from_json(text, sot=sot, eot=eot, origin=str(path))

    @classmethod
    def from_json(cls, text: str, *, sot: str = _SOT, eot: str = _EOT, origin: str = "tokenizer JSON") -> "Tokenizer":
        """The same from the text of such a file; `origin` names it in error messages."""
        with _one_line_errors(f"{origin} is not a `tokenizers` JSON file"):
            _check_steps(json.loads(text))
            bpe = tokenizers.Tokenizer.from_str(text)
            bpe.no_padding()
            bpe.no_truncation()
            last_id = max(bpe.get_vocab().values(), default=0)
        sot_id, eot_id = bpe.token_to_id(sot), bpe.token_to_id(eot)
        if sot_id is None or eot_id is None:
            raise FedotpError(f"{origin} lacks the special tokens {sot!r} and {eot!r}; name its own")
        if last_id >= bpe.get_vocab_size():
            raise FedotpError(f"{origin} numbers its {bpe.get_vocab_size()} tokens up to {last_id}; leave no gaps")
        return cls(bpe, sot=sot_id, eot=eot_id)

    def to_json(self) -> str:
        """The vocabulary in the format `from_json` reads."""
        text: str = self._bpe.to_str()
        return text

    @property
    def vocab_size(self) -> int:
        """Number of token ids, special tokens included."""
        size: int = self._bpe.get_vocab_size()
        return size

    def encode(self, text: str) -> list[int]:
        """Ids of the text alone, without start and end of text.

        >>> Tokenizer.clip().encode("a photo of a dog.")
        [320, 1125, 539, 320, 1929, 269]
        """
        with _one_line_errors("the tokenizer cannot encode a text"):
            ids: list[int] = self._bpe.encode(clean(text), add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The (cleaned) text of some ids; start and end of text are left out."""
        text: str = self._bpe.decode([i for i in ids if i not in (self.sot, self.eot)])
        return text.strip()

    def __call__(self, texts: Sequence[str], context_length: int) -> Tensor:
        """Ids (n, context_length), int64: start of text, the text, end of text, zeros."""
        ids = torch.zeros(len(texts), context_length, dtype=torch.long)
        for row, text in zip(ids, texts, strict=True):
            tokens = [self.sot, *self.encode(text), self.eot]
            if len(tokens) > context_length:
                raise FedotpError(
                    f"text of {len(tokens)} tokens does not fit the context of {context_length}: {text!r}"
                )
            row[: len(tokens)] = torch.tensor(tokens)
        return ids


def clean(text: str) -> str:
    """Resolve HTML entities, compose accents, collapse white space, lower the case."""
    text = unicodedata.normalize("NFC", html.unescape(html.unescape(text)))
    return " ".join(text.split()).lower()


@contextmanager
def _one_line_errors(what: str) -> Iterator[None]:
    """`tokenizers` raises bare exceptions, and where it panics one that is not even an `Exception`."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise FedotpError(f"{what}: {one_line(error)}") from error


def _check_steps(stored: object) -> None:
    """Refuse steps that together could blow a short text up beyond all memory, as a few replacements do.

    What has not the form of a step at all is left to the library to refuse.
    """
    if not isinstance(stored, dict):
        raise ValueError("it is not a JSON object")
    for section in ("normalizer", "pre_tokenizer", "decoder"):
        waiting, n_steps = [stored.get(section)], 0
        while waiting:
            step = waiting.pop()
            if not isinstance(step, dict):
                continue
            waiting += [inner for parts in step.values() if isinstance(parts, list) for inner in parts]
            n_steps += 1
            if n_steps > _MOST_STEPS or step.get("type") == "Precompiled" or len(str(step.get("content", ""))) > 1:
                limits = f"{_MOST_STEPS} steps, none compiled, and replacements of one character"
                raise ValueError(f"its {section} does more than is allowed: {limits}")


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
    """One printable character per byte, in the order of CLIP's vocabulary.

    Bytes that print in Latin-1 stand for themselves and come first; the others borrow characters from 256 up.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    n_others = 256 - len(printable)
    return [chr(c) for c in [*printable, *range(256, 256 + n_others)]]
