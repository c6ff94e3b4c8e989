"""From a path to classifiers, calibrated where that is asked for: a run has many, a bundle one."""

import difflib
from collections.abc import Callable, Mapping, Sequence
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
    """The classifiers to be found at `path`, by client; each is made when it is first asked for."""

    path: Path
    names: tuple[str, ...]
    make: Callable[[str], Classifier]
    _made: dict[str, Classifier] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Classifiers in {self.path}: {listed(self.names)}>"

    def __getitem__(self, client: str | None) -> Classifier:
        """The classifier of `client`; None will do where there is one only."""
        name = _choose(client, self.names, str(self.path))
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
    """The classifiers of a run or of a bundle, as the folder is one or the other; arguments as of `load`."""
    folder = Path(path).expanduser()
    folder = folder.parent if folder.name == FACTS else folder
    if (folder / FACTS).is_file():
        bundle = Bundle(folder).classifier(backbone=backbone, device=device).with_prior(prior, frequencies)
        if calibrate == TEST:
            raise FedotpError(f"{path} is a bundle and knows no test images; calibrate it by a folder of images")
        if calibrate is not None:
            bundle = calibrated_by(bundle, calibrate, score=score)
        return Classifiers(folder, (bundle.client,), lambda _: bundle)
    if not (folder / "config.toml").is_file():
        within = [str(run.path) for run in find_runs(folder)[:4]] if folder.is_dir() else []
        hint = f"runs in it are {', '.join(within)}" if within else "`fedotp run` makes runs, `fedotp export` bundles"
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
    """The classifier of `client` from a run, or the one in a bundle.

    Args:
        path: directory of a run, or a bundle that `fedotp export` made.
        client: may be left out where there is one only.
        backbone: a file of the backbone's weights, where those named in the run are not here.
        device: "auto" for a GPU where there is one, or for example "cpu".
        calibrate: a folder of the client's own images, of which the test images are taken, or "test" for its test
            images in the run; with them there are prediction sets and p-values (docs/limits.md).
        score: what the sets are made by.
        prior: another strength of the class prior than that of the run's evaluation, as for `Classifier.with_prior`.
        frequencies: other class frequencies, likewise.

    Examples:
        >>> import fedotp                                                  # doctest: +SKIP
        >>> fedotp.load("client-3").predict("cat.jpg").top(3)              # doctest: +SKIP
    """
    return open_classifiers(
        path, backbone=backbone, device=device, calibrate=calibrate, score=score, prior=prior, frequencies=frequencies
    )[client]


def _choose(client: str | None, names: Sequence[str], where: str) -> str:
    """The client called `client`; refuse what is not there with what is."""
    if client is None and len(names) == 1:
        return names[0]
    if client is not None and client in names:
        return client
    what = "say which client" if client is None else f"{where} has no client {client!r}"
    near = difflib.get_close_matches(client or "", names, n=3)
    if near:
        raise FedotpError(f"{what}; did you mean {' or '.join(near)}?")
    raise FedotpError(f"{what}; its clients are {listed(names, 8)}")
