"""`fedotp serve`: a local page to try a run's clients on images."""

from typing import Annotated

import typer

from fedotp._text import printable
from fedotp.cli._options import (
    DEVICE,
    BackboneOption,
    CalibrateOption,
    ClassifierArgument,
    DeviceOption,
    FrequenciesOption,
    PriorOption,
    frequencies_of,
)

app = typer.Typer()


@app.command()
def serve(
    source: ClassifierArgument,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free one.")] = 8765,
    host: Annotated[
        str, typer.Option(help="Address to listen on; the default can be reached from this machine only.")
    ] = "127.0.0.1",
    calibrate: CalibrateOption = None,
    prior: PriorOption = None,
    frequencies: FrequenciesOption = None,
    backbone: BackboneOption = None,
    device: DeviceOption = DEVICE,
) -> None:
    """Open a local page: drop an image, choose a client, see what it predicts and where its prompts look.

    For a calibrated client it also shows a set of classes, and whether the image is unlike the client's own. On this
    machine a slider sets how much the class frequencies of the client count.
    Only this machine reaches the page, and images stay in memory. Ctrl-C ends it.

    \b
    Examples:
      fedotp serve runs/pets
      fedotp serve runs/pets --calibrate test
      fedotp serve client-3.bundle --port 0
    """
    from fedotp.classifier import open_classifiers
    from fedotp.serve import is_loopback, make_server

    classifiers = open_classifiers(
        source,
        backbone=backbone,
        device=device,
        calibrate=calibrate,
        prior=prior,
        frequencies=frequencies_of(frequencies),
    )
    server = make_server(classifiers, host=host, port=port)
    if not is_loopback(host):
        typer.secho(
            f"warning: all that reach {printable(host)} can use this page and the clients' prompts behind it",
            err=True,
            fg="yellow",
        )
    try:
        print(f"{server.url}   Ctrl-C ends it", flush=True)
        server.serve_forever()
    except KeyboardInterrupt:
        print()
    finally:
        server.server_close()
