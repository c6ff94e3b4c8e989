"""`fedotp serve`: who can reach the page."""

from pathlib import Path

import pytest
from cli_made import Fedotp

from fedotp.serve import Server


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)])
def test_others_reach_it_only_if_asked(
    place: Path, fedotp: Fedotp, monkeypatch: pytest.MonkeyPatch, host: str, warned: bool
) -> None:
    def interrupted(server: Server) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Server, "serve_forever", interrupted)
    assert fedotp("run", "tiny.toml", "--out", "run", "--quiet").status == 0
    done = fedotp("serve", "run", "--port", 0, "--host", host)
    assert done.status == 0, done.err
    assert done.out.startswith(f"http://{host}:")
    assert done.err == (
        f"warning: everyone who reaches {host} can use this page and the clients' prompts behind it\n" if warned else ""
    )


def test_what_cannot_be_served(place: Path, fedotp: Fedotp) -> None:
    assert fedotp("serve", "nowhere").err.startswith("error: nowhere is neither a run nor a bundle")
    assert fedotp("run", "tiny.toml", "--out", "run", "--quiet").status == 0
    done = fedotp("serve", "run", "--host", "not a host", "--port", 0)
    assert done.status == 2
    assert done.err.startswith("error: cannot listen on not a host:0: ")
