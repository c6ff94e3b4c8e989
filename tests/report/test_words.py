"""Nearest words: planted ones are found, distances are those of NumPy, and pieces are marked."""

import numpy as np
import torch

from fedotp.clip import CLIP, TINY, Tokenizer
from fedotp.report import prompt_words
from fedotp.report._learned import nearest_words
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import StoredParameters, restore


def test_a_planted_word_is_found() -> None:
    clip = CLIP.random(TINY)
    ids = clip.tokenizer.encode("a photo of dog")
    vectors = clip.token_embedding.weight.detach()[ids]
    found = nearest_words(clip, vectors, k=3)
    assert [each.words[0] for each in found] == ["a", "photo", "of", "dog"]
    assert all(each.distances[0] < 1e-5 for each in found)
    assert all(list(each.distances) == sorted(each.distances) for each in found)


def test_distances_are_euclidean_over_what_can_be_read() -> None:
    clip = CLIP.random(TINY)
    vector = torch.randn(1, clip.config.text.width)
    (found,) = nearest_words(clip, vector, k=5)
    table = clip.token_embedding.weight.detach().double().numpy()
    distances = np.linalg.norm(table - vector.double().numpy(), axis=1)
    readable = [i for i in range(len(table)) if clip.tokenizer.word(i) is not None]
    nearest = sorted(readable, key=lambda i: distances[i])[:5]
    assert list(found.words) == [clip.tokenizer.word(i) for i in nearest]
    np.testing.assert_allclose(found.distances, distances[nearest], rtol=1e-4)


def test_words_and_pieces() -> None:
    tokenizer = Tokenizer.clip()
    (dog,) = tokenizer.encode("dog")
    assert tokenizer.word(dog) == "dog"
    pieces = [tokenizer.word(token) for token in tokenizer.encode("photolithography")]
    assert all(piece is not None and piece.endswith("…") for piece in pieces[:-1])
    assert pieces[-1] is not None
    assert not pieces[-1].endswith("…")
    assert "".join(piece.rstrip("…") for piece in pieces if piece) == "photolithography"
    assert tokenizer.word(tokenizer.sot) is tokenizer.word(tokenizer.eot) is None
    assert tokenizer.word(150) is None  # a byte that is no character by itself
    words = [tokenizer.word(token) for token in range(tokenizer.vocab_size)]
    assert all(word is None or (word.isprintable() and "</w>" not in word) for word in words)


def test_the_prompts_of_a_run(done: RunDirectory) -> None:
    words = prompt_words(done, k=2)
    assert [(each.client, each.kind) for each in words] == [
        (None, "global"),
        ("client-0", "local"),
        ("client-1", "local"),
    ]
    stored = StoredParameters.of(done)
    clip = restore(done.path)[1].task.clip
    assert list(words[0].vectors) == nearest_words(clip, stored.server["shared"][0], k=2)
    assert list(words[2].vectors) == nearest_words(clip, stored.private["private"][1, 0], k=2)
