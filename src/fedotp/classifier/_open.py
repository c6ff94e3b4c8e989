"""Loading of classifiers from a run (one per client) or a bundle (one), with optional calibration."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedotp.classifier._bundle import FACTS, Bundle
from fedotp.classifier._calibrate import calibrated_by
from fedotp.classifier._classifier import Classifier
from fedotp.classifier._from_run import TEST, RunClassifiers
from fedotp.errors import FedotpError, listed
from fedotp.limits import SCORE, Score
from fedotp.runs.directory import find_runs


@dataclass(frozen=True, eq=False)
class Classifiers:
    """The classifiers at `path`, by client; each is made on first use."""

    path: Path
    names: tuple[str, ...]
    make: Callable[[str], Classifier]
    _made: dict[str, Classifier] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Classifiers in {self.path}: {listed(self.names)}>"

    def __getitem__(self, client: str | None) -> Classifier:
        """Return the classifier of `client`; None is sufficient if there is only one."""
        name = self.names[0] if client is None and len(self.names) == 1 else client
        if name is None or name not in self.names:
            what = "give the name of a client with --client" if name is None else f"{self.path} has no client {name!r}"
            near = difflib.get_close_matches(name or "", self.names, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"its clients are {listed(self.names, 8)}"
            raise FedotpError(f"{what}; {hint}")
        if name not in self._made:
            self._made[name] = self.make(name)
        return self._made[name]


def open_classifiers(
    path: str | Path,
    *,
    backbone: str | Path | None = None,
    device: str = "auto",
    calibrate: str | Path | None = None,
    score: Score = SCORE,
    prior: float | None = None,
    frequencies: Mapping[str, float] | None = None,
) -> Classifiers:
    """Open the classifiers of a run or a bundle; arguments as for `load`."""
    folder = Path(path).expanduser()
    folder = folder.parent if folder.name == FACTS else folder
    if (folder / FACTS).is_file():
        bundle = Bundle(folder).classifier(backbone=backbone, device=device).with_prior(prior, frequencies)
        if calibrate == TEST:
            raise FedotpError(f"{path} is a bundle without test images; calibrate it with a folder of images")
        if calibrate is not None:
            bundle = calibrated_by(bundle, calibrate, score=score)
        return Classifiers(folder, (bundle.client,), lambda _: bundle)
    if not (folder / "config.toml").is_file():
        within = [str(run.path) for run in find_runs(folder)[:4]] if folder.is_dir() else []
        hint = f"it contains the runs {', '.join(within)}" if within else "see `fedotp run` and `fedotp export`"
        raise FedotpError(f"{path} is neither a run nor a bundle: it has no config.toml and no {FACTS}; {hint}")
    run = RunClassifiers(folder, backbone=backbone, device=device, prior=prior, frequencies=frequencies)
    if calibrate is None:
        return Classifiers(folder, run.names, run.classifier)
    return Classifiers(folder, run.names, lambda name: run.calibrated(name, calibrate, score))


def load(
    path: str | Path,
    client: str | None = None,
    *,
    backbone: str | Path | None = None,
    device: str = "auto",
    calibrate: str | Path | None = None,
    score: Score = SCORE,
    prior: float | None = None,
    frequencies: Mapping[str, float] | None = None,
) -> Classifier:
    """Load the classifier of `client` from a run, or the one in a bundle.

    Args:
        path: directory of a run, or a bundle from `fedotp export`.
        client: its name; optional if there is only one client.
        backbone: a file of the backbone's weights, if the path in the run is not valid here.
        device: "auto" for a GPU if available, or for example "cpu".
        calibrate: a folder of the client's own images, of which the test images are used, or "test" for its test images
            in the run; enables prediction sets and p-values (docs/limits.md).
        score: the conformal score.
        prior: strength of the class prior, as for `Classifier.with_prior`; default: that of the run's evaluation.
        frequencies: class frequencies, as for `Classifier.with_prior`.

    Examples:
        >>> import fedotp                                                  # doctest: +SKIP
        >>> fedotp.load("client-3").predict("cat.jpg").top(3)              # doctest: +SKIP
    """
    return open_classifiers(
        path, backbone=backbone, device=device, calibrate=calibrate, score=score, prior=prior, frequencies=frequencies
    )[client]
