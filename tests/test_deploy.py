"""Units, containers and the start script in deploy/."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"


@pytest.mark.parametrize("name", ["server", "site"])
def test_containers_have_no_more_rights_than_they_need(name: str) -> None:
    compose = yaml.safe_load((DEPLOY / f"compose.{name}.yml").read_text())
    service: dict[str, Any] = compose["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    written = [mount for mount in service["volumes"] if not mount.endswith(":ro")]
    assert written == ["state:/state"]
    assert compose["volumes"] == {"state": None}
    assert service.get("ports") == (["8000:8000"] if name == "server" else None)
    assert not {"privileged", "network_mode", "pid", "devices"} & set(service)
    assert service["restart"] == ("on-failure" if name == "server" else "unless-stopped")  # a server's run has an end


@pytest.mark.parametrize("name", ["server", "site"])
def test_variables_have_an_example(name: str) -> None:
    example = set(re.findall(r"^#?(\w+)=", (DEPLOY / f"{name}.env.example").read_text(), re.MULTILINE))
    users = [f"compose.{name}.yml", f"fedotp-{name}.service", *(["start-server.sh"] if name == "server" else [])]
    used = {name for user in users for name in re.findall(r"\$\{?([A-Z_]+)", (DEPLOY / user).read_text())}
    assert used == example


def test_the_image_is_built_from_what_it_is_given() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    copied = {
        word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]
    }
    let_in = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"}
    assert copied == let_in
    assert all((ROOT / path).exists() for path in copied)
    assert "USER fedotp" in lines
    assert any("'.[site]'" in line for line in lines)
    torch = re.search(r"torch>=[\d.]+,<[\d.]+", (ROOT / "pyproject.toml").read_text())
    assert torch is not None
    assert any(torch[0] in line for line in lines)


@pytest.mark.parametrize("name", ["server", "site"])
def test_systemd_takes_the_unit(name: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    unit = tmp_path / f"fedotp-{name}.service"
    text = (DEPLOY / unit.name).read_text()
    command = re.search(r"^ExecStart=(\S+)", text, re.MULTILINE)
    assert command is not None
    unit.write_text(text.replace(command[1], "/bin/true"))  # which is there, unlike an installed fedotp
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    assert (done.returncode, [line for line in done.stderr.splitlines() if unit.name in line]) == (0, [])


def test_a_server_starts_anew_or_goes_on(tmp_path: Path) -> None:
    (tmp_path / "fedotp").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "fedotp").chmod(0o755)
    run = tmp_path / "a run"
    values = {"CONFIG": "f.toml", "KEYS": "my keys", "RUN": str(run), "ALWAYS": "--port 8001", "FIRST": "--min-sites 2"}
    environment = {f"FEDOTP_{key}": value for key, value in values.items()}

    def start() -> list[str]:
        path = f"{tmp_path}:{os.environ['PATH']}"
        script = DEPLOY / "start-server.sh"
        done = subprocess.run([script], env=environment | {"PATH": path}, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    new = ["server", "f.toml", "--keys", "my keys", "--out", str(run), "--port", "8001", "--min-sites", "2"]
    assert start() == new
    run.mkdir()
    assert start() == new
    (run / "config.toml").touch()
    assert start() == ["server", "--resume", str(run), "--keys", "my keys", "--port", "8001"]
