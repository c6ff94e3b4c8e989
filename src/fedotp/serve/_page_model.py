"""The model of the page: encodes images once, then predicts for any client, class, mass, dial and prior."""

import io
import secrets
import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL.Image import Image

from fedotp.classifier import Classifier, Classifiers, Prediction, backbone_name
from fedotp.clip import ImageFeatures
from fedotp.data import Dataset
from fedotp.errors import FedotpError
from fedotp.images import decode_image, has_more_bits
from fedotp.limits import COVERAGES, Calibration, least_images
from fedotp.methods import Dial
from fedotp.report import in_turn
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import load_data

MAX_BYTES = 64_000_000  # size limit of an upload: enough for photos of phones
_KEPT = 64  # cached images; the least recently used are removed first
_KEPT_PIXELS = 100_000_000  # in total
_BEST = 5  # classes to show, of predictions and of frequencies; others can be requested by name
_EACH = 8  # test images of a client


class Samples:
    """Test images of the clients of the run at `path`; none if its data are not available or have changed."""

    def __init__(self, path: Path) -> None:
        """Store the run; data are read on first use."""
        self._run = RunDirectory(path)

    def of(self, client: str) -> list[tuple[Image, str]]:
        """Return test images of `client`, its classes in turn, with the names of their classes."""
        rows = next((each.test for each in self._run.partition.clients if each.name == client), None)
        if self._dataset is None or rows is None:
            return []
        test, classes = self._dataset.test, self._dataset.classes
        chosen = in_turn(rows, test.labels)[:_EACH].tolist()
        found = []
        for row in chosen:
            with suppress(FedotpError):  # broken
                found.append((test.image(row), classes[test.labels[row]]))
        return found

    @cached_property
    def _dataset(self) -> Dataset | None:
        data = self._run.config.data
        try:
            dataset = load_data(data)
            dataset = dataset.base_and_novel()[0] if data.classes == "base" else dataset
        except FedotpError:
            return None
        return dataset if dataset.digest == self._run.manifest["data"]["digest"] else None


@dataclass(eq=False)
class _Kept:
    """An image and, by window, its features with B = 1, once computed."""

    picture: Image
    features: dict[str, ImageFeatures] = field(default_factory=dict)


class Model:
    """The classifiers of the page; one thread computes at a time."""

    def __init__(self, classifiers: Classifiers, samples: Samples | None = None, *, with_frequencies: bool) -> None:
        """Make the first client's classifier, to raise errors before the page opens.

        `with_frequencies` shows the clients' class frequencies and enables the slider of the class prior.
        """
        self._with_frequencies = with_frequencies
        self._classifiers = classifiers
        self._first = classifiers[classifiers.names[0]]
        self._samples = samples
        self._images: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def about(self) -> dict[str, Any]:
        """Return the facts that the page needs before the first image."""
        first = self._first
        return {
            "source": self._classifiers.path.resolve().name,
            "method": first.method.title,
            "backbone": backbone_name(first.origin.backbone),
            "clients": list(self._classifiers.names),
            "classes": list(first.classes),
            "mass": first.matching.mass if first.matching.has_mass else None,
            "dial": first.method.adjustable.get("dial", ("", None))[1],
            "transport": first.matching.has_plan,
            "max_bytes": MAX_BYTES,
        }

    def add(self, content: bytes) -> dict[str, Any]:
        """Decode an uploaded file; return its id for later requests."""
        with self._lock:
            return {"id": self._keep(decode_image(content))}

    def samples(self, client: str) -> dict[str, Any]:
        """Return a few of the client's test images, if the run's data are available."""
        with self._lock:
            found = self._samples.of(client) if self._samples else []
            return {"samples": [{"id": self._keep(picture), "label": label} for picture, label in found]}

    def picture(self, image: str) -> bytes:
        """Return the image as PNG, cropped for the tower of the first client."""
        with self._lock:
            content = io.BytesIO()
            self._first.transform.crop(self._find(image).picture).save(content, "PNG")
            return content.getvalue()

    def look(
        self, image: str, client: str, label: str | None, mass: float | None, dial: Dial | None, prior: float | None
    ) -> dict[str, Any]:
        """Return the prediction of `client` for an image, and its maps for the class `label` (default: predicted)."""
        if prior is not None and not self._with_frequencies:
            raise FedotpError("the class prior can be set only on the machine of this server")
        with self._lock:
            kept = self._find(image)
            classifier = trained = self._classifiers[client]
            if classifier.window not in kept.features:
                kept.features[classifier.window] = classifier.encode([kept.picture])
            features = kept.features[classifier.window]
            if mass is not None:
                classifier = classifier.with_mass(mass)
            if dial is not None:
                classifier = classifier.with_dial(dial)
            classifier = classifier.with_prior(prior)
            often = _often(trained) if self._with_frequencies else None
            prediction = classifier.predict(features)
            maps = classifier.explain(features, label)
        probabilities = prediction.probabilities[0]
        if not np.isfinite(probabilities).all():
            raise FedotpError(f"the probabilities of {client} are not finite: its training diverged")
        best = prediction.top(_BEST)[0]
        if maps.label not in dict(best):
            best.append((maps.label, float(probabilities[classifier.classes.index(maps.label)])))
        n_patches = maps.similarity[0].size
        return {
            "client": client,
            "label": maps.label,
            "best": [{"name": name, "probability": p} for name, p in best],
            "kinds": list(maps.kinds),
            "similarity": np.round(maps.similarity, 5).tolist(),
            # share of each patch that is transported to the prompt: from 0 to 1
            "plan": None if maps.plan is None else np.round(maps.plan * n_patches, 5).tolist(),
            "prior": often,
            "limits": None if trained.calibration is None else _limits(prediction, classifier.calibration),
        }

    def _keep(self, picture: Image) -> str:
        name = secrets.token_urlsafe(12)
        # images of 8 bits are cropped alike for all clients; others depend on each client's window
        self._images[name] = _Kept(picture if has_more_bits(picture) else self._first.transform.crop(picture))
        pixels = {key: kept.picture.width * kept.picture.height for key, kept in self._images.items()}
        while len(pixels) > _KEPT or (len(pixels) > 1 and sum(pixels.values()) > _KEPT_PIXELS):
            del pixels[self._images.popitem(last=False)[0]]
        return name

    def _find(self, image: str) -> _Kept:
        if image not in self._images:
            raise FedotpError("this image is no longer in memory; choose it again")
        self._images.move_to_end(image)
        return self._images[image]


def _often(classifier: Classifier) -> dict[str, Any] | None:
    """Return the class frequencies of a client, most frequent first; None if unknown."""
    prior = classifier.prior
    if prior is None:
        return None
    try:
        counts = prior.counts
    except FedotpError:
        return None
    there = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)].tolist()
    return {
        "strength": prior.strength,
        "images": None if prior.given else int(counts.sum()),
        "classes": [{"name": classifier.classes[k], "share": float(counts[k] / counts.sum())} for k in there[:_BEST]],
        "others": len(there[_BEST:]),
        "absent": len(counts) - len(there),
    }


def _limits(prediction: Prediction, calibration: Calibration | None) -> dict[str, Any]:
    """Return the set of one image at each coverage (None with too few calibration images), and its p-value.

    There is no calibration after a change of mass, dial or class prior.
    """
    if calibration is None:
        return {"images": None}
    assert prediction.p_values is not None
    least = {coverage: least_images(coverage) for coverage in COVERAGES}
    sets = {
        coverage: replace(prediction, members=calibration.sets(prediction.probabilities, coverage)).sets[0]
        for coverage in COVERAGES
        if len(calibration) >= least[coverage]
    }
    return {
        "images": len(calibration),
        "p_value": float(prediction.p_values[0]),
        "unlike": bool(prediction.unlike[0]),
        "sets": [{"coverage": c, "least": least[c], "set": sets.get(c)} for c in COVERAGES],
    }
