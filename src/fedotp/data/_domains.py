"""DomainNet (10 classes), Office-Caltech10, PACS, Office-Home, Office-31 and VLCS, in folders `<domain>/<class>`.

The split comes from FedBN's pickles `<domain>_{train,test}.pkl`, if present, else from DomainNet's official lists
`<domain>_{train,test}.txt`, else it is drawn once with FedBN's sizes: 80 % of every domain for training.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from fedotp.data._dataset import Dataset
from fedotp.data._image_files import Item, file_dataset, list_folders, list_images, relative
from fedotp.data._lists import read_lines
from fedotp.data._names import names_of
from fedotp.data._split import BY_DOMAIN, split_by_domain
from fedotp.data._unpickle import read_pickle
from fedotp.errors import FedotpError

_ALSO = {"caltech": "caltech101", "sun": "sun09", "pascal": "voc2007", "voc": "voc2007"}  # other folder names in VLCS


def _key(name: str) -> str:
    """Normalise a name, so that `back_pack`, `Back-Pack` and `backpack` are the same class."""
    return "".join(c for c in name.lower() if c.isalnum())


def read_domains(name: str, root: Path) -> Dataset:
    """Read the data set `name` from the folder `root`; unknown classes are ignored."""
    domains, classes = names_of(name, "domains"), names_of(name)
    train, test, note = _divide(root, domains, classes)
    return file_dataset(name, root, classes=classes, domains=domains, train=train, test=test, split_note=note)


def _divide(root: Path, domains: Sequence[str], classes: Sequence[str]) -> tuple[list[Item], list[Item], str]:
    """Return train items, test items and the note on the split."""
    label_of = {_key(c): k for k, c in enumerate(classes)}
    for suffix, read_list, note in (
        ("pkl", _fedbn_pickle, "FedBN's pickles"),
        ("txt", _official_list, "DomainNet's official lists"),
    ):
        train, test = ([root / f"{domain}_{s}.{suffix}" for domain in domains] for s in ("train", "test"))
        if all(path.is_file() for path in train + test):
            train_items, test_items = (
                [item for d, path in enumerate(paths) for item in read_list(path, d, label_of)]
                for paths in (train, test)
            )
            return train_items, test_items, note
    items = list(_tree(root, domains, classes, label_of))
    note = f"{BY_DOMAIN} (FedBN's sizes, not its members)"
    return *split_by_domain(items), note


def _tree(root: Path, domains: Sequence[str], classes: Sequence[str], label_of: dict[str, int]) -> Iterator[Item]:
    """List `<domain>/<class>/*` or `<domain>/images/<class>/*`; every domain must have every class.

    Archives of PACS have all domains in a folder `kfold` or `images`.
    """
    places = (place for place in ("", "kfold/", "images/") if (root / place).is_dir())
    above = next((place for place in places if _by_key(list_folders(root / place), domains)), "")
    folder_of_domain = _by_key(list_folders(root / above), domains)
    for d, domain in enumerate(domains):
        if domain not in folder_of_domain:
            raise FedotpError(f"{root} has no folder {domain!r}: must have {', '.join(domains)}")
        at = above + folder_of_domain[domain]
        at = f"{at}/images" if (root / at / "images").is_dir() else at
        folder_of = {label_of[_key(f)]: f for f in list_folders(root / at) if _key(f) in label_of}
        for label, name in enumerate(classes):
            images = list_images(root / at / folder_of[label]) if label in folder_of else []
            if not images:
                raise FedotpError(f"{root / at}: no image of class {name!r}")
            for image in images:
                yield f"{at}/{folder_of[label]}/{image}", label, d


def _by_key(folders: Sequence[str], domains: Sequence[str]) -> dict[str, str]:
    """Return the folder of each domain that has one, for example `Real World` for real_world."""
    domain_of = {_key(domain): domain for domain in domains}
    known = {folder: domain_of.get(_key(folder)) or domain_of.get(_ALSO.get(_key(folder), "")) for folder in folders}
    return {domain: folder for folder, domain in known.items() if domain is not None}


def _fedbn_pickle(path: Path, domain: int, label_of: dict[str, int]) -> Iterator[Item]:
    """Read (paths, class names); the paths end in `<domain>/<class>/<file>`."""
    content = read_pickle(path)
    try:
        paths, names = map(list, content)
    except (TypeError, ValueError) as error:
        raise FedotpError(f"{path} must contain two columns: paths and class names") from error
    if not all(isinstance(value, str) for value in (*paths, *names)):
        raise FedotpError(f"{path} must contain two columns of text: paths and class names")
    if len(paths) != len(names):
        raise FedotpError(f"{path} has {len(paths)} paths but {len(names)} class names")
    for image, name in zip(paths, names, strict=True):
        if _key(name) not in label_of:
            raise FedotpError(f"{path}: unknown class {name!r}")
        below = "/".join(PurePosixPath(relative(image, path)).parts[-3:])
        yield below, label_of[_key(name)], domain


def _official_list(path: Path, domain: int, label_of: dict[str, int]) -> Iterator[Item]:
    """Read `<domain>/<class>/<file> <number>` lines, skipping the other 335 classes."""
    for line in read_lines(path):
        image = relative(line.rsplit(" ", 1)[0], path)
        parts = PurePosixPath(image).parts
        if len(parts) != 3:
            raise FedotpError(f"{path}: {line[:80]!r} must be '<domain>/<class>/<file> <number>'")
        if _key(parts[1]) in label_of:
            yield image, label_of[_key(parts[1])], domain
