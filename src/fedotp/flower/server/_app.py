"""The Flower ServerApp of a federation."""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedotp.config import load_config
from fedotp.errors import FedotpError
from fedotp.flower._log import start_logging
from fedotp.flower.server._serve import resume_serving, serve
from fedotp.flower.server._settings import ServerSettings
from fedotp.runs import free_name

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation that the run configuration names, with the sites that are connected."""
    start_logging()
    given = context.run_config
    try:
        settings = ServerSettings.of(given)
        if resumed := str(given.get("resume", "")):
            resume_serving(grid, Path(resumed).expanduser(), settings)
            return
        config = load_config(str(given.get("config", "demo"))).override(str(given.get("set", "")).split())
        out = Path(str(given["out"])).expanduser() if given.get("out") else free_name(config, Path("runs"))
        classes = tuple(name.strip() for name in str(given.get("classes", "")).split(",") if name.strip())
        serve(grid, config, settings, out, classes=classes)
    except FedotpError as error:
        raise SystemExit(f"error: {error}") from error


__all__ = ["app"]
