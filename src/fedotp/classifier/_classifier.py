"""The classifier of one client: a frozen backbone and its prompts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedotp.classifier._prediction import Floats, Maps, Prediction
from fedotp.classifier._prior import ClassPrior, unknown_frequencies
from fedotp.clip import CLIP, EvalTransform, ImageFeatures, Normalisation
from fedotp.data.store import STORAGE, Storage, as_stored
from fedotp.errors import FedotpError, listed
from fedotp.federation.testing import Predictor
from fedotp.images import WINDOW, ImageLike, as_images, open_image
from fedotp.limits import SCORE, Calibration, Score
from fedotp.matching import Matching
from fedotp.methods import PRECISION, Dial, Method, Precision, Task

_BATCH = 64  # images in a step of the tower


@dataclass(frozen=True)
class Origin:
    """The origin of a classifier.

    Attributes:
        client: the client's name.
        config_digest: SHA-256 of the run's config.toml.
        version: version of fedotp that trained it.
        backbone: the backbone's name or path in the run's configuration.
    """

    client: str
    config_digest: str
    version: str
    backbone: str


@dataclass(frozen=True, eq=False)
class Classifier:
    """The classifier of one client; `fedotp.load` makes it from a run or a bundle.

    Attributes:
        predictor: the client's method and prompts, C = 1.
        tower: the image tower, in float32.
        storage: number format to which image features are rounded, as in the run.
        precision: number format of the text tower's computation.
        image_precision: number format of the image tower's computation.
        window: mapping of images of more than 8 bits to 8 bits.
        prior: its class prior; None if the class frequencies are unknown.
        calibration: its calibration with images of the client that it did not train on; None before `calibrated`.

    Examples:
        >>> import fedotp                                                  # doctest: +SKIP
        >>> classifier = fedotp.load("runs/pets", client="client-3")       # doctest: +SKIP
        >>> classifier.predict(["cat.jpg", "dog.jpg"]).labels              # doctest: +SKIP
        ['egyptian mau', 'beagle']
    """

    predictor: Predictor
    tower: CLIP
    origin: Origin
    storage: Storage = STORAGE
    precision: Precision = PRECISION
    image_precision: Precision = PRECISION
    window: str = WINDOW
    prior: ClassPrior | None = None
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        """Pass the prior to the predictor."""
        logits = None if self.prior is None else self.prior.logits
        predictor = replace(self.predictor, prior=None if logits is None else logits.to(self.task.device))
        object.__setattr__(self, "predictor", predictor)

    def __repr__(self) -> str:
        return f"<Classifier of {self.client}: {self.method.title}, {len(self.classes):,} classes>"

    @property
    def method(self) -> Method:
        """The method and its options."""
        return self.predictor.method

    @property
    def task(self) -> Task:
        """Backbone, class names and shape of the prompts."""
        return self.predictor.task

    @property
    def matching(self) -> Matching:
        """Matching of images with classes."""
        return self.method.matching

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the K classes."""
        return self.task.classes

    @property
    def client(self) -> str:
        """Name of the client."""
        return self.origin.client

    @property
    def grid(self) -> int:
        """Patches along a side of the image, g."""
        return self.tower.config.vision.grid

    @property
    def normalisation(self) -> Normalisation:
        """Resizing and normalisation of images for the tower."""
        return self.task.authors.normalisation

    @property
    def transform(self) -> EvalTransform:
        """Transform from an image to the tower's pixels."""
        return EvalTransform(self.tower.config.image_size, self.normalisation, self.window)

    # Prediction --------------------------------------------------------------------------------------------

    def predict(
        self, images: ImageLike | Sequence[ImageLike] | ImageFeatures, *, coverage: float | None = None
    ) -> Prediction:
        """Predict probabilities of the classes for one or several images, or for the output of `encode`.

        An image is a path, a Pillow image, a NumPy array (H, W, 3) or a tensor (3, H, W), of uint8 or of numbers from 0
        to 1. Arrays and tensors can have a leading axis of images.

        With a `coverage`, such as 0.9, every image has a non-empty set of classes that contains the true one with this
        probability, for images like those of the `calibration`.
        """
        if coverage is not None and self.calibration is None:
            raise FedotpError(
                f"{self.client} is not calibrated, which coverage requires: calibrate it with own images that it did "
                "not train on (`fedotp calibrate BUNDLE FOLDER`, --calibrate, Classifier.calibrated)"
            )
        found = self.calibration
        probabilities, looks = self._judged(self._encoded(images), with_looks=found is not None)
        return Prediction(
            self.classes,
            probabilities,
            None if coverage is None or found is None else found.sets(probabilities, coverage),
            None if found is None else found.p_values(looks),
        )

    def _encoded(self, images: ImageLike | Sequence[ImageLike] | ImageFeatures) -> Iterator[ImageFeatures]:
        """Yield the features of images in batches."""
        if isinstance(images, ImageFeatures):
            yield images
            return
        several = as_images(images)
        for start in range(0, len(several), _BATCH):
            yield self.encode(several[start : start + _BATCH])

    def encode(self, images: Sequence[ImageLike]) -> ImageFeatures:
        """Return pooled (B, e) and token (B, V, e) features, which are the same for all clients."""
        return self.encode_pixels(torch.stack([self.transform(open_image(image)) for image in images]))

    @torch.no_grad()
    def encode_pixels(self, pixels: Tensor) -> ImageFeatures:
        """Encode normalised pixels (B, 3, H, W) from `fedotp.clip.preprocess` or `transform`."""
        device = self.tower.device
        with torch.autocast(device.type, torch.bfloat16, enabled=self.image_precision == "bfloat16"):
            features = self.tower.encode_image(pixels.to(device))
        return as_stored(features, self.storage, self.task.dtype)

    def _judged(self, parts: Iterable[ImageFeatures], *, with_looks: bool = True) -> tuple[Floats, Floats]:
        """Return probabilities (n, K) of images and, if requested, their looks (n, e)."""
        probabilities, looks = [np.empty((0, len(self.classes)))], [np.empty((0, self.tower.config.embed_dim))]
        for image in parts:
            scores = self.predictor.scores(_one_client(image))
            probabilities.append(self.predictor.log_probabilities(scores)[0].exp().cpu().numpy())
            looks += [looks_of(image)] if with_looks else []
        return np.concatenate(probabilities), np.concatenate(looks)

    def explain(self, image: ImageLike | ImageFeatures, label: str | None = None, *, mass: float | None = None) -> Maps:
        """Return maps of where the prompts of the class `label` (default: the predicted one) look in one image.

        `mass` is the share of the image that is transported; default: that of the run.
        """
        if mass is not None:
            return self.with_mass(mass).explain(image, label)
        features = image if isinstance(image, ImageFeatures) else self.encode([image])
        if len(features.pooled) != 1:
            raise FedotpError(f"explain needs one image, got {len(features.pooled)}")
        label = self.predict(features).labels[0] if label is None else label
        if label not in self.classes:
            raise FedotpError(f"unknown class {label!r}; the classes are {listed(self.classes)}")
        place = torch.tensor([[self.classes.index(label)]], device=features.tokens.device)
        alone = _one_client(features)
        similar = self.predictor.similarity(alone.tokens, place)  # (1, 1, V, N)
        plan = self._on_grid(self.predictor.plan(similar, alone)) if self.matching.has_plan else None
        return Maps(
            label, self._on_grid(similar), plan, tuple(str(self.predictor.kinds[n]) for n in self.predictor.shown)
        )

    def _on_grid(self, values: Tensor) -> Floats:
        """Reshape (1, 1, V, N) to (N, g, g)."""
        return values[0, 0].T[self.predictor.shown].reshape(-1, self.grid, self.grid).double().cpu().numpy()

    # Modified classifiers ----------------------------------------------------------------------------------

    def with_mass(self, mass: float) -> "Classifier":
        """Return this classifier with another share of the image transported."""
        return replace(self, predictor=self.predictor.with_mass(mass), calibration=None)

    def with_dial(self, dial: Dial) -> "Classifier":
        """Return this classifier with the mass divided differently between global (dial 0) and local prompts (1).

        "confidence" divides it for every image by the confidence of both.
        """
        return replace(self, predictor=self.predictor.with_dial(dial), calibration=None)

    def with_classes(self, classes: Sequence[str]) -> "Classifier":
        """Return this classifier with other class names, which can be any words."""
        names = tuple(name.strip() for name in classes)
        if len(names) < 2:
            raise FedotpError(f"give at least two class names, got {len(names)}")
        for name in names:
            if not name or names.count(name) > 1:
                raise FedotpError(f"class name {name!r} is {'given twice' if name else 'empty'}; give every class once")
        if bound := self.task.bound_to_classes or self.method.bound_to_classes:
            raise FedotpError(bound)
        task = replace(self.task, classes=names)
        return replace(self, predictor=self.predictor.with_task(task), prior=None, calibration=None)

    def with_prior(self, strength: float | None = None, frequencies: Mapping[str, float] | None = None) -> "Classifier":
        """Return this classifier with another class prior, which favours frequent classes.

        Args:
            strength: 0 for none, 1 for Bayes' rule; default: unchanged, or 1 instead of 0 with `frequencies`.
            frequencies: a share or a number of images for every class name; default: unchanged, initially those of the
                client's training images.
        """
        known = self.prior or unknown_frequencies(f"the class frequencies of {self.client} are unknown")
        prior = known.changed(self.classes, strength, frequencies)
        if frequencies is None and prior.strength == known.strength:
            return self
        return replace(self, prior=prior, calibration=None)

    def without_frequencies(self) -> "Classifier":
        """Return this classifier without class prior and class frequencies, to share it without them."""
        return replace(self.with_prior(0), prior=None)

    def calibrated(
        self, images: Sequence[ImageLike] | ImageFeatures, labels: Sequence[str], *, score: Score = SCORE
    ) -> "Classifier":
        """Return this classifier, calibrated with images that it did not train on and the names of their classes.

        The guarantee holds for images that are exchangeable with these: of the same kind, with the same class
        frequencies. Another mass, dial, class prior or other classes need another calibration.
        """
        return self._calibrated(self._encoded(images), labels, score)

    def _calibrated(self, parts: Iterable[ImageFeatures], labels: Sequence[str], score: Score) -> "Classifier":
        if unknown := next((name for name in labels if name not in self.classes), None):
            raise FedotpError(f"unknown class {unknown!r}; the classes are {listed(self.classes)}")
        probabilities, looks = self._judged(parts)
        if len(labels) != len(looks):
            raise FedotpError(f"expected a label for each of {len(looks):,} calibration images, got {len(labels):,}")
        numbers = np.array([self.classes.index(name) for name in labels], np.int64)
        return replace(self, calibration=Calibration.of(probabilities, numbers, looks, score, self.log_prior))

    @property
    def log_prior(self) -> Floats | None:
        """(K,) addition of the class prior to the log probabilities; None for nothing."""
        prior = self.predictor.prior
        return None if prior is None else prior[0].cpu().numpy()

    # From and to files -------------------------------------------------------------------------------------

    def save(self, folder: str | Path, *, force: bool = False, with_memory: bool = False) -> None:
        """Write it as a bundle, atomically.

        Args:
            force: overwrite an existing bundle, but nothing else.
            with_memory: include the features of the client's training images, if the method uses them; they derive from
                private images.
        """
        from fedotp.classifier._bundle import save_bundle

        save_bundle(self, folder, force=force, with_memory=with_memory)

    def save_onnx(self, path: str | Path, *, force: bool = False, with_memory: bool = False) -> None:
        """Write it as an ONNX file; arguments as for `save`."""
        from fedotp.classifier._onnx import save_onnx

        save_onnx(self, path, force=force, with_memory=with_memory)


def looks_of(image: ImageFeatures) -> Floats:
    """Return the looks (..., e) of images from tokens (..., V, e): the normalised mean of normalised patches."""
    patches = F.normalize(image.tokens.double(), dim=-1).mean(-2)
    looks: Floats = F.normalize(patches, dim=-1).cpu().numpy()
    return looks


def _one_client(image: ImageFeatures) -> ImageFeatures:
    """Add a client axis in front, C = 1."""
    return ImageFeatures(image.pooled[None], image.tokens[None])
