"""One model in every checkpoint format loads to the same bits; saving; names."""

import copy
import dataclasses
import hashlib
import json
import pickle
import re
from pathlib import Path

import huggingface_hub
import pytest
import tokenizers
import torch
from clip_oracles import (
    RESNET,
    TABLE,
    TEXT,
    VIT,
    hugging_face_clip,
    openai_tensors,
    random_clip,
    with_heads,
    write_open_clip,
    write_openai,
)
from safetensors.torch import load_file, save_file

from fedotp.clip import CLIP, TINY, ClipConfig, ImageFeatures, Tokenizer, fetch, load, save, with_class_features
from fedotp.clip import _hub as hub
from fedotp.clip import _load as loading
from fedotp.clip._model import tensors_digest
from fedotp.errors import FedotpError
from fedotp.federation.testing import Predictor
from fedotp.methods import METHODS, PromptSettings, Task


@pytest.mark.parametrize("config", [VIT, RESNET])
def test_every_format_loads_to_the_same_bits(config: ClipConfig, tmp_path: Path) -> None:
    """All are compared with the tensors that were written; transformers' own are there for a ViT."""
    names = ("openai.pt", "openai16.pt", "open_clip.safetensors", "state.pt", "ours.safetensors", "ours16.safetensors")
    paths = [tmp_path / name for name in names]
    if config is VIT:
        oracle = hugging_face_clip(VIT)
        tensors = openai_tensors(oracle)
        oracle.save_pretrained(tmp_path / "hugging_face")
        paths.append(tmp_path / "hugging_face")
        image_tower = {name: tensor for name, tensor in oracle.state_dict().items() if name.startswith("vis")}
        save_file(image_tower, tmp_path / "tower")  # as a CLIPVisionModelWithProjection is
        table = with_class_features(tmp_path / "tower", ["cat"], torch.ones(1, 48), template="a {}", source="a test")
        assert table.config.vision == VIT.vision
        assert all(torch.equal(tensors[f"visual.{name}"], value) for name, value in table.visual.state_dict().items())
    else:
        tensors = random_clip(config).state_dict()
    write_openai(tensors, paths[0])
    write_openai(tensors, paths[1], half=True)
    write_open_clip(tensors, paths[2])
    torch.save({"epoch": 3, "state_dict": {f"module.{n}": t for n, t in tensors.items()}}, paths[3])
    save(load(paths[0]), paths[4])
    save(load(paths[0]), paths[5], dtype=torch.float16)  # these weights are exact in half
    assert load_file(paths[4]).keys() == tensors.keys()
    digest = load(paths[0]).digest
    for path in paths:
        model = load(path)
        assert (model.config, model.digest) == (config, digest)
        state = model.state_dict()
        assert state.keys() == tensors.keys()
        assert all(torch.equal(state[name], tensors[name]) for name in state)
        assert not model.training
        assert not any(p.requires_grad for p in model.parameters())
        assert {p.dtype for p in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_precision_is_chosen_and_the_digest_is_the_files(dtype: torch.dtype, tmp_path: Path) -> None:
    exact = random_clip(RESNET)
    save(exact, tmp_path / "model.safetensors")
    model = load(tmp_path, dtype=dtype)
    assert {p.dtype for p in model.parameters()} == {dtype}
    assert model.digest == exact.digest


def test_digest_follows_the_weights_and_not_the_file(tmp_path: Path) -> None:
    model, path = CLIP.random(TINY), tmp_path / "weights"
    save(model, path, dtype=torch.float16)
    loaded = load(path, dtype=torch.float64)
    rounded = {name: tensor.half() for name, tensor in model.state_dict().items()}
    assert copy.deepcopy(loaded).digest == loaded.digest == tensors_digest(rounded) != model.digest
    assert pickle.loads(pickle.dumps(loaded)).digest == loaded.digest
    path.write_bytes(bytes(path.stat().st_size))
    assert tensors_digest(loaded.half().state_dict()) == loaded.digest
    before = model.digest
    model.ln_final.bias[3] += 1
    assert model.digest != before


def test_a_clips_own_text_features_in_a_table_score_as_it_does(tmp_path: Path) -> None:
    full = CLIP.random(TINY)
    save(full, tmp_path / "full")
    features = 7 * Task(full, ("red", "dark green")).template_features()[0, 0]
    of_text = {"template": Task.template, "source": "a test", "scale": full.logit_scale.exp().item()}
    table = with_class_features(tmp_path / "full", ("red", "dark green"), features, **of_text)
    task, pixels = Task(table, ("Dark_Green", "red"), PromptSettings("features", std=0.0)), torch.randn(4, 3, 32, 32)
    images = [ImageFeatures(*(part[None] for part in clip.encode_image(pixels))) for clip in (full, table)]
    expected = Predictor.of(METHODS["zeroshot"](), Task(full, ("dark green", "red")), {}).scores(images[0])
    for method in (METHODS["zeroshot"](), METHODS["promptfl"]()):
        found = Predictor.of(method, task, method.untrained(task)).scores(images[1])
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    with pytest.raises(FedotpError, match=r"without dark grey \(nearest: dark green\), xyz; rename the classes"):
        Task(table, ("red", "dark grey", "xyz")).template_features()
    for use in (lambda: table.tokenizer, lambda: table.encode_text(torch.zeros(1, 4))):
        with pytest.raises(FedotpError, match=r'^this backbone has no text tower, .*: set prompt.space = "features" '):
            use()
    with pytest.raises(FedotpError, match=r"full: not a supported CLIP: it has ill-shaped tensors class_features$"):
        with_class_features(tmp_path / "full", ("red",), features, **of_text)


def test_stored_images_outlive_a_change_of_the_table(tmp_path: Path) -> None:
    table = random_clip(TABLE)
    save(table, tmp_path / "table")
    loaded = load(tmp_path / "table", dtype=torch.float64)
    other = random_clip(dataclasses.replace(TABLE, text=dataclasses.replace(TABLE.text, names=("dog", "cat"))))
    assert (loaded.config, loaded.digest) == (TABLE, table.digest) != (TABLE, other.digest)
    table.class_features[0] += 1
    assert len({loaded.digest, table.digest, other.digest}) == 3
    assert loaded.image_digest == table.image_digest == other.image_digest
    table.logit_scale += 1
    assert table.image_digest != loaded.image_digest
    save_file(loaded.state_dict(), tmp_path / "cut", {"fedotp.config": TABLE.to_json().replace(', "dog"', "")})
    with pytest.raises(FedotpError, match="has ill-shaped tensors class_features"):
        load(tmp_path / "cut")


def test_heads_and_activation_from_files_beside_the_weights(tmp_path: Path) -> None:
    """Shapes cannot tell these; config.json and open_clip_config.json do, and our own header."""
    config = dataclasses.replace(with_heads(VIT, vision=6, text=4), activation="gelu")
    oracle = hugging_face_clip(config)
    oracle.save_pretrained(tmp_path / "hf")
    assert load(tmp_path / "hf").config == config
    assert load(tmp_path / "hf", activation="quick_gelu").config.activation == "quick_gelu"

    folder = tmp_path / "open_clip"
    folder.mkdir()
    write_open_clip(openai_tensors(oracle), folder / "open_clip_model.safetensors")
    assert load(folder).config == VIT
    described = {"model_cfg": {"vision_cfg": {"width": 192, "head_width": 32}, "text_cfg": {"heads": 4}}}
    (folder / "open_clip_config.json").write_text(json.dumps(described))
    assert load(folder).config == config
    described["model_cfg"]["quick_gelu"] = True
    (folder / "open_clip_config.json").write_text(json.dumps(described))
    assert load(folder).config == dataclasses.replace(config, activation="quick_gelu")

    save(load(tmp_path / "hf"), tmp_path / "ours.safetensors")
    assert load(tmp_path / "ours.safetensors").config == config


def small_tokenizer() -> Tokenizer:
    """A vocabulary of its own, whose end of text is not its last token."""
    vocab = {"<|startoftext|>": 0, "<|endoftext|>": 1, "cat": 2, "dog": 3}
    bpe = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="cat"))
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return Tokenizer(bpe, sot=0, eot=1)


def test_a_tokenizer_travels_with_its_model(tmp_path: Path) -> None:
    text = dataclasses.replace(TEXT, vocab_size=4, eot=1)
    model = CLIP.random(dataclasses.replace(VIT, text=text), tokenizer=small_tokenizer())
    save(model, tmp_path / "model.safetensors")
    loaded = load(tmp_path)
    ids = loaded.tokenizer(["dog cat"], 6)
    assert ids.tolist() == [[0, 3, 2, 1, 0, 0]]
    assert torch.equal(loaded.encode_text(ids), model.encode_text(ids))

    write_openai(model.state_dict(), tmp_path / "openai.pt")
    assert load(tmp_path / "openai.pt", tokenizer=small_tokenizer()).config == model.config
    with pytest.raises(FedotpError, match="the model has 4 and 1; use the tokenizer"):
        load(tmp_path, tokenizer=Tokenizer.clip())
    save(CLIP.random(TINY), tmp_path / "tiny.safetensors")
    assert load(tmp_path / "tiny.safetensors").tokenizer is Tokenizer.clip()
    assert (tmp_path / "tiny.safetensors").stat().st_size < 4 * 3_400_000 + 10_000  # no copy of it inside


def test_bad_places(tmp_path: Path) -> None:
    with pytest.raises(FedotpError, match=r"nowhere\.pt: neither a file nor the name of a backbone; names"):
        load(tmp_path / "nowhere.pt")
    with pytest.raises(FedotpError, match="did you mean 'ViT-B/16'"):
        load("ViT-B-16")
    with pytest.raises(FedotpError, match=r"contains neither model\.safetensors nor open_clip_model"):
        load(tmp_path)
    with pytest.raises(FedotpError, match=r"^cannot write "):
        save(random_clip(VIT), tmp_path / "no-such-folder" / "model.safetensors")


def test_save_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.safetensors"
    save(random_clip(VIT, seed=1), path)
    before = path.read_bytes()
    with pytest.raises(FedotpError, match="already exists"):
        save(random_clip(VIT, seed=2), path)

    def full_disk(tensors: object, file: Path, metadata: object) -> None:
        file.write_bytes(b"half a fi")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(loading.safetensors.torch, "save_file", full_disk)
        with pytest.raises(FedotpError, match="No space left"):
            save(random_clip(VIT, seed=2), path, overwrite=True)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    save(random_clip(VIT, seed=2), path, overwrite=True)
    assert load(path).digest == random_clip(VIT, seed=2).digest


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a download of RN50 leaves behind: models--<owner>--<repository>/snapshots/<commit>/<file>; other weights."""
    published = hub.PUBLISHED["RN50"]
    snapshot = tmp_path / f"models--{published.repository.replace('/', '--')}" / "snapshots" / published.revision
    snapshot.mkdir(parents=True)
    path = snapshot / "open_clip_model.safetensors"
    write_open_clip(random_clip(VIT).state_dict(), path)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setitem(hub.PUBLISHED, "RN50", published._replace(sha256=sha256))
    return path


def no_network(*_: object, **__: object) -> str:
    raise ConnectionError("no route to host")


def test_by_name_cache_first(cached: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", no_network)
    assert fetch("RN50", cache_dir=tmp_path) == cached
    with pytest.raises(FedotpError, match=r"download https://huggingface\.co/timm/resnet101_clip\.openai/resolve"):
        fetch("RN101", cache_dir=tmp_path)
    with pytest.raises(FedotpError, match="unknown backbone 'RN51': must be one of ViT-B/32"):
        fetch("RN51", cache_dir=tmp_path)


def test_load_by_name(cached: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "fetch", lambda name: fetch(name, cache_dir=tmp_path))
    monkeypatch.setattr(loading, "CONFIGS", {"RN50": VIT})
    assert load("RN50").config == VIT
    monkeypatch.setattr(loading, "CONFIGS", {"RN50": RESNET})
    with pytest.raises(FedotpError, match=f"{cached}: expected the weights of RN50"):
        load("RN50")


def test_weights_exchanged_on_the_hub_or_in_the_cache_are_refused(cached: Path, tmp_path: Path) -> None:
    fetch("RN50", cache_dir=tmp_path)
    write_open_clip(random_clip(VIT, seed=1).state_dict(), cached)
    with pytest.raises(FedotpError, match=f"{cached} is corrupt or not the weights of RN50: expected SHA-256"):
        fetch("RN50", cache_dir=tmp_path)


def test_weights_are_asked_for_by_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but RN101, whose commit is not known to us."""
    asked = {}

    def download(repository: str, file: str, *, cache_dir: Path, revision: str) -> str:
        asked[repository] = revision
        raise ConnectionError

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    for name in hub.PUBLISHED:
        with pytest.raises(FedotpError, match="cannot download"):
            fetch(name, cache_dir=tmp_path)
    assert hub.PUBLISHED.keys() == loading.CONFIGS.keys()
    assert asked.pop("timm/resnet101_clip.openai") == "main"
    assert len(set(asked.values())) == 4
    assert all(re.fullmatch("[0-9a-f]{40}", revision) for revision in asked.values())
    assert all(re.fullmatch("[0-9a-f]{64}", str(p.sha256)) for n, p in hub.PUBLISHED.items() if n != "RN101")
