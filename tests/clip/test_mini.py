"""The embedded backbone: there, whole, small, zero-shot as its card says, and steered by prompts."""

import socket

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedotp.clip import CLIP, EvalTransform, ImageFeatures, fetch, load
from fedotp.data import Dataset, load_dataset
from fedotp.errors import FedotpError
from fedotp.prompts import PromptEncoder, random_context

DIGEST = "7c9cd36057f2e4dc03b8d1bff43985107fdadf8a76495172f366b1eb7b8c254b"


@pytest.fixture(scope="module")
def mini() -> CLIP:
    return load("mini")


@pytest.fixture(scope="module")
def cifar(mini: CLIP) -> tuple[Dataset, ImageFeatures, Tensor]:
    """Twenty test pictures of every class, encoded."""
    data = load_dataset("cifar10-mini")
    rows = np.concatenate([np.flatnonzero(data.test.labels == k)[:20] for k in range(len(data.classes))])
    transform = EvalTransform(mini.config.image_size)
    pixels = torch.stack([transform(data.test.image(int(i))) for i in rows])
    with torch.no_grad():
        return data, mini.encode_image(pixels), torch.from_numpy(data.test.labels[rows])


def class_features(model: CLIP, names: tuple[str, ...]) -> Tensor:
    ids = model.tokenizer([f"a photo of a {name}." for name in names], model.config.text.context_length)
    return model.encode_text(ids)


def test_is_the_model_of_the_card_small_and_there_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was asked for")

    monkeypatch.setattr(socket, "socket", refuse)
    mini = load("mini")
    assert mini.digest == DIGEST
    assert sum(p.numel() for p in mini.parameters()) <= 13_000_000
    assert fetch("mini").stat().st_size <= 26_000_000
    assert (mini.config.image_size, mini.config.n_patches) == (64, 64)
    assert mini.config.text.context_length >= 44
    with pytest.raises(FedotpError, match="mini"):
        load("minni")


@pytest.mark.parametrize("text", ["a photo of a dog.", "an egyptian mau, 2 weeks old", "crème brûlée", "东京 & ☕"])
def test_tokenizer_round_trip(mini: CLIP, text: str) -> None:
    ids = mini.tokenizer.encode(text)
    assert not {mini.tokenizer.sot, mini.tokenizer.eot} & set(ids)
    assert mini.tokenizer.decode(ids).replace(" ", "") == text.replace(" ", "")


def test_shared_prefix_equals_the_plain_path(mini: CLIP) -> None:
    encode = PromptEncoder(mini, ["dog", "pickup truck", "hot air balloon"])
    context = random_context(mini, n_prompts=2, n_clients=2)
    torch.testing.assert_close(encode(context), encode.encode_plain(context), rtol=1e-4, atol=1e-5)


def test_zero_shot(mini: CLIP, cifar: tuple[Dataset, ImageFeatures, Tensor]) -> None:
    data, image, labels = cifar
    classes = F.normalize(class_features(mini, data.classes), dim=-1)
    for features in (image.pooled, F.normalize(image.tokens, dim=-1).mean(1)):
        right = (F.normalize(features, dim=-1) @ classes.T).argmax(1) == labels
        assert right.float().mean() > 0.83  # 88 % of all pictures; 200 of them vary by 2 %


def test_zero_shot_on_drawings_of_every_vendor(mini: CLIP) -> None:
    data = load_dataset("emoji")
    transform = EvalTransform(mini.config.image_size)
    classes = F.normalize(class_features(mini, data.classes), dim=-1)
    for vendor in range(len(data.domains)):
        rows = np.flatnonzero(data.test.domains == vendor)[::6]
        with torch.no_grad():
            image = mini.encode_image(torch.stack([transform(data.test.image(int(i))) for i in rows]))
        right = (image.pooled @ classes.T).argmax(1).numpy() == data.test.labels[rows]
        assert right.mean() > 0.4, data.domains[vendor]  # chance is 6 %
