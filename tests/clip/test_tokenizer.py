"""The tokenizer against two others: instant-clip-tokenizer (Rust, its own BPE) and transformers'."""

import gzip
import json
import sys
import unicodedata
from functools import cache
from importlib import resources
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedotp.clip import Tokenizer
from fedotp.errors import FedotpError

CLIP = Tokenizer.clip()
EXAMPLES = [
    "a photo of a dog.",
    "a photo of a Yorkshire_Terrier, a type of pet.",
    "crème brûlée",
    "it's we'll they'd DON'T I'M",
    "3d printer, 1990s; 100% (½) №5",
    "naïve café — “quoted” … 東京タワー 😀👍🏽",
    "wine_glass/ice_cream\t\n  spaces\u3000",
    "",
    "   ",
    "</w> <|endoftext|",
]

# The oracles agree with us on characters as old as Unicode 3.2 only: what counts as a letter or a number in
# later ones depends on how recent a library's tables are. Control characters are left out because Python,
# and so CLIP, counts U+001C to U+001F as white space, which the oracles do not. "&" is left out because
# CLIP resolves HTML entities and the oracles do not; "<|" because they recognise special tokens in text;
# capital sigma because they do not always lower it to a final sigma at the end of a word.
OLD = unicodedata.ucd_3_2_0
CHARACTERS = [c for c in map(chr, range(sys.maxunicode)) if OLD.category(c)[0] in "LMNPSZ" and c not in "&Σ"]
TEXTS = st.one_of(
    st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="&"), max_size=40),
    st.text(st.sampled_from(CHARACTERS), max_size=12),
    st.lists(st.sampled_from([*"'aAsStTlLdD.é 9½σ_", "\u0301", "photo", "dog", "'ll", "  "])).map("".join),
).filter(lambda text: "<|" not in text)


@cache
def transformers_tokenizer() -> Any:
    """Built from the same merges; the vocabulary is written out here once more."""
    from transformers import CLIPTokenizer

    packed = resources.files("fedotp.clip").joinpath("bpe_simple_vocab_16e6.txt.gz").read_bytes()
    merges = [tuple(line.split()) for line in gzip.decompress(packed).decode().split("\n")[1:48895]]
    visible = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    letters = [chr(b) for b in visible] + [chr(256 + i) for i in range(256 - len(visible))]
    words = letters + [f"{c}</w>" for c in letters] + ["".join(pair) for pair in merges]
    vocab = {word: i for i, word in enumerate([*words, "<|startoftext|>", "<|endoftext|>"])}
    assert len(vocab) == 49408
    return CLIPTokenizer(vocab=vocab, merges=merges)


@cache
def instant_tokenizer() -> Any:
    return pytest.importorskip("instant_clip_tokenizer").Tokenizer()


def check_against_transformers(text: str) -> None:
    assert CLIP.encode(text) == transformers_tokenizer()(text, add_special_tokens=False)["input_ids"]


def check_against_instant(text: str) -> None:
    composed = unicodedata.normalize("NFC", text)  # which it leaves to its caller
    assert CLIP.encode(composed) == CLIP.encode(text) == instant_tokenizer().encode(composed)


@pytest.mark.parametrize("text", EXAMPLES)
def test_examples_equal_both_oracles(text: str) -> None:
    check_against_transformers(text)
    check_against_instant(text)


@settings(deadline=None, max_examples=200)
@given(TEXTS)
def test_equals_transformers(text: str) -> None:
    check_against_transformers(text)


@settings(deadline=None, max_examples=200)
@given(TEXTS)
def test_equals_instant_clip_tokenizer(text: str) -> None:
    check_against_instant(text)


def test_text_is_cleaned() -> None:
    assert CLIP.encode("R&amp;amp;D") == CLIP.encode("r&d")
    assert CLIP.encode(" A\x1c\u3000dog\n") == CLIP.encode("a dog")
    assert CLIP.encode("cafe\u0301") == CLIP.encode("café")
    assert CLIP.encode("ΟΔΟΣ") == CLIP.encode("οδος")  # as Python lowers it: the last sigma is a final one


def test_special_tokens_cannot_be_written() -> None:
    ids = CLIP.encode("<|startoftext|>dog<|endoftext|>")
    assert not {CLIP.sot, CLIP.eot} & set(ids)
    assert len(ids) > 3


@settings(deadline=None)
@given(st.lists(st.from_regex(r"[a-z]+|[0-9]|[é東😀]", fullmatch=True), max_size=6))
def test_decode_inverts_encode(words: list[str]) -> None:
    text = " ".join(words)
    assert CLIP.decode(CLIP.encode(text)) == text
    assert CLIP.decode([CLIP.sot, *CLIP.encode(text), CLIP.eot]) == text


def test_batch_layout() -> None:
    ids = CLIP(["a dog", ""], 6)
    assert ids.dtype == torch.int64
    assert ids.tolist() == [[49406, 320, 1929, 49407, 0, 0], [49406, 49407, 0, 0, 0, 0]]
    assert CLIP(["a dog"], 4).tolist() == [[49406, 320, 1929, 49407]]
    with pytest.raises(FedotpError, match="text of 5 tokens: must be at most 4: 'a big dog'"):
        CLIP(["a dog", "a big dog"], 4)


def test_other_vocabularies() -> None:
    copy = Tokenizer.from_json(CLIP.to_json())
    assert (copy.sot, copy.eot, copy.vocab_size) == (CLIP.sot, CLIP.eot, CLIP.vocab_size)
    for text in EXAMPLES:
        assert copy.encode(text) == CLIP.encode(text)
        assert copy.decode(copy.encode(text)) == CLIP.decode(CLIP.encode(text))
    with pytest.raises(FedotpError, match=r"mine lacks the special tokens '<\|startoftext\|>'"):
        Tokenizer.from_json(CLIP.to_json().replace("<|startoftext|>", "[S]"), origin="mine")
    with pytest.raises(FedotpError, match=r"tokenizer JSON is not a `tokenizers` JSON file"):
        Tokenizer.from_json(json.dumps({"model": 3}))
