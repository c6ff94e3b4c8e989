"""What clients keep: in memory and in a file, through crashes, damage and a full disk; checkpoints."""

import os
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy_federation import assert_same_bits, kept_rows, make_data, make_settings, simulator, state_of

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


@given(
    writes=st.lists(st.tuples(st.sets(st.integers(0, 5), min_size=1), st.booleans()), max_size=6),
    data=st.data(),
)
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


def test_clients_start_from_the_initial_values_without_a_file(tmp_path: Path) -> None:
    kept = KeptRows(INITIAL, 3, tmp_path / "private.bin")
    rows = kept.read(np.array([2, 0]), CPU)
    assert {name: value.shape for name, value in rows.items()} == {"prompt": (2, 2, 3), "steps": (2,), "wide": (2, 2)}
    assert torch.equal(rows["prompt"][1], INITIAL["prompt"])
    assert rows["wide"].dtype == torch.float64
    assert not (tmp_path / "private.bin").exists()


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


@pytest.mark.parametrize("bit", [0, 77, 8 * 24 + 3])
def test_a_flipped_bit_is_found(tmp_path: Path, bit: int) -> None:
    path = tmp_path / "private.bin"
    kept = KeptRows(INITIAL, 3, path)
    kept.write(np.array([1]), rows_for([1], 3.0))
    content = bytearray(path.read_bytes())
    row = 2 * (2 * 3 * 4 + 4 + 16)  # client 1 begins behind the two slots of client 0
    content[row + bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    with pytest.raises(FedotpError, match=r"private.bin: what client 1 keeps is damaged .*restore"):
        kept.read(np.array([1]), CPU)
    kept.read(np.array([0, 2]), CPU)  # the others are as they were
    kept.close()


def test_a_missing_or_short_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "private.bin"
    kept = KeptRows(INITIAL, 3, path)
    kept.write(np.array([1]), rows_for([1], 3.0))
    os.truncate(path, 50)
    with pytest.raises(FedotpError, match="damaged"):
        kept.read(np.array([1]), CPU)
    kept.close()
    path.unlink()
    with pytest.raises(FedotpError, match=r"^cannot read .*private.bin: No such file"):
        kept.read(np.array([1]), CPU)


def test_rows_of_another_shape_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the clients keep"):
        KeptRows(INITIAL, 3).write(np.array([0]), {"prompt": torch.zeros(1, 2, 3)})


# Checkpoints -----------------------------------------------------------------------------------------------


def run_and_save(folder: Path, method: str | Method = "fedotp", rounds: int = 2, **optimizer: object):  # type: ignore[no-untyped-def]
    federation = simulator(method, make_settings(optimizer=optimizer, participation=0.6), kept=folder / "private.bin")
    for _ in range(rounds):
        federation.run_round()
    Checkpoint.write(folder / "checkpoint.safetensors", federation, Progress(round=federation.round, bytes_up=5))
    return federation


@pytest.mark.parametrize("optimizer", [{}, {"reset": False}, {"name": "adamw", "reset": False}])
@pytest.mark.parametrize("method", ["fedotp", "promptfl-fedamp", "coop", "promptfl"])
def test_a_checkpoint_brings_everything_back(tmp_path: Path, method: str, optimizer: dict) -> None:
    federation = run_and_save(tmp_path, method, **optimizer)
    federation.run_round()  # beyond the checkpoint
    expected = state_of(federation)
    other = simulator(method, federation.settings, kept=tmp_path / "private.bin")
    progress = Checkpoint.read(tmp_path / "checkpoint.safetensors").restore(other)
    assert (progress.round, progress.bytes_up, other.round) == (2, 5, 2)
    other.run_round()
    assert_same_bits(state_of(other), expected)


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


def test_any_flipped_byte_of_a_checkpoint_is_found(tmp_path: Path) -> None:
    federation = run_and_save(tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    content = path.read_bytes()
    for at in [*range(0, len(content), 37), len(content) - 1]:
        damaged = bytearray(content)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        before = state_of(federation)
        try:
            Checkpoint.read(path).restore(federation)
        except FedotpError as error:
            assert str(path) in str(error) and "\n" not in str(error)  # noqa: PT017, PT018
            assert_same_bits(state_of(federation), before)
        else:
            facts = (content[at : at + 1], bytes(damaged[at : at + 1]))
            assert facts[0].isspace() or facts[1].isspace(), f"byte {at} was not missed"  # padding of the header


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_a_truncated_checkpoint_is_one_line(tmp_path: Path, keep: int) -> None:
    federation = run_and_save(tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(FedotpError, match=r"checkpoint") as caught:
        Checkpoint.read(path).restore(federation)
    assert "\n" not in str(caught.value)


def test_a_checkpoint_of_another_federation_is_refused(tmp_path: Path) -> None:
    run_and_save(tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    for other in (
        simulator("promptfl", kept=tmp_path / "p"),
        simulator("fedotp", data=make_data((4, 4), (2, 2)), kept=tmp_path / "p"),
        simulator("fedotp", make_settings(optimizer={"reset": False}), kept=tmp_path / "p"),
    ):
        with pytest.raises(FedotpError, match="belongs to another federation"):
            Checkpoint.read(path).restore(other)


def test_rows_in_memory_are_not_pretended_to_be_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="in memory"):
        Checkpoint.write(tmp_path / "c", simulator("fedotp"), Progress())
    assert not list(tmp_path.iterdir())
    Checkpoint.write(tmp_path / "c", simulator("promptfl"), Progress())  # whose clients keep nothing


_FULL = """
import resource, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(1)
from toy_federation import make_settings, simulator
from fedotp.errors import FedotpError
from fedotp.federation import Checkpoint, Progress
from fedotp.methods import FedOTP
folder, limit = Path(sys.argv[2]), int(sys.argv[3])
federation = simulator(FedOTP(n_shared=20), make_settings(participation=0.6), kept=folder / "private.bin")
Checkpoint.read(folder / "checkpoint.safetensors").restore(federation)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    federation.run_round()
    Checkpoint.write(folder / "checkpoint.safetensors", federation, Progress(round=federation.round))
except FedotpError as error:
    print(error)
    sys.exit(3)
"""


@pytest.mark.parametrize(("limit", "what"), [(100, "private.bin"), (3900, "checkpoint.safetensors")])
def test_a_full_disk_is_one_line_and_the_checkpoint_stays(tmp_path: Path, limit: int, what: str) -> None:
    """A limit on file sizes stands in for the disk; first the rows do not fit, then the checkpoint."""
    method = FedOTP(n_shared=20)
    federation = run_and_save(tmp_path, method)
    federation.kept.close()
    expected, saved = state_of(federation), (tmp_path / "checkpoint.safetensors").read_bytes()
    size = (tmp_path / "private.bin").stat().st_size
    assert size == 3840 < 3900 < len(saved)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_FULL), str(Path(__file__).parent), str(tmp_path), str(limit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("cannot write")
    assert what in done.stdout
    assert len(done.stdout.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint.safetensors", "private.bin"]
    other = simulator(method, federation.settings, kept=tmp_path / "private.bin")
    Checkpoint.read(tmp_path / "checkpoint.safetensors").restore(other)
    assert_same_bits(state_of(other), expected)


def test_a_simulation_of_many_clients_costs_what_the_sampled_cost(tmp_path: Path) -> None:
    """3,000 clients, 3 of them sampled: the file holds the rows of these."""
    data = make_data(train=(2,) * 3000, test=(0,) * 3000)
    federation = simulator("fedotp", make_settings(participation=0.001, local_epochs=1), data=data, kept=tmp_path / "p")
    federation.run_round()
    assert (federation.kept.slot >= 0).sum() == 3
    assert (tmp_path / "p").stat().st_blocks * 512 <= 4 * 4096
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    federation.run_round()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
    assert len(kept_rows(federation)["private"]) == 3000
