"""Export of a client's classifier as one ONNX file: image tower, folded classifier and scores.

image          uint8 (B, size, size, 3)   RGB, output of `Classifier.transform.crop`; normalised inside
probabilities  float32 (B, K)             in the order of the metadata's `classes`
scores         float32 (B, K)             input of the softmax, before temperature and class prior
"""

import contextlib
import json
import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedotp import ot
from fedotp._files import cannot_write
from fedotp.classifier._bundle import facts, require_memory_may_leave
from fedotp.classifier._classifier import Classifier
from fedotp.clip import CHANNELS, ImageFeatures
from fedotp.data.store import as_stored
from fedotp.errors import FedotpError

OPSET = 18  # supported by runtimes since 2023


def save_onnx(classifier: Classifier, path: str | Path, *, force: bool = False, with_memory: bool = False) -> None:
    """Write an ONNX file atomically, for batches of any size.

    Args:
        force: overwrite an existing file.
        with_memory: as for `Classifier.save`.
    """
    target = Path(path)
    require_memory_may_leave(classifier, with_memory)
    if target.exists() and not force:
        raise FedotpError(f"{target} already exists; choose another name, or overwrite it with --force")
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise FedotpError("ONNX is not installed; install it with: pip install 'fedotp[onnx]'") from None
    program = _exported(classifier)
    # makes the file self-contained; ONNX requires text
    program.model.metadata_props["classes"] = json.dumps(list(classifier.classes))
    program.model.metadata_props["fedotp"] = json.dumps(facts(classifier))
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        program.save(unfinished)
        os.replace(unfinished, target)
    except OSError as error:
        raise cannot_write(target, error) from error
    finally:
        unfinished.unlink(missing_ok=True)


class _Graph(nn.Module):
    """Graph from pixels to probabilities, without the text tower."""

    pixel_mean: Tensor
    pixel_std: Tensor

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.classifier = classifier
        self.visual = classifier.tower.visual
        mean, std = CHANNELS[classifier.normalisation]
        self.register_buffer("pixel_mean", torch.tensor(mean)[:, None, None], persistent=False)
        self.register_buffer("pixel_std", torch.tensor(std)[:, None, None], persistent=False)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Compute probabilities and scores (B, K) of images (B, size, size, 3)."""
        predictor, task = self.classifier.predictor, self.classifier.task
        pixels = (image.movedim(-1, -3).to(torch.float32) / 255 - self.pixel_mean) / self.pixel_std
        tokens = self.visual(pixels)  # (B, 1 + V, e)
        seen = as_stored(ImageFeatures(tokens[:, 0], tokens[:, 1:]), self.classifier.storage, task.dtype, check=False)
        scores = predictor.scores(ImageFeatures(seen.pooled[None], seen.tokens[None]))
        return predictor.log_probabilities(scores)[0].exp().float(), scores[0].float()


@torch.no_grad()
def _exported(classifier: Classifier) -> Any:
    """Export the classifier as an ONNX program."""
    size = classifier.tower.config.image_size
    example = torch.zeros(2, size, size, 3, dtype=torch.uint8)
    graph = _Graph(classifier).eval()
    with ot.as_graph(), _quietly():
        graph(example)  # fills caches before the exporter traces it
        program = torch.export.export(graph, (example,), dynamic_shapes=({0: torch.export.Dim("images", min=1)},))
        return torch.onnx.export(
            program,
            input_names=["image"],
            output_names=["probabilities", "scores"],
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Suppress the exporter's log messages and warnings."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
