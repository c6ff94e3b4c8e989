"""A bundle: one client's classifier as a folder to copy.

bundle.json               what it is: method, class names, backbone and its digest, preprocessing, checksums; once
                          calibrated, also the scores of the calibration images and what these look like on average
prompts.safetensors       the prompts, by the method's names
classifier.safetensors    `classes` (N, K, e), class features of length 1, and `logit_scale`: no text tower needed
memory.safetensors        features of the client's training images; only if asked for, and only some methods have them
"""

import contextlib
import hashlib
import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import safetensors.torch

import fedotp
from fedotp._files import cannot_write, write_atomically
from fedotp.classifier._classifier import Classifier
from fedotp.clip import CHANNELS, CONFIGS, MINI
from fedotp.errors import FedotpError
from fedotp.methods import Parameters

FORMAT = "fedotp-bundle-1"
CALIBRATION = "calibration"  # its key among the facts
FACTS, PROMPTS, FOLDED, MEMORY = "bundle.json", "prompts.safetensors", "classifier.safetensors", "memory.safetensors"


def save_bundle(classifier: Classifier, folder: str | Path, *, force: bool = False, with_memory: bool = False) -> None:
    """Write a bundle; the folder appears whole or not at all.

    Args:
        force: replace a bundle that is there already; anything else is never replaced.
        with_memory: include the features of the client's training images, where the method looks them up. They derive
            from private images, so that they have to be asked for by name.
    """
    target = Path(folder)
    require_memory_may_leave(classifier, with_memory)
    _require_free(target, force)
    files = {PROMPTS: classifier.params, FOLDED: _folded(classifier)}
    if classifier.memory is not None:
        files[MEMORY] = classifier.memory._asdict()
    content = {name: _to_bytes(tensors) for name, tensors in files.items()}
    told = facts(classifier) | {"files": {name: hashlib.sha256(each).hexdigest() for name, each in content.items()}}
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        for name, each in content.items():
            write_atomically(unfinished / name, each)
        write_atomically(unfinished / FACTS, json.dumps(told, indent=2) + "\n")
        _put(unfinished, target)
    except OSError as error:
        raise cannot_write(target, error) from error
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(unfinished)


def save_calibration(classifier: Classifier, folder: str | Path) -> None:
    """Write the calibration of a bundle's classifier into that bundle; nothing else in it changes."""
    assert classifier.calibration is not None
    path = Path(folder) / FACTS
    told = json.loads(path.read_text(encoding="utf-8"))  # checked already, when the classifier was read
    try:
        write_atomically(path, json.dumps(told | {CALIBRATION: classifier.calibration.as_dict()}, indent=2) + "\n")
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
    """What a classifier is, for whoever uses it elsewhere: method, classes, backbone, preprocessing, origin."""
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
        **({} if classifier.calibration is None else {CALIBRATION: classifier.calibration.as_dict()}),
    }


def _folded(classifier: Classifier) -> Parameters:
    return {"classes": classifier.folded, "logit_scale": classifier.task.logit_scale}


def _to_bytes(tensors: Parameters) -> bytes:
    return bytes(safetensors.torch.save({name: value.detach().cpu().contiguous() for name, value in tensors.items()}))


def has_name(backbone: str) -> bool:
    """Whether a backbone is known to everybody by this name; others are files."""
    return backbone == MINI or backbone in CONFIGS


def backbone_name(backbone: str) -> str:
    """What others are told of a backbone: of a file its last name only, where it lies here is nobody's business."""
    return backbone if has_name(backbone) else Path(backbone).name
