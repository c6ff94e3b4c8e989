"""`fedotp client`: one site of a federation."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedotp._files import cache_folder
from fedotp._text import printable
from fedotp.cli import _options
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
RequireSecureOption = Annotated[
    bool,
    _term(
        "--require-secure",
        help="Refuse federations whose server would see this site's update; needs peers.crt in the --keys folder.",
    ),
]
SecureSitesOption = Annotated[int, _term(metavar="N", help="Refuse secure sums of fewer than N sites.")]
RequirePrivacyOption = Annotated[
    float | None,
    _term(metavar="EPSILON", help="Refuse rounds that would raise the total epsilon of all runs above EPSILON."),
]
PrivacyUnitOption = Annotated[
    str | None,
    _term(
        metavar="UNIT",
        help="With --require-privacy: the protected unit, example or group (for example a patient).",
        show_default="example",
    ),
]
PrivacyDeltaOption = Annotated[
    float | None,
    _term(
        metavar="DELTA",
        help="With --require-privacy: the largest delta; at most 1 / (training images).",
        show_default=f"{SiteSettings.privacy_delta:g}",
    ),
]
LeastNoiseOption = Annotated[
    float | None,
    _term(
        metavar="X",
        help="With --require-privacy: the smallest noise multiplier.",
        show_default=f"{SiteSettings.least_noise:g}",
    ),
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
    require_secure: RequireSecureOption = False,
    secure_sites: SecureSitesOption = SiteSettings.secure_sites,
    require_privacy: RequirePrivacyOption = None,
    privacy_unit: PrivacyUnitOption = None,
    privacy_delta: PrivacyDeltaOption = None,
    least_noise: LeastNoiseOption = None,
    log_format: _options.LogFormatOption = _options.LOG_FORMAT,
    status: _options.StatusOption = None,
    status_token: _options.StatusTokenOption = None,
) -> None:
    """Participate in a federation with this site's images, which never leave it.

    The site keeps a private prompt and sends only what the method shares. The
    command runs until it is stopped, and reconnects automatically. Settings
    that are not given are those of the federation.

    \b
    Examples:
      fedotp client --data scans --server fed.example.org --keys keys/sites/north
      fedotp client --data scans --keys north --share nothing --require-secure
      fedotp client --data scans.csv --window 0..65535 --keys keys/sites/north
      fedotp client --data scans --keys keys/sites/north --require-privacy 8
      fedotp client --part 0 --name north --server 127.0.0.1 --insecure
    """
    held = _keys(keys, insecure)
    called = _name(held, name, part)
    _require_peers(held, require_secure)
    privacy = _privacy(require_privacy, unit=privacy_unit, delta=privacy_delta, noise=least_noise)
    address = _address(server, held)
    if (data is None) == (part < 0):
        raise FedotpError("give the site's images with either --data DIR or, for tests, --part N")
    from fedotp.flower.site import run_site

    settings = SiteSettings(
        name=called,
        state=(state or cache_folder() / "sites" / called).expanduser().resolve(),
        data=_existing(data) if data else "",
        part=part,
        share=share,  # type: ignore[arg-type]
        backbone=backbone or "",
        device=device,
        window=window,
        keys="" if keys is None else str(keys.expanduser().resolve()),
        require_secure=require_secure,
        secure_sites=secure_sites,
        **privacy,
    )
    run_site(settings, address, held, _options.status_of(status, status_token), log_format=log_format)


def _keys(folder: Path | None, insecure: bool) -> "SiteKeys | None":
    """Return the site's keys; None with --insecure."""
    _options.need_posix("client")
    from fedotp.flower import need_flower

    need_flower()
    _options.require_keys(folder, insecure, ", the folder of this site's keys")
    from fedotp.flower.keys import SiteKeys

    return None if folder is None else SiteKeys.read(folder)


def _name(held: "SiteKeys | None", name: str | None, part: int) -> str:
    if held and name not in (None, held.name):
        raise FedotpError(f"--name {name}: the keys are those of {held.name}; remove --name")
    called = held.name if held else name or (f"site-{part}" if part >= 0 else "")
    if not called:
        raise FedotpError("give the name of the site with --name")
    return called


def _require_peers(held: "SiteKeys | None", require_secure: bool) -> None:
    if require_secure and (held is None or held.peers is None):
        raise FedotpError(
            "--require-secure: this site cannot verify the identities of the other sites; put the coordinator's "
            "peers.crt into the --keys folder"
        )


def _privacy(epsilon: float | None, **terms: str | float | None) -> dict[str, Any]:
    """Return the site's privacy requirements, as settings."""
    names = {"unit": "privacy_unit", "delta": "privacy_delta", "noise": "least_noise"}
    given = {names[key]: value for key, value in terms.items() if value is not None}
    if given and epsilon is None:
        option = next(iter(given)).replace("_", "-")
        raise FedotpError(f"--{option} needs --require-privacy EPSILON; give both")
    if epsilon is not None and not epsilon > 0:
        raise FedotpError(f"--require-privacy {epsilon:g}: must be more than 0, for example 8")
    return {"require_privacy": epsilon or 0.0, **given}


def _existing(data: str) -> str:
    """Resolve `data` and check it now, before connecting to the server."""
    from fedotp.data import load_dataset

    path = Path(data).expanduser()
    known = str(path.resolve()) if path.exists() else data
    for note in load_dataset(known).notes:
        print(printable(f"note: {note}"))
    return known


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
