"""Weights; data sets: images, lists, pickles, labels; and the store of tokens."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tokenizers
import torch
from pydicom import Sequence
from pydicom.uid import RLELossless
from tokenizers import models

from clip.clip_oracles import hugging_face_clip, openai_tensors, random_clip, write_open_clip, write_openai
from coloured_squares import draw_squares
from data.dicom_made import dicom, palette, table, written
from data.layouts import (
    DOMAINNET,
    DOMAINNET10,
    OFFICE,
    OFFICE_CALTECH10,
    caltech101,
    cifar10,
    cifar_batch,
    domain_tree,
    dtd,
    fedbn_pickles,
    fgvc_aircraft,
    flowers102,
    food101,
    imagenet,
    oxford_pets,
    python2_pickle,
    zhou_split,
)
from fedotp.clip import ClipConfig, Tokenizer, VitConfig, save
from fedotp.clip._config import ResNetConfig, TextConfig
from fuzz.reader import Reader, fedotp, inputs_of

_TEXT = TextConfig(vocab_size=99, context_length=8, width=64, layers=1, heads=1, eot=98)
VIT = ClipConfig(8, VitConfig(image_size=16, patch_size=8, width=64, layers=1, heads=1), _TEXT)
_RESNET = ClipConfig(8, ResNetConfig(image_size=32, layers=(1, 1, 1, 1), width=2, heads=1), _TEXT)
_SOT, _EOT = "<|startoftext|>", "<|endoftext|>"


def small_tokenizer() -> tokenizers.Tokenizer:
    """99 tokens, the special ones last."""
    words = [*(f"w{i}" for i in range(97)), _SOT, _EOT]
    return tokenizers.Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=[]))


def _weights_info(name: str) -> Callable[[Path], None]:
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


def _make_tokenizer(folder: Path) -> None:
    small_tokenizer().save(str(folder / "tokenizer.json"))


def _use_tokenizer(folder: Path) -> None:
    tokenizer = Tokenizer.from_json((folder / "tokenizer.json").read_text(encoding="utf-8", errors="replace"))
    tokenizer(["w1 w2 w3"], 77)
    tokenizer.decode([0, 1, 2])


WEIGHTS = [
    Reader("torchscript", _make_torchscript, _weights_info("weights.pt")),
    Reader("state-dict", _make_state_dict, _weights_info("weights.pt")),
    Reader("hugging-face", _make_hugging_face, _weights_info(".")),
    Reader("open-clip", _make_open_clip, _weights_info(".")),
    Reader("own-weights", _make_own, _weights_info("weights.safetensors")),
    Reader("own-resnet", _make_resnet, _weights_info("weights.safetensors")),
    Reader("tokenizer", _make_tokenizer, _use_tokenizer, misplaced=()),
]


_COLOURS = {"red": (200, 30, 30), "green": (30, 200, 30)}


def _info(folder: Path) -> None:
    """`fedotp data info` of the one data set in the folder."""
    fedotp("data", "info", next(path for path in sorted(folder.iterdir())))


def _make_images(folder: Path) -> None:
    draw_squares(folder / "images", _COLOURS, 3)


def _make_dicom(folder: Path) -> None:
    """Greys in a window, in runs and as JPEG, colours and a palette, in two classes."""
    rng = np.random.default_rng(0)
    grey, colour = rng.integers(0, 4096, (12, 10)).astype(np.uint16), rng.integers(0, 256, (12, 10, 3)).astype(np.uint8)
    ct = {"RescaleSlope": 1, "RescaleIntercept": -1024, "WindowCenter": 40, "WindowWidth": 400}
    shown = Sequence([table(0, np.arange(256) * 16, 12)])
    files = {
        "ct": dicom(grey, bits=12, **ct),
        "runs": dicom(grey, bits=12, syntax=RLELossless),
        "table": dicom(grey, bits=12, VOILUTSequence=shown),
        "rgb": dicom(colour, "RGB", 8),
        "ybr": dicom(colour, "YBR_FULL", 8),
        "palette": written(palette(colour[..., 0], rng.integers(0, 256, (256, 3)).astype(np.uint8))),
        "x-ray": dicom(grey, "MONOCHROME1", 12, PixelPaddingValue=0),
    }
    for kind in ("sound", "broken"):
        (folder / "images" / kind).mkdir(parents=True)
        for name, content in files.items():
            (folder / "images" / kind / f"{name}.dcm").write_bytes(content)


def _make_table(folder: Path) -> None:
    draw_squares(folder / "images", _COLOURS, 3)
    lines = [f"images/{c}/{i}.png,{c},oslo,p{i}" for c in _COLOURS for i in range(3)]
    (folder / "images.csv").write_text("\n".join(["path,label,site,group", *lines]))


def _make_zhou(folder: Path) -> None:
    root = caltech101(folder)
    rows = [(f"{c}/image_{i:04d}.jpg", k, c) for k, c in enumerate(("Faces", "accordion")) for i in range(4)]
    zhou_split(root, "Caltech101", {"train": rows[::2], "val": rows[1:2], "test": rows[1::2]})


def _make_any_zhou(folder: Path) -> None:
    """A list of an unknown data set."""
    _make_zhou(folder)
    (folder / "caltech-101" / "split_zhou_Caltech101.json").rename(folder / "caltech-101" / "split_zhou_Mine.json")
    (folder / "caltech-101" / "101_ObjectCategories").rename(folder / "caltech-101" / "pictures")


def _make_cifar100(folder: Path) -> None:
    root = folder / "cifar-100-python"
    root.mkdir()
    names = {f"{kind}_label_names": [b"%s%d" % (kind.encode(), k) for k in range(4)] for kind in ("fine", "coarse")}
    python2_pickle(root / "meta", names)
    for name in ("train", "test"):
        labels = [i % 4 for i in range(8)]
        cifar_batch(root / name, 8, {"fine_labels": labels, "coarse_labels": labels})


def _make_pickles(folder: Path) -> None:
    fedbn_pickles(domain_tree(folder / "office_caltech_10", OFFICE, OFFICE_CALTECH10, 2), OFFICE)


def _make_lists(folder: Path) -> None:
    root = domain_tree(folder / "DomainNet", DOMAINNET, DOMAINNET10, 2)
    for domain in DOMAINNET:
        for split, i in (("train", 0), ("test", 1)):
            lines = [f"{domain}/{c.replace(' ', '_')}/{i}.jpg {k}" for k, c in enumerate(DOMAINNET10)]
            (root / f"{domain}_{split}.txt").write_text("\n".join(lines))


def _make_store(folder: Path) -> None:
    inputs = inputs_of(folder)
    if not (inputs / "small").is_dir():
        (inputs / "small").mkdir(parents=True)
        save(random_clip(VIT), inputs / "small" / "tower.safetensors")
        draw_squares(inputs / "small" / "images", _COLOURS, 3)
    _encode(folder, inputs)


def _encode(folder: Path, inputs: Path) -> None:
    images, tower = inputs / "small" / "images", inputs / "small" / "tower.safetensors"
    fedotp("data", "encode", images, "--set", f"backbone.name={tower}", "--set", f"data.store={folder / 'store'}")


def _use_store(folder: Path) -> None:
    """Read tokens back, or encode again what is damaged."""
    _encode(folder, inputs_of(folder))


def _show_stores(folder: Path) -> None:
    fedotp("data", "cache", "show", "--store", folder / "store")


READERS = [
    Reader("image-folder", _make_images, lambda folder: fedotp("data", "check", folder / "images", "--workers", 1)),
    Reader("dicom", _make_dicom, lambda folder: fedotp("data", "check", folder / "images", "--workers", 1)),
    Reader("csv-table", _make_table, lambda folder: fedotp("data", "info", folder / "images.csv"), files=("*.csv",)),
    Reader("split-zhou", _make_zhou, _info, files=("*/split_zhou_*.json",)),
    Reader("split-zhou-any", _make_any_zhou, _info, files=("*/split_zhou_*.json",)),
    Reader("aircraft-lists", fgvc_aircraft, _info, files=("*/*.txt",)),
    Reader("imagenet-names", imagenet, _info, files=("*/*.txt",)),
    Reader("flower-labels", flowers102, _info, files=("*/*.mat",)),
    Reader("pets-lists", oxford_pets, _info, files=("*/annotations/*.txt",)),
    Reader("food-lists", food101, _info, files=("*/meta/*.txt",)),
    Reader("dtd-lists", dtd, _info, files=("*/labels/*.txt",)),
    Reader("domainnet-lists", _make_lists, _info, files=("*/*.txt",)),
    Reader("fedbn-pickles", _make_pickles, _info, files=("*/*.pkl",)),
    Reader("cifar10", cifar10, _info),
    Reader("cifar100", _make_cifar100, _info),
    Reader("token-store", _make_store, _use_store),
    Reader("token-cache", _make_store, _show_stores),
]
