"""`fedotp client`: one site of a federation."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedotp._files import cache_folder
from fedotp._text import printable
from fedotp.cli import _options
from fedotp.cli.show import print_findings
from fedotp.errors import FedotpError
from fedotp.flower.site import SiteSettings

if TYPE_CHECKING:  # importing it is slow, too slow for `--help`
    from fedotp.flower.keys import SiteKeys

app = typer.Typer()

_term = partial(typer.Option, rich_help_panel="Privacy of the site")
DataOption = Annotated[
    str | None, typer.Option(metavar="DIR", help="Images of the site: a folder per class, or the name of a data set.")
]
PartOption = Annotated[
    int,
    typer.Option(
        metavar="N", help="Instead of --data: part N of the server's data set, for tests.", show_default=False
    ),
]
NameOption = Annotated[str | None, typer.Option(help="Name of the site; only without --keys.")]
StateOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Folder of private prompts and encoded images.", show_default="in the user's cache"
    ),
]
ServerOption = Annotated[
    str | None,
    _options.connection_option(metavar="HOST[:PORT]", help="Address of the server; default: the one in the keys."),
]
ShareOption = Annotated[
    str,
    _term(
        metavar="WHAT",
        help="What to report besides the update: nothing, loss, scores (of test images) or predictions (of each).",
    ),
]
PolicyOption = Annotated[
    Path | None,
    _term(metavar="FILE", help="The owner's limits: refuse every order of the server beyond them (docs/policy.md)."),
]
PolicyKeyOption = Annotated[
    Path | None, _term(metavar="PEM", help="Accept the policy only if FILE.sig is signed with this public key's owner.")
]


@app.command()
def client(
    data: DataOption = None,
    part: PartOption = -1,
    name: NameOption = None,
    state: StateOption = None,
    backbone: _options.BackboneOption = None,
    device: _options.DeviceOption = _options.DEVICE,
    window: _options.WindowOption = "",
    server: ServerOption = None,
    keys: _options.KeysOption = None,
    insecure: _options.InsecureOption = False,
    share: ShareOption = SiteSettings.share,
    policy: PolicyOption = None,
    policy_key: PolicyKeyOption = None,
    log_format: _options.LogFormatOption = _options.LOG_FORMAT,
    status: _options.StatusOption = None,
    status_token: _options.StatusTokenOption = None,
    check: _options.CheckOption = False,
) -> None:
    """Participate in a federation with this site's images, which never leave it.

    The site keeps a private prompt and sends only what the method shares. The
    command runs until it is stopped, and reconnects automatically. Settings
    that are not given are those of the federation.

    \b
    Examples:
      fedotp client --data scans --server fed.example.org --keys keys/sites/north
      fedotp client --data scans --keys north --share nothing --policy limits.toml
      fedotp client --data scans.csv --window 0..65535 --keys keys/sites/north
      fedotp client --part 0 --name north --server 127.0.0.1 --insecure
      fedotp client --check --data scans --keys keys/sites/north
    """
    held = _keys(keys, insecure, lenient=check)
    is_broken = keys is not None and held is None
    called = keys.resolve().name if keys and is_broken else _name(held, name, part)
    address = "" if is_broken else _address(server, held)
    if (data is None) == (part < 0):
        raise FedotpError("give the site's images with either --data DIR or, for tests, --part N")
    if policy_key and not policy:
        raise FedotpError("--policy-key needs --policy FILE; give both")
    from fedotp.flower.site import check_site, run_site

    settings = SiteSettings(
        name=called,
        state=(state or cache_folder() / "sites" / called).expanduser().resolve(),
        data=_resolved(data) if data else "",
        part=part,
        share=share,  # type: ignore[arg-type]
        backbone=backbone or "",
        device=device,
        window=window,
        keys="" if keys is None else str(keys.expanduser().resolve()),
    )
    if check:
        print_findings(check_site(settings, address, policy, policy_key))
        return
    _print_notes(settings)
    job: dict[str, Any] = {"policy": policy, "policy_key": policy_key, "log_format": log_format}
    run_site(settings, address, held, _options.status_of(status, status_token), **job)


def _keys(folder: Path | None, insecure: bool, *, lenient: bool) -> "SiteKeys | None":
    """Return the site's keys; None with --insecure, or if they are invalid and `lenient`."""
    _options.require_keys("client", folder, insecure, ", the folder of this site's keys")
    from fedotp.flower.keys import SiteKeys

    try:
        return None if folder is None else SiteKeys.read(folder)
    except FedotpError:
        if lenient:
            return None
        raise


def _name(held: "SiteKeys | None", name: str | None, part: int) -> str:
    if held and name not in (None, held.name):
        raise FedotpError(f"--name {name}: the keys are those of {held.name}; remove --name")
    called = held.name if held else name or (f"site-{part}" if part >= 0 else "")
    if not called:
        raise FedotpError("give the name of the site with --name")
    return called


def _resolved(data: str) -> str:
    """Return the absolute path of a folder or table, or the name of a data set."""
    path = Path(data).expanduser()
    return str(path.resolve()) if path.exists() else data


def _print_notes(settings: SiteSettings) -> None:
    """Load the data set, if given, now, before connecting to the server, and print its notes."""
    from fedotp.data import load_dataset

    for note in load_dataset(settings.data).notes if settings.data else ():
        print(printable(f"note: {note}"))


def _address(server: str | None, held: "SiteKeys | None") -> str:
    server = server or (held.server if held else "")
    if not server:
        raise FedotpError("give --server HOST[:PORT]")
    host, colon, port = server.rpartition(":")
    if not colon or server.endswith("]"):
        return f"{server}:8000"
    if not port.isdigit() or not host:
        raise FedotpError(f"--server {server}: must be HOST or HOST:PORT, for example fed.example.org:8000")
    return server
