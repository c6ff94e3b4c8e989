"""What a site does not let a server, or another user of its machine, do to it."""

import io
import json
import logging
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message
from flwr.supercore.logger import FLOWER_LOGGER, console_handler
from near_sites import NearGrid, make_deployable, parts, prompt_in

from fedotp.clip import CLIP, TINY
from fedotp.errors import FedotpError
from fedotp.flower._agreement import PROTOCOL, Agreement, DisagreementError
from fedotp.flower._log import start_logging
from fedotp.flower.server import ServerSettings
from fedotp.flower.site import _limits, _state
from fedotp.flower.site._app import alone_in
from fedotp.flower.site._limits import require_memory, require_room
from fedotp.methods import Task

QUICK = ServerSettings(round_timeout=0.5, start_timeout=20)
PEM = b"-----BEGIN PUBLIC KEY-----\nMHYwEAYHKoZIzj0CAQYFK4EEACIDYgAE\n-----END PUBLIC KEY-----\n"


# What it keeps -------------------------------------------------------------------------------------------------------


def test_a_state_folder_that_is_open_to_others_is_closed_and_that_is_said(tmp_path: Path, log_lines: "Lines") -> None:
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(0o755)
    with alone_in(state):
        assert state.stat().st_mode & 0o777 == 0o700
    assert "state was accessible to other users of this machine" in log_lines()


def test_a_new_state_folder_on_a_volume_of_a_group_is_closed_without_a_warning(
    tmp_path: Path, log_lines: "Lines"
) -> None:
    """Kubernetes gives a volume to a group with the setgid bit, which new folders inherit."""
    tmp_path.chmod(0o2775)
    with alone_in(tmp_path / "state"):
        assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert "accessible to other users" not in log_lines()


def test_a_state_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uid = tmp_path.stat().st_uid
    monkeypatch.setattr(_state.os, "geteuid", lambda: uid + 1)
    with pytest.raises(FedotpError, match=r"belongs to another user \(uid \d+\)"), alone_in(tmp_path):
        pass


def test_two_processes_cannot_be_the_same_site(tmp_path: Path) -> None:
    with (
        alone_in(tmp_path / "state"),
        pytest.raises(FedotpError, match="in use by another `fedotp client`"),
        alone_in(tmp_path / "state"),
    ):
        pass
    with alone_in(tmp_path / "state"):
        pass


def test_a_state_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FedotpError, match="cannot write"), alone_in(tmp_path / "file"):
        pass


def test_a_full_disk_is_a_fault_and_no_path_is_told(inputs: Path, tmp_path: Path, monkeypatch: Any) -> None:
    def full(*_: object, **__: object) -> None:
        raise FedotpError("cannot write /scans/Jane Doe/private: No space left on device")

    monkeypatch.setattr("fedotp.flower.site._state.write_atomically", full)
    monkeypatch.setattr("fedotp.classifier.Classifier.save", full)
    grid = NearGrid(parts(tmp_path, 2))
    run = grid.serve(make_deployable(inputs), tmp_path / "run")
    faults = next(run.metrics("round"))["faults"]
    assert set(faults) == {"site-0", "site-1"}
    assert "see the site's log" in faults["site-0"]
    assert len(run.summary["clients"]) == 2, "the last evaluation is not lost with the classifier"
    assert not any("Jane" in str(reply.content) for reply in grid.answered)


# What it logs --------------------------------------------------------------------------------------------------------

Lines = Any


@pytest.fixture
def log_lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lines]:
    """What fedotp's and Flower's loggers have written, as a terminal or a file would get it."""
    stream = io.StringIO()
    logger = logging.getLogger("fedotp")
    before = logger.handlers, FLOWER_LOGGER.handlers
    logger.handlers, FLOWER_LOGGER.handlers = [], [console_handler]
    monkeypatch.setattr("sys.stderr", stream)
    start_logging()
    yield stream.getvalue
    logger.handlers, FLOWER_LOGGER.handlers = before


def test_a_strangers_words_cannot_colour_or_forge_a_line_of_the_log(log_lines: Lines) -> None:
    evil = "cat\x1b[2J\n12:00:00 INFO    all is well\r\u202e"
    log = logging.getLogger("fedotp.site")
    log.error("refused: %s", evil)
    try:
        raise ValueError(evil)
    except ValueError:
        log.exception("the message could not be worked on")
    lines = log_lines().splitlines()
    assert not any(c in log_lines() for c in "\x1b\r\u202e")
    assert [line for line in lines if "all is well" in line and line[0].isdigit()] == [lines[0]]
    assert "refused: cat\\x1b[2J\\n12:00:00" in lines[0]


def test_nothing_that_flower_logs_is_printed(log_lines: Lines) -> None:
    FLOWER_LOGGER.error("[/v1/fleet/activate-node][ApiError:2004] SuperNode 123 with public key: %r", PEM)
    logging.getLogger("fedotp.server").warning("site noto disconnected")
    (line,) = log_lines().splitlines()
    assert line.endswith("WARNING site noto disconnected")


# What it does --------------------------------------------------------------------------------------------------------


def agreement_of(inputs: Path, **changes: Any) -> Agreement:
    values: dict[str, Any] = {
        "protocol": PROTOCOL,
        "run": "0" * 32,
        "config": make_deployable(inputs).to_dict(),
        "classes": ["cat", "dog"],
        "template": "a photo of a {}.",
        "backbone": "0",
        "secure": None,
    }
    return Agreement.of(ConfigRecord({"agreement": json.dumps(values | changes)}))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"classes": [str(i) for i in range(300_000)]}, "at most 50000 classes, got 300000"),
        ({"classes": ["x" * 600]}, "at most 500 characters, got 600"),
        ({"classes": "cat"}, "not a list"),
        ({"template": "{}" + "x" * 2000}, "at most 1000 characters, got 2002"),
        ({"secure": {"share": 0.4, "bound": 64}}, "secure-threshold = 0.4: must be from 0.5"),
        ({"secure": {"share": 0.6, "bound": "\x1b[2J\n"}}, r"secure-range = '.*': must be from 1"),
        ({"secure": [1]}, "cannot parse"),
        ({"protocol": "\x1b[2J\n2"}, r"protocol \[2J 2, this site"),
        ({"config": {"\x1b[2J": 1}}, r"the server's configuration: .*\[2J"),
        *(({"run": run}, "invalid run name") for run in ("../../etc", "", "a" * 31, "A" * 32, "0" * 33)),
    ],
)
def test_an_agreement_that_costs_too_much_or_says_too_much_is_refused_in_one_line(
    inputs: Path, changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(DisagreementError, match=why) as refusal:
        agreement_of(inputs, **changes)
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize("text", ["nonsense", "[" * 200_000])
def test_a_message_of_something_else_is_refused(text: str) -> None:
    with pytest.raises(DisagreementError, match="contains no agreement"):
        Agreement.of(ConfigRecord({"agreement": text}))


def test_classes_and_prompts_that_do_not_fit_into_memory_are_refused(
    inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, clip = make_deployable(inputs), CLIP.random(TINY)
    monkeypatch.setattr(_limits, "_memory", lambda device: 1 << 30)

    def require(n_classes: int, *settings: str) -> None:
        asked = config.override(settings)
        task = Task(clip, tuple(map(str, range(n_classes))), asked.prompt)
        require_memory(task, asked, 100, "north")

    require(100, "federation.batch_size=100000")  # no more than its images
    with pytest.raises(DisagreementError, match=r"20000 classes and 2 prompts require about \d+ GiB of memory"):
        require(20_000)
    with pytest.raises(DisagreementError, match="256 prompts"):
        require(1000, "method.n_shared=128", "method.n_private=128")
    with pytest.raises(DisagreementError, match="GiB of memory"):
        require(1000, "method.n_shared=100", "prompt.per_class=true")


def test_views_that_do_not_fit_on_the_disk_are_refused(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, clip = make_deployable(inputs), CLIP.random(TINY)
    config = replace(config, data=replace(config.data, store=str(tmp_path / "tokens")))
    monkeypatch.setattr(_limits.shutil, "disk_usage", lambda folder: type("Disk", (), {"free": 10 << 20}))
    require_room(config, clip, 100, 100, "north")
    with pytest.raises(DisagreementError, match=r"data.crops = 1000 requires about \d+ GiB on the disk of site north"):
        require_room(config.override(["data.crops=1000"]), clip, 100, 100, "north")


@pytest.fixture(scope="module")
def order(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[NearGrid, Message]:
    """The message by which a server had a site train, and the site."""
    folder = tmp_path_factory.mktemp("order")
    grid = NearGrid(parts(folder, 1))
    grid.serve(make_deployable(inputs, federation={"rounds": 1}), folder / "run")
    return grid, grid.exchanged("train")[0][0]


def refusal_of(order: tuple[NearGrid, Message], prompt: ArrayRecord | None = None, **fields: Any) -> str:
    """What the site answers to the order with another prompt, or other fields."""
    grid, content = order[0], deepcopy(order[1].content)
    content.config_records["config"].update(fields)
    if prompt is not None:
        content["arrays"] = prompt
    (reply,) = grid.pull_messages(grid.push_messages([Message(content, dst_node_id=100, message_type="train")]))
    return str(reply.content.config_records["config"]["refused"])


def test_a_prompt_of_another_shape_is_refused(order: Any) -> None:
    prompt = ArrayRecord({"shared": Array(np.float32(prompt_in(order[1])[:, :1]))})
    assert "the server sent an invalid prompt: shared must be float32 of shape" in refusal_of(order, prompt)


@pytest.mark.parametrize(("number", "why"), [(-1, "of at least 0"), (10**12, f"from 0 to 99999, got {10**12}")])
def test_a_server_cannot_make_a_site_take_all_memory_by_its_number(number: int, why: str, order: Any) -> None:
    assert why in refusal_of(order, number=number)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"config": {"prompt": {"n_ctx": 10**9}}}, "prompt.n_ctx = 1000000000: must be from 1 to 1000"),
        ({"config": {"method": {"n_private": 10**9}}}, "their sum must be from 1 to 256"),
        ({"config": {"data": {"crops": 9000}}}, "data.crops = 9000: must be at most 1000"),
        ({"config": {"federation": {"local_epochs": 10**6}}}, "local_epochs = 1000000: must be at most 1000"),
        ({"config": {"federation": {"join_epochs": 10**6}}}, "join_epochs = 1000000: must be at most 1000"),
        ({"classes": 5}, "cannot parse"),
        ({"run": None}, "invalid run name"),
    ],
)
def test_a_site_does_not_agree_to_everything(change: dict[str, Any], reason: str, order: Any) -> None:
    agreed = json.loads(str(order[1].content.config_records["config"]["agreement"]))
    assert reason in refusal_of(order, agreement=json.dumps(_merged(agreed, change)))


def _merged(table: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    deeper = {key: _merged(table[key], value) for key, value in change.items() if isinstance(value, dict)}
    return {**table, **change, **deeper}
