"""What fedotp assumes of Flower's insides (`fedotp.flower.link._flwr`), each assumption in a test of its own.

Another version of Flower should fail here, in seconds and with a word on what leans on it, rather than in real
processes that wait for each other.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.common import constant
from flwr.proto.fleet_pb2 import ActivateNodeRequest
from flwr.server.superlink.linkstate import in_memory_linkstate
from flwr.supercore import constant as supercore_constant
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.superlink.routers.fleet.node_auth import authenticate_node
from flwr.supernode import start_client_internal
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from starlette.exceptions import HTTPException

import fedotp.flower
from fedotp.flower._defaults import quiet_flower
from fedotp.flower.link import _access, _flwr, _supernode
from fedotp.flower.link._superlink import SuperLink, free_port, superlink
from fedotp.flower.link._transport import Transport

pytestmark = pytest.mark.filterwarnings("ignore:GitWildMatch:DeprecationWarning")  # of Flower's own

PUBLIC = {"flwr", "flwr.app", "flwr.clientapp", "flwr.serverapp"}
ADAPTER = Path(_flwr.__file__)


# One adapter ---------------------------------------------------------------------------------------------------


def insides(code: str) -> set[str]:
    """The modules of Flower that `code` imports, at whatever place, beyond the documented ones."""
    nodes = list(ast.walk(ast.parse(code)))
    named = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    named |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    named |= {
        f"flwr.{alias.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module == "flwr"
        for alias in node.names
        if not alias.name.startswith("__")
    }
    return {name for name in named if name.partition(".")[0] == "flwr"} - PUBLIC


def test_one_module_alone_uses_flowers_insides() -> None:
    modules = sorted(Path(fedotp.flower.__file__).parent.rglob("*.py"))
    users = {path.name: found for path in modules if (found := insides(path.read_text()))}
    assert set(users) == {ADAPTER.name}, f"they belong into {ADAPTER.name}: {users}"


def test_a_site_and_its_supernode_do_not_load_the_servers_part() -> None:
    code = (
        "import sys, fedotp.flower.link._supernode_main, fedotp.flower.link; "
        "print([name for name in sys.modules if name.startswith(('flwr.superlink', 'torch'))])"
    )
    said = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]", f"{ADAPTER.name} imports it where it is used"


# Signed requests: the gate -------------------------------------------------------------------------------------


class Signer:
    """A site's key, and requests that Flower itself signs with it."""

    def __init__(self) -> None:
        self.private = ec.generate_private_key(ec.SECP384R1())
        self.public = public_key_to_bytes(self.private.public_key())

    def headers(self) -> dict[str, str]:
        seen: list[httpx.Request] = []

        def keep(context: Any) -> httpx.Response:
            seen.append(context.request)
            return httpx.Response(200)

        context: Any = SimpleNamespace(request=httpx.Request("POST", "http://here"))
        NodeAuthHttpInterceptor(self.private, self.private.public_key()).intercept(context, keep)
        return {name.lower(): value for name, value in seen[0].headers.items()}


@pytest.mark.parametrize("away", [_flwr.EARLIEST - 5, _flwr.EARLIEST + 5, -1, _flwr.LATEST - 5, _flwr.LATEST + 5])
def test_flower_and_the_gate_agree_on_whose_clock_is_wrong(away: int, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Signer()
    monkeypatch.setattr(
        "flwr.supernode.node_auth_http_interceptor.now", lambda: datetime.now(UTC) + timedelta(seconds=away)
    )
    headers = site.headers()
    request: Any = SimpleNamespace(
        headers=headers, state=SimpleNamespace(protobuf_request=ActivateNodeRequest(public_key=site.public))
    )
    accepted = True
    try:
        authenticate_node(request)
    except HTTPException:
        accepted = False
    assert (_access._seconds_away(headers) is None) is accepted, "the gate names a site whose clock Flower would refuse"


def test_the_gates_paths_are_flowers() -> None:
    app = _flwr.make_app("127.0.0.1:1", "127.0.0.1", 1, with_keys=True)
    paths = set(app.openapi()["paths"])
    assert {*_access._LONGEST, f"{_access._FLEET}activate-node"} <= paths, "the gate bounds what is sent to these"
    assert any(path.startswith("/v1/control/") for path in paths), "the gate keeps sites away from these"


def test_a_piece_of_an_array_fits_through_the_gate() -> None:
    assert _access._LONGEST["/v1/fleet/push-object"] > constant.FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE + 65_536


# SuperNode -----------------------------------------------------------------------------------------------------


def test_supernode_waits_by_the_sleep_that_is_shortened() -> None:
    uses = re.findall(r"\btime\.\w+(?:\(\d+\))?", Path(start_client_internal.__file__).read_text())
    assert set(uses) == {"time.sleep(3)", "time.sleep"}


def test_a_site_waits_for_more_than_flowers_heartbeats() -> None:
    interval = constant.HEARTBEAT_DEFAULT_INTERVAL
    assert 3 * interval <= _supernode._SILENCE, "no answer for so long means that nobody is there"
    assert constant.HEARTBEAT_PATIENCE * interval < _supernode._HELD, "so long a dead connection is held"


# SuperLink and the server's part of a run ----------------------------------------------------------------------


@pytest.fixture
def link() -> Iterator[SuperLink]:
    with superlink("127.0.0.1", free_port(), None) as link:
        yield link


@pytest.fixture
def state(link: SuperLink, flowers_clock: None) -> Any:
    return link._app.state.linkstate_factory.state()


def later(seconds: float) -> Callable[[], datetime]:
    return lambda: datetime.now(UTC) + timedelta(seconds=seconds)


def test_superlink_keeps_everything_in_memory_and_starts_nothing(link: SuperLink, state: Any) -> None:
    assert isinstance(state, in_memory_linkstate.InMemoryLinkState), "use_clock and begin_run know this one"
    lifespan = link._app.state.superlink_lifespan
    assert lifespan.superexec_process is None, "no code of a bundle is executed at the server"
    assert lifespan.grpc_servers == [], "no other port is open"


def test_a_site_that_is_restarted_comes_at_another_moment(state: Any) -> None:
    node = state.create_node("nobody", "nobody", b"another key", 30)
    came = set()
    for seconds in (0, 100):
        _flwr.use_clock(later(seconds))
        state.activate_node(node, 30)
        grid: Any = SimpleNamespace(get_nodes=lambda: state.get_node_info(node_ids=[node]))
        came.add(Transport(grid, str).online()[node])
    assert len(came) == 2, "Transport asks a site again that has come anew"


# Quiet ---------------------------------------------------------------------------------------------------------


def test_flower_reads_the_variables_that_keep_it_quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment: dict[str, str] = {}
    monkeypatch.setattr("os.environ", environment)
    quiet_flower(tmp_path)
    known = {
        supercore_constant.FLWR_DISABLE_UPDATE_CHECK,
        constant.FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION,
        constant.FLWR_HOME,
    }
    assert known <= set(environment), "nothing is looked for on the network, installed, or written elsewhere"


def test_flower_is_told_about_telemetry_before_it_is_imported() -> None:
    code = (
        "import fedotp.flower.site._app, fedotp.flower.link._supernode, fedotp.flower.server._serve; "
        "from flwr.supercore import telemetry; print(telemetry.FLWR_TELEMETRY_ENABLED)\n"
        "import importlib, os; os.environ['FEDOTP_FLOWER_TELEMETRY'] = '1'; importlib.reload(fedotp.flower)\n"
        "print(importlib.reload(telemetry).FLWR_TELEMETRY_ENABLED)"
    )
    environment = {key: value for key, value in os.environ.items() if "TELEMETRY" not in key}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["0", "1"]
