"""The checks before a start find every broken set-up, and a rehearsal is a whole federation that leaves nothing."""

import json
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest
from huggingface_hub import constants
from near_sites import make_deployable
from PIL import Image
from real_processes import make_study, processes
from typer.testing import CliRunner

from fedotp.cli import app
from fedotp.clip import CLIP, TINY, save
from fedotp.config import Config, load_config
from fedotp.errors import FedotpError
from fedotp.flower.keys import ServerKeys, SiteKeys, _make_keys, make_keys, renew_server, revoke_site, sign_request
from fedotp.flower.link import _access, _ask, superlink
from fedotp.flower.link._ask import ask_server
from fedotp.flower.link._superlink import SuperLink, free_port
from fedotp.flower.server import ServerSettings, _check, _rehearse, check_server, rehearse_run
from fedotp.flower.server._serve import agreement_of
from fedotp.flower.site import SiteSettings, _limits, check_site
from fedotp.runs.directory import RunDirectory

pytestmark = pytest.mark.filterwarnings("ignore:GitWildMatch:DeprecationWarning")  # of Flower's own

CLASSES = ("cat", "dog")
SITES = ["north", "south", "east", "gone"]
HOST = "fed.example.org"


class Finding(NamedTuple):
    state: str
    text: str


def found(findings: Iterator[tuple[str, str, str]]) -> dict[str, Finding]:
    return {item: Finding(state, text) for item, state, text in findings}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore what a start of a site sets in its process."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", constants.HF_HUB_OFFLINE)
    for name in ("HF_HUB_OFFLINE", "FLWR_HOME", "NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, os.environ.get(name, ""))


@contextmanager
def days_ago(n: int) -> Iterator[None]:
    """Make keys as if it was then."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_make_keys, "current_time", lambda: datetime.now(UTC) - timedelta(days=n))
        yield


def sign_for(keys: Path, name: str, n_days_ago: int, *, days: int) -> None:
    with days_ago(n_days_ago):
        sign_request(keys, keys / f"sites/{name}/{name}.csr", days=days)


def write_image(path: Path, seed: int) -> None:
    """16 bits, values of about 1,000."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(0, 2000, (64, 64))
    Image.fromarray(noise.astype(np.uint16)).save(path)


def write_table(folder: Path, *, torn: bool = False) -> str:
    """Three training and two test images of each class, each of its own patient, or one of two splits."""
    rows = ["path,label,split,group"]
    for number, (label, split) in enumerate(
        (label, split) for label in CLASSES for split in 3 * ["train"] + 2 * ["test"]
    ):
        write_image(folder / f"{number}.png", number)
        rows.append(f"{number}.png,{label},{split},{'torn' if torn and number in (0, 4) else number}")
    (folder / "scans.csv").write_text("\n".join(rows))
    return str(folder / "scans.csv")


# Sites -------------------------------------------------------------------------------------------------------------


@dataclass
class Running:
    """A server that is listening, with what it says of itself."""

    keys: Path
    config: Config
    port: int
    link: SuperLink

    def describe(self, *changes: str, classes: tuple[str, ...] = CLASSES, **settings: Any) -> str:
        config = self.config.override(list(changes))
        agreed = agreement_of(config, "a" * 32, classes, ServerSettings(secure=True, **settings))
        self.link.describe(agreed.text)
        return agreed.text


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """With keys of four sites, the last revoked, whose folder is kept as gone."""
    folder = tmp_path_factory.mktemp("running") / "keys"
    with days_ago(100):
        make_keys(folder, [HOST, "localhost"], SITES)
    shutil.copytree(folder / "sites/gone", folder / "gone")
    revoke_site(folder, "gone")
    port = free_port()
    with superlink("0.0.0.0", port, ServerKeys.read(folder / "server")) as link:
        config = load_config("demo").override(["compute.device=cpu", "federation.rounds=3"])
        yield Running(folder, config.resolved, port, link)


@dataclass
class Breakable:
    folder: Path
    monkeypatch: pytest.MonkeyPatch

    def set(self, *attribute: Any) -> None:
        self.monkeypatch.setattr(*attribute)


@dataclass
class Site(Breakable):
    """A site that is ready, to be broken."""

    running: Running
    settings: SiteSettings
    server: str
    policy: Path | None = None
    policy_key: Path | None = None

    @property
    def keys(self) -> Path:
        return Path(self.settings.keys)

    def use(self, **settings: Any) -> None:
        self.settings = replace(self.settings, **settings)

    def connect_to(self, host: str, port: int) -> None:
        self.server = f"{host}:{port}"

    def use_keys_of(self, federation: Path, name: str = "north") -> None:
        self.use(keys=str(federation / "sites" / name))

    def copied_federation(self) -> Path:
        return Path(shutil.copytree(self.running.keys, self.folder / "copy"))

    def write_policy(self, text: str) -> Path:
        self.policy = self.folder / "policy.toml"
        self.policy.write_text(text)
        return self.policy

    def check(self) -> dict[str, Finding]:
        return found(check_site(self.settings, self.server, self.policy, self.policy_key))


@pytest.fixture
def site(running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    running.describe()
    keys = shutil.copytree(running.keys / "sites/north", tmp_path / "north")
    settings = SiteSettings(
        "north", tmp_path / "state", data=write_table(tmp_path / "data"), keys=str(keys), device="cpu", window="0..2000"
    )
    made = Site(tmp_path, monkeypatch, running, settings, f"localhost:{running.port}")
    made.write_policy("rounds = 3\nsecure_sums = true\nclasses = ['cat', 'dog']")
    return made


def test_a_site_that_is_ready(site: Site) -> None:
    findings = site.check()
    assert {finding.state for finding in findings.values()} == {"ok"}, findings
    assert findings["images"].text == "decoded all 6 training and 4 test images"
    assert findings["secure sums"].text.endswith("north, south, east")
    assert not site.settings.state.exists()


def another_site(site: Site) -> None:
    """One that the authority has signed, but of which the server is not informed."""
    copy = site.copied_federation()
    _make_keys.request_key("new", copy / "sites/new")
    sign_request(copy, copy / "sites/new/new.csr")
    site.use_keys_of(copy, "new")


def another_authority(site: Site) -> None:
    make_keys(site.folder / "other", ["localhost"], SITES)
    site.use_keys_of(site.folder / "other")


def expires(site: Site, n_days_ago: int, days: int) -> None:
    copy = site.copied_federation()
    sign_for(copy, "north", n_days_ago, days=days)
    site.use_keys_of(copy)


def clock_ahead(site: Site, seconds: float) -> None:
    site.set(_ask, "_now", lambda: datetime.now(UTC) + timedelta(seconds=seconds))


def unknown_host(site: Site) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    site.connect_to(HOST, 8000)
    site.set(socket, "getaddrinfo", unknown)


def one_image_in_both_splits(site: Site) -> None:
    shutil.copy(site.folder / "data/0.png", site.folder / "data/4.png")


def signed_by_somebody_else(site: Site) -> None:
    (site.folder / "policy.toml.sig").write_bytes(b"no signature")
    key = _make_keys.certificates.new_key().public_key()
    site.policy_key = site.folder / "owner.pem"
    pem = _make_keys.serialization.PublicFormat.SubjectPublicKeyInfo
    site.policy_key.write_bytes(key.public_bytes(_make_keys.serialization.Encoding.PEM, pem))


def all_rounds_spent(site: Site) -> None:
    line = {"run": "a" * 32, "round": 1, "unit": "none", "noise": 0.0, "rate": 1.0, "steps": 1}
    site.settings.state.mkdir(mode=0o700)
    (site.settings.state / "releases.jsonl").write_text(3 * (json.dumps(line) + "\n"))


def other_backbone(site: Site) -> None:
    save(CLIP.random(TINY), site.folder / "other.safetensors")
    site.use(backbone=str(site.folder / "other.safetensors"))


def full_disk(broken: Breakable) -> None:
    broken.set(_limits.shutil, "disk_usage", lambda _: SimpleNamespace(free=0))


def other_protocol(site: Site) -> None:
    site.running.link.describe(site.running.describe().replace('"protocol": ', '"protocol": 9'))


Break = Callable[[Any], object]
BROKEN_SITES: dict[str, tuple[Break, str]] = {  # the state and the name of an item, and words of its text
    "mode": (lambda site: (site.keys / "site.key").chmod(0o644), "failed keys: chmod 600"),
    "expired": (lambda site: expires(site, 40, 30), "failed keys: expired on"),
    "expires soon": (lambda site: expires(site, 0, 9), "warning keys: in 8 days; renew it"),
    "unknown key": (another_site, "failed connection: not registered at the server"),
    "revoked": (lambda site: site.use(keys=str(site.running.keys / "gone")), "failed connection: has revoked"),
    "authority": (another_authority, "failed connection: not signed by this site's authority"),
    "host": (lambda site: site.connect_to("127.0.0.2", site.running.port), "failed connection: IP address mismatch"),
    "port": (lambda site: site.connect_to("localhost", free_port()), "failed connection: not running"),
    "no host name": (
        lambda site: site.connect_to("a" * 64, 8000),
        "failed connection: not a host name; correct --server",
    ),
    "no port": (lambda site: site.connect_to(":", 1), "failed connection: correct --server (Invalid port"),
    "no host": (unknown_host, "failed connection: host name is unknown"),
    "fast clock": (lambda site: clock_ahead(site, 60), "failed clock: ahead of the server's: must be"),
    "slow clock": (lambda site: clock_ahead(site, -900), "failed clock: behind the server's: must be"),
    "clock drifts": (lambda site: clock_ahead(site, 3.5), "warning clock: NTP"),
    "version": (lambda site: site.set(_access, "__version__", "9.9"), "warning version: 9.9 at the server"),
    "protocol": (other_protocol, "failed version: install the same version of fedotp on both"),
    "starting": (lambda site: site.running.link.describe(""), "not checked version: still starting"),
    "broken": (lambda site: (site.folder / "data/3.png").write_bytes(b"x"), "failed images: 1 broken image: "),
    "window": (lambda site: site.use(window="60000..65535"), "failed images: 10 of 10 images black or white"),
    "in both": (one_image_in_both_splits, "warning images: 1 in training and test"),
    "torn": (lambda site: write_table(site.folder / "data", torn=True), "failed images: 1 group in train and in test"),
    "class": (lambda site: site.running.describe(classes=("cat", "cow")), "failed classes: has the class 'dog'"),
    "no classes": (lambda site: site.running.describe(classes=()), "not checked classes: here: cat, dog"),
    "backbone": (other_backbone, "failed backbone: expected mini"),
    "state": (lambda site: site.use(state=site.folder / "data/0.png/state"), "failed memory, disk: cannot write"),
    "disk": (full_disk, "failed memory, disk: on the disk of site north"),
    "memory": (lambda site: site.set(_limits, "_memory", lambda _: 0), "failed memory, disk: of memory"),
    "beyond policy": (lambda site: site.write_policy("rounds = 2"), "failed policy: rounds must be at most 2, got 3"),
    "updates": (all_rounds_spent, "failed policy: updates in a run must be at most 3, got 4"),
    "few peers": (lambda site: site.write_policy("secure_sites = 5"), "failed secure sums: at least 5 are required"),
    "stale peers": (
        lambda site: site.set(_access, "digest_of_keys", str),
        "warning secure sums: differs from the server's list of keys",
    ),
    "signature": (signed_by_somebody_else, "failed policy: is not its signature"),
    "peers": (lambda site: (site.keys / "peers.crt").unlink(), "failed secure sums: the newest file"),
}


def require(findings: dict[str, Finding], line: str) -> str:
    """The item of a line, which must be among the findings."""
    head, _, words = line.partition(": ")
    (item,) = (item for item, finding in findings.items() if head == f"{finding.state} {item}")
    assert words in findings[item].text
    return item


@pytest.mark.parametrize("what", BROKEN_SITES)
def test_a_site_that_is_not_ready(what: str, site: Site) -> None:
    """The item fails, and so does none before it: messages name the cause."""
    breaks, line = BROKEN_SITES[what]
    breaks(site)
    findings = site.check()
    item = require(findings, line)
    earlier = list(findings)[: list(findings).index(item)]
    wrong = {each for each in earlier if findings[each].state != "ok"}
    assert wrong == ({"connection"} if what in ("fast clock", "slow clock") else set()), findings


def test_of_many_images_a_sample_is_decoded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedotp.flower.site import _check as site_check

    monkeypatch.setattr(site_check, "_MOST_IMAGES", 4)
    (site.folder / "data/1.png").write_bytes(b"not in the sample")
    finding = site.check()["images"]
    assert (finding.state, finding.text) == ("ok", "decoded 6 of 6 training and 4 test images")


HEADERS: dict[str, Callable[[SiteKeys], dict[str, str]]] = {
    "none": lambda keys: {},
    "a key without its signature": lambda keys: headers(keys, signature="AAAA"),
    "an old signature": lambda keys: headers(keys, ago=3600),
}


def headers(keys: SiteKeys, *, ago: float = 0, signature: str = "") -> dict[str, str]:
    at = datetime.now(UTC) - timedelta(seconds=ago)
    made = _ask._flwr.signed_headers(keys.key, at)
    return {**made, _ask._flwr.SIGNATURE_HEADER: signature} if signature else made


@pytest.mark.parametrize("who", HEADERS)
def test_the_server_answers_only_to_a_sites_key(who: str, running: Running) -> None:
    keys = SiteKeys.read(running.keys / "sites/north")
    text = running.describe()
    assert ask_server(f"localhost:{running.port}", keys).agreement == text
    verify = _ask.ssl.create_default_context(cafile=keys.ca)
    url = f"https://localhost:{running.port}{_access.CHECK}"
    answer = httpx.get(url, verify=verify, headers=HEADERS[who](keys), timeout=60, trust_env=False)
    assert answer.status_code in (401, 412)
    assert "agreement" not in answer.text


def test_an_answer_without_end_is_not_read(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ask, "_MOST_BYTES", 1000)
    running.describe()
    with pytest.raises(FedotpError, match="its answer has more than"):
        ask_server(f"localhost:{running.port}", SiteKeys.read(running.keys / "sites/north"))


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_the_command_of_a_site_prints_a_line_per_item(site: Site) -> None:
    options = ["client", "--check", "--data", site.settings.data, "--keys", site.keys, "--window", "0..2000"]
    options += ["--server", site.server, "--state", site.settings.state, "--policy", site.policy]
    status, output = run(*options)
    assert status == 0, output
    lines = output.splitlines()
    assert len(lines) == 12
    assert all(line.startswith("ok           ") for line in lines[:-1])
    assert lines[-1] == "11 ok"
    (site.keys / "site.key").chmod(0o644)
    status, output = run(*options)
    assert status == 1
    assert output.splitlines()[0].startswith("failed       keys           ")
    assert "not checked  connection     requires the keys" in output
    assert output.splitlines()[-1].startswith("3 ok, 1 failed, ")


@pytest.mark.processes
def test_a_site_reads_the_settings_of_a_server_that_waits(site: Site, inputs: Path, tmp_path: Path) -> None:
    """Also the classes that the sites have, once they are known."""
    port = make_study(tmp_path, make_deployable(inputs, federation={"rounds": 6}), ["north", "south", "east"])
    site.use(keys=str(tmp_path / "keys/sites/north"), backbone=str(inputs / "tiny.safetensors"))
    site.server, site.policy = f"localhost:{port}", None
    with processes(tmp_path) as started:
        started.start_server(port)
        started.until(lambda: site.check()["version"].state == "ok")
        findings = site.check()
        assert findings["backbone"].state == "ok"
        assert findings["classes"] == ("not checked", "the server collects the sites' classes; here: cat, dog")
        assert findings["memory, disk"].state == "ok"
        for part, name in enumerate(["south", "east", "north"]):
            started.start_site(part, name, port)
        started.until(lambda: site.check()["classes"].state != "not checked")
        assert "has the class 'cat'" in site.check()["classes"].text
        assert started.wait("server") == 0, started.all_logs()


# Servers ------------------------------------------------------------------------------------------------------------


@dataclass
class Server(Breakable):
    """A server that is ready, to be broken."""

    keys: Path
    port: int
    host: str = "0.0.0.0"
    settings: ServerSettings = field(default_factory=ServerSettings)
    source: str = "demo"
    changes: tuple[str, ...] = ("compute.device=cpu",)
    classes: tuple[str, ...] = CLASSES
    out: Path | None = None

    def check(self, resume: Path | None = None) -> dict[str, Finding]:
        job: dict[str, Any] = {"source": self.source, "changes": self.changes, "classes": self.classes, "out": self.out}
        return found(check_server(self.settings, self.host, self.port, self.keys / "server", **job, resume=resume))

    def use(self, **options: Any) -> None:
        vars(self).update(options)


@pytest.fixture
def server(running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_check, "_is_here", lambda host: host == HOST)
    clock_says(monkeypatch, 0)
    keys = Path(shutil.copytree(running.keys, tmp_path / "keys"))
    return Server(tmp_path, monkeypatch, keys, free_port())


def clock_says(monkeypatch: pytest.MonkeyPatch, state: int) -> None:
    library = SimpleNamespace(adjtimex=lambda _: state)
    made = SimpleNamespace(CDLL=lambda _: library, create_string_buffer=bytes)
    monkeypatch.setattr(_check, "ctypes", made)


def test_a_server_that_is_ready(server: Server) -> None:
    findings = server.check()
    assert {finding.state for finding in findings.values()} == {"ok"}, findings
    assert findings["keys"].text.endswith("3 sites accepted; revoked: gone")
    assert findings["sites"].text == "starts when 3 of north, south, east are ready"
    assert not (server.folder / "runs").exists()


@contextmanager
def taken() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        yield other.getsockname()[1]


def no_secure_sums(server: Server) -> None:
    server.use(settings=ServerSettings(secure=True), changes=("method.name=promptfl-fedamp",))


def few_descriptors(server: Server) -> None:
    server.set(_check, "ConnectionLimits", lambda: SimpleNamespace(most=11))
    server.set(_check.Listener, "__init__", lambda *_: None)
    server.set(_check.Listener, "close", lambda _: None)


def existing_run(server: Server) -> None:
    (server.folder / "run").mkdir()
    (server.folder / "run/config.toml").touch()
    server.use(out=server.folder / "run")


def no_memory(server: Server, free: int) -> None:
    server.set(_check, "available_memory", lambda: free)


BROKEN_SERVERS: dict[str, tuple[Break, str]] = {
    "mode": (lambda server: (server.keys / "server/server.key").chmod(0o640), "failed keys: chmod 600"),
    "expires soon": (lambda server: renew_server(server.keys, days=20), "warning keys: server.crt expires on"),
    "site expires soon": (lambda s: sign_for(s.keys, "east", 0, days=9), "warning keys: of site east expires on"),
    "site expired": (lambda s: sign_for(s.keys, "east", 40, days=30), "warning keys: site east has expired"),
    "host": (lambda server: server.set(_check, "_is_here", lambda _: False), f"warning host names: {HOST}"),
    "loopback": (lambda s: s.use(host="127.0.0.1"), "warning host names: cannot be reached from other machines"),
    "descriptors": (few_descriptors, "failed connections: 12 are needed"),
    "clock": (lambda s: clock_says(s.monkeypatch, 5), "warning clock: not synchronised"),
    "no clock": (lambda s: clock_says(s.monkeypatch, -1), "not checked clock: use NTP"),
    "setting": (lambda s: s.use(changes=("federation.dropout=0.1",)), "failed configuration: simulations only"),
    "method": (no_secure_sums, "failed configuration: secure sums are incompatible with method.name"),
    "sites": (lambda s: s.use(settings=ServerSettings(min_sites=4)), "failed sites: only 3 sites have keys"),
    "classes": (lambda server: server.use(classes=()), "warning classes: without --classes"),
    "backbone": (lambda s: s.use(changes=("backbone.name=no.safetensors",)), "failed backbone: no.safetensors"),
    "existing": (existing_run, "failed run directory: run"),
    "unwritable": (lambda s: s.use(out=s.keys / "server/server.key/run"), "failed run directory: cannot write"),
    "memory": (lambda server: no_memory(server, 100), "failed memory, disk: provide more memory"),
    "little memory": (lambda server: no_memory(server, 1 << 29), "warning memory, disk: provide more memory"),
    "disk": (full_disk, "failed memory, disk: provide more disk"),
}


@pytest.mark.parametrize("what", BROKEN_SERVERS)
def test_a_server_that_is_not_ready(what: str, server: Server) -> None:
    breaks, line = BROKEN_SERVERS[what]
    breaks(server)
    findings = server.check()
    wrong = {each for each, finding in findings.items() if finding.state not in ("ok", "not checked")}
    assert wrong <= {require(findings, line)}, findings


def test_a_port_that_is_taken(server: Server) -> None:
    with taken() as server.port:
        assert server.check()["port"].state == "failed"


def test_a_run_that_is_resumed(server: Server, undisturbed: RunDirectory, tmp_path: Path) -> None:
    """Only one that is of real sites, has not ended, and is not running."""
    run = RunDirectory(Path(shutil.copytree(undisturbed.path, tmp_path / "run")))
    assert server.check(run.path)["configuration"].text.endswith("run is complete")
    (run.path / "summary.json").unlink()
    findings = server.check(run.path)
    assert {finding.state for finding in findings.values()} == {"ok"}, findings
    assert findings["classes"].text == "3: blue, green, red"
    with run.locked():
        assert server.check(run.path)["run directory"].text.endswith("is in use by another process; stop it")
    manifest = run.manifest
    run.save_manifest({**manifest, "backbone": {**manifest["backbone"], "digest": "0" * 64}})
    assert "differs from the run's" in server.check(run.path)["backbone"].text
    run.save_manifest({**manifest, "data": {}})
    assert server.check(run.path)["configuration"].state == "failed"
    run.save_manifest({name: value for name, value in manifest.items() if name != "deployment"})
    assert server.check(run.path)["configuration"].text.endswith("run was simulated")


def test_the_command_of_a_server(server: Server) -> None:
    options = ["server", "--check", "demo", "--keys", server.keys / "server", "--classes", "cat,dog"]
    status, output = run(*options, "--port", server.port, "--set", "compute.device=cpu")
    assert (status, output.splitlines()[-1]) == (0, "11 ok")
    with taken() as port:
        status, output = run(*options, "--port", port)
    assert status == 1
    assert "\nfailed       port           cannot listen at" in output


# Rehearsals ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which rehearsals make theirs."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.processes
def test_a_rehearsal_is_a_whole_federation(running: Running, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = temporary.parent / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    options = ["server", "demo", "--rehearse", "--keys", running.keys / "server", "--port", running.port, "--secure"]
    for change in ("compute.device=cpu", "data.test_split=val", "method.name=ridge"):  # of one round
        options += ["--set", change]
    status, output = run(*options, "--classes", "a cat,the dog,owl")
    assert status == 0, output
    steps = ["keys and images", "server started", "sites ready", "round 1", "evaluation and end", "verified"]
    steps += ["memory of a site", "memory of the server", "bytes per round"]
    *lines, last = output.splitlines()
    assert [line[:20].strip() for line in lines] == steps
    assert last == "rehearsed: 1 round with 3 made-up sites over TLS"
    assert "1 round, 3 signed statements" in output
    assert list(temporary.iterdir()) == list(place.iterdir()) == []


PLAYED = """
import os, sys, time
{server} if sys.argv[1] == "server" else {site}
"""
LISTENS = '[print("listening at home", flush=True), time.sleep(600)]'


def rehearse(program: str, say: Callable[..., object] = lambda *_: None) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_rehearse, "_PROGRAM", ("-c", program))
        patch.setattr(_rehearse, "_PAUSE", 0.01)
        job: dict[str, Any] = {"source": "demo", "changes": [], "classes": CLASSES}
        return rehearse_run(ServerSettings(), None, 2, [], say, **job)


@pytest.mark.parametrize(
    ("server", "site", "expected"),
    [
        ('sys.exit("error: no such backbone")', "None", "server: error: no such backbone"),
        (LISTENS, 'sys.exit("error: no disk")', "site site-1: error: no disk"),
        (
            '[print("listening at home\\nsite site-2 was refused: no class\\nwaiting", flush=True), time.sleep(600)]',
            "time.sleep(600)",
            "server: site site-2 was refused: no class",
        ),
        (
            '[print("listening at home", flush=True), time.sleep(1), print("site site-2 was refused: internal error; '
            "see the site's log\", flush=True), time.sleep(600)]",
            '[print("request refused: no such split", flush=True), time.sleep(600)]',
            "site site-1: request refused: no such split",
        ),
        (LISTENS, "os.kill(os.getpid(), 9)", "site site-1: ended with status -9"),
    ],
)
def test_a_rehearsal_that_fails_names_the_process(server: str, site: str, expected: str, temporary: Path) -> None:
    with pytest.raises(FedotpError) as failed:
        rehearse(PLAYED.format(server=server, site=site))
    assert str(failed.value).replace("site-2:", "site-1:") == f"the rehearsal failed: {expected}"
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_rehearsal_ends_all_processes(number: signal.Signals, temporary: Path, tmp_path: Path) -> None:
    writes = f"open('{tmp_path}/' + str(os.getpid()) + '.pid', 'w').close()"

    def interrupt(step: str, *_: str) -> None:
        if step == "server started":
            os.kill(os.getpid(), number)

    with pytest.raises(KeyboardInterrupt):
        rehearse(PLAYED.format(server=f"[{writes}, *{LISTENS}]", site="time.sleep(600)"), interrupt)
    (path,) = tmp_path.glob("*.pid")
    with pytest.raises(ProcessLookupError):
        os.kill(int(path.stem), 0)
    assert list(temporary.iterdir()) == []
