"""The towers against transformers' CLIP, and against straight-line restatements of OpenAI's ResNet."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from clip_oracles import RESNET, TEXT, VIT, hugging_face_clip, openai_tensors, random_clip, randomise
from torch import Tensor, nn

from fedotp.clip import CLIP, CONFIGS, TINY, Block, ClipConfig, VitConfig
from fedotp.clip._config import TextConfig

ORACLE_CONFIGS = [
    VIT,
    dataclasses.replace(VIT, activation="gelu"),
    ClipConfig(
        embed_dim=16,
        vision=VitConfig(image_size=20, patch_size=4, width=24, layers=1, heads=4),
        text=TextConfig(vocab_size=31, context_length=7, width=40, layers=3, heads=5, eot=30),
    ),
    ClipConfig(
        embed_dim=72,
        vision=VitConfig(image_size=32, patch_size=16, width=64, layers=4, heads=1),
        text=TextConfig(vocab_size=50, context_length=20, width=32, layers=1, heads=8, eot=7),
    ),
]


def assert_close(ours: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    """Entries within the tolerance, and an oracle whose tokens and rows are not all alike."""
    assert ours.shape == expected.shape
    for axis in range(expected.ndim):
        assert (expected - expected.roll(1, dims=axis)).abs().max() > 0.05, "the oracle is degenerate"
    scale = expected.abs().max().item()
    assert (ours - expected).abs().max().item() <= tolerance * max(1.0, scale)


def ids_with_eot(text: TextConfig, rows: int, seed: int) -> Tensor:
    """Random ids with an end of text somewhere, and often a second one after it."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, text.vocab_size, (rows, text.context_length), generator=generator)
    ids[ids == text.eot] = 0
    first = torch.randint(1, text.context_length, (rows,), generator=generator)
    ids[torch.arange(rows), first] = text.eot
    ids[:, -1] = text.eot
    return ids


@pytest.mark.parametrize("config", ORACLE_CONFIGS)
def test_vit_and_text_equal_transformers(config: ClipConfig) -> None:
    oracle = hugging_face_clip(config, seed=3)
    ours = CLIP(config).freeze()
    ours.load_state_dict(openai_tensors(oracle))
    pixels = torch.randn(3, 3, config.image_size, config.image_size)
    ids = ids_with_eot(config.text, rows=6, seed=1)
    with torch.no_grad():
        vision = oracle.vision_model(pixels)
        tokens = oracle.visual_projection(oracle.vision_model.post_layernorm(vision.last_hidden_state))
        pooled = oracle.visual_projection(vision.pooler_output)
        text = oracle.text_projection(oracle.text_model(ids).pooler_output)
    features = ours.encode_image(pixels)
    assert_close(features.pooled, pooled)
    assert_close(features.tokens, tokens[:, 1:])
    assert_close(ours.encode_text(ids), text)


def restated_trunk(w: dict[str, Tensor], x: Tensor, layers: tuple[int, ...]) -> Tensor:
    """OpenAI's residual trunk, straight from the state dict: (B, 3, H, W) -> (B, 32 width, H/32, W/32)."""

    def conv_norm(x: Tensor, conv: str, norm: str, stride: int = 1) -> Tensor:
        kernel = w[f"visual.{conv}.weight"]
        x = F.conv2d(x, kernel, stride=stride, padding=kernel.shape[-1] // 2)
        mean, var, gain, bias = (
            w[f"visual.{norm}.{part}"][:, None, None] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (var + 1e-5).sqrt() * gain + bias

    x = conv_norm(x, "conv1", "bn1", stride=2).clamp(min=0)
    x = conv_norm(x, "conv2", "bn2").clamp(min=0)
    x = conv_norm(x, "conv3", "bn3").clamp(min=0)
    x = F.avg_pool2d(x, 2)
    for stage, blocks in enumerate(layers, start=1):
        for i in range(blocks):
            at = f"layer{stage}.{i}"
            stride = 2 if stage > 1 and i == 0 else 1
            y = conv_norm(x, f"{at}.conv1", f"{at}.bn1").clamp(min=0)
            y = conv_norm(y, f"{at}.conv2", f"{at}.bn2").clamp(min=0)
            y = conv_norm(F.avg_pool2d(y, stride), f"{at}.conv3", f"{at}.bn3")
            if i == 0:
                x = conv_norm(F.avg_pool2d(x, stride), f"{at}.downsample.0", f"{at}.downsample.1")
            x = (x + y).clamp(min=0)
    return x


def calibrate(model: CLIP) -> None:
    """Running statistics from noise images, so that activations, and attention logits, are of order one."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
            module.momentum = None  # a plain average
    size = model.config.image_size
    model.train().encode_image(torch.randn(16, 3, size, size))
    model.eval()


def pooled_at(w: dict[str, Tensor], x: Tensor, position: int, heads: int) -> Tensor:
    """OpenAI's call of multi-head attention, with one position (0: the mean) as the only query: (B, e)."""
    x = x.flatten(2).permute(2, 0, 1)  # (HW, B, C)
    x = torch.cat([x.mean(dim=0, keepdim=True), x]) + w["visual.attnpool.positional_embedding"][:, None, :]
    weight = {part: w[f"visual.attnpool.{part}_proj.weight"] for part in "qkvc"}
    bias = {part: w[f"visual.attnpool.{part}_proj.bias"] for part in "qkvc"}
    out, _ = F.multi_head_attention_forward(
        query=x[position : position + 1],
        key=x,
        value=x,
        embed_dim_to_check=x.shape[-1],
        num_heads=heads,
        in_proj_weight=None,
        in_proj_bias=torch.cat([bias["q"], bias["k"], bias["v"]]),
        bias_k=None,
        bias_v=None,
        add_zero_attn=False,
        dropout_p=0.0,
        out_proj_weight=weight["c"],
        out_proj_bias=bias["c"],
        training=False,
        need_weights=False,
        use_separate_proj_weight=True,
        q_proj_weight=weight["q"],
        k_proj_weight=weight["k"],
        v_proj_weight=weight["v"],
    )
    return out[0]


def test_resnet_equals_its_restatement() -> None:
    model = random_clip(RESNET, seed=5).double()
    calibrate(model)
    weights = model.state_dict()
    pixels = torch.randn(2, 3, 64, 64, dtype=torch.double)
    features = model.encode_image(pixels)
    trunk = restated_trunk(weights, pixels, (1, 2, 1, 1))
    assert trunk.shape == (2, 8 * 32, 2, 2)
    expected = [pooled_at(weights, trunk, position, heads=4) for position in range(5)]
    assert_close(features.pooled, expected[0], tolerance=1e-12)
    assert_close(features.tokens, torch.stack(expected[1:], dim=1), tolerance=1e-12)


def test_published_sizes() -> None:
    """Parameter counts of OpenAI's models, as widely reported."""
    expected = {
        "ViT-B/32": (151_277_313, 49),
        "ViT-B/16": (149_620_737, 196),
        "ViT-L/14": (427_616_513, 256),
        "RN50": (102_007_137, 49),
        "RN101": (119_688_033, 49),
    }
    for name, (n_parameters, n_patches) in expected.items():
        with torch.device("meta"):
            model = CLIP(CONFIGS[name])
        assert sum(p.numel() for p in model.parameters()) == n_parameters
        assert CONFIGS[name].n_patches == n_patches
    assert expected.keys() == CONFIGS.keys()


def test_block_parts_equal_torch_attention() -> None:
    """`qkv`, any attention, `finish` is the block; leading axes are free."""
    block = Block(24, heads=3, activation="quick_gelu").double()
    randomise(block)
    x = torch.randn(2, 3, 5, 24, dtype=torch.double)
    q, k, v = block.attn.qkv(block.ln_1(x))
    assert q.shape == k.shape == v.shape == (2, 3, 3, 5, 8)
    ours = block.finish(x, F.scaled_dot_product_attention(q, k, v, is_causal=True))

    oracle = nn.MultiheadAttention(24, 3, batch_first=True, dtype=torch.double)
    oracle.load_state_dict(block.attn.state_dict())
    normed = block.ln_1(x).flatten(0, 1)
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
    y = x + oracle(normed, normed, normed, attn_mask=mask)[0].view_as(x)
    hidden = block.mlp.c_fc(block.ln_2(y))
    expected = y + block.mlp.c_proj(hidden / (1 + torch.exp(-1.702 * hidden)))
    torch.testing.assert_close(ours, expected)
    torch.testing.assert_close(block(x, causal=True), expected)
    assert (block(x) - expected).abs().max() > 1e-3


def test_text_needs_nothing_after_its_end() -> None:
    model = random_clip(VIT).double()
    ids = ids_with_eot(TEXT, rows=4, seed=2)
    ids[:, 8:] = 0  # so that some columns are cut off
    ids[:, 7] = TEXT.eot
    eot = (ids == TEXT.eot).int().argmax(dim=1)
    whole = model.encode_embeddings(model.token_embedding(ids), eot)
    torch.testing.assert_close(model.encode_text(ids), whole)
    torch.testing.assert_close(model.encode_text(ids[:, :8]), whole)
    torch.testing.assert_close(model.encode_text(ids.roll(-1, dims=0)), whole.roll(-1, dims=0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("config", [VIT, RESNET])
def test_half_precision_is_close_to_single(config: ClipConfig, dtype: torch.dtype) -> None:
    model = random_clip(config)
    pixels = torch.randn(2, 3, config.image_size, config.image_size)
    ids = ids_with_eot(TEXT, rows=3, seed=4)
    exact = (*model.encode_image(pixels), model.encode_text(ids))
    model.to(dtype)
    rough = (*model.encode_image(pixels), model.encode_text(ids))
    for ours, expected in zip(rough, exact, strict=True):
        assert ours.dtype == dtype
        error = (ours.float() - expected).norm() / expected.norm()
        assert error < 30 * torch.finfo(dtype).eps


def test_random_is_seeded_frozen_and_leaves_the_global_stream_alone() -> None:
    before = torch.random.get_rng_state()
    model = CLIP.random(TINY, seed=1)
    assert torch.equal(before, torch.random.get_rng_state())
    assert model.digest == CLIP.random(TINY, seed=1).digest != CLIP.random(TINY, seed=2).digest
    assert not model.training
    assert not any(p.requires_grad for p in model.parameters())
    # CLIP's scheme: small embeddings, unit-variance attention inputs, residual branches shrunk by depth.
    stds = {name: p.std().item() for name, p in model.named_parameters() if p.ndim == 2}
    assert stds["token_embedding.weight"] == pytest.approx(0.02, rel=0.1)
    assert stds["positional_embedding"] == pytest.approx(0.01, rel=0.1)
    assert stds["transformer.resblocks.0.attn.in_proj_weight"] == pytest.approx(64**-0.5, rel=0.1)
    assert stds["transformer.resblocks.0.attn.out_proj.weight"] == pytest.approx((64 * 4) ** -0.5, rel=0.1)
    assert model.logit_scale.exp().item() == pytest.approx(1 / 0.07)


def test_config_survives_json() -> None:
    for config in (VIT, RESNET, TINY, *CONFIGS.values()):
        assert ClipConfig.from_json(config.to_json()) == config


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("config", [VIT, RESNET])
def test_cuda_equals_cpu(config: ClipConfig) -> None:
    model = random_clip(config).double()
    pixels = torch.randn(2, 3, config.image_size, config.image_size)
    ids = ids_with_eot(TEXT, rows=3, seed=4)
    expected = (*model.encode_image(pixels), model.encode_text(ids))
    model.cuda()
    ours = (*model.encode_image(pixels.cuda()), model.encode_text(ids.cuda()))
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a.cpu(), b)
