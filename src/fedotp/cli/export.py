"""`fedotp export`: a client's classifier as a folder to copy, or as an ONNX file."""

import re
from pathlib import Path
from typing import Annotated

import typer

from fedotp._text import printable
from fedotp.cli._options import (
    DEVICE,
    BackboneOption,
    CalibrateOption,
    ClientOption,
    DeviceOption,
    RunArgument,
    ScoreName,
    ScoreOption,
)
from fedotp.cli._promise import promise
from fedotp.cli.show import command, print_paths

app = typer.Typer()


@app.command()
def export(
    run: RunArgument,
    client: ClientOption = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder or file to write; named after the client, in this folder, if not given."),
    ] = None,
    onnx: Annotated[
        bool, typer.Option("--onnx", help="One ONNX file instead: image tower, classifier, scores; no Python needed.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace what is there already.")] = False,
    calibrate: CalibrateOption = None,
    score: ScoreOption = ScoreName.lac,
    with_memory: Annotated[
        bool,
        typer.Option(
            "--with-memory", help="For pFedPrompt: include the features and labels of the client's training images."
        ),
    ] = False,
    backbone: BackboneOption = None,
    device: DeviceOption = DEVICE,
) -> None:
    """Write what a client has learned as a small bundle: prompts, class names, class features.

    The backbone is not in it, only its name and digest; with --onnx its image tower is. Either holds the
    client's private prompt, and of calibration images the scores and the mean and spread of their features: give it
    only to those who may have that.

    \b
    Examples:
      fedotp export runs/pets --client client-3
      fedotp export runs/pets --client client-3 --out pets.bundle --force
      fedotp export runs/pets --client client-3 --onnx
      fedotp export runs/pets --client client-3 --calibrate test
    """
    from fedotp.classifier import load

    where = "cpu" if onnx else device
    classifier = load(run, client, backbone=backbone, device=where, calibrate=calibrate, score=score.value)
    written = out or Path(f"{_plain(classifier.client)}.{'onnx' if onnx else 'bundle'}")
    save = classifier.save_onnx if onnx else classifier.save
    save(written, force=force, with_memory=with_memory)
    n_bytes = sum(path.stat().st_size for path in ([written] if onnx else written.iterdir()))
    what = f"{classifier.method.title} of {printable(classifier.client)}"
    print(f"{what}, {len(classifier.classes)} classes, {n_bytes / 1e3:.0f} kB")
    if classifier.calibration is not None:
        print(promise(classifier.calibration))
    size = classifier.tower.config.image_size
    usage = f"image, uint8 (n, {size}, {size}, 3), in; probabilities, (n, {len(classifier.classes)}), out"
    print_paths([("written to", written), ("use it", usage if onnx else command("predict", written, "IMAGE"))])


def _plain(client: str) -> str:
    """A client's name as that of a folder."""
    return re.sub(r"[^\w.-]+", "-", client).strip(".-") or "client"
