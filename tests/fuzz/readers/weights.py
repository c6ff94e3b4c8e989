"""Checkpoints of CLIP, in all the forms people have them."""

import json
from collections.abc import Callable
from pathlib import Path

import tokenizers
import torch
from tokenizers import models

from clip.clip_oracles import hugging_face_clip, openai_tensors, random_clip, write_open_clip, write_openai
from fedotp.clip import ClipConfig, Tokenizer, VitConfig, save
from fedotp.clip._config import ResNetConfig, TextConfig
from fuzz.reader import Reader
from fuzz.readers.commands import fedotp

_TEXT = TextConfig(vocab_size=99, context_length=8, width=64, layers=1, heads=1, eot=98)
VIT = ClipConfig(8, VitConfig(image_size=16, patch_size=8, width=64, layers=1, heads=1), _TEXT)
_RESNET = ClipConfig(8, ResNetConfig(image_size=32, layers=(1, 1, 1, 1), width=2, heads=1), _TEXT)
_SOT, _EOT = "<|startoftext|>", "<|endoftext|>"


def small_tokenizer() -> tokenizers.Tokenizer:
    """99 tokens, the special ones last."""
    words = [*(f"w{i}" for i in range(97)), _SOT, _EOT]
    return tokenizers.Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=[]))


def _info(name: str) -> Callable[[Path], None]:
    return lambda folder: fedotp("weights", "info", folder / name)


def _make_torchscript(folder: Path) -> None:
    write_openai(openai_tensors(hugging_face_clip(VIT)), folder / "weights.pt", half=True)


def _make_state_dict(folder: Path) -> None:
    torch.save({"state_dict": random_clip(VIT).half().state_dict(), "epoch": 3}, folder / "weights.pt")


def _make_hugging_face(folder: Path) -> None:
    hugging_face_clip(VIT).half().save_pretrained(folder)
    for path in folder.iterdir():
        if path.name not in ("model.safetensors", "config.json"):
            path.unlink()


def _make_open_clip(folder: Path) -> None:
    write_open_clip(openai_tensors(hugging_face_clip(VIT)), folder / "open_clip_model.safetensors")
    towers = {"vision_cfg": {"width": 64, "head_width": 64}, "text_cfg": {"heads": 1}}
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": {"quick_gelu": True, **towers}}))


def _make_own(folder: Path) -> None:
    model = random_clip(VIT)
    model.custom_tokenizer = Tokenizer.from_json(small_tokenizer().to_str())
    save(model, folder / "weights.safetensors", dtype=torch.float16)


def _make_resnet(folder: Path) -> None:
    save(random_clip(_RESNET), folder / "weights.safetensors")


def _use_tokenizer(folder: Path) -> None:
    tokenizer = Tokenizer.from_file(folder / "tokenizer.json")
    tokenizer(["w1 w2 w3"], 77)
    tokenizer.decode([0, 1, 2])
    tokenizer.word(0)


READERS = [
    Reader("torchscript", _make_torchscript, _info("weights.pt")),
    Reader("state-dict", _make_state_dict, _info("weights.pt")),
    Reader("hugging-face", _make_hugging_face, _info(".")),
    Reader("open-clip", _make_open_clip, _info(".")),
    Reader("own-weights", _make_own, _info("weights.safetensors")),
    Reader("own-resnet", _make_resnet, _info("weights.safetensors")),
    Reader("tokenizer", lambda folder: small_tokenizer().save(str(folder / "tokenizer.json")), _use_tokenizer),
]
