"""`fedotp data`: list, inspect, check, download and partition data sets."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from fedotp import data
from fedotp._text import counted, printable
from fedotp.cli import _complete, _options
from fedotp.cli.show import print_table
from fedotp.errors import FedotpError
from fedotp.images import WINDOW, read_window

app = typer.Typer(help="Data sets: list, info, check, download, partition, encode, cache.", no_args_is_help=True)


@app.command("list")
def list_datasets(root: _options.RootOption = None) -> None:
    """List the known data sets, their usual sizes, and where they are on this machine. The last two are built in.

    Example: fedotp data list --root ~/data
    """
    data.bring_datasets()
    numbers = ("classes", "domains", "train", "test")
    rows = []
    for info in data.DATASETS.values():
        sizes = (f"{n:,}" for n in (info.n_classes, info.n_domains, info.n_train, info.n_test))
        rows.append((info.name, *sizes, data.find_dataset(info.name, root) or "-"))
    print_table(("name", *numbers, "found at"), rows, right=numbers, wide=True)


@app.command()
def info(
    dataset: _options.DatasetArgument, root: _options.RootOption = None, groups: _options.GroupsOption = ""
) -> None:
    """Show the facts about a data set and, if its files are on this machine, their contents.

    Examples: fedotp data info oxford_pets --root ~/data, fedotp data info ~/my-photos
    """
    data.bring_datasets()
    known = data.DATASETS.get(dataset)
    if known is not None:
        domains = f" in {known.n_domains} domains" if known.n_domains > 1 else ""
        print(f"{known.title}: {known.n_classes} classes{domains}")
        if not known.in_box:
            print(f"usual sizes: {known.n_train:,} train, {known.n_test:,} test")
        print(f"zero-shot caption: {known.template}")
        if known.advice:
            print(f"note: {known.advice}")
        if data.find_dataset(dataset, root) is None:
            _print(f"not found at {(root or data.default_root()) / known.folder}")
            return
    loaded = data.load_dataset(dataset, root=root, groups=groups)
    _print(f"{loaded.name}: {len(loaded.train):,} train, {len(loaded.test):,} test images")
    _print(f"split: {loaded.split_note}")
    if loaded.train.groups is not None and loaded.test.groups is not None:
        n_train, n_test = (len(set(groups.tolist())) for groups in (loaded.train.groups, loaded.test.groups))
        print(f"groups: {n_train:,} in train, {n_test:,} in test, none in both")
    if loaded.validation is not None:
        print(f'validation: {counted(len(loaded.validation), "image")}, used with data.test_split = "val"')
    print(f"digest: {loaded.digest}")
    _print_counts(loaded)


@app.command()
def check(
    dataset: _options.DatasetArgument,
    root: _options.RootOption = None,
    groups: _options.GroupsOption = "",
    window: _options.WindowOption = WINDOW,
    workers: _options.WorkersOption = None,
) -> None:
    """Decode every image; report broken files, test images also in train, duplicates, images with two labels, and class
    counts. Of images of more than 8 bits, report those that the window makes black or white.

    Exit status 1 if an image is broken. Example: fedotp data check office_caltech10 --root ~/data
    """
    read_window(window)  # validate it first
    loaded = data.load_dataset(dataset, root=root, groups=groups)
    columns = (TextColumn("decoding"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(loaded.train) + len(loaded.test))
        report = data.check_dataset(loaded, window=window, workers=workers, on_image=lambda: progress.advance(task))
    _print_counts(loaded)
    both, twice = counted(len(report.duplicates), "test image"), counted(len(report.twice), "duplicate")
    found = f"{len(report.broken)} broken, {both} also in train, {twice}"
    print(f"{counted(report.n_images, 'image')}, {found}, {len(report.contradictions)} with two labels")
    for broken in report.broken:
        _print(f"broken: {broken.where}: {broken.reason}")
    for train, test in report.duplicates:
        _print(f"also in train: {loaded.where(test)} = {loaded.where(train)}")
    for one, other in report.twice:
        _print(f"duplicate: {loaded.where(other)} = {loaded.where(one)}")
    for one, other in report.contradictions:
        _print(f"two labels: {loaded.where(other)} = {loaded.where(one)}")
    if report.dark:
        _print(
            f"nearly black: {len(report.dark):,} images of more than 8 bits use at most 1/16 of their range, such as "
            f'{loaded.where(report.dark[0])}; set the range of their camera, for example data.window = "0..4095"'
        )
    if report.clipped:
        _print(
            f"black or white: the window {window} clips nearly all of {len(report.clipped):,} images of more than 8 "
            f"bits, such as {loaded.where(report.clipped[0])}; it may have other units, try --window data"
        )
    if report.broken:
        raise typer.Exit(1)


@app.command()
def download(
    dataset: Annotated[str, typer.Argument(help="A name from `fedotp data list`.", autocompletion=_complete.datasets)],
    root: _options.RootOption = None,
) -> None:
    """Download a data set from its official source; resume an interrupted download.

    Example: fedotp data download oxford_pets --root ~/data
    """
    known = data.dataset_info(dataset)
    base = root or data.default_root()
    if known.in_box:
        print(f"{known.title}: {known.advice}")
        return
    if not known.resources:
        raise FedotpError(f"{known.title}: {known.advice}; put it at {base / known.folder}")
    name, left = TextColumn("{task.description}"), TimeRemainingColumn()
    columns = (name, BarColumn(), DownloadColumn(), TransferSpeedColumn(), left)
    with Progress(*columns, console=Console(stderr=True)) as progress:
        tasks: dict[str, TaskID] = {}

        def show(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name)
            progress.update(tasks[name], completed=done, total=total)

        data.download(known.resources, base, on_bytes=show)
    _print(f"{known.title} is at {base / known.folder}")
    if root is not None:
        _print(f"use it with --set data.root={base}")
    if known.advice:
        print(f"note: {known.advice}")


@app.command()
def partition(
    dataset: _options.DatasetArgument,
    changes: _options.SetOption = None,
    root: _options.RootOption = None,
    out: Annotated[Path | None, typer.Option(help="Save the partition as JSON, for `fedotp run --partition`.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw clients x classes into this .png, .pdf or .svg.")] = None,
) -> None:
    """Partition a data set among clients, like a run with the same settings.

    \b
    Examples:
      fedotp data partition oxford_pets --set partition.shots=16
      fedotp data partition pacs --set partition.scheme=domain --plot pacs.png
    """
    from fedotp.data.partition import make_partition
    from fedotp.runs.one import load_data

    config = _options.config_of(dataset, root, changes)
    loaded = load_data(config.data)
    if config.data.skip_broken:
        loaded = loaded.without(broken.ref for broken in data.check_dataset(loaded).broken)
        print(f"{counted(len(loaded.skipped), 'broken image')} skipped")
    divided = make_partition(loaded, config.partition, authors=config.authors.partition)
    if out is not None:
        divided.save(out)
    if plot is not None:
        from fedotp.report import plot_partition
        from fedotp.report.figure import save_figure

        save_figure(plot_partition(divided, loaded), plot)
    numbers = ("classes", "train", "test")
    rows = (
        (client.name, client.domain or "mixed", (row > 0).sum(), len(client.train), len(client.test))
        for client, row in zip(divided.clients, divided.counts(loaded), strict=True)
    )
    print_table(("client", "domain", *numbers), rows, right=numbers)
    print(f"{counted(len(divided), 'client')}, digest {divided.digest}")


def _print(text: str) -> None:
    """Print a line with names of files and classes made printable."""
    print(printable(text))


def _print_counts(dataset: "data.Dataset") -> None:
    domains = dataset.domains if len(dataset.domains) > 1 else ("train / test",)
    for note in dataset.notes:
        _print(f"note: {note}")
    rows: list[list[str]] = []
    for label, name in enumerate(dataset.classes):
        counts = (
            " / ".join(
                str(((part.labels == label) & (part.domains == d)).sum()) for part in (dataset.train, dataset.test)
            )
            for d in range(len(dataset.domains))
        )
        rows.append([name, *counts])
    print_table(("class", *domains), rows, right=domains)
