"""`fedotp weights` through the parser, and once as a real process."""

from pathlib import Path

import pytest
import torch
from clip_oracles import RESNET, TABLE, VIT, random_clip, write_openai
from safetensors.torch import load_file
from typer.testing import CliRunner

from fedotp.cli import app
from fedotp.clip import load, save
from fedotp.errors import FedotpError


def run(*words: str | Path) -> str:
    return CliRunner().invoke(app, ["weights", *map(str, words)], catch_exceptions=False).stdout


def test_convert_and_info_round_trip(tmp_path: Path) -> None:
    model = random_clip(VIT)
    write_openai(model.state_dict(), tmp_path / "in.pt")
    printed = run("convert", tmp_path / "in.pt", tmp_path / "out.safetensors")
    assert run("info", tmp_path / "out.safetensors") == printed
    assert f"digest      {model.digest}\n" in printed
    assert f"parameters  {sum(p.numel() for p in model.parameters()):,}\n" in printed
    assert "ViT, 2 layers of width 192, patches of 8 px, 3 heads, 24 px, 9 patches" in printed
    assert load(tmp_path / "out.safetensors").digest == model.digest
    save(random_clip(TABLE), tmp_path / "table")
    assert "text        no tower: features of 2 class names, 'a {}', a test\n" in run("info", tmp_path / "table")


def test_convert_rounds_and_says_so(tmp_path: Path) -> None:
    model = random_clip(RESNET)
    model.logit_scale += 1e-6
    save(model, tmp_path / "in.safetensors")
    out = tmp_path / "out.safetensors"
    printed = run("convert", tmp_path / "in.safetensors", out, "--dtype", "float16")
    assert {t.dtype for t in load_file(out).values() if t.is_floating_point()} == {torch.float16}
    assert f"rounded to float16 from weights with digest {model.digest}" in printed
    with pytest.raises(FedotpError, match="already exists"):
        run("convert", tmp_path / "in.safetensors", out)
    assert "rounded" not in run("convert", tmp_path / "in.safetensors", out, "--force")
    assert load(out).digest == model.digest
    assert "ResNet, stages of 1-2-1-1 blocks, width 8, 4 heads, 64 px, 4 patches" in printed
