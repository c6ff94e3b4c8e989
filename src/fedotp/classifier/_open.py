"""From a path to classifiers, calibrated where that is asked for: a run has many, a bundle one."""

import logging
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

from fedotp._text import counted
from fedotp.classifier._bundle import FACTS
from fedotp.classifier._classifier import Classifier
from fedotp.classifier._from_run import RunClassifiers, choose
from fedotp.classifier._read_bundle import Bundle
from fedotp.data import load_dataset
from fedotp.data.store import content_of
from fedotp.errors import FedotpError, listed
from fedotp.limits import SCORE, Score
from fedotp.runs.directory import find_runs
from fedotp.runs.one import class_numbers

TEST = "test"  # in place of a folder

log = logging.getLogger("fedotp.classifier")


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
        name = choose(client, self.names, str(self.path))
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
) -> Classifiers:
    """The classifiers of a run or of a bundle, which one the folder itself tells; arguments as of `load`."""
    folder = Path(path).expanduser()
    folder = folder.parent if folder.name == FACTS else folder
    if (folder / FACTS).is_file():
        bundle = Bundle(folder).classifier(backbone=backbone, device=device)
        if calibrate == TEST:
            raise FedotpError(f"{path} is a bundle and knows no test images; calibrate it by a folder of images")
        if calibrate is not None:
            bundle = calibrated_by(bundle, calibrate, score=score)
        return Classifiers(folder, (bundle.client,), lambda _: bundle)
    if not (folder / "config.toml").is_file():
        within = [str(run.path) for run in find_runs(folder)[:4]] if folder.is_dir() else []
        hint = f"runs in it are {', '.join(within)}" if within else "`fedotp run` makes runs, `fedotp export` bundles"
        raise FedotpError(f"{path} is neither a run nor a bundle: it has no config.toml and no {FACTS}; {hint}")
    run = RunClassifiers(folder, backbone=backbone, device=device)
    if calibrate is None:
        return Classifiers(folder, run.names, run.classifier)
    return Classifiers(folder, run.names, lambda name: _calibrated(run, name, calibrate, score))


def _calibrated(run: RunClassifiers, client: str, by: str | Path, score: Score) -> Classifier:
    if by == TEST:
        return calibrated_by_test(run, client, score)
    return calibrated_by(run.classifier(client), by, score=score, trained=run.trained)


def load(
    path: str | Path,
    client: str | None = None,
    *,
    backbone: str | Path | None = None,
    device: str = "auto",
    calibrate: str | Path | None = None,
    score: Score = SCORE,
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

    Examples:
        >>> import fedotp                                                  # doctest: +SKIP
        >>> fedotp.load("client-3").predict("cat.jpg").top(3)              # doctest: +SKIP
    """
    return open_classifiers(path, backbone=backbone, device=device, calibrate=calibrate, score=score)[client]


def calibrated_by_test(run: RunClassifiers, client: str, score: Score) -> Classifier:
    """The classifier of `client`, calibrated by its own test images, of which no prompt was trained."""
    rows, contents = run.test_rows(client)
    if not len(rows):
        raise FedotpError(f"{client} has no test images to calibrate by; give a folder of its images")
    kept, left_out = _once(contents, run.trained)
    if left_out:
        log.warning("%s", _line(len(kept), left_out))
    return run.classifier(client)._calibrated(*run.test_images(rows[kept]), score)


def calibrated_by(
    classifier: Classifier,
    data: str | Path,
    *,
    score: Score = SCORE,
    site: str | None = None,
    every: bool = False,
    trained: AbstractSet[bytes] = frozenset(),
    on_left_out: Callable[[str], object] = log.warning,
) -> Classifier:
    """The classifier, calibrated by a folder of labelled images (or any data set) that it did not train on.

    Args:
        data: as for `fedotp.data.load_dataset`. Only its test images are taken, also of a split that fedotp draws: the
            classifier may have trained on the others.
        site: take the images of this site (or domain) only.
        every: take training images, too: the classifier has trained on none of them.
        trained: digests of images that are left out, see `fedotp.data.store.content_of`.
        on_left_out: called with a line that says how many images were left out. Images of equal content count once.
    """
    dataset = load_dataset(data)
    number = class_numbers(classifier.classes, dataset, classifier.client)
    train, test = dataset.train, dataset.test
    if not every:
        trained = {*trained, *(content_of(train, i) for i in range(len(train)))}
    if site is not None:
        here = dataset.site_number(site)
        train, test = (split.select(split.domains == here) for split in (train, test))
    found = [(split, i) for split in ([train, test] if every else [test]) for i in range(len(split))]
    kept, left_out = _once([content_of(split, i) for split, i in found], trained)
    if not every:
        left_out.insert(0, f"{counted(len(train), 'training image')} (`fedotp calibrate --all` takes them)")
    if len(kept) < 2:
        raise FedotpError(f"{dataset.name}: at least 2 images are needed; {_line(len(kept), left_out)}")
    if left_out:
        on_left_out(_line(len(kept), left_out))
    images, labels = [], []
    for split, i in (found[place] for place in kept):
        images.append(classifier.transform.crop(split.image(i)))  # small, so that many fit into memory
        labels.append(classifier.classes[number[split.labels[i]]])
    return classifier.calibrated(images, labels, score=score)


def _once(contents: Sequence[bytes], trained: AbstractSet[bytes]) -> tuple[list[int], list[str]]:
    """The places of images to calibrate by, each content once and none of those trained on; what is left out."""
    first: dict[bytes, int] = {}
    for i, content in enumerate(contents):
        first.setdefault(content, i)
    kept = [i for content, i in first.items() if content not in trained]
    copies = (len(contents) - len(first), "copy of another", "copies of others")
    also = (len(first) - len(kept), "image that is a training image, too", "images that are training images, too")
    return kept, [counted(*each) for each in (copies, also) if each[0]]


def _line(n: int, left_out: Sequence[str]) -> str:
    return f"{counted(n, 'image')} to calibrate by; left out: {', '.join(left_out)}"
