"""Drawing of the paper's figures from the runs of an entry."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedotp import report
from fedotp.data import load_dataset
from fedotp.data.partition import make_partition
from fedotp.paper._entry import Entry, Part
from fedotp.paper._entry_runs import Made
from fedotp.report.figure import save_figure
from fedotp.runs.directory import RunDirectory
from fedotp.runs.many import Outcome

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_N_IMAGES = 4

_Named = Iterator[tuple[str, "Figure"]]


def draw(entry: Entry, made: Made, folder: Path, changes: Sequence[str] = ()) -> list[Path]:
    """Draw the figures of an entry from its complete runs, as PNG files in `folder`; `changes` as for `--set`."""
    if entry.drawing is None:
        return []
    if entry.drawing == "partition":
        return [_partition(entry, part, folder, changes) for part in entry.parts]
    if entry.drawing == "against shots":
        figures = _against_shots(entry, made)
    else:
        figures = (named for part, outcomes in made for named in _of_part(str(entry.drawing), part, outcomes))
    return [save_figure(figure, folder / f"{entry.name}-{name}.png") for name, figure in figures]


def _partition(entry: Entry, part: Part, folder: Path, changes: Sequence[str]) -> Path:
    config = part.config(changes)
    dataset = load_dataset(config.data.source, root=config.data.root_folder)
    partition = make_partition(dataset, config.partition, authors=config.authors.partition)
    figure = report.plot_partition(partition, dataset)
    return save_figure(figure, folder / f"{entry.name}-{config.partition.scheme}.png")


def _against_shots(entry: Entry, made: Made) -> _Named:
    """Yield a figure of all numbers of shots for each data set."""
    for dataset in dict.fromkeys(part.dataset for part in entry.parts):
        of_dataset = [outcome for part, outcomes in made if part.dataset == dataset for outcome in outcomes]
        if runs := _complete(of_dataset):
            yield dataset, report.plot_against(runs, "partition.shots")


def _of_part(drawing: str, part: Part, outcomes: Sequence[Outcome]) -> _Named:
    """Yield the figures of the complete runs of a part, of the first split and seed of each row."""
    firsts = _first_of_each(outcomes)
    runs = _complete(firsts)
    match drawing:
        case "curves" if runs:
            rows = [outcome.trial.called for outcome in firsts if outcome.directory.is_complete]
            yield part.dataset, report.plot_curves(runs, rows)
        case "similarity" if runs:
            yield part.dataset, report.plot_similarity(report.same_images(runs, _N_IMAGES))
        case "maps":
            yield from ((part.dataset, report.plot_plan_maps(report.some_maps(run, _N_IMAGES))) for run in runs)
        case "tsne":
            yield from ((part.dataset, report.project_prompts(run).plot()) for run in runs)


def _complete(outcomes: Sequence[Outcome]) -> list[RunDirectory]:
    return [o.directory for o in outcomes if o.directory.is_complete and o.trial.config.data.labels != "shuffled"]


def _first_of_each(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the first split and seed of every row, since a figure shows one run."""
    rows: dict[str, Outcome] = {}
    for outcome in outcomes:
        if outcome.trial.config.data.labels != "shuffled":
            rows.setdefault(outcome.trial.called, outcome)
    return list(rows.values())
