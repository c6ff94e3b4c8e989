"""`fedotp serve`: a local page to try the classifiers of a run's clients."""

from typing import Annotated

import typer

from fedotp._text import printable
from fedotp._web import is_loopback
from fedotp.cli import _options

app = typer.Typer()


@app.command()
def serve(
    source: _options.ClassifierArgument,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free port.")] = 8765,
    host: Annotated[
        str, typer.Option(help="Address to listen on; the default is reachable only from this machine.")
    ] = "127.0.0.1",
    calibrate: _options.CalibrateOption = None,
    prior: _options.PriorOption = None,
    frequencies: _options.FrequenciesOption = None,
    backbone: _options.BackboneOption = None,
    device: _options.DeviceOption = _options.DEVICE,
) -> None:
    """Serve a local page: drop an image, choose a client, see the prediction and where the prompts look.

    For a calibrated client, the page also shows a set of classes and flags images unlike the client's own. On this
    machine, a slider sets the strength of the class prior. Only this machine can reach the page, and images stay in
    memory. Stop it with Ctrl-C.

    \b
    Examples:
      fedotp serve runs/pets
      fedotp serve runs/pets --calibrate test
      fedotp serve client-3.bundle --port 0
    """
    from fedotp.classifier import open_classifiers
    from fedotp.serve import make_server

    classifiers = open_classifiers(
        source,
        backbone=backbone,
        device=device,
        calibrate=calibrate,
        prior=prior,
        frequencies=_options.frequencies_of(frequencies),
    )
    server = make_server(classifiers, host=host, port=port)
    if not is_loopback(host):
        typer.secho(
            f"warning: everyone who can reach {printable(host)} can use this page and the clients' prompts",
            err=True,
            fg="yellow",
        )
    try:
        print(f"{server.url}   stop with Ctrl-C", flush=True)
        server.serve_forever()
    except KeyboardInterrupt:
        print()
    finally:
        server.server_close()
