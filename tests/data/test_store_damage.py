"""A store that was killed, shared, cut short, flipped, mixed up or ran out of room."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from store_made import array_dataset, assert_same_tokens, tiny_clip

from fedotp.data import Dataset
from fedotp.data.store._encode import encode
from fedotp.data.store._shard import Encoding
from fedotp.data.store._store import list_stores
from fedotp.data.store._tokens import EncodedDataset
from fedotp.errors import FedotpError

N_TRAIN, N_TEST = 60, 20
N_CROPS = 2 * N_TRAIN + N_TEST

# Encodes the data set of `reference`; words on the command line say when to die, or to wait for whom.
PROCESS = """
import os, signal, sys, time
from pathlib import Path
import torch
from store_made import array_dataset, tiny_clip
from fedotp.data.store import _shard
from fedotp.data.store._encode import encode

torch.set_num_threads(1)
root, moment, n_writes = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
write = _shard._write
def dying_write(file, offset, data):
    global n_writes
    n_writes -= 1
    if n_writes == 0:
        write(file, offset, data[: len(data) // 2] if moment == "half" else b"")
        os.kill(os.getpid(), signal.SIGKILL)
    write(file, offset, data)
if moment in ("half", "before"):
    _shard._write = dying_write
if moment == "together":
    (root / f"ready {os.getpid()}").touch()
    while len(list(root.glob("ready *"))) < n_writes:
        time.sleep(0.01)
print(encode(array_dataset(60, 20), tiny_clip(), root=root, crops=2, batch_size=4).n_encoded)
"""


def start(root: Path, moment: str, n: int) -> "subprocess.Popen[str]":
    root.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(root), moment, str(n)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> EncodedDataset:
    root = tmp_path_factory.mktemp("reference")
    return encode(array_dataset(N_TRAIN, N_TEST), tiny_clip(), root=root, crops=2, batch_size=4)


# Two headers are written first, then records (3rd, 5th, ...) and entries (4th, 6th, ...) in turn.
@pytest.mark.parametrize(("moment", "n_writes"), [("half", 3), ("half", 17), ("half", 18), ("before", 18)])
def test_killed_it_goes_on_where_it_was(moment: str, n_writes: int, tmp_path: Path, reference: EncodedDataset) -> None:
    process = start(tmp_path, moment, n_writes)
    assert process.communicate()[0] == ""
    assert process.returncode == -9
    n_batches = (n_writes - 3) // 2
    clip = tiny_clip()
    resumed = encode(array_dataset(N_TRAIN, N_TEST), clip, root=tmp_path, crops=2, batch_size=4)
    # half a batch of entries is half a batch of records kept
    n_kept = 4 * n_batches + (2 if (moment, n_writes % 2) == ("half", 0) else 0)
    assert clip.n_images == resumed.n_encoded == N_CROPS - n_kept
    assert resumed.n_repaired == 0
    assert_same_tokens(resumed, reference)


def test_processes_share_the_work(tmp_path: Path, reference: EncodedDataset) -> None:
    processes = [start(tmp_path, "together", 2) for _ in range(2)]
    counts = [int(process.communicate()[0]) for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert N_CROPS <= sum(counts) < 2 * N_CROPS
    assert max(counts) <= N_CROPS
    clip = tiny_clip()
    union = encode(array_dataset(N_TRAIN, N_TEST), clip, root=tmp_path, crops=2)
    assert clip.n_images == union.n_repaired == 0
    assert_same_tokens(union, reference)


def test_what_others_write_meanwhile_is_left_to_them(tmp_path: Path) -> None:
    dataset, other, clip = array_dataset(40, 2), tiny_clip(), tiny_clip()
    begun: list[int] = []

    def meanwhile(what: str, done: int, total: int) -> None:
        if what == "encoding train" and done and not begun:
            begun.append(done)
            encode(dataset, other, root=tmp_path, batch_size=4)

    encoded = encode(dataset, clip, root=tmp_path, batch_size=4, on_progress=meanwhile)
    assert other.n_images >= 40 - 4 + 2  # all but what was there already
    assert clip.n_images <= 4 * 4  # the batch done, and those being decoded when the other came
    assert len(encoded.train) == 40


def _one(folder: Path, suffix: str) -> Path:
    return max(folder.glob(f"*.{suffix}"), key=lambda path: path.stat().st_size)


def _cut(suffix: str, n_bytes: int) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = _one(folder, suffix)
        os.truncate(path, path.stat().st_size - n_bytes)

    return damage


def _flip(suffix: str, offset: int) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = _one(folder, suffix)
        content = bytearray(path.read_bytes())
        content[offset] ^= 4
        path.write_bytes(content)

    return damage


def _replace(suffix: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: _one(folder, suffix).write_bytes(content) and None


RECORD, ENTRY, ALL = 1088, 56, 20


def one_shard() -> Dataset:
    """Twenty images, of which two are test images, too: all records are in one shard."""
    dataset = array_dataset(ALL, 2)
    return replace(dataset, test=dataset.train.select(np.arange(2)))


@pytest.mark.parametrize(
    ("damage", "n_lost", "n_repaired"),
    [
        (_cut("records", 2 * RECORD), 2, 0),
        (_cut("records", ALL * RECORD + 1), ALL, 0),
        (_cut("index", 3 * ENTRY), 3, 0),
        (_cut("index", ALL * ENTRY + 64), ALL, 0),
        (_flip("records", 64 + 5 * RECORD + 100), 1, 1),
        (_flip("index", 64 + 5 * ENTRY + 3), 1, 0),
        (_flip("index", 64 + 5 * ENTRY + 50), 1, 0),
        (_flip("records", 3), ALL, 0),
        (_flip("index", 40), ALL, 0),
        (_replace("index", b"my shopping list"), ALL, 0),
        (_replace("records", b""), ALL, 0),
        (lambda folder: _one(folder, "records").unlink(), ALL, 0),
        (lambda folder: (folder / "encoding.json").write_text("{}") and None, 0, 0),
        (lambda folder: (folder / "notes.index").write_text("not ours") and None, 0, 0),
    ],
)  # fmt: skip
def test_damage_is_found_and_mended(
    damage: Callable[[Path], None], n_lost: int, n_repaired: int, tmp_path: Path
) -> None:
    dataset, clip = one_shard(), tiny_clip()
    sound = encode(dataset, clip, root=tmp_path / "sound")
    encode(dataset, clip, root=tmp_path / "store")
    damage(tmp_path / "store" / sound.train.store.folder.name)
    if n_repaired:  # without verification a flipped bit is not looked for
        assert encode(dataset, clip, root=tmp_path / "store", verify=False).n_encoded == 0
    for _ in range(2):
        mended = encode(dataset, clip, root=tmp_path / "store")
        assert (mended.n_encoded, mended.n_repaired) == (n_lost, n_repaired)
        assert_same_tokens(mended, sound)
        n_lost = n_repaired = 0  # and stays mended


def test_tokens_of_other_weights_are_not_used(tmp_path: Path) -> None:
    ours = encode(one_shard(), tiny_clip(), root=tmp_path / "ours")
    theirs = encode(one_shard(), tiny_clip(seed=1), root=tmp_path / "theirs")
    for suffix in ("index", "records"):
        foreign = _one(theirs.train.store.folder, suffix)
        _one(ours.train.store.folder, suffix).write_bytes(foreign.read_bytes())
    again = encode(one_shard(), tiny_clip(), root=tmp_path / "ours")
    assert again.n_encoded == ALL
    assert_same_tokens(again, encode(one_shard(), tiny_clip(), root=tmp_path / "fresh"))


def test_interrupted_it_goes_on_where_it_was(tmp_path: Path) -> None:
    def interrupt(what: str, done: int, total: int) -> None:
        if what == "encoding train" and done >= 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode(one_shard(), tiny_clip(), root=tmp_path, batch_size=4, on_progress=interrupt)
    resumed = encode(one_shard(), tiny_clip(), root=tmp_path)
    assert (resumed.n_encoded, resumed.n_repaired) == (ALL - 8, 0)


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    sound = encode(one_shard(), tiny_clip(), root=tmp_path / "sound")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 + 10 * RECORD, hard))  # the third batch of four does not fit
    try:
        with pytest.raises(FedotpError, match=r"cannot write to .*: File too large; free disk space") as raised:
            encode(one_shard(), tiny_clip(), root=tmp_path / "store", batch_size=4)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(raised.value)
    (tmp_path / "file").touch()
    with pytest.raises(FedotpError, match=r"cannot open .*: Not a directory"):
        encode(one_shard(), tiny_clip(), root=tmp_path / "file")
    resumed = encode(one_shard(), tiny_clip(), root=tmp_path / "store")
    assert (resumed.n_encoded, resumed.n_repaired) == (ALL - 8, 0)
    assert_same_tokens(resumed, sound)


# A store that is forged

GOOD = {
    "format": 1,
    "backbone": "0" * 64,
    "tower": '{"vision": {"image_size": 32, "patch_size": 8}}',
    "transform": "none",
    "precision": "float32",
    "storage": "float16",
    "n_patches": 16,
    "width": 8,
}


@pytest.mark.parametrize(
    "change",
    [
        {"width": "8"},
        {"n_patches": 1 << 62},
        {"n_patches": 1 << 20, "width": 1 << 20},
        {"more": 1},
        None,  # brackets without end
    ],
)
def test_a_description_with_a_value_it_cannot_have_is_refused(change: dict[str, object] | None) -> None:
    assert Encoding.from_json(json.dumps(GOOD)).width == 8
    with pytest.raises(FedotpError, match="not a description of a token store"):
        Encoding.from_json("[" * 100_000 if change is None else json.dumps({**GOOD, **change}))


@pytest.mark.parametrize("tower", ["x", "[]", '{"vision": 1}', "[" * 100_000])
def test_a_store_of_an_unknown_tower_is_listed(tower: str, tmp_path: Path) -> None:
    encoding = Encoding.from_json(json.dumps({**GOOD, "tower": tower}))
    (tmp_path / encoding.fingerprint).mkdir()
    (tmp_path / encoding.fingerprint / "encoding.json").write_text(encoding.to_json())
    (info,) = list_stores(tmp_path)
    assert info.tower == "unknown, 16 patches"
