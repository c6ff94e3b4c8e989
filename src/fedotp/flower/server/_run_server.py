"""A server at work: with its own SuperLink and the sites' keys, or as a ServerApp on a SuperLink that is there."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedotp._files import require_writable
from fedotp._interrupt import listen
from fedotp.config import load_config
from fedotp.errors import FedotpError
from fedotp.flower._log import start_logging
from fedotp.flower.keys import read_server_keys
from fedotp.flower.link import superlink
from fedotp.flower.server._servable import require_servable
from fedotp.flower.server._serve import resume_serving, serve
from fedotp.flower.server._server_settings import ServerSettings
from fedotp.runs.directory import RunDirectory, free_name

log = logging.getLogger("fedotp.server")

app = ServerApp()


def run_server(
    settings: ServerSettings,
    host: str,
    port: int,
    keys: Path | None,
    *,
    source: str,
    changes: Sequence[str],
    classes: tuple[str, ...],
    out: Path | None,
    resume: Path | None,
) -> RunDirectory:
    """Listen at `host`:`port`, let in the sites that `keys` name (without keys: all), and run, or `resume`.

    Returns the run's directory; one that was stopped before its first round may not exist.
    """
    held = None if keys is None else read_server_keys(keys)
    names = tuple(held.sites) if held else ()
    if held and settings.min_sites > len(names):
        raise FedotpError(
            f"--min-sites {settings.min_sites}: only {len(names)} sites have keys in {keys}; "
            "lower it, or register more with `fedotp keys add`"
        )
    if resume is not None:
        path = RunDirectory.open(resume).path
    else:
        config = load_config(source).override(list(changes))
        require_servable(config, settings, names)
        path = out or free_name(config, Path("runs"))
        RunDirectory(path).require_new()
    require_writable(path)
    if held is None and host not in ("localhost", "::1") and not host.startswith("127."):
        log.warning("anyone who reaches %s:%d can take part and read along: there are no keys (--insecure)", host, port)
    try:
        with listen(lambda: log.info("stopping")) as interrupt, superlink(host, port, held) as link:
            log.info("listening at %s:%d for %s", host, port, ", ".join(names) or "anyone who comes")
            with link.run() as grid:
                known: dict[str, Any] = {"names": names, "nodes": link.nodes, "interrupt": interrupt}
                known["public_keys"] = held.sites if held else None
                if resume is not None:
                    return resume_serving(grid, resume, settings, **known)
                return serve(grid, config, settings, path, classes=classes, **known)
    except KeyboardInterrupt:
        return RunDirectory(path)


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
