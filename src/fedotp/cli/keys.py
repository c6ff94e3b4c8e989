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
        raise FedotpError("keys need what comes with Flower: pip install 'fedotp[flower]'")


app = typer.Typer(help="Keys of a federation of real sites.", no_args_is_help=True, callback=_require_packages)

FolderArgument = Annotated[Path, typer.Argument(metavar="DIR", help="The folder that `fedotp keys make` made.")]
DaysOption = Annotated[int, typer.Option(help="How long the server certificate is valid.")]


@app.command()
def make(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    server: Annotated[
        str,
        typer.Option(
            metavar="HOST[,HOST...]",
            help="Names or IP addresses under which sites reach the server; sites use the first.",
        ),
    ],
    sites: Annotated[str, typer.Option(metavar="NAME[,NAME...]", help="A name per site.")],
    days: DaysOption = SERVER_DAYS,
) -> None:
    """Make the keys of a federation: an authority, a certificate for the server, a key for every site.

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
    """Make keys for further sites.

    Example: fedotp keys add keys west
    """
    from fedotp.flower.keys import add_sites

    add_sites(folder, sites)
    print_paths(_site_folders(folder, sites))
    print("where sums are secure, copy the new peers.toml to every site and start it again")
    _print_next(folder, "sites.toml")


@app.command()
def remove(folder: FolderArgument, site: Annotated[str, typer.Argument(help="Name of the site.")]) -> None:
    """Forget the key of a site: the server will refuse it.

    Example: fedotp keys remove keys west
    """
    from fedotp.flower.keys import remove_site

    remove_site(folder, site)
    _print_next(folder, "sites.toml")


@app.command()
def renew(
    folder: FolderArgument,
    server: Annotated[
        str, typer.Option(metavar="HOST[,HOST...]", help="Names or IP addresses of the server; as before if not given.")
    ] = "",
    days: DaysOption = SERVER_DAYS,
) -> None:
    """Sign a new certificate for the server, before the old one expires or for other hosts. Sites need nothing new.

    Example: fedotp keys renew keys
    """
    from fedotp.flower.keys import renew_server

    renew_server(folder, _words(server), days=days)
    _print_next(folder, "server.crt")


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="All keys, or the folder of the server or of a site.")],
) -> None:
    """Show what a folder of keys has: fingerprints, hosts, when certificates expire.

    Example: fedotp keys show keys
    """
    from fedotp.flower.keys import key_facts

    table = listing("whose", "fingerprint (SHA-256)", "")
    for row in key_facts(folder):
        table.add_row(*map(cell, row))
    print_wide(table)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _site_folders(folder: Path, sites: list[str]) -> list[tuple[str, Path]]:
    return [(f"to {site}", folder / "sites" / site) for site in sites]


def _print_next(folder: Path, name: str) -> None:
    print(f"copy {folder / 'server' / name} to the server and start the server again")
