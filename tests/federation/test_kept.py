"""What clients keep: in memory and in a file, through crashes, damage and a full disk; checkpoints."""

import os
import resource
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy_federation import assert_same_bits, make_data, make_settings, simulator, state_of

from fedotp.errors import FedotpError
from fedotp.federation import Checkpoint, Progress
from fedotp.federation.clients import KeptRows
from fedotp.methods import FedOTP, Method

CPU = torch.device("cpu")
INITIAL = {"prompt": torch.full((2, 3), 0.5), "steps": torch.tensor(7.0), "wide": torch.ones(2, dtype=torch.float64)}


def rows_for(clients: list[int], value: float) -> dict[str, torch.Tensor]:
    return {
        "prompt": torch.stack([torch.full((2, 3), value + client) for client in clients]),
        "steps": torch.tensor([value] * len(clients)),
        "wide": torch.stack([torch.full((2,), -value, dtype=torch.float64) for _ in clients]),
    }


@given(writes=st.lists(st.tuples(st.sets(st.integers(0, 5), min_size=1), st.booleans()), max_size=6), data=st.data())
def test_a_file_and_memory_hold_the_same(tmp_path_factory, writes, data) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path_factory.mktemp("kept") / "private.bin"
    held, filed = KeptRows(INITIAL, 6), KeptRows(INITIAL, 6, path)
    for i, (clients, commit) in enumerate(writes):
        numbers = np.array(sorted(clients))
        for kept in (held, filed):
            kept.write(numbers, rows_for(sorted(clients), float(i)))
            if commit:
                kept.commit()
    wanted = np.array(data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=8)))
    assert_same_bits(held.read(wanted, CPU), filed.read(wanted, CPU))
    initial = held.read(wanted, CPU, initial=True)
    assert all(torch.equal(initial[name][0], value) for name, value in INITIAL.items())
    filed.close()


def test_the_file_takes_room_for_clients_that_wrote_only(tmp_path: Path) -> None:
    initial = {"prompt": torch.zeros(1, 16, 512)}  # 32 KiB a row
    path = tmp_path / "private.bin"
    kept = KeptRows(initial, 10_000, path)
    used = []
    for clients in ([5000], [0, 9999, 777]):
        kept.write(np.array(clients), {"prompt": torch.ones(len(clients), 1, 16, 512)})
        used.append(path.stat().st_blocks * 512)
    assert path.stat().st_size == 2 * 10_000 * 32 * 1024
    assert used[0] <= 2 * 40_960
    assert used[1] <= 5 * 40_960
    assert path.stat().st_mode & 0o077 == 0  # other people's business it is not
    kept.close()


def test_rows_without_a_checkpoint_do_not_change_what_the_last_one_reads(tmp_path: Path) -> None:
    """However often they are written: the slot of the checkpoint is never the one written to."""
    path = tmp_path / "private.bin"
    kept = KeptRows(INITIAL, 4, path)
    clients = np.array([0, 2])
    kept.write(clients, rows_for([0, 2], 10.0))
    kept.commit()
    slot, checksum = kept.slot.copy(), kept.checksum.copy()
    for times in range(1, 4):
        kept.write(np.array([0, 1]), rows_for([0, 1], 100.0 * times))
        assert kept.read(np.array([0]), CPU)["prompt"][0, 0, 0] == 100.0 * times
        back = KeptRows(INITIAL, 4, path)  # the process was killed; a new one reads the checkpoint's index
        back.slot[:], back.checksum[:] = slot, checksum
        rows = back.read(np.arange(4), CPU)["prompt"][:, 0, 0]
        assert rows.tolist() == [10.0, 0.5, 12.0, 0.5]
        back.close()
    kept.close()


def test_a_flipped_bit_and_a_short_or_missing_file_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "private.bin"
    kept = KeptRows(INITIAL, 3, path)
    kept.write(np.array([1]), rows_for([1], 3.0))
    whole = path.read_bytes()
    row = 2 * (2 * 3 * 4 + 4 + 16)  # client 1 begins behind the two slots of client 0
    for at in (row, row + 9, row + 24):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 8]) + whole[at + 1 :])
        with pytest.raises(FedotpError, match=r"private.bin: the row of client 1 is corrupt .*restore"):
            kept.read(np.array([1]), CPU)
        kept.read(np.array([0, 2]), CPU)  # the others are as they were
    os.truncate(path, 50)
    with pytest.raises(FedotpError, match="corrupt"):
        kept.read(np.array([1]), CPU)
    kept.close()
    path.unlink()
    with pytest.raises(FedotpError, match=r"^cannot read .*private.bin: No such file"):
        kept.read(np.array([1]), CPU)


# Checkpoints -----------------------------------------------------------------------------------------------


def run_and_save(  # type: ignore[no-untyped-def]
    folder: Path, method: str | Method = "fedotp", server: str = "average", **optimizer: object
):
    settings = make_settings(optimizer=optimizer, participation=0.6, server={"name": server, "lr": 0.02})
    federation = simulator(method, settings, kept=folder / "private.bin")
    for _ in range(2):
        federation.run_round()
    Checkpoint.write(folder / "checkpoint.safetensors", federation, Progress(round=federation.round, bytes_up=5))
    return federation


@pytest.mark.parametrize(
    ("method", "server", "optimizer"),
    [
        ("fedotp", "average", {}),
        ("fedotp", "momentum", {"name": "adamw", "reset": False}),
        ("promptfl", "yogi", {"reset": False}),
        ("promptfl-fedamp", "average", {"reset": False}),
        ("coop", "average", {"name": "adamw", "reset": False}),
    ],
)
def test_a_checkpoint_brings_everything_back(tmp_path: Path, method: str, server: str, optimizer: dict) -> None:
    federation = run_and_save(tmp_path, method, server, **optimizer)
    checkpoint = Checkpoint.read(tmp_path / "checkpoint.safetensors")
    assert checkpoint.server.keys() == federation.server.params.keys()  # the step's state is apart from them
    federation.run_round()  # beyond the checkpoint
    other = simulator(method, federation.settings, kept=tmp_path / "private.bin")
    progress = checkpoint.restore(other)
    assert (progress.round, progress.bytes_up, other.round) == (2, 5, 2)
    assert bool(other.server.step.state) == (server != "average")
    other.run_round()
    assert_same_bits(state_of(other), state_of(federation))
    assert_same_bits(other.server.step.state, federation.server.step.state)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux says what is mapped into memory")
def test_a_checkpoint_that_was_read_is_not_held(tmp_path: Path) -> None:
    """Windows would not let the next one take its place."""
    federation = run_and_save(tmp_path, "fedotp")
    Checkpoint.read(tmp_path / "checkpoint.safetensors").restore(federation)
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


def test_the_size_of_the_groups_is_part_of_a_checkpoint(tmp_path: Path) -> None:
    """It decides how sums are rounded, and what fits depends on the machine's mood."""
    federation = simulator("fedotp", kept=tmp_path / "private.bin")
    Checkpoint.write(tmp_path / "c", federation, Progress(group_size=3))
    assert federation.group_size == 64
    Checkpoint.read(tmp_path / "c").restore(federation)
    assert federation.group_size == 3


def test_any_flipped_byte_of_a_checkpoint_and_any_end_that_is_missing_is_found(tmp_path: Path) -> None:
    federation = run_and_save(tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    content, before = path.read_bytes(), state_of(federation)
    damaged = [content[:keep] for keep in (0, 4, 100, -1)]
    for at in [*range(0, len(content), 37), len(content) - 1]:
        flipped = content[at] ^ 0x10
        if not (chr(content[at]).isspace() or chr(flipped).isspace()):  # padding of the header
            damaged.append(content[:at] + bytes([flipped]) + content[at + 1 :])
    for wrong in damaged:
        path.write_bytes(wrong)
        with pytest.raises(FedotpError, match="checkpoint") as caught:
            Checkpoint.read(path).restore(federation)
        assert "\n" not in str(caught.value)
        assert_same_bits(state_of(federation), before)


def test_a_checkpoint_of_another_federation_is_refused(tmp_path: Path) -> None:
    """Of another method, other clients, another optimizer or another step; or its state is of another shape or type."""
    federation = run_and_save(tmp_path, server="momentum")
    path, own = tmp_path / "checkpoint.safetensors", {"server": {"name": "momentum"}}
    for other in (
        simulator("promptfl", make_settings(**own), kept=tmp_path / "p"),
        simulator("fedotp", make_settings(**own), data=make_data((4, 4), (2, 2)), kept=tmp_path / "p"),
        simulator("fedotp", make_settings(**own, optimizer={"reset": False}), kept=tmp_path / "p"),
        simulator("fedotp", make_settings(), kept=tmp_path / "p"),
        simulator("fedotp", make_settings(server={"name": "yogi"}), kept=tmp_path / "p"),
    ):
        with pytest.raises(FedotpError, match="belongs to another federation"):
            Checkpoint.read(path).restore(other)
        assert other.server.step.state == {}
    state = federation.server.step.state
    for forge in (torch.Tensor.flatten, torch.Tensor.float, torch.Tensor.long):
        federation.server.step.state = {name: forge(value) for name, value in state.items()}
        Checkpoint.write(path, federation, Progress(round=2))
        with pytest.raises(FedotpError, match="belongs to another federation"):
            Checkpoint.read(path).restore(federation)


@pytest.mark.parametrize(("limit", "what"), [(100, "private.bin"), (3900, "checkpoint.safetensors")])
def test_a_full_disk_is_one_line_and_the_checkpoint_stays(tmp_path: Path, limit: int, what: str) -> None:
    """A limit on file sizes stands in for the disk; first the rows do not fit, then the checkpoint."""
    method, path = FedOTP(n_shared=20), tmp_path / "checkpoint.safetensors"
    federation = run_and_save(tmp_path, method)
    expected = state_of(federation)
    assert (tmp_path / "private.bin").stat().st_size == 3840 < 3900 < path.stat().st_size
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, unlimited[1]))
    try:
        with pytest.raises(FedotpError, match=rf"^cannot write .*{what}") as caught:  # noqa: PT012  (either line)
            federation.run_round()
            Checkpoint.write(path, federation, Progress(round=federation.round))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    federation.kept.close()
    assert "\n" not in str(caught.value)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["checkpoint.safetensors", "private.bin"]
    other = simulator(method, federation.settings, kept=tmp_path / "private.bin")
    Checkpoint.read(path).restore(other)
    assert_same_bits(state_of(other), expected)
