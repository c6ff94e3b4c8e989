"""A bundle: one client's classifier as a folder.

bundle.json               method, class names, backbone and its digest, preprocessing, checksums; if calibrated, scores
                          and mean features of the calibration images; class prior and class frequencies, if included
prompts.safetensors       the prompts, by the method's names
classifier.safetensors    `classes` (N, K, e), class features of length 1, and `logit_scale`: no text tower needed
memory.safetensors        features of the client's training images, for some methods and only on request

All input is validated, and no name in a bundle is used as a path.
"""

import contextlib
import hashlib
import json
import logging
import math
import os
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

import fedotp
from fedotp._files import cannot_write, read_file, read_json, write_atomically
from fedotp.classifier._classifier import Classifier, Origin
from fedotp.classifier._prediction import Floats
from fedotp.classifier._prior import ClassPrior
from fedotp.clip import CHANNELS, CONFIGS, MINI
from fedotp.config import Config, located
from fedotp.errors import FedotpError
from fedotp.federation import prompt_lengths
from fedotp.federation.testing import Predictor
from fedotp.limits import Calibration
from fedotp.methods import Memory, Parameters, Task
from fedotp.runs.one import load_backbone, make_task

log = logging.getLogger("fedotp.classifier")

FORMAT = "fedotp-bundle-1"
CALIBRATION, PRIOR = "calibration", "prior"  # their keys among the facts
FACTS, PROMPTS, FOLDED, MEMORY = "bundle.json", "prompts.safetensors", "classifier.safetensors", "memory.safetensors"
_MOST_BYTES = 16 << 20  # size limit of bundle.json
_MOST_TENSOR_BYTES = 4 << 30  # size limit of a file of tensors: a memory of a million images


# Writing --------------------------------------------------------------------------------------------------


def save_bundle(classifier: Classifier, folder: str | Path, *, force: bool = False, with_memory: bool = False) -> None:
    """Write a bundle, see `Classifier.save`."""
    target = Path(folder)
    require_memory_may_leave(classifier, with_memory)
    if (target.exists() or target.is_symlink()) and not (target / FACTS).is_file():
        raise FedotpError(f"{target} already exists and is not a bundle; choose another name")
    if target.exists() and not force:
        raise FedotpError(f"{target} already exists; choose another name, or overwrite it with --force")
    folded = {"classes": classifier.predictor.classes[0], "logit_scale": classifier.task.logit_scale}
    files = {PROMPTS: classifier.predictor.params, FOLDED: folded}
    if classifier.predictor.memory is not None:
        files[MEMORY] = classifier.predictor.memory._asdict()
    content = {
        name: safetensors.torch.save({key: value.detach().cpu().contiguous() for key, value in tensors.items()})
        for name, tensors in files.items()
    }
    digests = {name: hashlib.sha256(each).hexdigest() for name, each in content.items()}
    described = facts(classifier) | {"files": digests}
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        for name, each in content.items():
            write_atomically(unfinished / name, each)
        write_atomically(unfinished / FACTS, json.dumps(described, indent=2) + "\n")
        _put(unfinished, target)
    except OSError as error:
        raise cannot_write(target, error) from error
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(unfinished)


def save_calibration(classifier: Classifier, folder: str | Path) -> None:
    """Write the calibration and the class prior of a bundle's classifier into that bundle."""
    assert classifier.calibration is not None
    path = Path(folder) / FACTS
    described = json.loads(path.read_text(encoding="utf-8"))  # validated when the classifier was read
    try:
        write_atomically(path, json.dumps(described | _of_the_site(classifier), indent=2) + "\n")
    except OSError as error:
        raise cannot_write(path, error) from error


def require_memory_may_leave(classifier: Classifier, with_memory: bool) -> None:
    """Raise an error if features of the client's training images would be exported without `with_memory`."""
    if classifier.predictor.memory is not None and not with_memory:
        raise FedotpError(
            f"{classifier.method.title} uses the client's training images: a bundle would contain their features and "
            "labels; give --with-memory (with_memory=True) if these can be shared"
        )


def _put(folder: Path, target: Path) -> None:
    """Move `folder` to `target`, replacing an existing bundle."""
    if not target.exists():
        os.replace(folder, target)
        return
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
    os.replace(target, old)
    try:
        os.replace(folder, target)
    except OSError:
        os.replace(old, target)
        raise
    shutil.rmtree(old)


def facts(classifier: Classifier) -> dict[str, Any]:
    """Describe a classifier for other programs: method, classes, backbone, preprocessing, origin."""
    method, task, origin = classifier.method, classifier.task, classifier.origin
    mean, std = CHANNELS[classifier.normalisation]
    return {
        "format": FORMAT,
        "client": origin.client,
        "classes": list(task.classes),
        "template": task.template,
        "method": {"name": method.name, **asdict(method)},
        "prompt": asdict(task.prompt),
        "authors": asdict(task.authors),
        "prompts": list(classifier.predictor.kinds),
        "backbone": {
            "name": backbone_name(origin.backbone),
            "digest": classifier.tower.digest,
            "features": classifier.tower.config.embed_dim,
            "grid": classifier.grid,
        },
        "preprocessing": {
            "image_size": classifier.tower.config.image_size,
            "mean": mean,
            "std": std,
            "interpolation": "bicubic" if classifier.normalisation == "clip" else "bilinear",
            "window": classifier.window,
            "spec": classifier.transform.spec,
        },
        "storage": classifier.storage,
        "precision": classifier.precision,
        "image_precision": classifier.image_precision,
        "trained_with": {"fedotp": origin.version, "config": origin.config_digest},
        "written_with": {"fedotp": fedotp.__version__},
        **_of_the_site(classifier),
    }


def _of_the_site(classifier: Classifier) -> dict[str, Any]:
    """Return the class prior, if the frequencies are known, and the calibration."""
    found: dict[str, Any] = {}
    if classifier.prior is not None:
        with contextlib.suppress(FedotpError):  # unknown if the run's data are not available
            found[PRIOR] = classifier.prior.as_dict()
    if classifier.calibration is not None:
        found[CALIBRATION] = classifier.calibration.as_dict()
    return found


def has_name(backbone: str) -> bool:
    """True if this is the name of a published backbone; others are files."""
    return backbone == MINI or backbone in CONFIGS


def backbone_name(backbone: str) -> str:
    """Return the name of a backbone for export, without the folder if it is a file."""
    return backbone if has_name(backbone) else Path(backbone).name


# Reading --------------------------------------------------------------------------------------------------


class Bundle:
    """A bundle on disk."""

    def __init__(self, folder: str | Path) -> None:
        """Read bundle.json; `classifier` reads tensors and backbone."""
        self.folder = Path(folder)
        facts = read_json(self.folder / FACTS, _MOST_BYTES)
        if not isinstance(facts, dict) or facts.get("format") != FORMAT:
            found = facts.get("format") if isinstance(facts, dict) else type(facts).__name__
            wrong = f"unsupported bundle: format must be {FORMAT!r}, got {str(found)[:40]!r}"
            raise FedotpError(f"{self.folder / FACTS}: {wrong}")
        with located(str(self.folder / FACTS)):
            self.client = _text(facts, "client")
            self.classes = _names(facts)
            self.backbone, self.digest = (_text(_table(facts, "backbone"), key) for key in ("name", "digest"))
            self._config = _config(facts)
            self._checksums, self._trained_with = (_table(facts, key) for key in ("files", "trained_with"))
            self._calibration = None if CALIBRATION not in facts else _table(facts, CALIBRATION)
            self._prior = ClassPrior.from_dict(_table(facts, PRIOR), len(self.classes)) if PRIOR in facts else None
            self._spec = _text(_table(facts, "preprocessing"), "spec")

    def classifier(self, *, backbone: str | Path | None = None, device: str = "auto") -> Classifier:
        """Load the classifier; `backbone` is a file of its weights, required if the backbone has no known name."""
        if backbone is None and not has_name(self.backbone):
            raise FedotpError(
                f"{self.folder} needs the backbone {self.backbone} (digest {self.digest[:12]}), a file without a known "
                "name; give its path with --backbone FILE (backbone=...)"
            )
        config = self._config
        tower = load_backbone(self.backbone if backbone is None else os.path.expanduser(str(backbone)), device)
        if tower.digest != self.digest:
            raise FedotpError(
                f"{self.folder}: expected backbone {self.backbone} {self.digest[:12]}, got {tower.digest[:12]}; "
                "give the original weights with --backbone"
            )
        task = make_task(config, tower, self.classes, config.data.template)
        folded = self._folded(task)
        self._require_prompts(task, len(folded))
        memory = self._memory(task) if config.method.uses_memory else None
        params = self._prompts(task)
        loaded = Classifier(
            predictor=Predictor(config.method, task, params, folded[None], config.method.kinds(task, params), memory),
            tower=tower,
            origin=Origin(
                client=self.client,
                config_digest=str(self._trained_with.get("config")),
                version=str(self._trained_with.get("fedotp")),
                backbone=self.backbone,
            ),
            storage=config.data.storage,
            precision=config.compute.precision,
            image_precision=config.data.precision,
            window=config.data.window,
            prior=self._prior,
        )
        if self._spec != loaded.transform.spec:
            raise FedotpError(
                f"{self.folder}: incompatible preprocessing: expected {self._spec!r}, got {loaded.transform.spec!r}"
            )
        return replace(loaded, calibration=self._calibrated(task.clip.config.embed_dim, loaded.log_prior))

    def _calibrated(self, width: int, log_prior: Floats | None) -> Calibration | None:
        """Return the calibration; None if there is none, or only one with another class prior."""
        if self._calibration is None:
            return None
        with located(str(self.folder / FACTS)):
            found = Calibration.from_dict(self._calibration, width)
        if found.holds_with(log_prior):
            return found
        log.warning("%s was calibrated with another class prior: its calibration is ignored", self.folder)
        return None

    def _require_prompts(self, task: Task, n_prompts: int) -> None:
        """Check the number and length of prompts before memory is allocated for them."""
        most = math.inf if task.in_feature_space else task.clip.text.context_length
        if task.prompt.n_ctx > most:
            raise FedotpError(
                f"{self.folder}: prompt.n_ctx = {task.prompt.n_ctx}: must be at most {most}, the context length"
            )
        n = len(prompt_lengths(self._config.method, task))
        if n != n_prompts:
            raise FedotpError(f"{self.folder}: expected features of {n} prompts, got {n_prompts}")

    def _folded(self, task: Task) -> Tensor:
        tensors = self._tensors(FOLDED)
        width = task.clip.config.embed_dim
        classes = tensors.get("classes")
        if classes is None or classes.dim() != 3 or classes.shape[1:] != (len(self.classes), width):
            shape = None if classes is None else tuple(classes.shape)
            raise FedotpError(
                f"{self.folder / FOLDED}: expected classes of shape (N, {len(self.classes)}, {width}), got {shape}"
            )
        return _like(classes, task, self.folder / FOLDED)

    def _memory(self, task: Task) -> Memory:
        if MEMORY not in self._checksums:
            raise FedotpError(f"{self.folder}: {MEMORY} is missing; export the bundle with --with-memory")
        tensors, path = self._tensors(MEMORY), self.folder / MEMORY
        width, labels = task.clip.config.embed_dim, tensors.get("labels")
        n = labels.shape[-1] if labels is not None and labels.dim() else 0
        expected = {"spatial": (1, n, width), "labels": (1, n)}
        _require_shapes(tensors, expected, path)
        labels = tensors["labels"]
        if labels.is_floating_point() or not bool(((labels >= -1) & (labels < len(self.classes))).all()):
            raise FedotpError(f"{path}: labels must be integers from -1 to {len(self.classes) - 1}")
        return Memory(_like(tensors["spatial"], task, path), labels.to(task.device).long())

    def _prompts(self, task: Task) -> Parameters:
        tensors, path = self._tensors(PROMPTS), self.folder / PROMPTS
        expected = {name: tuple(value.shape) for name, value in self._config.method.untrained(task).items()}
        _require_shapes(tensors, expected, path)
        return {name: _like(value, task, path) for name, value in tensors.items()}

    def _tensors(self, name: str) -> Parameters:
        """Read the tensors of a file and check its digest."""
        path = self.folder / name
        content = read_file(path, _MOST_TENSOR_BYTES)
        if hashlib.sha256(content).hexdigest() != self._checksums.get(name):
            raise FedotpError(f"{path} is corrupt: its checksum differs from that in {FACTS}; export the bundle again")
        try:
            return dict(safetensors.torch.load(content))
        except (SafetensorError, ValueError, KeyError) as error:
            raise FedotpError(f"{path} is not a safetensors file: {error}") from error


def _config(facts: dict[str, Any]) -> Config:
    """Read method, prompt and precision as a configuration, which validates them."""
    shown = _table(facts, "preprocessing")
    tables = {
        "data": {
            "dataset": "-",
            "template": facts.get("template"),
            "storage": facts.get("storage"),
            "precision": facts.get("image_precision"),
            "window": shown.get("window"),
        },
        "authors": facts.get("authors"),
        "method": facts.get("method"),
        "prompt": facts.get("prompt"),
        "compute": {"precision": facts.get("precision")},
    }
    return Config.from_dict(tables)


def _require_shapes(tensors: Parameters, expected: dict[str, tuple[int, ...]], path: Path) -> None:
    shapes = {name: tuple(value.shape) for name, value in tensors.items()}
    if shapes != expected:
        raise FedotpError(f"{path}: expected tensors {expected}, got {shapes}; export the bundle again")


def _like(value: Tensor, task: Task, path: Path) -> Tensor:
    if not value.is_floating_point() or not bool(value.isfinite().all()):
        raise FedotpError(f"{path}: tensors must contain only finite numbers; export the bundle again")
    return value.to(task.device, task.dtype)


def _table(facts: dict[str, Any], key: str) -> dict[str, Any]:
    value = facts.get(key)
    if not isinstance(value, dict):
        raise FedotpError(f"{key} must be an object, got {str(value)[:40]!r}")
    return value


def _text(facts: dict[str, Any], key: str) -> str:
    value = facts.get(key)
    if not isinstance(value, str) or not value:
        raise FedotpError(f"{key} must be text, got {str(value)[:40]!r}")
    return value


def _names(facts: dict[str, Any]) -> tuple[str, ...]:
    names = facts.get("classes")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise FedotpError("classes must be a list of names")
    if len(set(names)) != len(names):
        raise FedotpError("classes must be distinct")
    return tuple(names)
