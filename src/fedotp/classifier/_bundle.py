"""A bundle: one client's classifier as a folder to copy.

bundle.json               what it is: method, class names, backbone and its digest, preprocessing, checksums; once
                          calibrated, also the scores of the calibration images and what these look like on average;
                          the class prior and the class frequencies it is made of, unless they were left out
prompts.safetensors       the prompts, by the method's names
classifier.safetensors    `classes` (N, K, e), class features of length 1, and `logit_scale`: no text tower needed
memory.safetensors        features of the client's training images; only if asked for, and only some methods have them

Nothing that is read is trusted, and no name in a bundle becomes a path.
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
from fedotp._files import cannot_write, read_regular, write_atomically
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
_MOST_BYTES = 16 << 20  # of bundle.json: room for any number of class names
_MOST_TENSOR_BYTES = 4 << 30  # of a file of tensors: a memory of a million images


# Writing --------------------------------------------------------------------------------------------------


def save_bundle(classifier: Classifier, folder: str | Path, *, force: bool = False, with_memory: bool = False) -> None:
    """Write a bundle, as `Classifier.save` says."""
    target = Path(folder)
    require_memory_may_leave(classifier, with_memory)
    _require_free(target, force)
    files = {PROMPTS: classifier.params, FOLDED: _folded(classifier)}
    if classifier.memory is not None:
        files[MEMORY] = classifier.memory._asdict()
    content = {name: _to_bytes(tensors) for name, tensors in files.items()}
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
    """Write the calibration of a bundle's classifier, and its class prior, into that bundle."""
    assert classifier.calibration is not None
    path = Path(folder) / FACTS
    described = json.loads(path.read_text(encoding="utf-8"))  # checked already, when the classifier was read
    try:
        write_atomically(path, json.dumps(described | _of_the_site(classifier), indent=2) + "\n")
    except OSError as error:
        raise cannot_write(path, error) from error


def require_memory_may_leave(classifier: Classifier, with_memory: bool) -> None:
    """Refuse to give the features of the client's training images away unless they were asked for by name."""
    if classifier.memory is not None and not with_memory:
        raise FedotpError(
            f"{classifier.method.title} looks the client's training images up: a bundle would hold their features and "
            "labels; say --with-memory (with_memory=True) if they may leave the client"
        )


def _put(folder: Path, target: Path) -> None:
    """Move `folder` to `target`, in place of a bundle that may be there."""
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


def _require_free(target: Path, force: bool) -> None:
    if not target.exists() and not target.is_symlink():
        return
    if not (target / FACTS).is_file():
        raise FedotpError(f"{target} exists already and is not a bundle; choose another name")
    if not force:
        raise FedotpError(f"{target} exists already; choose another name, or say --force to replace the bundle")


def facts(classifier: Classifier) -> dict[str, Any]:
    """What a classifier is, for use elsewhere: method, classes, backbone, preprocessing, origin."""
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
        "prompts": list(classifier.kinds),
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
    """The class prior, where the frequencies are known, and the calibration."""
    found: dict[str, Any] = {}
    if classifier.prior is not None:
        with contextlib.suppress(FedotpError):  # where the run's data are not here, it has none to write
            found[PRIOR] = classifier.prior.as_dict()
    if classifier.calibration is not None:
        found[CALIBRATION] = classifier.calibration.as_dict()
    return found


def _folded(classifier: Classifier) -> Parameters:
    return {"classes": classifier.folded, "logit_scale": classifier.task.logit_scale}


def _to_bytes(tensors: Parameters) -> bytes:
    return bytes(safetensors.torch.save({name: value.detach().cpu().contiguous() for name, value in tensors.items()}))


def has_name(backbone: str) -> bool:
    """Whether this is the name of a published backbone; others are files."""
    return backbone == MINI or backbone in CONFIGS


def backbone_name(backbone: str) -> str:
    """The name of a backbone that leaves this machine: of a file its last part only, not the folder."""
    return backbone if has_name(backbone) else Path(backbone).name


# Reading --------------------------------------------------------------------------------------------------


class Bundle:
    """A bundle on disk."""

    def __init__(self, folder: str | Path) -> None:
        """Read what it says of itself; tensors and backbone come with `classifier`."""
        self.folder = Path(folder)
        with located(str(self.folder / FACTS)):
            facts = _read_facts(self.folder / FACTS)
            self.client = _text(facts, "client")
            self.classes = _names(facts)
            self.backbone, self.digest = (_text(_table(facts, "backbone"), key) for key in ("name", "digest"))
            self._config = _config(facts)
            self._checksums, self._trained_with = (_table(facts, key) for key in ("files", "trained_with"))
            self._calibration = None if CALIBRATION not in facts else _table(facts, CALIBRATION)
            self._prior = ClassPrior.from_dict(_table(facts, PRIOR), len(self.classes)) if PRIOR in facts else None
            self._spec = _text(_table(facts, "preprocessing"), "spec")

    def classifier(self, *, backbone: str | Path | None = None, device: str = "auto") -> Classifier:
        """The classifier; `backbone` is a file of its weights, needed where the backbone has no known name."""
        config = self._config
        tower = load_backbone(self._source(backbone), device)
        if tower.digest != self.digest:
            raise FedotpError(
                f"{self.folder} was made with backbone {self.backbone} {self.digest[:12]}, but this one is "
                f"{tower.digest[:12]}; give the one it was made with (--backbone)"
            )
        task = make_task(config, tower, self.classes, config.data.template)
        folded = self._folded(task)
        self._require_modest(task, len(folded))
        memory = self._memory(task) if config.method.uses_memory else None
        params = self._read(PROMPTS, _expected(config, task), task)
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
            raise FedotpError(f"{self.folder} wants images as {self._spec!r}, here they are {loaded.transform.spec!r}")
        return replace(loaded, calibration=self._calibrated(task.clip.config.embed_dim, loaded.log_prior))

    def _calibrated(self, width: int, log_prior: Floats | None) -> Calibration | None:
        """What it says of its limits; None where it was never calibrated, or with another class prior."""
        if self._calibration is None:
            return None
        with located(str(self.folder / FACTS)):
            found = Calibration.from_dict(self._calibration, width)
        if found.holds_with(log_prior):
            return found
        log.warning("%s was calibrated with another class prior: its calibration is not used", self.folder)
        return None

    def _source(self, backbone: str | Path | None) -> str:
        if backbone is not None:
            return os.path.expanduser(str(backbone))
        if has_name(self.backbone):
            return self.backbone
        raise FedotpError(
            f"{self.folder} needs the backbone {self.backbone} (digest {self.digest[:12]}), which is a file "
            "without a known name: say where it is with --backbone FILE (backbone=...)"
        )

    def _require_modest(self, task: Task, n_prompts: int) -> None:
        """Refuse prompts of another number than the features, or longer than any: they would take all memory."""
        most = math.inf if task.in_feature_space else task.clip.text.context_length
        if task.prompt.n_ctx > most:
            raise FedotpError(f"{self.folder}: prompt.n_ctx = {task.prompt.n_ctx}: the text tower has {most} positions")
        n = len(prompt_lengths(self._config.method, task))
        if n != n_prompts:
            raise FedotpError(f"{self.folder} has features of {n_prompts} prompts, its method has {n}")

    def _folded(self, task: Task) -> Tensor:
        tensors = self._tensors(FOLDED)
        width = task.clip.config.embed_dim
        classes = tensors.get("classes")
        if classes is None or classes.dim() != 3 or classes.shape[1:] != (len(self.classes), width):
            shape = None if classes is None else tuple(classes.shape)
            raise FedotpError(
                f"{self.folder / FOLDED}: classes has the shape {shape}, not (N, {len(self.classes)}, {width})"
            )
        return _like(classes, task, self.folder / FOLDED)

    def _memory(self, task: Task) -> Memory:
        if MEMORY not in self._checksums:
            raise FedotpError(f"{self.folder} lacks {MEMORY}, which its method needs; export it with --with-memory")
        tensors, path = self._tensors(MEMORY), self.folder / MEMORY
        width, labels = task.clip.config.embed_dim, tensors.get("labels")
        n = labels.shape[-1] if labels is not None and labels.dim() else 0
        expected = {"pooled": (1, n, width), "spatial": (1, n, width), "labels": (1, n)}
        _require_shapes(tensors, expected, path)
        labels = tensors["labels"]
        if labels.is_floating_point() or not bool(((labels >= -1) & (labels < len(self.classes))).all()):
            raise FedotpError(f"{path}: labels must be whole numbers from -1 to {len(self.classes) - 1}")
        pooled, spatial = (_like(tensors[name], task, path) for name in ("pooled", "spatial"))
        return Memory(pooled, spatial, labels.to(task.device).long())

    def _read(self, name: str, expected: dict[str, tuple[int, ...]], task: Task) -> Parameters:
        tensors = self._tensors(name)
        _require_shapes(tensors, expected, self.folder / name)
        return {key: _like(value, task, self.folder / name) for key, value in tensors.items()}

    def _tensors(self, name: str) -> Parameters:
        """The tensors of one of the files, which must be the one that bundle.json speaks of."""
        path = self.folder / name
        try:
            content = read_regular(path, _MOST_TENSOR_BYTES)
        except OSError as error:
            raise FedotpError(f"cannot read {path}: {error.strerror or error}; export the bundle again") from error
        if hashlib.sha256(content).hexdigest() != self._checksums.get(name):
            raise FedotpError(f"{path} is damaged (its checksum is not the one in {FACTS}); export the bundle again")
        try:
            return dict(safetensors.torch.load(content))
        except (SafetensorError, ValueError, KeyError) as error:
            raise FedotpError(f"{path} is not a safetensors file: {error}") from error


def _read_facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(read_regular(path, _MOST_BYTES).decode("utf-8"))
    except OSError as error:
        raise FedotpError(f"cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise FedotpError(f"not JSON: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        found = facts.get("format") if isinstance(facts, dict) else type(facts).__name__
        raise FedotpError(f"not a bundle this version reads: format is {str(found)[:40]!r}, not {FORMAT!r}")
    return facts


def _config(facts: dict[str, Any]) -> Config:
    """Method, prompt and rounding, checked as a configuration is."""
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


def _expected(config: Config, task: Task) -> dict[str, tuple[int, ...]]:
    """Names and shapes of what a client of this method predicts with."""
    return {name: tuple(value.shape) for name, value in config.method.untrained(task).items()}


def _require_shapes(tensors: Parameters, expected: dict[str, tuple[int, ...]], path: Path) -> None:
    shapes = {name: tuple(value.shape) for name, value in tensors.items()}
    if shapes != expected:
        raise FedotpError(f"{path} holds {shapes}, its method needs {expected}; export the bundle again")


def _like(value: Tensor, task: Task, path: Path) -> Tensor:
    if not value.is_floating_point() or not bool(value.isfinite().all()):
        raise FedotpError(f"{path}: a tensor is not of finite numbers; export the bundle again")
    return value.to(task.device, task.dtype)


def _table(facts: dict[str, Any], key: str) -> dict[str, Any]:
    value = facts.get(key)
    if not isinstance(value, dict):
        raise FedotpError(f"{key} must be an object, not {str(value)[:40]!r}")
    return value


def _text(facts: dict[str, Any], key: str) -> str:
    value = facts.get(key)
    if not isinstance(value, str) or not value:
        raise FedotpError(f"{key} must be text, not {str(value)[:40]!r}")
    return value


def _names(facts: dict[str, Any]) -> tuple[str, ...]:
    names = facts.get("classes")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise FedotpError("classes must be a list of names")
    if len(set(names)) != len(names):
        raise FedotpError("classes must differ from one another")
    return tuple(names)
