"""Labels beside other images: a defect as it was read in published code, made on purpose to see whether tables show it.

There the client's index selects its labels, but not its images: its j-th label belongs to the j-th image of its
own, its j-th image is the j-th of the whole domain. Labels and domains keep their counts, so that nothing looks wrong,
and with K classes about one label in K is right.

    python -m recipes.defect emoji mispaired --scheme domain-dirichlet --alpha 0.3
    fedotp compare demo --set data.dataset=mispaired --set partition.scheme=domain-dirichlet --set partition.alpha=0.3

In a run it is `authors.mispaired_labels = true`; this makes a folder that any program can be tried on.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedotp.data import IMAGE_SUFFIXES, Dataset, Split, load_dataset
from fedotp.data.partition import Client, PartitionSettings, make_partition, other_images
from fedotp.errors import FedotpError


def mispaired(dataset: Dataset, clients: Sequence[Client], *, seed: int = 0) -> Dataset:
    """Give the labels of each of `clients` to the first images of its domain, or of all images where it has none.

    Which images are first is drawn from `seed`, once per domain: the published lists are in no order. Labels, and so
    any partition by them, stay as they are.
    """
    train, test = (
        _mispaired(dataset.split(name), [client.rows(name) for client in clients], seed) for name in ("train", "test")
    )
    return replace(dataset, train=train, test=test, split_note=f"{dataset.split_note}; labels beside other images")


def _mispaired(split: Split, clients: Sequence[np.ndarray], seed: int) -> Split:
    seen = other_images(split.domains, clients, seed=seed)
    return Split(split.source, split.rows[seen], split.labels, split.domains[seen])


def write_folder(dataset: Dataset, folder: Path) -> None:
    """Write the images to `folder`/<split>/[<domain>/]<class>/, numbered by their positions."""
    if folder.exists():
        raise FedotpError(f"{folder} exists already; name another folder")
    several = len(dataset.domains) > 1
    for name in ("train", "test"):
        split = dataset.split(name)
        for i in range(len(split)):
            domain = dataset.domains[split.domains[i]] if several else ""
            place = folder / name / domain / dataset.classes[split.labels[i]] / f"{i:07d}"
            place.parent.mkdir(parents=True, exist_ok=True)
            suffix = Path(split.name(i)).suffix.lower()
            if suffix in IMAGE_SUFFIXES:
                place.with_suffix(suffix).write_bytes(split.read(i))
            else:  # pixels
                split.image(i).save(place.with_suffix(".png"))


def main() -> None:
    """Write a mispaired copy of a data set, which every command of fedotp takes as a folder."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("dataset", help="a name of fedotp data list, or a folder")
    parser.add_argument("folder", type=Path, help="the new folder")
    parser.add_argument("--root", type=Path, help="where named data sets are")
    parser.add_argument("--scheme", default="domain-dirichlet")
    parser.add_argument("--n-clients", type=int)
    parser.add_argument("--alpha", type=float)
    parser.add_argument("--seed", type=int, default=0, help="of the partition and of the order of images")
    given = parser.parse_args()
    dataset = load_dataset(given.dataset, root=given.root)
    settings = PartitionSettings(given.scheme, given.n_clients, given.alpha, seed=given.seed)
    partition = make_partition(dataset, settings)
    write_folder(mispaired(dataset, partition.clients, seed=given.seed), given.folder)


if __name__ == "__main__":
    main()
