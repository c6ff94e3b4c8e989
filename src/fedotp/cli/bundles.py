"""`fedotp export` and `calibrate`: write a client's classifier as a bundle or ONNX file, and calibrate it."""

import re
from pathlib import Path
from typing import Annotated

import typer

from fedotp._text import printable
from fedotp.cli import _options
from fedotp.cli.show import command, print_paths, promise
from fedotp.errors import FedotpError

app = typer.Typer()


@app.command()
def export(
    run: _options.RunArgument,
    client: _options.ClientOption = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder or file to write; default: named after the client, in this folder.")
    ] = None,
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Write one ONNX file: image tower, classifier and scores, without Python.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing output.")] = False,
    calibrate: _options.CalibrateOption = None,
    score: _options.ScoreOption = _options.ScoreName.lac,
    with_memory: Annotated[
        bool,
        typer.Option(
            "--with-memory", help="For pFedPrompt: include the features and labels of the client's training images."
        ),
    ] = False,
    prior: _options.PriorOption = None,
    frequencies: _options.FrequenciesOption = None,
    no_prior: Annotated[
        bool, typer.Option("--no-prior", help="Omit the client's class frequencies and the class prior.")
    ] = False,
    backbone: _options.BackboneOption = None,
    device: _options.DeviceOption = _options.DEVICE,
) -> None:
    """Export a client's trained classifier as a small bundle: prompts, class names, class features.

    --client is required if the run has several clients. A bundle contains the name and digest of the backbone; an ONNX
    file contains its image tower. Both contain the client's private prompt, its class frequencies (unless --no-prior)
    and, if calibrated, scores of the calibration images and the mean and spread of their features: treat them as
    confidential.

    \b
    Examples:
      fedotp export runs/pets --client client-3
      fedotp export runs/pets --client client-3 --out pets.bundle --force
      fedotp export runs/pets --client client-3 --onnx
      fedotp export runs/pets --client client-3 --calibrate test
      fedotp export runs/pets --client client-3 --no-prior
    """
    from fedotp.classifier import load

    where = "cpu" if onnx else device
    if no_prior and (prior is not None or frequencies is not None):
        raise FedotpError("--no-prior cannot be combined with --prior or --frequencies")
    classifier = load(
        run,
        client,
        backbone=backbone,
        device=where,
        calibrate=calibrate,
        score=score.value,
        prior=0.0 if no_prior else prior,
        frequencies=_options.frequencies_of(frequencies),
    )
    classifier = classifier.without_frequencies() if no_prior else classifier
    name = re.sub(r"[^\w.-]+", "-", classifier.client).strip(".-") or "client"
    written = out or Path(f"{name}.{'onnx' if onnx else 'bundle'}")
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


@app.command()
def calibrate(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle from `fedotp export` or a site.")],
    images: Annotated[
        str, typer.Argument(metavar="FOLDER", help="Images of the site: a folder per class, or a *.csv table.")
    ],
    site: _options.SiteOption = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also use training images; only if the site did not train on them.")
    ] = False,
    score: _options.ScoreOption = _options.ScoreName.lac,
    prior: _options.PriorOption = None,
    frequencies: _options.FrequenciesOption = None,
    backbone: _options.BackboneOption = None,
    device: _options.DeviceOption = _options.DEVICE,
) -> None:
    """Calibrate a bundle with labelled images of the site that were not used for training.

    Afterwards, `fedotp predict --coverage 0.9` gives sets of classes that contain the true class in 90 % of cases, and
    flags images unlike the calibration images. The guarantee holds for images from the same source with the same class
    frequencies. Only test images are used, also if fedotp draws the split; duplicates count once. The bundle stores
    scores and the mean and spread of features, but no images, and the --prior and --frequencies of the calibration.

    \b
    Examples:
      fedotp calibrate client-3.bundle ~/photos
      fedotp calibrate client-3.bundle ~/checked --all
      fedotp calibrate oslo.bundle scans.csv --site oslo
      fedotp predict client-3.bundle ~/new --coverage 0.9
    """
    from fedotp.classifier import Bundle, calibrated_by, save_calibration

    if not (bundle / "bundle.json").is_file():
        raise FedotpError(f"{bundle} is not a bundle: it has no bundle.json; create one with `fedotp export`")
    classifier = Bundle(bundle).classifier(backbone=backbone, device=device)
    classifier = classifier.with_prior(prior, _options.frequencies_of(frequencies))
    calibrated = calibrated_by(classifier, images, score=score.value, site=site, every=every, on_left_out=print)
    save_calibration(calibrated, bundle)
    assert calibrated.calibration is not None
    print(f"{printable(calibrated.client)}: {promise(calibrated.calibration)}")
    print_paths([("use it", command("predict", bundle, "IMAGE", "--coverage", "0.9"))])
