"""The process and its system: memory that may be taken and is kept, a clock of a thread, the driver of a GPU."""

import threading
from itertools import count
from pathlib import Path

import pytest
import torch

from fedotp import _system
from fedotp._system import free_gpu_bytes, leave_out, memory_left, memory_limit, own_seconds, share_gpu
from fedotp.federation import _hardware
from fedotp.flower.site import _limits

MIB = 1 << 20
UNLIMITED = 0x7FFFFFFFFFFFF000  # what version 1 says where nothing is limited


def system(folder: Path, groups: str, files: dict[str, object]) -> Path:
    """A machine whose /proc/self/cgroup is `groups`, with these files below /sys/fs/cgroup."""
    for name, content in {
        "proc/self/cgroup": groups,
        **{f"sys/fs/cgroup/{name}": files[name] for name in files},
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return folder


V1 = "5:cpu,cpuacct:/a/b\n4:memory:/a/b\n0::/"


@pytest.mark.parametrize(
    ("groups", "files", "limit", "left"),
    [
        ("0::/", {}, None, None),
        ("0::/", {"memory.max": "max", "memory.current": 5}, None, None),
        ("0::/", {"memory.max": 900, "memory.current": 300}, 900, 600),
        ("0::/", {"memory.max": 900, "memory.current": 300, "memory.stat": "anon 7\ninactive_file 100"}, 900, 700),
        ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": 500, "a/memory.current": 1}, 500, 499),
        ("0::/a/b", {"a/b/memory.max": 400, "a/memory.max": 500, "a/memory.current": 300}, 400, 200),
        ("0::/../c", {"memory.max": 800}, 800, 800),
        (V1, {"memory/a/b/memory.limit_in_bytes": 700, "memory/a/b/memory.usage_in_bytes": 100}, 700, 600),
        (V1, {"memory/a/b/memory.limit_in_bytes": UNLIMITED}, UNLIMITED, UNLIMITED),
        (V1, {"cpu/a/b/memory.limit_in_bytes": 700}, None, None),
        ("nonsense", {"memory.max": 800}, 800, 800),
    ],
)
def test_the_least_limit_on_the_way_counts(
    groups: str, files: dict[str, object], limit: int | None, left: int | None, tmp_path: Path
) -> None:
    machine = system(tmp_path, groups, files)
    assert (memory_limit(machine), memory_left(machine)) == (limit, left)


def test_a_site_and_a_simulation_keep_to_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = system(tmp_path, "0::/", {"memory.max": 64 * MIB, "memory.current": 24 * MIB})
    free, whole = _hardware._free_bytes(torch.device("cpu")), _limits._memory(torch.device("cpu"))
    monkeypatch.setattr(_hardware, "memory_left", lambda: memory_left(machine))
    monkeypatch.setattr(_limits, "memory_limit", lambda: memory_limit(machine))
    assert _hardware._free_bytes(torch.device("cpu")) == 40 * MIB < free
    assert _limits._memory(torch.device("cpu")) == 64 * MIB < whole
    monkeypatch.setattr(_limits, "memory_limit", lambda: UNLIMITED)
    assert _limits._memory(torch.device("cpu")) == whole


@pytest.mark.parametrize(
    ("sharing", "free", "reserved", "expected"),
    [(1, 900, 0, 900), (4, 900, 0, 250), (4, 100, 0, 100), (4, 900, 200, 50), (4, 900, 300, 0)],
)
def test_processes_on_one_gpu_share_its_memory(
    sharing: int, free: int, reserved: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_system, "_sharing", 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 1000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: reserved)
    share_gpu(sharing)
    assert free_gpu_bytes(torch.device("cuda")) == expected


def test_what_is_left_out_is_left_out_in_this_thread_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.perf_counter", ticks := count(100).__next__)
    assert ticks() == 100
    before = own_seconds()
    leave_out(30.0)
    assert own_seconds() - before == 1 - 30
    other: list[float] = []
    thread = threading.Thread(target=lambda: other.append(own_seconds()))
    thread.start()
    thread.join()
    leave_out(-30.0)
    assert other[0] - before == 2
