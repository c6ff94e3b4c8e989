"""OpenAI's backbones by name, through the Hugging Face hub and its local cache."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import huggingface_hub

from fedotp.clip._config import MINI, mini_file
from fedotp.errors import FedotpError

_FILE = "open_clip_model.safetensors"


class Published(NamedTuple):
    """Published weights: repository, commit, and SHA-256 of the file."""

    repository: str
    revision: str
    sha256: str | None


PUBLISHED = {
    "ViT-B/32": Published(
        "timm/vit_base_patch32_clip_224.openai",
        "a6f597a30f7b82c51704746581f9a4e41421e878",
        "e6d1bd7789aa45192b3bf90570a789b478bae1b74ebcce7eddd908e83a2b7c31",
    ),
    "ViT-B/16": Published(
        "timm/vit_base_patch16_clip_224.openai",
        "977e3dd0ec55ab8da155f2fbeb6b5f54948b6e3d",
        "4b8699299b1e8997753c64b052ba32031449d5d853f55a039148560ee02b820f",
    ),
    "ViT-L/14": Published(
        "timm/vit_large_patch14_clip_224.openai",
        "18d0535469bb561bf468d76c1d73aa35156c922b",
        "9ce2e8a8ebfff3793d7d375ad6d3c35cb9aebf3de7ace0fc7308accab7cd207e",
    ),
    "RN50": Published(
        "timm/resnet50_clip.openai",
        "ec3d92cf63a5f9d591f0d611b736895966c73076",
        "da0baa37fb2211eee5729ab69ed587eb10d48f5b7076ceeed01552fc3d4cb4ee",
    ),
    # Not pinned, because commit and checksum are unknown. OpenAI's own RN101.pt has its checksum in its URL.
    "RN101": Published("timm/resnet101_clip.openai", "main", None),
}
"""OpenAI's weights of each of `CONFIGS`, as safetensors."""


def fetch(name: str, *, cache_dir: str | Path | None = None) -> Path:
    """Return the weights file of a backbone of `CONFIGS`, downloaded if it is not in the local cache.

    The cache is Hugging Face's (`HF_HOME`) unless `cache_dir` is given. `mini` is bundled. The checksum of the file is
    verified against `PUBLISHED`.
    """
    if name == MINI:
        return mini_file()
    if name not in PUBLISHED:
        raise FedotpError(f"unknown backbone {name!r}: must be one of {', '.join([*PUBLISHED, MINI])}")
    weights = find_weights(name, cache_dir=cache_dir)
    repository, revision, expected = PUBLISHED[name]
    try:
        path = weights.path or Path(
            huggingface_hub.hf_hub_download(repository, _FILE, cache_dir=cache_dir, revision=revision)
        )
    except Exception as error:  # the exceptions depend on versions of huggingface_hub and its HTTP library
        raise FedotpError(
            f"cannot download {name} ({type(error).__name__}): download {weights.url} "
            "on a machine with network access and use the path of the file instead of the name"
        ) from error
    if expected is not None:
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        if sha256 != expected:
            raise FedotpError(
                f"{path.resolve()} is corrupt or not the weights of {name}: expected SHA-256 {expected}, "
                f"got {sha256}; delete it and download {name} again"
            )
    return path


@dataclass(frozen=True)
class Weights:
    """URL, cache folder and checksum (None if unknown) of a backbone's weights; `path` is None if not downloaded."""

    url: str
    folder: Path
    sha256: str | None
    path: Path | None


def find_weights(name: str, *, cache_dir: str | Path | None = None) -> Weights:
    """Look for a backbone of `CONFIGS` in the local cache, without downloading it."""
    repository, revision, sha256 = PUBLISHED[name]
    cached = huggingface_hub.try_to_load_from_cache(repository, _FILE, cache_dir=cache_dir, revision=revision)
    folder = Path(cache_dir or huggingface_hub.constants.HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}"
    url = f"https://huggingface.co/{repository}/resolve/{revision}/{_FILE}"
    return Weights(url, folder, sha256, Path(cached) if isinstance(cached, str) else None)
