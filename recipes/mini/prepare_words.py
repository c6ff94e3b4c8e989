"""Captions, the byte-pair vocabulary and sentence-encoder targets: everything about words, made on a CPU.

    python -m recipes.mini.prepare_words --photos PHOTOS --drawings PACKS/drawings.npz --wordnet WORDNET \
        --encoder MINILM --out PACKS

Writes `words.json` (class captions and the list of all names), `tokenizer.json` and `sentences.npz` (the embedding of
"a photo of a <name>." and of the bare name, centred, reduced to the width of the joint space and mildly whitened; int8
with a scale per row).
"""

import argparse
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
import torch.nn.functional as F
from recipes.mini.styles import PHOTO, STYLES
from recipes.mini.wordnet import WordNet
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

EMBED = 256  # width of the joint space
VOCABULARY = 4096
N_NOUNS = 26_000
N_PLURALS = 3_000
N_PHRASES = 12_000
SPECIAL = ["<|startoftext|>", "<|endoftext|>"]
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+"  # as in CLIP's tokenizer


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("photos", "drawings", "wordnet", "encoder", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    wordnet = WordNet(args.wordnet)

    captions = photo_captions(args.photos, wordnet)
    captions["drawings"] = [_levels(wordnet, str(name)) for name in np.load(args.drawings)["classes"]]
    class_words = sorted({w.lower() for key in captions for levels in captions[key] for level in levels for w in level})
    nouns = wordnet.concrete_nouns()
    common = [n for n in nouns if n in wordnet.common]
    rest = [n for n in nouns if n not in wordnet.common]
    rng.shuffle(rest)
    nouns = common + rest[: N_NOUNS - len(common)]
    pool = class_words + common
    plurals = [f"{n}s" for n in rng.sample(common, N_PLURALS) if n[-1] not in "sxzhy"]
    phrases = [_phrase(rng, pool, wordnet.adjectives) for _ in range(N_PHRASES)]
    names = list(dict.fromkeys(class_words + nouns + plurals + phrases))  # every name once, in this order
    args.out.mkdir(parents=True, exist_ok=True)
    counts = {"classes": len(class_words), "common": len(set(class_words + common))}
    words = {"captions": captions, "names": names, **counts}
    (args.out / "words.json").write_text(json.dumps(words))
    print(len(names), "names,", len(common), "common nouns", flush=True)

    train_tokenizer(names).save(str(args.out / "tokenizer.json"))
    photo, bare = (embed_sentences(args.encoder, [t.format(name) for name in names]) for t in (PHOTO, "{}"))
    rows, bare_rows = reduce([photo, bare], n_fit=counts["common"])
    arrays: dict[str, Any] = _quantised("", rows) | _quantised("bare_", bare_rows)
    np.savez(args.out / "sentences.npz", **arrays)


def _quantised(prefix: str, rows: Tensor) -> dict[str, np.ndarray]:
    """Unit vectors as int8 with a scale per row."""
    scale = rows.abs().amax(1, keepdim=True) / 127
    return {f"{prefix}rows": (rows / scale).round().to(torch.int8).numpy(), f"{prefix}scale": scale.half().numpy()}


def photo_captions(folder: Path, wordnet: WordNet) -> dict[str, list[list[list[str]]]]:
    """For each photo set and class a list of levels: its names first, then its hypernyms upwards."""
    tiny = json.loads((folder / "tiny_imagenet_names.json").read_text())
    wnids = [str(c) for c in np.load(folder / "tiny_imagenet_val.npz")["classes"]]
    captions = {"tiny": [[tiny[w].split(", ")[:3], *wordnet.captions(int(w[1:]))[1:]] for w in wnids]}
    for key, file in (("cifar100", "cifar100_test"), ("food", "food101_64px_train")):
        classes = [str(c).replace("_", " ") for c in np.load(folder / f"{file}.npz")["classes"]]
        captions[key] = [_levels(wordnet, name) for name in classes]
    captions["cifar10"] = [_levels(wordnet, name) for name in CIFAR10]
    return captions


CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def _levels(wordnet: WordNet, name: str) -> list[list[str]]:
    """The name alone, then the words of its synset and hypernyms (or those of its last word)."""
    offset = wordnet.find(name)
    if offset is not None:
        return [[name], *wordnet.captions(offset)]
    head = name.split()[-1]
    offset = wordnet.find(head) or wordnet.find(head.removesuffix("s"))
    return [[name], *(wordnet.captions(offset) if offset is not None else [])]


def _phrase(rng: random.Random, names: list[str], adjectives: list[str]) -> str:
    a, b = rng.choice(names), rng.choice(names)
    kind = rng.random()
    if kind < 0.6:
        return f"{rng.choice(adjectives)} {a}"
    return f"{a} and {b}" if kind < 0.8 else f"{a} with a {b}"


def train_tokenizer(names: list[str]) -> tokenizers.Tokenizer:
    """A byte-pair encoding in CLIP's manner, with every byte in its alphabet: any text can be encoded."""
    bpe = tokenizers.Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Replace("</w>", " ")])
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIAL, initial_alphabet=alphabet, end_of_word_suffix="</w>"
    )
    texts = names + [s for style in STYLES for t in style.templates for s in [t.format("")] * 200]
    # Each byte also as a word of its own, so that it exists with the end-of-word mark.
    bpe.train_from_iterator(texts + [chr(c) for c in range(32, 256)] * 3, trainer)
    return bpe


@torch.no_grad()
def embed_sentences(folder: Path, sentences: list[str], batch: int = 256) -> Tensor:
    """Mean-pooled, normalised sentence embeddings (n, 384); sorted by length on the way to save padding."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    out = torch.empty(len(sentences), model.config.hidden_size)
    for start in range(0, len(order), batch):
        rows = order[start : start + batch]
        tokens = tokenizer(
            [sentences[i] for i in rows], padding=True, truncation=True, max_length=32, return_tensors="pt"
        )
        mask = tokens["attention_mask"].unsqueeze(-1).float()
        hidden = model(**tokens).last_hidden_state  # (b, L, 384)
        out[rows] = F.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)
    return out


def reduce(phrasings: list[Tensor], n_fit: int, whitening: float = 4.0) -> list[Tensor]:
    """Centre and project on the leading principal axes of the common names, weak axes amplified up to 2 times.

    The axes are those of the first phrasing; each is centred by itself. Returns unit vectors (n, e).
    """
    centred = [embedded - embedded[:n_fit].mean(0) for embedded in phrasings]
    _, sizes, axes = torch.linalg.svd(centred[0][:n_fit], full_matrices=False)
    gain = (sizes[0] / sizes[:EMBED]).clamp(max=whitening).sqrt()
    return [F.normalize(x @ (axes[:EMBED].T * gain), dim=-1) for x in centred]


if __name__ == "__main__":
    main()
