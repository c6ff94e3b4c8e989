"""OpenAI's backbones by name, through the Hugging Face hub and its local cache."""

from pathlib import Path

import huggingface_hub

from fedotp.clip import _mini
from fedotp.errors import FedotpError

_FILE = "open_clip_model.safetensors"
REPOSITORIES = {
    "ViT-B/32": "timm/vit_base_patch32_clip_224.openai",
    "ViT-B/16": "timm/vit_base_patch16_clip_224.openai",
    "ViT-L/14": "timm/vit_large_patch14_clip_224.openai",
    "RN50": "timm/resnet50_clip.openai",
    "RN101": "timm/resnet101_clip.openai",
}
"""Where the weights of each of `CONFIGS` are published: OpenAI's, as safetensors."""


def fetch(name: str, *, cache_dir: str | Path | None = None) -> Path:
    """The weights file of a backbone of `CONFIGS`, downloaded only if the local cache does not have it.

    The cache is Hugging Face's own (`HF_HOME`) unless `cache_dir` is given. `mini` comes with the package.
    """
    if name == _mini.NAME:
        return _mini.mini_file()
    if name not in REPOSITORIES:
        raise FedotpError(f"no backbone is called {name!r}; choose one of {', '.join([*REPOSITORIES, _mini.NAME])}")
    repository = REPOSITORIES[name]
    cached = huggingface_hub.try_to_load_from_cache(repository, _FILE, cache_dir=cache_dir)
    if isinstance(cached, str):
        return Path(cached)
    try:
        return Path(huggingface_hub.hf_hub_download(repository, _FILE, cache_dir=cache_dir))
    except Exception as error:  # which exceptions depends on the hub's version and its HTTP library
        raise FedotpError(
            f"cannot download {name} ({type(error).__name__}): fetch "
            f"https://huggingface.co/{repository}/resolve/main/{_FILE} on a machine with network access "
            "and give the path of that file instead of the name"
        ) from error
