"""Files that are no CLIP give one clear line, nothing in them is run, and nothing is built from sizes that lie."""

import copy
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from clip_oracles import RESNET, VIT, hugging_face_clip, openai_tensors, random_clip, write_open_clip, write_openai
from safetensors.torch import save_file
from torch import Tensor, nn

from fedotp.clip import CLIP, ClipConfig, Tokenizer, load, save
from fedotp.clip import _load as loading
from fedotp.clip._config import mini_file
from fedotp.errors import FedotpError

DEEP = 100_000 * "["
WHOLE = "must be a whole number from 1 to"
NAMED = {"names": ["cat", "dog"], "template": "a {}", "source": "a test"}  # in place of a text tower


def refused(path: Path, complaint: str) -> None:
    with pytest.raises(FedotpError, match=complaint) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert message.isprintable()
    assert len(message) < len(str(path)) + 600


BAD_BYTES: dict[str, tuple[bytes, str]] = {
    "text": (b"these are not the weights you are looking for\n" * 3, "not a weights file; expected OpenAI's .pt"),
    "empty": (b"", "not a weights file"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git lfs pull"),
    "start of an archive": (b"PK\x03\x04" + bytes(100), "archive is corrupt or truncated"),
    "bare pickle": (pickle.dumps({"weights": [1, 2, 3]}), "bare pickles are not supported"),
}


@pytest.mark.parametrize("case", BAD_BYTES)
def test_what_is_no_file_of_weights_gives_one_clear_line(case: str, tmp_path: Path) -> None:
    content, complaint = BAD_BYTES[case]
    (tmp_path / "weights.bin").write_bytes(content)
    refused(tmp_path / "weights.bin", complaint)


@pytest.mark.parametrize("form", ["safetensors", "torchscript", "state dict"])
def test_damaged_files_give_one_clear_line(form: str, tmp_path: Path) -> None:
    model, path = random_clip(VIT), tmp_path / "weights.bin"
    write = {"safetensors": save, "torchscript": lambda m, p: write_openai(m.state_dict(), p)}
    write.get(form, lambda m, p: torch.save(m.state_dict(), p))(model, path)
    content = path.read_bytes()
    complaint = f"{'safetensors file' if form == 'safetensors' else 'archive'} is corrupt or truncated"
    path.write_bytes(content[: int(0.7 * len(content))])
    refused(path, complaint)
    if form == "safetensors":
        path.write_bytes(content[:8] + b"{" * 192 + content[200:])
    else:  # one bit of a tensor
        at = content.index(model.ln_final.weight.detach().numpy().tobytes())
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    refused(path, complaint)


class Intruder:
    """Leaves a mark where it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("intruder-was-here"),)


def _renumbered(tensors: dict[str, Tensor]) -> None:
    for name in [name for name in tensors if name.startswith("transformer.resblocks.0.")]:
        tensors[name.replace("resblocks.0.", "resblocks.7.")] = tensors.pop(name)


# What is put into the tensors of a CLIP, or a change of them, and the complaint.
WRONG_TENSORS: dict[str, tuple[dict[str, Tensor] | Callable[[dict[str, Tensor]], object], str]] = {
    "missing": (lambda t: t.pop("ln_final.bias"), "lacks tensors ln_final.bias"),
    "block": (_renumbered, "lacks tensors .* and 9 more"),
    "shape": ({"ln_final.bias": torch.zeros(3)}, "has ill-shaped tensors ln_final.bias"),
    "int8": ({"ln_final.bias": torch.zeros(128, dtype=torch.int8)}, "has non-float tensors ln_final.bias"),
    "oblong": ({"visual.positional_embedding": torch.zeros(9, 192)}, "8 image positions must form a square"),
    "heads": ({"text_projection": torch.zeros(100, 48)}, "unknown number of heads for the width 100"),
    "no layers": (
        lambda t: [t.pop(name) for name in list(t) if name.startswith("transformer.")],
        rf"text\.layers = 0: {WHOLE} 512",
    ),
    "harmless": ({"\x1b[31m\n" + 5000 * "x": torch.zeros(1)}, r"has unknown tensors \[31m x+ \.\.\.$"),
}


@pytest.mark.parametrize("case", WRONG_TENSORS)
def test_wrong_tensors_give_one_clear_line(case: str, tmp_path: Path) -> None:
    change, complaint = WRONG_TENSORS[case]
    tensors = {name: tensor.clone() for name, tensor in random_clip(VIT).state_dict().items()}
    _ = tensors.update(change) if isinstance(change, dict) else change(tensors)
    save_file(tensors, tmp_path / "m.safetensors")
    refused(tmp_path / "m.safetensors", complaint)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ([torch.zeros(3)], "contains a list instead of a state dict"),
        (nn.Linear(8, 10).state_dict(), "not a CLIP: it has no tensor text_projection; expected OpenAI's"),
        ({"intruder": Intruder()}, r"contains a call of __builtin__\.getattr, which is not supported"),
    ],
)
def test_other_pickles_give_one_clear_line(
    content: object, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(content, tmp_path / "weights.pt")
    refused(tmp_path / "weights.pt", complaint)
    assert not Path("intruder-was-here").exists()


def changed(config: ClipConfig, key: str, value: object) -> str:
    """The config as JSON, with `value` at a dotted key."""
    fields = json.loads(config.to_json())
    *parents, leaf = key.split(".")
    section = fields
    for parent in parents:
        section = section[parent]
    section[leaf] = value
    return json.dumps(fields)


SIZES = ["embed_dim", "vision.image_size", "vision.patch_size", "vision.width", "vision.layers", "vision.heads"]
SIZES += [f"text.{name}" for name in ("vocab_size", "context_length", "width", "layers", "heads", "eot")]


@pytest.mark.parametrize("key", SIZES)
def test_sizes_in_the_metadata_are_whole_numbers_in_bounds(key: str, tmp_path: Path) -> None:
    values = ["x", "", None, True, 1.0, float("nan"), float("inf"), -1, 2**63 - 1, 10**300, [], [[1]], {}, "\x1b[31m\n"]
    for value in [*values, *([] if key == "text.eot" else [0])]:
        save_file({"w": torch.zeros(1)}, tmp_path / "m.safetensors", {"fedotp.config": changed(VIT, key, value)})
        refused(
            tmp_path / "m.safetensors", rf"{key} = .*: must be a whole number from [01] to|not a CLIP configuration"
        )


@pytest.mark.parametrize(
    ("config", "key", "value", "complaint"),
    [
        (VIT, "vision.heads", 5, "heads = 5: must be a divisor of the width 192"),
        (VIT, "text.eot", 99, "eot = 99: must be less than the size of the vocabulary, 99"),
        (VIT, "vision.patch_size", 25, "image_size = 24: must be at least the patch size, 25"),
        (VIT, "activation", "relu\n", "activation = relu: must be"),
        (VIT, "activation", ["gelu"], "activation = .*: must be"),
        (VIT, 5000 * "k", 3, "not a CLIP configuration"),
        (RESNET, "vision.layers", "1211", r"vision\.layers = '1': must be a whole number"),
        (VIT, "text", NAMED | {"names": ["cat_a", "Cat A"]}, "must be from 1 to 1,048,576 different class names"),
        (VIT, "text", NAMED | {"template": "a photo"}, "template: must be a caption with one {}"),
    ],
)
def test_nonsense_in_the_metadata_gives_one_clear_line(
    config: ClipConfig, key: str, value: object, complaint: str, tmp_path: Path
) -> None:
    save_file({"w": torch.zeros(1)}, tmp_path / "m.safetensors", {"fedotp.config": changed(config, key, value)})
    refused(tmp_path / "m.safetensors", complaint)


@pytest.mark.parametrize(
    "text", [DEEP, '{"vision": ' + DEEP, "{}", "[]", "3", "", "nothing", '{"vision": 1e999}', 5000 * "9"]
)
def test_metadata_that_is_no_configuration_gives_one_clear_line(text: str, tmp_path: Path) -> None:
    save_file({"w": torch.zeros(1)}, tmp_path / "m.safetensors", {"fedotp.config": text})
    refused(tmp_path / "m.safetensors", "not a CLIP configuration")


@pytest.mark.parametrize("layers", [1, 3, 512, 10**6])
@pytest.mark.parametrize("tower", ["text", "vision"])
def test_a_model_of_other_depth_than_its_tensors_is_never_built(
    tower: str, layers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "CLIP", None)
    path = tmp_path / "m.safetensors"
    save_file(random_clip(VIT).state_dict(), path, {"fedotp.config": changed(VIT, f"{tower}.layers", layers)})
    refused(path, rf"its configuration has {layers} layers .*resblocks\.\*, but the file has 2|{WHOLE} 512")
    save_file(random_clip(RESNET).state_dict(), path, {"fedotp.config": changed(RESNET, "vision.layers", [1, 1, 1, 1])})
    refused(path, r"its configuration has 1 layers visual\.layer2\.\*, but the file has 2")


def test_too_many_tensors_are_refused_before_they_are_read(tmp_path: Path) -> None:
    save_file({f"t{i}": torch.zeros(1) for i in range(10_001)}, tmp_path / "m.safetensors")
    refused(tmp_path / "m.safetensors", "it contains 10,001 tensors: must be at most")


def header(path: Path, fields: object, data: bytes = bytes(8)) -> None:
    """A safetensors file with this header."""
    text = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.mark.parametrize(
    "fields",
    [
        {"t": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 8]}},
        {"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 2**62]}},
        {"t": {"dtype": "F32", "shape": [0, 2**63], "data_offsets": [0, 0]}},
        {"t": {"dtype": "F32", "shape": [1] * 5000, "data_offsets": [0, 4]}},
        {"__metadata__": {"fedotp.config": 3}},
        b"{" + DEEP.encode(),
        b'{"\xff": 1}',
        b"",
    ],
)
def test_safetensors_headers_that_lie_give_one_clear_line(fields: object, tmp_path: Path) -> None:
    header(tmp_path / "m.safetensors", fields)
    if not fields:  # longer than the file
        (tmp_path / "m.safetensors").write_bytes((2**62).to_bytes(8, "little") + b"{}" + bytes(8))
    refused(tmp_path / "m.safetensors", "corrupt or truncated|not a CLIP")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "weights.pt")
    refused(tmp_path / "weights.pt", "neither a weights file")
    write_open_clip(random_clip(VIT).state_dict(), tmp_path / "m.safetensors")
    os.mkfifo(tmp_path / "open_clip_config.json")
    refused(tmp_path / "m.safetensors", "open_clip_config.json in its folder is not a configuration file")


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two files of weights, whose configurations are written by the tests."""
    folder = tmp_path_factory.mktemp("beside")
    oracle = hugging_face_clip(VIT)
    oracle.save_pretrained(folder)
    write_open_clip(openai_tensors(oracle), folder / "open_clip.safetensors")
    return folder


HF, OPEN_CLIP = ("model.safetensors", "config.json"), ("open_clip.safetensors", "open_clip_config.json")
BESIDE: dict[str, tuple[tuple[str, str], str, str]] = {
    "deep": (HF, DEEP, "cannot read config.json in its folder: maximum recursion"),
    "heads that do not divide": (HF, '{"text_config": {"num_attention_heads": 3}}', "heads = 3: must be a divisor"),
    "activations in a list": (HF, '{"text_config": {"hidden_act": []}}', r"supported: \[\], quick_gelu"),
    "two activations": (HF, '{"vision_config": {"hidden_act": "gelu"}}', "different activations of the towers"),
    "a word for a section": (HF, '{"text_config": "none"}', "text_config must be an object"),
    "a large file": (HF, " " * (1 << 20) + "{}", "is not a configuration file"),
    "heads of no width": (OPEN_CLIP, '{"model_cfg": {"vision_cfg": {"head_width": 0}}}', rf"head_width = 0: {WHOLE}"),
    "heads too wide": (
        OPEN_CLIP,
        '{"model_cfg": {"vision_cfg": {"width": 64, "head_width": 128}}}',
        rf"vision\.heads = 0: {WHOLE}",
    ),
}


@pytest.mark.parametrize("case", BESIDE)
def test_nonsense_beside_the_weights_gives_one_clear_line(case: str, beside: Path) -> None:
    (weights, config), text, complaint = BESIDE[case]
    (beside / config).write_text(text)
    refused(beside / weights, complaint)


@pytest.fixture(scope="module")
def minis_tokenizer() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(load(mini_file()).tokenizer.to_json())
    return stored


REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": 100 * "a"}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
TOKENIZERS: dict[str, tuple[dict[str, Any], str]] = {
    "replacements that multiply": (
        {"normalizer": {"type": "Sequence", "normalizers": 4 * [REPLACE]}},
        "its normalizer",
    ),
    "bytes of bytes of bytes": ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": 9 * [BYTES]}}, "its pre_tok"),
    "a compiled table": ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}, "its normalizer"),
    "ids far away": (
        {"model": {"type": "WordLevel", "vocab": {"<|startoftext|>": 0, "<|endoftext|>": 2**32 - 1}, "unk_token": "x"}},
        "token ids must be less than 2, got 4294967295",
    ),
    "a broken pattern": (
        {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(("}, "behavior": "Removed", "invert": False}},
        "is not a `tokenizers` JSON file",
    ),
}


@pytest.mark.parametrize("case", TOKENIZERS)
def test_tokenizers_that_could_fill_the_memory_are_refused(case: str, minis_tokenizer: dict[str, Any]) -> None:
    change, complaint = TOKENIZERS[case]
    stored = copy.deepcopy(minis_tokenizer) | {"added_tokens": []} | change
    with pytest.raises(FedotpError, match=complaint) as caught:
        Tokenizer.from_json(json.dumps(stored))
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("text", [DEEP, "[]", "null", '{"normalizer": ' + DEEP, "9" * 5000])
def test_what_is_no_tokenizer_gives_one_clear_line(text: str, tmp_path: Path) -> None:
    notes = {"fedotp.config": VIT.to_json(), "fedotp.tokenizer": text}
    save_file(random_clip(VIT).state_dict(), tmp_path / "m.safetensors", notes)
    refused(tmp_path / "m.safetensors", "its tokenizer is not a `tokenizers` JSON file")
    with pytest.raises(FedotpError, match="is not a `tokenizers` JSON file"):
        Tokenizer.from_json(text)


def test_a_tokenizers_own_padding_and_truncation_are_left_out(minis_tokenizer: dict[str, Any]) -> None:
    pad = {"strategy": {"Fixed": 10**15}, "direction": "Right", "pad_to_multiple_of": None}
    pad |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "x"}
    cut = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 5}
    tokenizer = Tokenizer.from_json(json.dumps(minis_tokenizer | {"padding": pad, "truncation": cut}))
    right = Tokenizer.from_json(json.dumps(minis_tokenizer))
    assert tokenizer.encode("a photo of a dog") == right.encode("a photo of a dog")


def test_a_text_that_a_tokenizer_cannot_encode_gives_one_clear_line(minis_tokenizer: dict[str, Any]) -> None:
    model = {"type": "WordLevel", "vocab": {"<|startoftext|>": 0, "<|endoftext|>": 1}, "unk_token": "x"}
    tokenizer = Tokenizer.from_json(json.dumps(minis_tokenizer | {"added_tokens": [], "model": model}))
    with pytest.raises(FedotpError, match="the tokenizer cannot encode a text: WordLevel error"):
        tokenizer.encode("dog")


def test_published_shapes_are_within_the_bounds() -> None:
    """The largest CLIP there is (open_clip's ViT-bigG/14), and a vocabulary of 250,002."""
    fields = json.loads(VIT.to_json()) | {"embed_dim": 1280}
    fields["vision"] = {"image_size": 224, "patch_size": 14, "width": 1664, "layers": 48, "heads": 16}
    fields["text"] |= {"vocab_size": 250_002, "width": 1280, "layers": 32, "heads": 20}
    with torch.device("meta"):
        assert sum(p.numel() for p in CLIP(ClipConfig.from_json(json.dumps(fields))).parameters()) > 2e9
