"""`fedotp figures`: the paper's figures and transport plans, from any runs."""

from collections.abc import Iterator, Sequence
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
_KINDS = ("curves", "against", *_USUAL[1:])


@app.command()
def figures(
    runs: RunsArgument,
    only: Annotated[
        str | None, typer.Option(metavar="KIND,...", help=f"Kinds: {', '.join(_KINDS)}; default: all but against.")
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
    from fedotp.report.figure import FIGURE_FORMATS, save_figure

    kinds = ["against"] if against is not None else list(_USUAL)
    if only is not None:
        kinds = _words(only, "--only", _KINDS)
        if "against" in kinds and against is None:
            raise FedotpError("--only against needs --against KEY, for example --against partition.shots")
    endings = _words(formats, "--format", FIGURE_FORMATS)
    found = runs_at(runs)
    folder = out or (found[0].path / "figures" if len(found) == 1 else Path("figures"))
    written: list[tuple[str, str | Path]] = []
    try:
        for kind in kinds:
            try:
                for name, figure in _drawn(kind, found, client, images, against or ""):
                    written += [("figure", save_figure(figure, folder / f"{name}.{ending}")) for ending in endings]
            except FedotpError as error:
                if only is not None or against is not None:
                    raise
                why = printable(error)
                print(why if why.startswith("no ") else f"no {kind}: {why}")
    finally:
        if written:
            print_paths(written)


def _drawn(
    kind: str, runs: "Sequence[RunDirectory]", client: str | None, n_images: int, key: str
) -> "Iterator[tuple[str, Figure]]":
    """Yield the names and figures of a kind."""
    from fedotp import report

    if kind in ("maps", "plans"):
        able = [run for run in runs if run.config.method.matching.has_plan]
        if not able:
            raise FedotpError(f"{runs[0].config.method.title} has no transport plan; give a run of FedOTP")
        runs = able
    if kind in ("maps", "plans", "similarity"):
        here = [run for run in runs if not run.is_deployed]
        if not here:
            raise FedotpError(f"{runs[0].path} is a run of real sites: their images are not available here")
        for run in runs:
            if run.is_deployed:
                print(f"no {kind} of {printable(run.path.name)}: its images are at the sites")
        runs = here
    match kind:
        case "curves":
            yield kind, report.plot_curves(runs)
        case "against":
            yield f"against-{key.rpartition('.')[2]}", report.plot_against(runs, key)
        case "similarity":
            yield kind, report.plot_similarity(report.same_images(runs, n_images, client))
    for run in runs if kind in ("maps", "plans", "tsne") else ():
        name = kind if len(runs) == 1 else f"{kind}-{run.path.name}"
        if kind == "maps":
            yield name, report.plot_plan_maps(report.some_maps(run, n_images, client))
        elif kind == "plans":
            found = report.plan_statistics(run, clients=None if client is None else [client])
            yield name, found.plot(f"{run.path.name}: {found.n_images} test images of {found.n_clients} clients")
        else:
            try:
                yield name, report.project_prompts(run).plot()
            except FedotpError as error:
                if len(runs) == 1:
                    raise
                print(f"{printable(run.path.name)}: {printable(error)}")


def _words(text: str, option: str, known: Sequence[str]) -> list[str]:
    """Parse words separated by commas, all of which must be `known`."""
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in known:
            raise FedotpError(f"{option} {word}: must be one of {', '.join(known)}")
    return words
