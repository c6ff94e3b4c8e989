"""Drawing of the paper's figures from the runs of an entry."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedotp import report
from fedotp.config import Config
from fedotp.data import load_dataset
from fedotp.data.partition import make_partition
from fedotp.paper._entry import Entry
from fedotp.paper._entry_runs import Made
from fedotp.report.figure import save_figure
from fedotp.runs.directory import RunDirectory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_N_IMAGES = 4

_Named = Iterator[tuple[str, "Figure"]]


def draw(entry: Entry, made: Made, folder: Path, changes: Sequence[str] = ()) -> list[Path]:
    """Draw the figures of an entry from its complete runs, as PNG files in `folder`; `changes` as for `--set`."""
    if entry.drawing is None:
        return []
    if entry.drawing == "partition":
        figures: _Named = (_partition(part.config(changes)) for part in entry.parts)
    else:
        runs = []
        for part, outcomes in made:
            ended = [outcome for outcome in outcomes if outcome.directory.is_complete]
            runs.append((part, [outcome for outcome in ended if outcome.trial.config.data.labels != "shuffled"]))
        figures = _against_shots(runs) if entry.drawing == "against shots" else _by_part(entry.drawing, runs)
    return [save_figure(figure, folder / f"{entry.name}-{name}.png") for name, figure in figures]


def _partition(config: Config) -> tuple[str, "Figure"]:
    dataset = load_dataset(config.data.source, root=config.data.root_folder)
    partition = make_partition(dataset, config.partition, authors=config.authors.partition)
    return config.partition.scheme, report.plot_partition(partition, dataset)


def _against_shots(made: Made) -> _Named:
    """Yield a figure of all numbers of shots for each data set."""
    for dataset in dict.fromkeys(part.dataset for part, _ in made):
        if runs := [o.directory for part, outcomes in made if part.dataset == dataset for o in outcomes]:
            yield dataset, report.plot_against(runs, "partition.shots")


def _by_part(drawing: str, made: Made) -> _Named:
    """Yield the figures of each part, of the first run of each row, since a figure shows one run."""
    for part, outcomes in made:
        rows: dict[str, RunDirectory] = {}
        for outcome in outcomes:
            rows.setdefault(outcome.trial.called, outcome.directory)
        runs = list(rows.values())
        match drawing:
            case "curves" if runs:
                yield part.dataset, report.plot_curves(runs, list(rows))
            case "similarity" if runs:
                yield part.dataset, report.plot_similarity(report.same_images(runs, _N_IMAGES))
            case "maps":
                yield from ((part.dataset, report.plot_plan_maps(report.some_maps(run, _N_IMAGES))) for run in runs)
            case "tsne":
                yield from ((part.dataset, report.project_prompts(run).plot()) for run in runs)
