"""The backbone that comes with the package: small, truly pretrained, and there without a network (docs/mini.md)."""

from importlib import resources
from pathlib import Path

MINI = "mini"


def mini_file() -> Path:
    """Where the embedded weights are: 12 million parameters in float16, with config and tokenizer in the header."""
    return Path(str(resources.files("fedotp.clip") / "mini.safetensors"))
