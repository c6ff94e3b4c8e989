"""`fedotp calibrate`: give a bundle limits, by images of the site's own."""

from pathlib import Path
from typing import Annotated

import typer

from fedotp._text import printable
from fedotp.cli._options import DEVICE, BackboneOption, DeviceOption, ScoreName, ScoreOption, SiteOption
from fedotp.cli._promise import promise
from fedotp.cli.show import command, print_paths
from fedotp.errors import FedotpError

app = typer.Typer()


@app.command()
def calibrate(
    bundle: Annotated[
        Path, typer.Argument(metavar="BUNDLE", help="A bundle of `fedotp export`, or a site's.", show_default=False)
    ],
    images: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER", help="Images of the site in a folder per class, or a table *.csv.", show_default=False
        ),
    ],
    site: SiteOption = None,
    every: Annotated[
        bool, typer.Option("--all", help="Take training images, too: the site has trained on none of them.")
    ] = False,
    score: ScoreOption = ScoreName.lac,
    backbone: BackboneOption = None,
    device: DeviceOption = DEVICE,
) -> None:
    """Calibrate a bundle by labelled images of the site's own that it did not train on.

    From then on `fedotp predict --coverage 0.9` gives sets of classes that hold the true one nine times in ten, and
    images unlike these are flagged. That is promised for images like these: from the same place, classes as frequent.
    Only test images are taken, also where fedotp draws the split, and images of equal content count once.
    Their scores, and the mean and spread of their features, are written into the bundle; no image is.

    \b
    Examples:
      fedotp calibrate client-3.bundle ~/photos
      fedotp calibrate client-3.bundle ~/checked --all
      fedotp calibrate oslo.bundle scans.csv --site oslo
      fedotp predict client-3.bundle ~/new --coverage 0.9
    """
    from fedotp.classifier import Bundle, calibrated_by, save_calibration

    if not (bundle / "bundle.json").is_file():
        raise FedotpError(f"{bundle} is not a bundle: it has no bundle.json; `fedotp export` makes one of a run")
    classifier = Bundle(bundle).classifier(backbone=backbone, device=device)
    calibrated = calibrated_by(classifier, images, score=score.value, site=site, every=every, on_left_out=print)
    save_calibration(calibrated, bundle)
    assert calibrated.calibration is not None
    print(f"{printable(calibrated.client)}: {promise(calibrated.calibration)}")
    print_paths([("use it", command("predict", bundle, "IMAGE", "--coverage", "0.9"))])
