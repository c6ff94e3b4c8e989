"""Means over splits and seeds, and differences paired over them, of the lines that the study wrote."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from fedotp.runs.tables import Difference, Pair, paired

Line = Mapping[str, str]


@dataclass(frozen=True)
class Lines:
    """Lines of the study, all or some."""

    lines: tuple[Line, ...]

    @classmethod
    def read(cls, path: Path) -> "Lines":
        """All."""
        with path.open() as file:
            return cls(tuple(csv.DictReader(file)))

    def where(self, **values: object) -> "Lines":
        """Those that have these values; numbers are compared as numbers."""
        wanted = {key: _plain(value) for key, value in values.items()}
        return Lines(tuple(line for line in self.lines if all(_plain(line[key]) == wanted[key] for key in wanted)))

    def values(self, key: str) -> list[str]:
        """What there is of `key`, in the order of the lines."""
        return list(dict.fromkeys(line[key] for line in self.lines))

    def numbers(self, key: str) -> list[float]:
        """The numbers among them, rising."""
        return sorted({plain for value in self.values(key) if isinstance(plain := _plain(value), float)})

    def pairs(self, name: str) -> dict[Pair, float]:
        """A measured number in percent, by split and seed; there must be one line for each."""
        found = {(int(line["split"]), int(line["seed"])): 100 * float(line[name]) for line in self.lines if line[name]}
        if len(found) != sum(1 for line in self.lines if line[name]):
            raise ValueError(f"several lines for a split and seed: {self.lines[:2]}")
        return found

    def mean(self, name: str) -> float:
        """The mean in percent."""
        return fmean(self.pairs(name).values())

    def less(self, other: "Lines", name: str) -> Difference:
        """The mean difference in points."""
        found = paired(self.pairs(name), other.pairs(name))
        assert found is not None
        return found

    def band(self, name: str, reference: "Lines") -> tuple[float, float, float]:
        """The mean, and around it the interval of its difference from `reference`."""
        mean, found = self.mean(name), self.less(reference, name)
        half = 0.0 if found.high is None else found.high - found.mean
        return mean, mean - half, mean + half


def _plain(value: object) -> object:
    try:
        return float(value)  # type: ignore[arg-type]
    except ValueError:
        return value


def differences(lines: Lines, reference: Lines, names: tuple[str, ...]) -> Iterator[str]:
    """Differences in words, with intervals."""
    for name in names:
        found = lines.less(reference, name)
        half = "" if found.high is None else f" ± {found.high - found.mean:.1f}"
        yield f"{found.mean:+.1f}{half}"
