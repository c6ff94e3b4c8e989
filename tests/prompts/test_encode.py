"""Shared-prefix encoding against the plain path, and the layout of a prompt."""

import dataclasses
from functools import cache, partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from federation.toy_federation import small_clip
from fedotp.clip import CLIP, TINY
from fedotp.errors import FedotpError
from fedotp.prompts import PromptEncoder, random_context, word_context
from fedotp.prompts._layout import build_layout

NAMES = ["cat", "egyptian mau", "a rather long name for a class", "x", "cat"]
POSITIONS = ["end", "middle", "front"]


@pytest.fixture(scope="module")
def clip() -> CLIP:
    return small_clip(config=TINY)


def context_for(clip: CLIP, n_ctx: int, per_class: bool, n_clients: int = 3, n_prompts: int = 2) -> torch.Tensor:
    n_classes = len(NAMES) if per_class else None
    context = random_context(clip, n_prompts, n_ctx, n_clients=n_clients, n_classes=n_classes, std=0.2)
    return (context + 0.1 * torch.randn(context.shape)).requires_grad_()  # clients differ


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize("n_ctx", [1, 4, 16])
def test_shared_prefix_equals_all_positions(clip: CLIP, position: str, per_class: bool, n_ctx: int) -> None:
    encode = PromptEncoder(clip, NAMES, n_ctx=n_ctx, position=position, per_class=per_class)
    context = context_for(clip, n_ctx, per_class)
    fast, plain = encode(context), encode.encode_plain(context)
    assert fast.shape == (3, 2, len(NAMES), TINY.embed_dim)
    torch.testing.assert_close(fast, plain, rtol=1e-5, atol=1e-5)
    weight = torch.randn_like(plain)
    gradients = [torch.autograd.grad((x * weight).sum(), context)[0] for x in (fast, plain)]
    scale = gradients[1].abs().max()
    assert scale > 0.01
    torch.testing.assert_close(gradients[0] / scale, gradients[1] / scale, rtol=0, atol=1e-5)


_tower = cache(partial(CLIP.random, TINY))


@given(
    names=st.lists(st.text("abc xyz", min_size=1, max_size=12).filter(str.strip), min_size=1, max_size=4),
    position=st.sampled_from(POSITIONS),
    n_ctx=st.integers(1, 6),
)
def test_any_class_names(names: list[str], position: str, n_ctx: int) -> None:
    """Also one class, equal classes, and classes that begin alike, where the shared prefix grows into the name."""
    clip = _tower()
    encode = PromptEncoder(clip, names, n_ctx=n_ctx, position=position)
    context = random_context(clip, 1, n_ctx)
    torch.testing.assert_close(encode(context), encode.encode_plain(context), rtol=1e-5, atol=1e-5)


def test_the_prefix_is_shared_as_far_as_classes_agree(clip: CLIP) -> None:
    prefix = {p: PromptEncoder(clip, ["cat", "dog"], n_ctx=16, position=p).prefix for p in POSITIONS}
    assert prefix == {"end": 17, "middle": 9, "front": 1}
    assert PromptEncoder(clip, ["cat", "dog"], n_ctx=16, per_class=True).prefix == 1


def test_nothing_is_computed_behind_the_end_of_a_short_name(clip: CLIP) -> None:
    """[SOS] and the context once, then each name with its stop and its end: one, two and seven tokens."""
    encode = PromptEncoder(clip, ["cat", "egyptian mau", "a rather long name for a class"], n_ctx=16)
    words = [len(clip.tokenizer.encode(name)) for name in encode.class_names]
    assert len({*words}) == 3
    assert encode.n_units == (17 + sum(words) + 2 * len(words)) * TINY.text.layers * TINY.text.width


def test_a_class_does_not_see_the_others(clip: CLIP) -> None:
    """However long the names beside it, its features and their gradient are its own."""
    context = context_for(clip, 4, per_class=False)
    alone, among = (
        PromptEncoder(clip, names, n_ctx=4)(context)[:, :, -1] for names in (["cat", "dog"], [*NAMES, "dog"])
    )
    torch.testing.assert_close(alone, among, rtol=1e-5, atol=1e-5)
    gradients = [torch.autograd.grad(x.square().sum(), context)[0] for x in (alone, among)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("position", "expected"),
    [("end", "S 0 1 2 name . E"), ("middle", "S 0 name 1 2 . E"), ("front", "S name 0 1 2 . E")],
)
def test_where_the_name_stands(clip: CLIP, position: str, expected: str) -> None:
    layout = build_layout(clip, ["cat", "two words"], n_ctx=3, position=position, per_class=False)
    tokens = clip.tokenizer
    words = {tokens.sot: "S", tokens.encode("cat")[0]: "name", tokens.encode(".")[0]: ".", tokens.eot: "E"}
    shown = [
        str(int(slot)) if slot >= 0 else words.get(int(token), "pad")
        for token, slot in zip(layout.ids[0], layout.context[0], strict=True)
    ]
    assert " ".join(shown) == expected + " pad"
    assert layout.eot.tolist() == [6, 7]


def test_word_context_gives_the_feature_of_the_sentence(clip: CLIP) -> None:
    """Initialised by "a photo of a", a prompt is the sentence "a photo of a cat." of zero-shot CLIP."""
    context = word_context(clip, "a photo of a", n_prompts=1)
    features = PromptEncoder(clip, ["cat", "egyptian_mau"], n_ctx=4)(context)[0, 0]
    ids = clip.tokenizer(["a photo of a cat.", "a photo of a egyptian mau."], 77)
    torch.testing.assert_close(features, clip.encode_text(ids), rtol=1e-5, atol=1e-5)


def test_contexts_are_seeded_scaled_and_noise_sets_prompts_apart(clip: CLIP) -> None:
    quiet, noisy = (word_context(clip, "a photo of a", 2, n_clients=3, noise=n) for n in (0.0, 0.01))
    assert torch.equal(quiet[:, 0], quiet[:, 1])
    assert not torch.equal(noisy[:, 0], noisy[:, 1])
    assert torch.equal(noisy[0], noisy[2])
    first, again, other = (random_context(clip, 64, seed=s) for s in (0, 0, 1))
    assert first.shape == (1, 64, 16, 64)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.std().item() == pytest.approx(0.02, rel=0.02)
    assert random_context(clip, 2, 4, n_clients=3, n_classes=5).shape == (3, 2, 5, 4, 64)


def test_names_fill_the_context_and_no_more(clip: CLIP) -> None:
    """Nothing assumes 77 positions."""
    long = "very " * 70 + "long"
    with pytest.raises(FedotpError, match=r"class name 'very very .*71 tokens and 16 context .* 90 .* 77"):
        PromptEncoder(clip, ["cat", long])
    short = CLIP.random(dataclasses.replace(TINY, text=dataclasses.replace(TINY.text, context_length=20)))
    for tower, fits in ((clip, "very " * (77 - 16 - 3)), (short, "dog")):
        encode, context = PromptEncoder(tower, ["cat", fits]), random_context(tower, 2)
        torch.testing.assert_close(encode(context), encode.encode_plain(context), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match=r"context has shape \(1, 1, 4, 64\)"):
        PromptEncoder(clip, ["cat"], n_ctx=5)(random_context(clip, 1, 4))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.bfloat16, 0.05)])
def test_the_tower_keeps_its_precision_and_the_context_its_own(
    clip: CLIP, dtype: torch.dtype, tolerance: float
) -> None:
    context = context_for(clip, 4, per_class=False)
    expected = PromptEncoder(clip, NAMES, n_ctx=4)(context)
    other = CLIP(clip.config).freeze()
    other.load_state_dict(clip.state_dict())
    encode = PromptEncoder(other.to(dtype), NAMES, n_ctx=4)
    for features in (encode(context), encode.encode_plain(context)):
        assert features.dtype == dtype
        assert ((features - expected).norm() / expected.norm()).item() < tolerance
        (gradient,) = torch.autograd.grad(features.float().square().sum(), context)
        assert gradient.dtype == torch.float32
        assert gradient.abs().sum() > 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("per_class", [False, True])
def test_cuda_equals_cpu(clip: CLIP, per_class: bool) -> None:
    context = context_for(clip, 4, per_class).detach()
    expected = PromptEncoder(clip, NAMES, n_ctx=4, per_class=per_class)(context)
    on_gpu = CLIP(clip.config).freeze()
    on_gpu.load_state_dict(clip.state_dict())
    encode = PromptEncoder(on_gpu.cuda(), NAMES, n_ctx=4, per_class=per_class)
    torch.testing.assert_close(encode(context.cuda()).cpu(), expected, rtol=1e-4, atol=1e-4)
