"""A server that is stopped while nobody is there; test_link.py, test_real_sites.py: while it waits for the first."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from near_sites import NearGrid, make_deployable, named, parts
from real_processes import processes

from fedotp.flower.link._superlink import free_port
from fedotp.flower.server import ServerSettings
from fedotp.flower.server._deployed import Deployed
from fedotp.flower.server._serve import resume_serving, serve
from fedotp.runs.watch import Observer

QUICK = ServerSettings(round_timeout=0.5, start_timeout=20)


def test_ctrl_c_while_nobody_is_there_does_not_wait(inputs: Path, tmp_path: Path) -> None:
    grid = NearGrid(parts(tmp_path, 2))

    class Impatient(Observer):
        def on_round(self, report: object) -> None:
            grid.offline |= set(grid.nodes)
            stop_waiting[0]()

    stop_waiting: list[Callable[[], None]] = []
    made = Deployed.__init__

    def remember(self: Deployed, *values: Any, **options: Any) -> None:
        made(self, *values, **options)
        stop_waiting.append(self.on_interrupt)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Deployed, "__init__", remember)
        with pytest.raises(KeyboardInterrupt):
            serve(grid, make_deployable(inputs), QUICK, tmp_path / "run", observer=Impatient(), **named(grid))
    again = NearGrid(parts(tmp_path, 2))
    run = resume_serving(again, tmp_path / "run", QUICK, **named(again))  # type: ignore[arg-type]
    assert [record["round"] for record in run.metrics("round")] == [1, 2]


SLOW_TO_EXIT = """
import threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()  # as a request of Flower's that is not answered
from fedotp.cli import main
try:
    main()
finally:
    print("exiting", flush=True)
"""


def test_one_more_ctrl_c_ends_a_process_that_is_slow_to_exit_without_a_traceback(inputs: Path, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(make_deployable(inputs).to_toml())
    port = free_port()
    with processes(tmp_path) as started:
        arguments = ["study.toml", "--out", "run", "--insecure", "--min-sites", 1, "--port", port]
        started.start("server", "server", *arguments, code=SLOW_TO_EXIT)
        started.until(lambda: "listening" in started.log("server"))
        started.running["server"].send_signal(signal.SIGINT)
        started.until(lambda: "exiting" in started.log("server"))
        started.running["server"].send_signal(signal.SIGINT)
        assert started.wait("server") == 130
    assert "Traceback" not in started.log("server")
    assert "no run was made" in started.log("server").splitlines()[-2]
