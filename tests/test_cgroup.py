"""Limits of a container's memory, from files as Linux writes them."""

from pathlib import Path

import pytest
import torch

from fedotp._memory import memory_left, memory_limit
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
        ("0::/", {"memory.max": 900, "memory.current": 950}, 900, 0),
        ("0::/", {"memory.max": "soon"}, None, None),
        ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": 500, "a/memory.current": 1}, 500, 499),
        ("0::/a/b", {"a/b/memory.max": 400, "a/memory.max": 500, "a/memory.current": 300}, 400, 200),
        ("0::/../c", {"memory.max": 800}, 800, 800),
        ("0::/seen/by/the/parent/only", {"memory.max": 800}, 800, 800),
        (V1, {"memory/a/b/memory.limit_in_bytes": 700, "memory/a/b/memory.usage_in_bytes": 100}, 700, 600),
        (V1, {"memory/memory.limit_in_bytes": 600}, 600, 600),
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


def test_a_machine_without_such_files_has_no_limit(tmp_path: Path) -> None:
    assert memory_limit(tmp_path) is memory_left(tmp_path) is None


def test_a_site_and_a_simulation_keep_to_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = system(tmp_path, "0::/", {"memory.max": 64 * MIB, "memory.current": 24 * MIB})
    free, whole = _hardware._free_bytes(torch.device("cpu")), _limits._memory(torch.device("cpu"))
    monkeypatch.setattr(_hardware, "memory_left", lambda: memory_left(machine))
    monkeypatch.setattr(_limits, "memory_limit", lambda: memory_limit(machine))
    assert _hardware._free_bytes(torch.device("cpu")) == 40 * MIB < free
    assert _limits._memory(torch.device("cpu")) == 64 * MIB < whole
    monkeypatch.setattr(_limits, "memory_limit", lambda: UNLIMITED)
    assert _limits._memory(torch.device("cpu")) == whole
