"""Every file that is no CLIP gives one clear line, and nothing in it is run."""

import os
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from clip_oracles import VIT, hugging_face_clip, openai_tensors, random_clip, write_openai
from safetensors.torch import save_file
from torch import Tensor, nn

from fedotp.clip import load, save
from fedotp.errors import FedotpError

Write = Callable[[Path], object]


class Intruder:
    """Leaves a mark where it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("intruder-was-here"),)


def cut(write: Write) -> Write:
    """The first 70 % of what `write` writes."""

    def write_part(path: Path) -> None:
        write(path)
        os.truncate(path, int(path.stat().st_size * 0.7))

    return write_part


def tensors_but(change: Callable[[dict[str, Tensor]], object]) -> Write:
    """The tensors of a CLIP after a change."""

    def write(path: Path) -> None:
        tensors = {name: tensor.clone() for name, tensor in random_clip(VIT).state_dict().items()}
        change(tensors)
        save_file(tensors, path)

    return write


def with_tensor(name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Write:
    return tensors_but(lambda tensors: tensors.update({name: torch.zeros(*shape, dtype=dtype)}))


def rename_first_block(tensors: dict[str, Tensor]) -> None:
    for name in [name for name in tensors if name.startswith("transformer.resblocks.0.")]:
        tensors[name.replace("resblocks.0.", "resblocks.7.")] = tensors.pop(name)


def noted(**notes: str) -> Write:
    """The tensors of a CLIP with such metadata."""
    return lambda path: save_file(random_clip(VIT).state_dict(), path, {f"fedotp.{k}": notes[k] for k in notes})


def beside(config: str) -> Write:
    """Hugging Face's file, beside it this configuration."""

    def write(path: Path) -> None:
        hugging_face_clip(VIT).save_pretrained(path.parent)
        (path.parent / "model.safetensors").rename(path)
        (path.parent / "config.json").write_text(config)

    return write


def with_a_broken_header(path: Path) -> None:
    save(random_clip(VIT), path)
    content = bytearray(path.read_bytes())
    content[8:200] = b"{" * 192
    path.write_bytes(content)


def with_a_flipped_bit(path: Path) -> None:
    tensors = openai_tensors(hugging_face_clip(VIT))
    write_openai(tensors, path)
    content = path.read_bytes()
    at = content.index(tensors["ln_final.weight"].numpy().tobytes())
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])


def saved(make: Callable[[], object]) -> Write:
    """What `torch.save` makes of an object."""
    return lambda path: torch.save(make(), path)


def weights() -> dict[str, Tensor]:
    return random_clip(VIT).state_dict()


def network() -> dict[str, Tensor]:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 10)).state_dict()


BLOCK = "transformer.resblocks.1.mlp.c_fc.bias"
BAD_FILES: dict[str, tuple[Write, str]] = {
    "text": (partial(Path.write_text, data="not the weights\n" * 9), "not a file of weights; expected OpenAI's .pt"),
    "nothing": (Path.touch, "not a file of weights"),
    "LFS pointer": (partial(Path.write_text, data="version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"),
    "short safetensors": (cut(lambda path: save(random_clip(VIT), path)), "safetensors file is damaged or cut short"),
    "broken header": (with_a_broken_header, "safetensors file is damaged or cut short"),
    "short TorchScript": (
        cut(lambda path: write_openai(openai_tensors(hugging_face_clip(VIT)), path)),
        "archive is damaged or cut short",
    ),
    "flipped bit": (with_a_flipped_bit, "archive is damaged or cut short"),
    "short state dict": (cut(saved(weights)), "archive is damaged or cut short"),
    "start of an archive": (
        partial(Path.write_bytes, data=b"PK\x03\x04" + bytes(100)),
        "archive is damaged or cut short",
    ),
    "list of tensors": (saved(lambda: [torch.zeros(3)]), "holds a list and not a state dict"),
    "bare pickle": (partial(Path.write_bytes, data=pickle.dumps({"weights": [1]})), "bare pickle is not read"),
    "code": (
        saved(lambda: weights() | {"intruder": Intruder()}),
        r"holds a call of __builtin__\.getattr, which no file of weights does",
    ),
    "another network": (saved(network), "not a CLIP, for it has no tensor text_projection; expected OpenAI's"),
    "tensor missing": (tensors_but(lambda tensors: tensors.pop(BLOCK)), f"lacks tensors {BLOCK}"),
    "block missing": (tensors_but(rename_first_block), "lacks tensors .* and 9 more"),
    "tensor too many": (with_tensor("visual.gate", 3), "has unknown tensors visual.gate"),
    "wrong shape": (with_tensor("ln_final.bias", 3), "has ill-shaped tensors ln_final.bias"),
    "wrong rank": (
        with_tensor("text_projection", 3),
        r"not a CLIP, for its tensor text_projection has the shape \(3,\)",
    ),
    "quantised": (with_tensor("ln_final.bias", 128, dtype=torch.int8), "has non-float tensors ln_final.bias"),
    "oblong images": (
        with_tensor("visual.positional_embedding", 9, 192),
        "8 image positions do not form a square",
    ),
    "unknown heads": (with_tensor("text_projection", 100, 48), "number of heads of a tower 100 wide is unknown"),
    "broken config": (noted(config="{}"), "not a CLIP configuration"),
    "broken tokenizer": (
        noted(config=VIT.to_json(), tokenizer="{}"),
        "its tokenizer is not a `tokenizers` JSON file",
    ),
    "two activations": (beside('{"vision_config": {"hidden_act": "gelu"}}'), "towers' activations differ"),
    "broken config beside": (beside("{"), "config.json beside it cannot be read"),
    "nonsense beside": (beside('{"text_config": "none"}'), "text_config should be an object"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_file_gives_one_clear_line(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write, complaint = BAD_FILES[case]
    path = tmp_path / "weights.bin"
    write(path)
    with pytest.raises(FedotpError, match=complaint) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert not Path("intruder-was-here").exists()


def test_a_name_too_long_for_a_path_is_no_backbone() -> None:
    with pytest.raises(FedotpError, match="neither a file nor the name of a backbone"):
        load("long " * 1000)
