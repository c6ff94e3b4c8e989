"""Class names for CLIP, plain lower-case words, and the facts of known data sets."""

import re
import unicodedata
from collections.abc import Sequence

from fedotp._values import packaged

FACTS = packaged("data", "datasets.toml")
_SEPARATORS = re.compile(r"[\s_]+")


def readable(name: str) -> str:
    """Convert a folder or label name to words: `Egyptian_Mau` becomes `egyptian mau`.

    Hyphens and digits stay (`globe-flower`, `boeing 747`); CLIP's tokenizer converts to lower case anyway.
    """
    return _SEPARATORS.sub(" ", unicodedata.normalize("NFC", name)).strip().lower()


def names_of(dataset: str, kind: str = "classes") -> tuple[str, ...]:
    """Return the names of the classes, or `domains`, of a known data set."""
    return tuple(name.strip() for name in FACTS[dataset][kind].split(";"))


def same_name(labels: Sequence[str]) -> tuple[int, int] | None:
    """Return the positions of two different labels that are the same words for CLIP, if any."""
    first: dict[str, int] = {}
    for i, label in enumerate(labels):
        if labels[j := first.setdefault(readable(label), i)] != label:
            return j, i
    return None


_COARSE = FACTS["cifar100"]["coarse"]
COARSE_OF = {name: coarse for coarse, names in _COARSE.items() for name in names.split("; ")}  # classes of CIFAR-100


def coarse_labels(classes: Sequence[str]) -> tuple[str, ...] | None:
    """Return the coarse label of each of `classes` (K,), if they are those of CIFAR-100, else None."""
    return tuple(COARSE_OF[name] for name in classes) if set(classes) == set(COARSE_OF) else None
