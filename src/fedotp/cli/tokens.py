"""`fedotp data encode` and `fedotp data cache`: fill, list and prune the token store."""

import time
from pathlib import Path
from typing import Annotated

import typer

from fedotp._bars import encoding_progress
from fedotp._text import counted, n_bytes, printable
from fedotp.cli._options import DatasetArgument, QuietOption, RootOption, SetOption, config_of
from fedotp.data import store as tokens
from fedotp.errors import FedotpError

app = typer.Typer()
cache = typer.Typer(help="Token store: show, prune.", no_args_is_help=True)
app.add_typer(cache, name="cache")

_GIB = 1 << 30
StoreOption = Annotated[
    Path | None, typer.Option(help="Folder of the token store; default: $FEDOTP_CACHE/tokens or the user's cache.")
]


@app.command()
def encode(
    dataset: DatasetArgument, changes: SetOption = None, root: RootOption = None, quiet: QuietOption = False
) -> None:
    """Encode every image of a data set once; later runs with this backbone reuse the tokens.

    If interrupted, the same command continues.

    \b
    Examples:
      fedotp data encode oxford_pets --set backbone.name=ViT-B/16
      fedotp data encode ~/my-photos --set backbone.name=mini --set data.crops=50
    """
    from fedotp.runs.one import encode_for, load_backbone, load_data

    config = config_of(dataset, root, changes)
    loaded = load_data(config.data)
    clip = load_backbone(config.backbone.source, config.compute.device)
    with encoding_progress(quiet=quiet) as on_progress:
        encoded = encode_for(config, loaded, clip, on_progress)
    n_crops = encoded.train.records.size + encoded.test.records.size
    repaired = f", {encoded.n_repaired} of them to replace corrupt ones" if encoded.n_repaired else ""
    name = printable(encoded.dataset.name)
    print(f"{name}: {len(encoded.train):,} train, {len(encoded.test):,} test images as tokens")
    print(f"{n_crops:,} crops, {encoded.n_encoded:,} encoded now{repaired}")
    if encoded.dataset.skipped:
        print(f"{counted(len(encoded.dataset.skipped), 'broken image')} skipped")


@cache.command()
def show(store: StoreOption = None) -> None:
    """List the contents of the token store, least recently used first.

    Example: fedotp data cache show
    """
    root = store or tokens.default_store()
    infos = tokens.list_stores(root)
    if infos:
        _print_stores(infos)
    print(f"{printable(root)}: {len(infos)} stores, {n_bytes(sum(info.n_bytes for info in infos))}")


@cache.command()
def prune(
    store: StoreOption = None,
    older_than: Annotated[float | None, typer.Option(min=0, help="Only tokens unused for this many days.")] = None,
    backbone: Annotated[str | None, typer.Option(help="Only this backbone: prefix of its digest.")] = None,
    max_size: Annotated[
        float | None, typer.Option(min=0, help="Only until this many GiB are left, oldest first.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All tokens.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete tokens, which are encoded again when needed. Several options narrow the selection.

    Examples: fedotp data cache prune --older-than 30, fedotp data cache prune --max-size 50 --yes
    """
    if everything == any(option is not None for option in (older_than, backbone, max_size)):
        raise FedotpError("select tokens with --older-than, --backbone or --max-size, or all of them with --all alone")
    chosen = tokens.select_stores(
        tokens.list_stores(store or tokens.default_store()),
        backbone=backbone or "",
        older_than_days=older_than or 0.0,
        max_bytes=None if max_size is None else int(max_size * _GIB),
    )
    if not chosen:
        print("nothing to prune")
        return
    _print_stores(chosen)
    if not yes:
        typer.confirm(f"delete {n_bytes(sum(info.n_bytes for info in chosen))}?", abort=True)
    print(f"freed {n_bytes(tokens.remove_stores(chosen))}")


def _print_stores(infos: "list[tokens.StoreInfo]") -> None:
    for info in infos:
        encoding = info.encoding
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.last_use))
        print(f"backbone   {printable(encoding.backbone)}")
        print(f"tower      {printable(info.tower)}, in {printable(encoding.precision)}")
        print(f"transform  {printable(encoding.transform)}")
        crops = counted(info.n_crops, "crop")
        print(f"contents   {counted(info.n_images, 'image')}, at most {crops} of each, {encoding.storage}")
        print(f"size       {n_bytes(info.n_bytes)}, last used {used}\n")
