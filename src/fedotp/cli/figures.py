"""`fedotp figures`: the paper's figures and transport plans, from any runs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedotp._text import printable
from fedotp.cli._options import ClientOption, RunsArgument, runs_at
from fedotp.cli.show import print_paths
from fedotp.errors import FedotpError

if TYPE_CHECKING:  # importing torch takes a second, too long for `--help`
    from matplotlib.figure import Figure

    from fedotp.runs.directory import RunDirectory

app = typer.Typer()

_USUAL = ("curves", "similarity", "maps", "plans", "tsne")


@dataclass(frozen=True)
class _Request:
    runs: "Sequence[RunDirectory]"
    client: str | None
    images: int
    key: str | None


# One function per kind, which yields names and figures ----------------------------------------------------------

_Figures = Iterator[tuple[str, "Figure"]]


def _curves(wanted: _Request) -> _Figures:
    from fedotp.report import plot_curves

    yield "curves", plot_curves(wanted.runs, _labels(wanted.runs))


def _against(wanted: _Request) -> _Figures:
    from fedotp.report import plot_against

    assert wanted.key is not None
    yield f"against-{wanted.key.rpartition('.')[2]}", plot_against(wanted.runs, wanted.key)


def _similarity(wanted: _Request) -> _Figures:
    from fedotp.report import plot_similarity, same_images

    maps = same_images(_with_images("similarity", wanted.runs), wanted.images, wanted.client)
    yield "similarity", plot_similarity(maps, "Cosine of patches and prompts, for the image's own class")


def _maps(wanted: _Request) -> _Figures:
    from fedotp.report import plot_plan_maps, some_maps

    for name, run in _with_plans("maps", wanted.runs):
        yield name, plot_plan_maps(some_maps(run, wanted.images, wanted.client))


def _plans(wanted: _Request) -> _Figures:
    from fedotp.report import plan_statistics

    for name, run in _with_plans("plans", wanted.runs):
        found = plan_statistics(run, clients=None if wanted.client is None else [wanted.client])
        title = f"{run.path.name}: {found.n_images} test images of {found.n_clients} clients"
        yield name, found.plot(title)


def _tsne(wanted: _Request) -> _Figures:
    from fedotp.report import project_prompts

    several = len(wanted.runs) > 1
    for run in wanted.runs:
        try:
            yield _named("tsne", run, wanted.runs), project_prompts(run).plot()
        except FedotpError as error:
            if not several:
                raise
            print(f"{printable(run.path.name)}: {printable(error)}")


_MAKERS: dict[str, Callable[[_Request], _Figures]] = {
    "curves": _curves,
    "against": _against,
    "similarity": _similarity,
    "maps": _maps,
    "plans": _plans,
    "tsne": _tsne,
}


@app.command()
def figures(
    runs: RunsArgument,
    only: Annotated[
        str | None, typer.Option(metavar="KIND,...", help=f"Kinds: {', '.join(_MAKERS)}; default: all but against.")
    ] = None,
    against: Annotated[
        str | None, typer.Option(metavar="KEY", help="Plot accuracy against this setting, for example partition.shots.")
    ] = None,
    client: ClientOption = None,
    images: Annotated[int, typer.Option(min=1, help="Number of images to show.")] = 4,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the figures; default: figures/ in the run, or here for several runs.")
    ] = None,
    formats: Annotated[str, typer.Option("--format", metavar="FORMAT,...", help="Formats: png, svg, pdf.")] = "png",
) -> None:
    """Draw the figures of the paper, including transport plans, from runs.

    Curves and --against need only the run's directory, t-SNE also the backbone;
    the others need the data: images of --client, or one each of several clients.

    \b
    Examples:
      fedotp figures runs/demo
      fedotp figures runs/pets --only plans,maps --format png,pdf
      fedotp figures runs/sweep-demo --against method.mass
    """
    from fedotp.report.figure import save_figure

    kinds = _kinds(only, against)
    endings = _formats(formats)
    found = runs_at(runs)
    wanted = _Request(found, client, images, against)
    folder = out or (found[0].path / "figures" if len(found) == 1 else Path("figures"))
    written: list[tuple[str, str | Path]] = []
    try:
        for kind in kinds:
            try:
                for name, figure in _MAKERS[kind](wanted):
                    written += [("figure", save_figure(figure, folder / f"{name}.{ending}")) for ending in endings]
            except FedotpError as error:
                if only is not None or against is not None:
                    raise
                why = printable(error)
                print(why if why.startswith("no ") else f"no {kind}: {why}")
    finally:
        if written:
            print_paths(written)


def _with_plans(kind: str, runs: "Sequence[RunDirectory]") -> "list[tuple[str, RunDirectory]]":
    """Return the runs that have transport plans, each with a name for its figure."""
    able = [run for run in runs if run.config.method.matching.has_plan]
    if not able:
        raise FedotpError(f"{runs[0].config.method.title} has no transport plan; give a run of FedOTP")
    here = _with_images(kind, able)
    return [(_named(kind, run, here), run) for run in here]


def _with_images(kind: str, runs: "Sequence[RunDirectory]") -> "list[RunDirectory]":
    """Return the runs whose images are available; print a line for each other run."""
    here = [run for run in runs if not run.is_deployed]
    if not here:
        raise FedotpError(f"{runs[0].path} is a run of real sites: their images are not available here")
    for run in runs:
        if run.is_deployed:
            print(f"no {kind} of {printable(run.path.name)}: its images are at the sites")
    return here


def _named(kind: str, run: "RunDirectory", runs: "Sequence[RunDirectory]") -> str:
    return kind if len(runs) == 1 else f"{kind}-{run.path.name}"


def _labels(runs: "Sequence[RunDirectory]") -> list[str]:
    titles = [run.config.method.title for run in runs]
    return titles if len(set(titles)) == len(titles) else [run.path.name for run in runs]


def _kinds(only: str | None, against: str | None) -> list[str]:
    if only is None:
        return ["against"] if against is not None else list(_USUAL)
    kinds = [kind.strip() for kind in only.split(",")]
    for kind in kinds:
        if kind not in _MAKERS:
            raise FedotpError(f"--only {kind}: must be one of {', '.join(_MAKERS)}")
    if "against" in kinds and against is None:
        raise FedotpError("--only against needs --against KEY, for example --against partition.shots")
    return kinds


def _formats(text: str) -> list[str]:
    from fedotp.report.figure import FIGURE_FORMATS

    endings = [ending.strip() for ending in text.split(",")]
    for ending in endings:
        if ending not in FIGURE_FORMATS:
            raise FedotpError(f"--format {ending}: must be one of {', '.join(FIGURE_FORMATS)}")
    return endings
