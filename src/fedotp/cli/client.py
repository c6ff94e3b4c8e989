"""`fedotp client`: one site of a federation."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedotp._files import cache_folder
from fedotp._text import printable
from fedotp.cli._options import DEVICE, InsecureOption, KeysOption
from fedotp.cli.posix import need_posix
from fedotp.errors import FedotpError
from fedotp.flower import LEAST_NOISE, PRIVACY_DELTA, SECURE_SITES, SHARE

app = typer.Typer()


@app.command()
def client(
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="The site's images: a folder per class, or the name of a data set.", show_default=False
        ),
    ] = None,
    server: Annotated[
        str | None, typer.Option(metavar="HOST[:PORT]", help="Where the server listens; else as the keys say.")
    ] = None,
    keys: KeysOption = None,
    name: Annotated[str | None, typer.Option(help="The site's name, where it has no keys that say it.")] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where private prompts and encoded images are kept.", show_default="in the user's cache"
        ),
    ] = None,
    share: Annotated[
        str,
        typer.Option(
            metavar="WHAT",
            help="What the server is told beyond the update: nothing, the training loss, scores on the site's tests, "
            "or also predictions image by image.",
        ),
    ] = SHARE,
    backbone: Annotated[
        str, typer.Option(metavar="FILE", help="The backbone's weights, if not where the configuration says.")
    ] = "",
    device: Annotated[str, typer.Option(help="Where to compute: auto, cpu, cuda:1 ...")] = DEVICE,
    window: Annotated[
        str,
        typer.Option(
            metavar="WINDOW",
            help="How this site's greys of more than 8 bits are seen, as data.window; else as the federation says.",
        ),
    ] = "",
    part: Annotated[
        int, typer.Option(metavar="N", help="Instead of --data: part N of the server's own data set, for trials.")
    ] = -1,
    require_secure: Annotated[
        bool,
        typer.Option(
            "--require-secure",
            help="Refuse a federation whose server would see this site's update; needs peers.toml among the keys.",
        ),
    ] = False,
    secure_sites: Annotated[
        int, typer.Option(metavar="N", help="Refuse a secure sum of fewer than N sites.")
    ] = SECURE_SITES,
    require_privacy: Annotated[
        float | None,
        typer.Option(
            metavar="EPSILON",
            help="Refuse what would spend more than EPSILON of the images' privacy, in all runs together.",
            show_default=False,
        ),
    ] = None,
    privacy_unit: Annotated[
        str | None,
        typer.Option(
            metavar="UNIT",
            help="With --require-privacy: what is hidden, an example or a group (a patient).",
            show_default="example",
        ),
    ] = None,
    privacy_delta: Annotated[
        float | None,
        typer.Option(
            metavar="DELTA",
            help="With --require-privacy: the largest delta; never more than 1 / (training images).",
            show_default=f"{PRIVACY_DELTA:g}",
        ),
    ] = None,
    least_noise: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="With --require-privacy: the least noise multiplier.",
            show_default=f"{LEAST_NOISE:g}",
        ),
    ] = None,
    insecure: InsecureOption = False,
) -> None:
    """Take part in a federation with this site's images; they never leave.

    The site keeps a private prompt and sends only what the method shares. It
    runs until it is stopped, and comes back by itself when the server does.

    \b
    Examples:
      fedotp client --data scans --server fed.example.org --keys keys/sites/north
      fedotp client --data scans --keys north --share nothing --require-secure
      fedotp client --data scans.csv --window 0..65535 --keys keys/sites/north
      fedotp client --data scans --keys keys/sites/north --require-privacy 8
      fedotp client --part 0 --name north --server 127.0.0.1 --insecure
    """
    need_posix("client")
    from fedotp.flower import need_flower

    need_flower()
    if (keys is None) != insecure:
        raise FedotpError(
            "give --keys DIR, the folder this site was handed"
            + (", or --insecure, and not both" if insecure else "; --insecure goes without, on one machine only")
        )
    if (data is None) == (part < 0):
        raise FedotpError("give the site's images with --data DIR (or, for trials, --part N), and not both")
    from fedotp.flower.keys import read_site_keys
    from fedotp.flower.site import SiteSettings, run_site

    held = None if keys is None else read_site_keys(keys)
    called = held.name if held else name or (f"site-{part}" if part >= 0 else "")
    if not called:
        raise FedotpError("give the site a --name")
    if held and name not in (None, held.name):
        raise FedotpError(f"--name {name}: these are the keys of {held.name}")
    if require_secure and (held is None or held.peers is None):
        raise FedotpError(
            "--require-secure: this site cannot tell the other sites from invented ones; put the coordinator's "
            "peers.toml into the folder that --keys names"
        )
    terms = {"privacy_unit": privacy_unit, "privacy_delta": privacy_delta, "least_noise": least_noise}
    given: dict[str, Any] = {name: value for name, value in terms.items() if value is not None}
    if given and require_privacy is None:
        option = next(iter(given)).replace("_", "-")
        raise FedotpError(f"--{option}: belongs to --require-privacy EPSILON; give both")
    if require_privacy is not None and not require_privacy > 0:
        raise FedotpError(f"--require-privacy {require_privacy:g}: must be more than 0, for example 8")
    address = server or (held.server if held else "")
    if not address:
        raise FedotpError("give --server HOST[:PORT]")
    settings = SiteSettings(
        name=called,
        state=(state or cache_folder() / "sites" / called).expanduser().resolve(),
        data=_existing(data) if data else "",
        part=part,
        share=share,  # type: ignore[arg-type]
        backbone=backbone,
        device=device,
        window=window,
        keys="" if keys is None else str(keys.expanduser().resolve()),
        require_secure=require_secure,
        secure_sites=secure_sites,
        require_privacy=require_privacy or 0.0,
        **given,
    )
    run_site(settings, _with_port(address), held)


def _existing(data: str) -> str:
    """`data` with its folder looked up now: a site should not find out when the server asks."""
    from fedotp.data import load_dataset

    path = Path(data).expanduser()
    known = str(path.resolve()) if path.exists() else data
    for note in load_dataset(known).notes:
        print(printable(f"note: {note}"))
    return known


def _with_port(server: str) -> str:
    host, colon, port = server.rpartition(":")
    if not colon or server.endswith("]"):
        return f"{server}:8000"
    if not port.isdigit() or not host:
        raise FedotpError(f"--server {server}: must be HOST or HOST:PORT, for example fed.example.org:8000")
    return server
