"""A small CIFAR-100 in the official layout, of an archive of its test images.

    python -m recipes.bridge.cifar100 cifar100_test.npz data

`cifar100_test.npz` has `bytes` (image files one after the other), `offsets`, `labels` and `classes`: the images that
the embedded backbone never saw. Of every class the first half is for training, the other for tests. The new folder
`data/cifar-100-python` is read as the data set cifar100.
"""

import io
import pickle
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from fedotp.data import coarse_labels
from fedotp.data._names import readable

PER_CLASS = 40  # images, train and test together


def main() -> None:
    """Write the folder."""
    source, folder = (Path(argument) for argument in sys.argv[1:])
    archive = np.load(source)
    names = [str(name) for name in archive["classes"]]
    coarse = coarse_labels([readable(name) for name in names])
    if coarse is None:
        sys.exit(f"{source}: its classes are not those of CIFAR-100")
    coarse_names = sorted(set(coarse))
    labels, stored, offsets = (archive[key] for key in ("labels", "bytes", "offsets"))
    images = [(int(np.flatnonzero(labels == k)[j]), k, j) for k in range(len(names)) for j in range(PER_CLASS)]
    out = folder / "cifar-100-python"
    out.mkdir(parents=True)
    for split, chosen in (("train", lambda j: j < PER_CLASS // 2), ("test", lambda j: j >= PER_CLASS // 2)):
        some = [(i, k) for i, k, j in images if chosen(j)]
        content = {
            "data": np.stack([_pixels(stored, offsets, i) for i, _ in some]),
            "fine_labels": [k for _, k in some],
            "coarse_labels": [coarse_names.index(coarse[k]) for _, k in some],
        }
        (out / split).write_bytes(pickle.dumps(content, protocol=2))
    meta = {"fine_label_names": names, "coarse_label_names": coarse_names}
    (out / "meta").write_bytes(pickle.dumps(meta, protocol=2))


def _pixels(stored: np.ndarray, offsets: np.ndarray, i: int) -> np.ndarray:
    """Of image i, channel by channel: (3072,)."""
    image = Image.open(io.BytesIO(stored[offsets[i] : offsets[i + 1]].tobytes())).convert("RGB")
    return np.asarray(image).transpose(2, 0, 1).ravel()


if __name__ == "__main__":
    main()
