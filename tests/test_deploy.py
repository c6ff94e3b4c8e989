"""Units, containers, manifests, the dashboard and the start script in deploy/."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

import fedotp
from fedotp.flower.site import SiteSettings
from test_docs import check_command

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"


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


def manifests(name: str) -> dict[str, dict[str, Any]]:
    return {each["kind"]: each for each in yaml.safe_load_all((KUBERNETES / f"{name}.yaml").read_text())}


def pod_of(name: str) -> dict[str, Any]:
    kind = "Job" if name == "server" else "StatefulSet"
    pod: dict[str, Any] = manifests(name)[kind]["spec"]["template"]["spec"]
    return pod


@pytest.mark.parametrize("name", ["server", "site"])
def test_pods_have_no_more_rights_than_they_need(name: str) -> None:
    pod = pod_of(name)
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is pod["enableServiceLinks"] is False
    user = re.search(r"--uid (\d+)", (DEPLOY / "Dockerfile").read_text())
    assert user is not None
    own = {key: int(user[1]) for key in ("runAsUser", "runAsGroup", "fsGroup")}
    kept = {"fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": {"type": "RuntimeDefault"}}
    assert pod["securityContext"] == {"runAsNonRoot": True, **own, **kept}
    alone = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert container["securityContext"] == alone
    assert container["resources"]["limits"]["memory"]
    assert {mount["name"] for mount in container["volumeMounts"] if not mount.get("readOnly")} == {"state", "tmp"}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["keys"]["secret"]["defaultMode"] == 0o400
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert not any("hostPath" in volume for volume in pod["volumes"])
    if name == "site":
        assert volumes["images"]["persistentVolumeClaim"]["readOnly"] is True


@pytest.mark.parametrize("name", ["server", "site"])
def test_names_in_the_manifests_agree(name: str) -> None:
    found, pod = manifests(name), pod_of(name)
    (container,) = pod["containers"]
    kind = "Job" if name == "server" else "StatefulSet"
    labels = found[kind]["spec"]["template"]["metadata"]["labels"]
    selectors = [found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]]
    selectors += [found["Service"]["spec"]["selector"]] if name == "server" else []
    selectors += [found[kind]["spec"]["selector"]["matchLabels"]] if name == "site" else []
    assert all(selector == labels for selector in selectors)
    named = {volume["name"] for volume in pod["volumes"]}
    named |= {claim["metadata"]["name"] for claim in found[kind]["spec"].get("volumeClaimTemplates", [])}
    assert {mount["name"] for mount in container["volumeMounts"]} == named
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    words = " ".join([*container.get("args", []), *(each["value"] for each in container.get("env", []))])
    assert re.search(rf"--status[= ]0\.0\.0\.0:{ports['status']}\b", words)
    policy = found["NetworkPolicy"]["spec"]
    if name == "server":
        variables = {each["name"] for each in container["env"]}
        script = (DEPLOY / "start-server.sh").read_text()
        assert variables == set(re.findall(r"\$\{?(FEDOTP_[A-Z]+)", script))
        assert f"--port {ports['sites']}" in words
        assert policy["policyTypes"] == ["Ingress"]
        assert policy["ingress"] == [{"ports": [{"port": ports["sites"], "protocol": "TCP"}]}]
        assert found["Job"]["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] == [2]
    else:
        assert (policy["policyTypes"], policy["ingress"]) == (["Ingress", "Egress"], [])
        assert [sorted({p["port"] for p in rule["ports"]}) for rule in policy["egress"]] == [[8000], [53]]
        assert found["StatefulSet"]["spec"]["replicas"] == 1


def test_files_in_the_manifests_are_read_by_fedotp(tmp_path: Path) -> None:
    study, policy = manifests("server")["ConfigMap"]["data"], manifests("site")["ConfigMap"]["data"]
    (tmp_path / "federation.toml").write_text(study["federation.toml"])
    assert fedotp.load_config(str(tmp_path / "federation.toml")).federation.rounds == 50
    limits = SiteSettings("north", tmp_path, data="images", policy=policy["policy.toml"]).limits
    assert limits.classes == tuple(study["classes.txt"].split("\n")[:-1])
    assert limits.rounds is not None
    assert limits.rounds > 50


def test_commands_in_the_manifests_are_spelt_right() -> None:
    (site,), (server,) = (pod_of(name)["containers"] for name in ("site", "server"))
    check_command(shlex.join([*site["command"], *site["args"]]))
    values = {each["name"]: each["value"] for each in server["env"]}
    script = (DEPLOY / "start-server.sh").read_text().splitlines()
    for line in (line.strip().removeprefix("exec ") for line in script if "exec fedotp" in line):
        check_command(re.sub(r"\$\{?(\w+)(:-)?\}?", lambda name: values[name[1]], line))


def test_the_dashboard_shows_every_metric_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a server and of a site, as `/metrics` names them."""
    pytest.importorskip("flwr")
    monkeypatch.syspath_prepend(ROOT / "tests" / "flower")
    from status_made import SERVER, a_server, orders_of_site, run_of_server, shown

    from fedotp.flower.status import Status

    exported: set[str] = set()
    for status, happen in ((a_server(), run_of_server), (Status("site", [SERVER], {SERVER: 2e9}), orders_of_site)):
        with shown(status) as url:
            happen()
            with urlopen(f"{url}metrics") as answer:
                exported |= set(re.findall(r"^# TYPE (\w+)", answer.read().decode(), re.MULTILINE))
    board = json.loads((DEPLOY / "grafana.json").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert {name for text in expressions for name in re.findall(r"\bfedotp_\w+", text)} == exported
    assert all(text.count("{") == text.count('{instance=~"$instance"}') for text in expressions)
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    spots = [(x, y) for panel in board["panels"] for x, y in _cells(panel["gridPos"])]
    assert len(spots) == len(set(spots)), "panels overlap"


def _cells(at: dict[str, int]) -> list[tuple[int, int]]:
    return [(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]


@pytest.mark.parametrize("name", ["server", "site"])
def test_the_health_check_asks_the_status_page(name: str) -> None:
    """The container's own command, against a page on the port that the example gives to fedotp."""
    pytest.importorskip("starlette")
    from fedotp.flower.status import Status, StatusAddress, serve_status

    service = yaml.safe_load((DEPLOY / f"compose.{name}.yml").read_text())["services"][name]
    _, _, option, code = service["healthcheck"]["test"]
    address = "127.0.0.1:9100"
    assert f"http://{address}/healthz" in code
    assert f"--status {address}" in (DEPLOY / f"{name}.env.example").read_text()
    with serve_status(StatusAddress("127.0.0.1", 0), Status("site", [], {})) as url:
        there = [sys.executable, option, code.replace(f"http://{address}/", url)]
        assert subprocess.run(there, capture_output=True).returncode == 0
    assert subprocess.run(there, capture_output=True).returncode != 0
