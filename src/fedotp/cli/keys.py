"""`fedotp keys`: the keys of a federation of real sites."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from fedotp.cli._options import need_posix
from fedotp.cli.show import print_paths, print_table
from fedotp.errors import FedotpError
from fedotp.flower import SERVER_DAYS, SITE_DAYS


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
        str, typer.Option(metavar="HOST[,HOST...]", help="Names or IP addresses of the server; sites use the first.")
    ],
    sites: Annotated[
        str, typer.Option(metavar="NAME[,NAME...]", help="For trials: sites whose private keys are all made here.")
    ] = "",
    days: DaysOption = SERVER_DAYS,
) -> None:
    """Create the keys of a federation: an authority and a certificate for the server.

    Each site makes its own key with `fedotp keys request`.

    \b
    Examples:
      fedotp keys make keys --server fl.example.org
      fedotp keys make keys --server localhost --sites north,south
    """
    from fedotp.flower.keys import make_keys

    make_keys(folder, _words(server), _words(sites), days=days)
    rows = [("stays here", folder / "authority"), ("to the server", folder / "server")]
    print_paths([*rows, *((f"to {site}", folder / "sites" / site) for site in _words(sites))])
    if _words(sites):
        print("for trials only: the sites' private keys were made here; see fedotp keys request")


@app.command()
def request(
    site: Annotated[str, typer.Argument(help="Name of the site.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the site's key, which stays there.")],
) -> None:
    """At a site: create its key and a request for the coordinator; later, a request to renew its certificate.

    Example: fedotp keys request north north-keys
    """
    from fedotp.flower.keys import key_fingerprint, request_key

    path, key = request_key(site, folder)
    print_paths([("to the coordinator", path)])
    print(f"fingerprint, to compare by telephone: {key_fingerprint(key)}")


@app.command()
def sign(
    folder: FolderArgument,
    path: Annotated[Path, typer.Argument(metavar="REQUEST", help="The site's file NAME.csr.")],
    days: Annotated[int, typer.Option(help="Validity of the site's certificate, in days.")] = SITE_DAYS,
    replace: Annotated[bool, typer.Option("--replace", help="Revoke the site's old key, if it has another.")] = False,
) -> None:
    """At the coordinator: sign a site's request, for a new site or to renew a certificate.

    Compare its fingerprint with the site's by telephone first: fedotp keys show.

    Example: fedotp keys sign keys north.csr
    """
    from fedotp.flower.keys import key_fingerprint, sign_request

    site, key = sign_request(folder, path, days=days, replace=replace)
    print(f"{site}: {key_fingerprint(key)}")
    print(f"you should have compared this fingerprint; if it differs: fedotp keys revoke {folder} {site}")
    print_paths([(f"to {site}", folder / "sites" / site)])
    _print_next(folder, "sites.crt", *(["revoked.crl"] if replace else []))
    print("with secure sums, all other sites need the new peers.crt in their folders, and a restart")


@app.command()
def revoke(folder: FolderArgument, site: Annotated[str, typer.Argument(help="Name of the site.")]) -> None:
    """At the coordinator: revoke the key of a site, so that the server refuses it.

    Example: fedotp keys revoke keys north
    """
    from fedotp.flower.keys import revoke_site

    revoke_site(folder, site)
    _print_next(folder, "revoked.crl")


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
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of all keys, of the server or of a site; or a request.")
    ],
) -> None:
    """Show the keys in a folder or a request: fingerprints, hosts, expiry dates of certificates.

    \b
    Examples:
      fedotp keys show keys
      fedotp keys show north.csr
    """
    from fedotp.flower.keys import key_facts

    print_table(("owner", "fingerprint (SHA-256)", ""), key_facts(folder), wide=True)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _print_next(folder: Path, *names: str) -> None:
    print(
        f"copy to the server, which reads it without a restart: {' '.join(str(folder / 'server' / n) for n in names)}"
    )
