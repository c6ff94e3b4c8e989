"""`fedotp keys`: the keys of a federation of real sites."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from fedotp.cli._options import need_posix
from fedotp.cli.show import cell, listing, print_paths, print_wide
from fedotp.errors import FedotpError
from fedotp.flower import SERVER_DAYS


def _require_packages() -> None:
    need_posix("keys")
    if find_spec("cryptography") is None:
        raise FedotpError("keys need the package cryptography: pip install 'fedotp[flower]'")


app = typer.Typer(help="Keys of a federation of real sites.", no_args_is_help=True, callback=_require_packages)

FolderArgument = Annotated[Path, typer.Argument(metavar="DIR", help="Folder created by `fedotp keys make`.")]
DaysOption = Annotated[int, typer.Option(help="Validity of the server certificate, in days.")]


@app.command()
def make(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    server: Annotated[
        str,
        typer.Option(metavar="HOST[,HOST...]", help="Names or IP addresses of the server; sites use the first."),
    ],
    sites: Annotated[str, typer.Option(metavar="NAME[,NAME...]", help="Names of the sites.")],
    days: DaysOption = SERVER_DAYS,
) -> None:
    """Create the keys of a federation: an authority, a certificate for the server, a key for each site.

    Example: fedotp keys make keys --server fl.example.org --sites north,south,east
    """
    from fedotp.flower.keys import make_keys

    make_keys(folder, _words(server), _words(sites), days=days)
    rows = [("stays here", folder / "authority"), ("to the server", folder / "server")]
    print_paths([*rows, *_site_folders(folder, _words(sites))])


@app.command()
def add(
    folder: FolderArgument, sites: Annotated[list[str], typer.Argument(metavar="SITE...", help="Names of new sites.")]
) -> None:
    """Create keys for more sites.

    Example: fedotp keys add keys west
    """
    from fedotp.flower.keys import add_sites

    add_sites(folder, sites)
    print_paths(_site_folders(folder, sites))
    print("with secure sums, copy the new peers.toml to every site and restart it")
    _print_next(folder, "sites.toml")


@app.command()
def remove(folder: FolderArgument, site: Annotated[str, typer.Argument(help="Name of the site.")]) -> None:
    """Remove the key of a site, so that the server rejects it.

    Example: fedotp keys remove keys west
    """
    from fedotp.flower.keys import remove_site

    remove_site(folder, site)
    _print_next(folder, "sites.toml")


@app.command()
def renew(
    folder: FolderArgument,
    server: Annotated[
        str, typer.Option(metavar="HOST[,HOST...]", help="Names or IP addresses of the server; default: unchanged.")
    ] = "",
    days: DaysOption = SERVER_DAYS,
) -> None:
    """Sign a new certificate for the server, before the old one expires or for other hosts. Sites need no new files.

    Example: fedotp keys renew keys
    """
    from fedotp.flower.keys import renew_server

    renew_server(folder, _words(server), days=days)
    _print_next(folder, "server.crt")


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of all keys, of the server or of a site.")],
) -> None:
    """Show the keys in a folder: fingerprints, hosts, expiry dates of certificates.

    Example: fedotp keys show keys
    """
    from fedotp.flower.keys import key_facts

    table = listing("owner", "fingerprint (SHA-256)", "")
    for row in key_facts(folder):
        table.add_row(*map(cell, row))
    print_wide(table)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _site_folders(folder: Path, sites: list[str]) -> list[tuple[str, Path]]:
    return [(f"to {site}", folder / "sites" / site) for site in sites]


def _print_next(folder: Path, name: str) -> None:
    print(f"copy {folder / 'server' / name} to the server and restart it")
