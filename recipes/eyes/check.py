"""Is our image tower OpenAI's? Equality with transformers, zero-shot accuracy, and how fast images are encoded.

    python -m recipes.eyes.check runs/eyes/clip.safetensors DATA/cifar cifar10-mini > docs/results/eyes/check.json

Compares tokens and pooled features of images with `transformers.CLIPVisionModelWithProjection` on the same weights, in
float32; classifies all images by the class features of the file (zero-shot), in the precision that is given.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

from fedotp.clip import CLIP, ClassTable, VitConfig, load
from fedotp.data import DATASETS, load_dataset
from fedotp.data.store import encode
from fedotp.methods import Task


def theirs(ours: CLIP) -> transformers.CLIPVisionModelWithProjection:
    """The same weights in transformers' model."""
    vision = ours.config.vision
    assert isinstance(vision, VitConfig)
    config = transformers.CLIPVisionConfig(
        hidden_size=vision.width, intermediate_size=4 * vision.width, num_hidden_layers=vision.layers,
        num_attention_heads=vision.heads, patch_size=vision.patch_size, projection_dim=ours.config.embed_dim,
    )  # fmt: skip
    model = transformers.CLIPVisionModelWithProjection(config).eval()
    state = {name.removeprefix("visual."): value for name, value in ours.state_dict().items()}
    named = {
        "embeddings.class_embedding": state["class_embedding"],
        "embeddings.patch_embedding.weight": state["conv1.weight"],
        "embeddings.position_embedding.weight": state["positional_embedding"],
    }
    for kind in ("weight", "bias"):
        named |= {f"pre_layrnorm.{kind}": state[f"ln_pre.{kind}"], f"post_layernorm.{kind}": state[f"ln_post.{kind}"]}
        for i in range(vision.layers):
            here, there = f"transformer.resblocks.{i}.", f"encoder.layers.{i}."
            for part, value in zip("qkv", state[f"{here}attn.in_proj_{kind}"].chunk(3), strict=True):
                named[f"{there}self_attn.{part}_proj.{kind}"] = value
            for a, b in {"attn.out_proj": "self_attn.out_proj", "mlp.c_fc": "mlp.fc1", "mlp.c_proj": "mlp.fc2",
                         "ln_1": "layer_norm1", "ln_2": "layer_norm2"}.items():  # fmt: skip
                named[f"{there}{b}.{kind}"] = state[f"{here}{a}.{kind}"]
    with_prefix = {f"vision_model.{name}": value for name, value in named.items()}
    missing, unknown = model.load_state_dict(with_prefix | {"visual_projection.weight": state["proj"].T}, strict=False)
    assert not unknown, unknown
    assert all(name.endswith("position_ids") for name in missing), missing
    return model


@torch.no_grad()
def differences(ours: CLIP, pixels: Tensor) -> dict[str, float]:
    """The largest differences of features (B, ...) of length 1; and what one bias changed by 0.01 does to them.

    The latter shows that the comparison can fail: on some processors both models agree to the last bit in float32.
    """
    found, oracle = ours.encode_image(pixels), theirs(ours).to(pixels)
    result = {name: _largest(getattr(found, name), value) for name, value in _theirs_of(oracle, pixels).items()}
    oracle.get_parameter("vision_model.encoder.layers.3.mlp.fc1.bias")[0] += 0.01
    return result | {"pooled, a bias changed": _largest(found.pooled, _theirs_of(oracle, pixels)["pooled"])}


def _theirs_of(oracle: transformers.CLIPVisionModelWithProjection, pixels: Tensor) -> dict[str, Tensor]:
    hidden = oracle.vision_model(pixel_values=pixels).last_hidden_state[:, 1:]
    tokens = oracle.visual_projection(oracle.vision_model.post_layernorm(hidden))
    return {"pooled": oracle(pixel_values=pixels).image_embeds, "tokens": tokens}


def _largest(one: Tensor, other: Tensor) -> float:
    return float((F.normalize(one, dim=-1) - F.normalize(other, dim=-1)).abs().max())


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weights")
    parser.add_argument("data", nargs="+", help="data sets: a folder of images first, with a folder for each class")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    arguments = parser.parse_args()
    begun = time.perf_counter()
    clip = load(arguments.weights, device=arguments.device)
    result: dict[str, Any] = {"device": arguments.device, "precision": arguments.precision}
    result |= {"loading_s": time.perf_counter() - begun, "digest": clip.digest, "digest_s": time.perf_counter() - begun}
    paths = sorted(Path(arguments.data[0]).rglob("*.*"))
    few = torch.stack([clip.preprocess(path) for path in paths[:: max(1, len(paths) // 8)][:8]])
    result["largest_differences"] = {
        str(dtype): differences(load(arguments.weights, dtype=dtype), few.to(dtype))
        for dtype in (torch.float32, torch.float64)
    }
    for name in arguments.data:
        result[name if name in DATASETS else Path(name).name] = zero_shot(clip, name, arguments.precision)
    print(json.dumps(result, indent=1))


def zero_shot(clip: CLIP, name: str, in_precision: str) -> dict[str, Any]:
    """Accuracy of the class features on the images of a data set, and images encoded in a second."""
    dataset = load_dataset(name)
    table = clip.config.text
    assert isinstance(table, ClassTable)
    task = Task(clip, dataset.classes, template=table.template)
    names = F.normalize(task.template_features()[0, 0], dim=-1)
    precision = None if in_precision == "float32" else getattr(torch, in_precision)
    begun = time.perf_counter()
    encoded = encode(dataset, clip, precision=precision)
    seconds = time.perf_counter() - begun
    result: dict[str, Any] = {"images_per_s": encoded.n_encoded / seconds}
    for split in ("train", "test"):
        part, labels = getattr(encoded, split), torch.from_numpy(getattr(dataset, split).labels)
        pooled = part.read(range(len(labels)), device=clip.device, tokens=False).pooled
        right = int(((F.normalize(pooled, dim=-1) @ names.T).argmax(-1).cpu() == labels).sum())
        result[split] = {"images": len(labels), "right": right, "accuracy": right / len(labels)}
    return result


if __name__ == "__main__":
    main()
