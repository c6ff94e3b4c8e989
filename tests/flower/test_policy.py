"""A site's policy: no order beyond it is obeyed, none within is refused; a changed policy is not accepted."""

import json
import os
import random
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from near_sites import LyingServer, answered, cut_in, make_deployable, silent, with_keys

from fedotp.errors import FedotpError
from fedotp.flower import _wire as wire
from fedotp.flower._events import handling
from fedotp.flower._wire import pack
from fedotp.flower.keys import key_facts, make_keys
from fedotp.flower.records import read_chain, security_log
from fedotp.flower.secure import Session, Terms
from fedotp.flower.server import ServerSettings
from fedotp.flower.site import read_policy
from fedotp.flower.site._policy import parse_policy
from own_process import python

EXAMPLE = Path(__file__).parents[2] / "deploy/policy.example.toml"
WITHIN = ["privacy.unit=example", "privacy.noise=2", "privacy.private=true", "federation.batch_size=4"]
STRONG = Terms(0.7, 64)
ORDERS = 200

Order = tuple[list[str], dict[str, Any], str]  # changed settings, other facts, the refusal


def limits(keys: Path, classes: tuple[str, ...]) -> str:
    """A policy with every line."""
    authority = next(digest for what, digest, _ in key_facts(keys) if what == "authority")
    return f"""
        federations = ["{authority}"]
        methods = ["fedotp", "promptfl"]
        classes = {json.dumps(classes)}
        rounds = 50
        hours = 24
        local_steps = 40
        share = "loss"
        secure_sums = true
        secure_sites = 4
        unit = "example"
        epsilon = 8
        delta = 1e-5
        noise = 1.0"""


@pytest.fixture
def liar(inputs: Path, tmp_path: Path) -> LyingServer:
    grid, _ = with_keys(tmp_path, 4)
    server = LyingServer(grid.nodes[100], make_deployable(inputs).override(WITHIN))
    server.site["policy"] = limits(Path(server.site["keys"]), server.task.classes)
    return server


def beyond(rng: random.Random, server: LyingServer, tmp_path: Path) -> Iterator[tuple[str, Order]]:
    """For each line of a policy, an order that only this line refuses."""
    site, classes = server.site, server.task.classes
    yield "method", ([f"method.name={rng.choice(['coop', 'ridge', 'pfedmoap'])}"], {}, "method.name must be")
    yield "class", ([], {"classes": (*classes, f"patient {rng.random()}")}, "a class must be")
    n = rng.randint(51, 10**6)
    yield "run", ([f"federation.rounds={n}"], {}, f"rounds must be at most 50, got {n}")
    yield "round", ([], {wire.ROUND: n}, f"rounds must be at most 50, got {n}")
    yield "steps", ([f"federation.local_epochs={rng.randint(41, 999)}"], {}, "local steps in a round must be at most")
    yield "images", ([f"federation.local_epochs={rng.randint(20, 40)}"], {}, "local steps in a round must be at most")
    yield "plain", ([], {"secure": None}, "secure sums are required")
    yield "weak", ([], {"secure": Terms(rng.uniform(0.5, 0.666), 64)}, "--secure-threshold must be at least 0.66")
    yield "unit", ([f"privacy.unit={rng.choice(['none', 'site'])}"], {}, "privacy.unit must be")
    yield "noise", ([f"privacy.noise={rng.uniform(0.001, 0.999)}"], {}, "privacy.noise must be at least 1, got 0.")
    yield "delta", ([f"privacy.delta={rng.uniform(1.01e-5, 0.5)}"], {}, "privacy.delta must be at most 1e-05")
    run = f"{rng.getrandbits(128):032x}"
    (began := Path(site["state"]) / run / "began").parent.mkdir(parents=True)
    began.touch()
    os.utime(began, 2 * (time.time() - 3600 * rng.uniform(24.1, 1000),))
    yield "hours", ([], {"run": run}, "hours since the first order of the run must be at most 24, got")
    few = pack(dict.fromkeys(range(rng.randint(0, 3)), b"key"))
    facts = few | pack(dict.fromkeys(few["numbers"], b"name"), wire.NAMES)
    yield "sites", ([], {"kind": "query.secure_shares", **facts}, "sites in a secure sum must be at least 4")
    other = {**site, "keys": str(tmp_path / "others/sites/site-0")}
    yield "authority", ([], {"site": other}, "the authority of the federation must be")
    spent = {"run": "b" * 32, "round": 1, "unit": "example", "rate": 1.0, "steps": 10}
    spent["noise"] = rng.uniform(0.01, 0.5)
    (ledger := tmp_path / f"spent-{run}/releases.jsonl").parent.mkdir()
    ledger.write_text(json.dumps(spent) + "\n")
    state = {**site, "state": str(ledger.parent)}
    yield "epsilon", ([], {"site": state, "kind": "query"}, "this site has spent epsilon")


def test_of_orders_beyond_a_policy_none_is_obeyed_and_each_is_logged(
    liar: LyingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_keys(tmp_path / "others", ["localhost"], ["site-0"])
    rng, own, refusals, lines = random.Random(0), liar.site, [], set()
    monkeypatch.setattr("fedotp.federation.clients.Clients.train", lambda *_: pytest.fail("the site trained"))
    for number in range(ORDERS):
        liar.site = own
        line, (changes, facts, why) = rng.choice(list(beyond(rng, liar, tmp_path)))
        lines.add(line)
        liar.site = facts.pop("site", own)
        kind = facts.pop("kind", rng.choice(["query", "train", "evaluate"]))
        facts = {"run": f"{number:032x}", "secure": STRONG, **facts}
        with security_log(tmp_path / "security.jsonl"):
            refusals.append(liar.refusal(kind, *changes, **facts))
        assert refusals[-1].startswith(f"policy: {why}"), (line, kind)
    logged = [event.content for event in read_chain(tmp_path / "security.jsonl")]
    assert [event["reason"] for event in logged if event["event"] == "order-refused"] == refusals
    assert len(refusals) == ORDERS
    assert len(lines) == 15


def test_fine_tuning_before_an_evaluation_counts_and_a_refused_order_leaves_nothing(
    inputs: Path, tmp_path: Path
) -> None:
    grid, _ = with_keys(tmp_path, 1, policy="local_steps = 40\nhours = 1")
    server = LyingServer(grid.nodes[100], make_deployable(inputs).override(["method.name=promptfl-ft"]))
    order = partial(server.refusal, "evaluate")
    assert order("method.epochs=100").startswith("policy: local steps in a round must be at most 40")
    assert not (tmp_path / "site-0" / ("a" * 32)).exists()
    assert order("method.epochs=1") == ""


def test_orders_within_a_policy_are_obeyed(liar: LyingServer) -> None:
    rng = random.Random(1)
    for number in range(50):
        kind = rng.choice(["query", "evaluate"])
        changes = [
            f"method.name={'promptfl' if kind == 'query' else 'fedotp'}",
            f"federation.rounds={rng.randint(1, 50)}",
            f"privacy.noise={rng.uniform(1.5, 5)}",
            f"privacy.delta={rng.uniform(1e-7, 1e-5)}",
        ]
        facts = {"run": f"{number:032x}", "secure": Terms(rng.uniform(0.67, 0.99), 64), wire.ROUND: rng.randint(1, 50)}
        assert liar.refusal(kind, *changes, **facts) == ""


def test_a_federation_within_every_line_is_obeyed_and_shares_no_more(inputs: Path, tmp_path: Path, hurry: None) -> None:
    grid, keys = with_keys(tmp_path, 4, share="predictions")
    config = make_deployable(inputs).override([*WITHIN, "partition.n_clients=4"])
    policy = limits(tmp_path / "keys/sites/site-0", LyingServer({}, config).task.classes)
    for site in grid.nodes.values():
        site["policy"] = policy
    settings = ServerSettings(secure=True, secure_threshold=0.7)
    run = grid.serve(config, tmp_path / "run", settings, public_keys=keys)
    assert answered(run) == [[0, 1, 2, 3]] * 2
    assert not any(record.get("faults") for record in run.metrics("round"))
    shown = [reply.content.metric_records.get(wire.METRICS, {}) for reply in grid.answered]
    assert not any(wire.of_metric("accuracy") in metrics for metrics in shown)
    assert not any(wire.PREDICTIONS in reply.content for reply in grid.answered)


def test_a_sum_that_lost_sites_is_not_opened_with_fewer_than_the_policy_requires(inputs: Path, tmp_path: Path) -> None:
    grid, keys = with_keys(tmp_path, 4, policy="secure_sites = 4")
    grid.meddle[101] = silent(1)
    config = make_deployable(inputs).override(["partition.n_clients=4"])
    grid.meddle[100] = cut_in(1, "query.secure_survivors")
    with pytest.raises(KeyboardInterrupt):
        grid.serve(config, tmp_path / "run", ServerSettings(secure=True, round_timeout=0.5), public_keys=keys)
    ((_, reply),) = grid.exchanged("query.secure_survivors")[:1]
    assert "sites in a secure sum must be at least 4, got 3" in str(reply.content.config_records[wire.CONFIG])


def test_updates_of_a_run_are_counted_whatever_round_the_server_says(inputs: Path, tmp_path: Path) -> None:
    grid, _ = with_keys(tmp_path, 1, policy="rounds = 2")
    server = LyingServer(grid.nodes[100], make_deployable(inputs))
    session = Session("a" * 32, 1, "b" * 32, "", "", 0.7, 64, 5).text
    assert "rounds must be at most 2, got 9" in server.refusal("train", **{wire.SESSION: session, wire.ROUND: 9})
    for wrong in (-1, True, 1.0):
        assert "no integer 'server-round'" in server.refusal("train", **{wire.ROUND: wrong})
    seen: list[str] = []
    with handling(lambda event, facts: seen.append(f"{event} {facts['kind']}")):
        assert server.refusal("query") == ""  # its arrays are not read
        with pytest.raises(ValueError, match="No train function"):
            server.refusal("train.more")
    assert seen == ["order hello", "order-refused train.more"]
    assert [server.refusal("train") for _ in range(3)] == ["", "", "policy: updates in a run must be at most 2, got 3"]
    assert server.refusal("evaluate") == server.refusal("train", run="b" * 32) == ""


def test_the_example_is_readable_and_refuses(inputs: Path, tmp_path: Path) -> None:
    grid, _ = with_keys(tmp_path, 1, policy=read_policy(EXAMPLE, None))
    server = LyingServer(grid.nodes[100], make_deployable(inputs))
    for kind in ("query", "train", "evaluate"):
        assert server.refusal(kind).startswith("policy: ")
    policy = parse_policy(EXAMPLE.read_text())
    assert all(getattr(policy, name) != getattr(type(policy), name) for name in vars(policy))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("round = 5", "unknown key policy.round; did you mean policy.rounds"),
        ("rounds = 0", "policy.rounds = 0: must be more than 0"),
        ("secure_sites = 2", "policy.secure_sites = 2: must be at least 3"),
        ('share = "everything"', 'policy.share = "everything": must be nothing, loss, scores or predictions'),
        ("rounds = = 5", "not valid TOML"),
        ("# \udcff", "must be UTF-8"),
    ],
)
def test_a_policy_with_a_mistake_is_not_used(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(FedotpError) as error:
        read_policy(path, None)
    assert str(error.value).startswith(f"{path}: {why}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", [["ec", "-pkeyopt", "ec_paramgen_curve:P-384"], ["rsa"]])
def test_a_policy_is_what_its_owner_signed_with_openssl(kind: list[str], tmp_path: Path) -> None:
    path, owner = tmp_path / "policy.toml", tmp_path / "owner.pem"
    path.write_text("rounds = 5\n")
    for command in (
        ["genpkey", "-algorithm", *kind, "-out", "private.pem"],
        ["pkey", "-in", "private.pem", "-pubout", "-out", owner.name],
        ["dgst", "-sha384", "-sign", "private.pem", "-out", "policy.toml.sig", path.name],
    ):
        subprocess.run(["openssl", *command], cwd=tmp_path, check=True, capture_output=True)
    assert read_policy(path, owner) == "rounds = 5\n"
    path.write_text("rounds = 9\n")
    with pytest.raises(FedotpError, match=r"policy\.toml\.sig is not its signature with the key .*owner\.pem"):
        read_policy(path, owner)
    options = ["--insecure", "--part", "0", "--server", "localhost:1", "--state", tmp_path / "state"]
    done = python("-m", "fedotp", "client", *options, "--policy", path, "--policy-key", owner, status=2)
    last = read_chain(tmp_path / "state/security.jsonl")[-1].content
    assert (last["event"], done.stderr) == ("stop", f"error: {last['reason']}\n")
    (tmp_path / "policy.toml.sig").unlink()
    with pytest.raises(FedotpError, match=r"cannot read .*policy\.toml\.sig: No such file"):
        read_policy(path, owner)
    (tmp_path / "policy.toml.sig").touch()
    with pytest.raises(FedotpError, match="must be a public key"):
        read_policy(path, path)
