"""Using what was learned: bundles, images to predict, the page."""

import hashlib
import json
import shutil
from functools import lru_cache
from pathlib import Path

from PIL import Image

from fedotp.classifier import calibrated_by, load, open_classifiers
from fedotp.serve._page_model import Model
from fedotp.serve._server import _question
from fuzz.reader import Reader, fedotp, inputs_of
from fuzz.readers.runs import complete_run, toy_inputs

_FORMATS = {"png": "PNG", "jpg": "JPEG", "gif": "GIF", "bmp": "BMP", "webp": "WEBP", "tif": "TIFF", "ppm": "PPM"}


def _bundle(folder: Path) -> Path:
    """A calibrated bundle, made once."""
    made = inputs_of(folder) / "bundle"
    if not made.is_dir():
        run = complete_run(_new(inputs_of(folder) / "for-bundle"))
        calibrated_by(load(run, "client-0", prior=1), toy_inputs(folder) / "data", every=True).save(made)
    return made


def _new(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder.parent / "inputs").exists() or (folder.parent / "inputs").symlink_to(".")
    return folder


def _make_bundle(folder: Path) -> None:
    shutil.copytree(_bundle(folder), folder / "bundle")


def _seal(folder: Path) -> None:
    """The checksums of a bundle, made right."""
    path = folder / "bundle" / "bundle.json"
    try:
        facts = json.loads(path.read_bytes())
        for name in facts["files"]:
            facts["files"][name] = hashlib.sha256((folder / "bundle" / name).read_bytes()).hexdigest()
        path.write_text(json.dumps(facts))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return  # beyond repair


def _square(folder: Path) -> Path:
    return toy_inputs(folder) / "data" / "day" / "red" / "0.png"


def _use_bundle(folder: Path) -> None:
    backbone = toy_inputs(folder) / "tiny.safetensors"
    fedotp("predict", folder / "bundle", _square(folder), "--backbone", backbone, "--coverage", 0.5)


def _make_images(folder: Path) -> None:
    _bundle(folder)
    picture = Image.open(_square(folder))
    (folder / "images").mkdir()
    for suffix, kind in _FORMATS.items():
        picture.save(folder / "images" / f"image.{suffix}", kind)


def _predict(folder: Path) -> None:
    fedotp("predict", _bundle(folder), folder / "images", "--backbone", toy_inputs(folder) / "tiny.safetensors")


@lru_cache(maxsize=1)
def _page(bundle: Path, backbone: Path) -> Model:
    return Model(open_classifiers(bundle, backbone=backbone), with_frequencies=True)


def _model(folder: Path) -> Model:
    return _page(_bundle(folder).resolve(), (toy_inputs(folder) / "tiny.safetensors").resolve())


def _serve_image(folder: Path) -> None:
    model = _model(folder)
    for path in sorted((folder / "images").iterdir()):
        image = model.add(path.read_bytes())["id"]
        model.picture(image)


def _make_question(folder: Path) -> None:
    _bundle(folder)
    question = {"image": "-", "client": "client-0", "label": "red", "mass": 0.5, "dial": 0.3, "prior": 1.5}
    (folder / "question.json").write_text(json.dumps(question))


def _ask(folder: Path) -> None:
    """A question to the page about an image that is there."""
    model = _model(folder)
    question = _question((folder / "question.json").read_bytes())
    image = model.add(_square(folder).read_bytes())["id"]
    json.dumps(model.look(**{**question, "image": image}), allow_nan=False)


READERS = [
    Reader("bundle", _make_bundle, _use_bundle, seal=_seal),
    Reader("predict-image", _make_images, _predict),
    Reader("serve-image", _make_images, _serve_image, misplaced=()),
    Reader("serve-question", _make_question, _ask, misplaced=()),
]
