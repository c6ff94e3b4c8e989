"""Every file that is no CLIP gives one clear line, and nothing in it is run."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from clip_oracles import VIT, hugging_face_clip, openai_tensors, random_clip, write_openai
from safetensors.torch import save_file
from torch import Tensor, nn

from fedotp.clip import load, save
from fedotp.errors import FedotpError

# Each case writes something that is no CLIP and says which words the complaint must have.
BAD_FILES: dict[str, tuple[Callable[[Path], object], str]] = {}


def bad_file(complaint: str) -> Callable[[Callable[[Path], object]], Callable[[Path], object]]:
    def register(write: Callable[[Path], object]) -> Callable[[Path], object]:
        BAD_FILES[write.__name__] = (write, complaint)
        return write

    return register


def tensors_but(change: Callable[[dict[str, Tensor]], object], path: Path) -> None:
    tensors = {name: tensor.clone() for name, tensor in random_clip(VIT).state_dict().items()}
    change(tensors)
    save_file(tensors, path)


def cut_short(path: Path, keep: float) -> None:
    os.truncate(path, int(path.stat().st_size * keep))


@bad_file("not a file of weights; expected OpenAI's .pt")
def text_file(path: Path) -> None:
    path.write_text("these are not the weights you are looking for\n" * 3)


@bad_file("not a file of weights")
def empty_file(path: Path) -> None:
    path.touch()


@bad_file("git lfs pull")
def lfs_pointer(path: Path) -> None:
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")


@bad_file("safetensors file is damaged or cut short")
def short_safetensors(path: Path) -> None:
    save(random_clip(VIT), path)
    cut_short(path, 0.7)


@bad_file("safetensors file is damaged or cut short")
def safetensors_with_a_broken_header(path: Path) -> None:
    save(random_clip(VIT), path)
    content = bytearray(path.read_bytes())
    content[8:200] = b"{" * 192
    path.write_bytes(content)


@bad_file("archive is damaged or cut short")
def short_torchscript(path: Path) -> None:
    write_openai(openai_tensors(hugging_face_clip(VIT)), path)
    cut_short(path, 0.7)


@bad_file("archive is damaged or cut short")
def torchscript_with_one_flipped_bit(path: Path) -> None:
    tensors = openai_tensors(hugging_face_clip(VIT))
    write_openai(tensors, path)
    content = path.read_bytes()
    at = content.index(tensors["ln_final.weight"].numpy().tobytes())
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])


@bad_file("archive is damaged or cut short")
def short_state_dict(path: Path) -> None:
    torch.save(random_clip(VIT).state_dict(), path)
    cut_short(path, 0.7)


@bad_file("archive is damaged or cut short")
def start_of_an_archive(path: Path) -> None:
    path.write_bytes(b"PK\x03\x04" + bytes(100))


@bad_file("holds a list and not a state dict")
def list_of_tensors(path: Path) -> None:
    torch.save([torch.zeros(3)], path)


@bad_file("bare pickle is not read")
def bare_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps({"weights": [1, 2, 3]}))


class Intruder:
    """Leaves a mark where it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("intruder-was-here"),)


@bad_file(r"holds a call of __builtin__\.getattr, which no file of weights does")
def code_in_a_state_dict(path: Path) -> None:
    torch.save(random_clip(VIT).state_dict() | {"intruder": Intruder()}, path)


@bad_file("not a CLIP, for it has no tensor text_projection; expected OpenAI's")
def another_network(path: Path) -> None:
    torch.save(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 10)).state_dict(), path)


@bad_file("lacks tensors transformer.resblocks.1.mlp.c_fc.bias")
def one_tensor_missing(path: Path) -> None:
    tensors_but(lambda t: t.pop("transformer.resblocks.1.mlp.c_fc.bias"), path)


@bad_file("lacks tensors .* and 9 more")
def a_block_missing(path: Path) -> None:
    def remove_first_block(tensors: dict[str, Tensor]) -> None:
        for name in [name for name in tensors if name.startswith("transformer.resblocks.0.")]:
            tensors[name.replace("resblocks.0.", "resblocks.7.")] = tensors.pop(name)

    tensors_but(remove_first_block, path)


@bad_file("has unknown tensors visual.gate")
def one_tensor_too_many(path: Path) -> None:
    tensors_but(lambda t: t.update({"visual.gate": torch.zeros(3)}), path)


@bad_file("has ill-shaped tensors ln_final.bias")
def wrong_shape(path: Path) -> None:
    tensors_but(lambda t: t.update({"ln_final.bias": torch.zeros(3)}), path)


@bad_file(r"not a CLIP, for its tensor text_projection has the shape \(3,\)")
def wrong_rank(path: Path) -> None:
    tensors_but(lambda t: t.update({"text_projection": torch.zeros(3)}), path)


@bad_file("has non-float tensors ln_final.bias")
def quantised(path: Path) -> None:
    tensors_but(lambda t: t.update({"ln_final.bias": torch.zeros(128, dtype=torch.int8)}), path)


@bad_file("8 image positions do not form a square")
def oblong_images(path: Path) -> None:
    tensors_but(lambda t: t.update({"visual.positional_embedding": torch.zeros(9, 192)}), path)


@bad_file("number of heads of a tower 100 wide is unknown")
def unknown_heads(path: Path) -> None:
    tensors_but(lambda t: t.update({"text_projection": torch.zeros(100, 48)}), path)


@bad_file("not a CLIP configuration")
def broken_config(path: Path) -> None:
    save_file(random_clip(VIT).state_dict(), path, {"fedotp.config": "{}"})


@bad_file("its tokenizer is not a `tokenizers` JSON file")
def broken_tokenizer(path: Path) -> None:
    notes = {"fedotp.config": VIT.to_json(), "fedotp.tokenizer": "{}"}
    save_file(random_clip(VIT).state_dict(), path, notes)


@bad_file("towers' activations differ")
def two_activations(path: Path) -> None:
    hugging_face_clip(VIT).save_pretrained(path.parent)
    (path.parent / "model.safetensors").rename(path)
    (path.parent / "config.json").write_text('{"vision_config": {"hidden_act": "gelu"}}')


@bad_file("config.json beside it cannot be read")
def broken_config_beside(path: Path) -> None:
    hugging_face_clip(VIT).save_pretrained(path.parent)
    (path.parent / "model.safetensors").rename(path)
    (path.parent / "config.json").write_text("{")


@bad_file("text_config should be an object")
def nonsense_config_beside(path: Path) -> None:
    hugging_face_clip(VIT).save_pretrained(path.parent)
    (path.parent / "model.safetensors").rename(path)
    (path.parent / "config.json").write_text('{"text_config": "none"}')


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
