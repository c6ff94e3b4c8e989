"""Lists, labels and pickles that somebody forged: one line, no hang, no memory filled."""

import os
import pickle
import re
import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from layouts import LAYOUTS

from fedotp.data import load_dataset
from fedotp.data._lists import read_json
from fedotp.data._official import read_mat
from fedotp.data._unpickle import read_pickle
from fedotp.errors import FedotpError


def test_a_pipe_in_place_of_a_list_is_refused(tmp_path: Path) -> None:
    LAYOUTS["dtd"][0](tmp_path)
    path = next(tmp_path.rglob("val1.txt"))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(FedotpError, match=f"cannot read {re.escape(str(path))}: not a plain file"):
        load_dataset("dtd", root=tmp_path)


@pytest.mark.parametrize("read", [read_json, read_mat, read_pickle])
def test_devices_and_gigantic_files_are_refused_unread(read: object, tmp_path: Path) -> None:
    (tmp_path / "endless").symlink_to("/dev/zero")
    with open(tmp_path / "holes", "wb") as file:
        file.truncate(1 << 40)
    for name, reason in (("endless", "not a plain file"), ("holes", "at most")):
        with pytest.raises(FedotpError, match=f"cannot read .*{name}: .*{reason}"):
            read(tmp_path / name)  # type: ignore[operator]


def test_brackets_without_end_are_not_json(tmp_path: Path) -> None:
    path = tmp_path / "split.json"
    path.write_text("[" * 200_000)
    with pytest.raises(FedotpError, match="is not JSON"):
        read_json(path)


def _mat(kind: int, body: bytes) -> bytes:
    return bytes(124) + b"\0\1IM" + struct.pack("<II", kind, len(body)) + body


def test_a_variable_that_unfolds_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.mat"
    packed = zlib.compressobj(9)
    path.write_bytes(_mat(15, b"".join(packed.compress(bytes(1 << 20)) for _ in range(64)) + packed.flush()))
    tracemalloc.start()
    try:
        with pytest.raises(FedotpError, match="cut short or far too large"):
            read_mat(path)
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


def test_packed_variables_within_packed_ones_are_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "labels.mat"
    body = b""
    for _ in range(2000):
        packed = zlib.compress(body)
        body = struct.pack("<II", 15, len(packed)) + packed
    path.write_bytes(bytes(124) + b"\0\1IM" + body)
    assert read_mat(path) == {}


def test_a_pickle_cannot_ask_for_room_it_does_not_use(tmp_path: Path) -> None:
    """Value number 100,000,000: the unpickler in C makes room for all those before it, too."""
    path = tmp_path / "list.pkl"
    path.write_bytes(b"\x80\x02]r" + struct.pack("<I", 100_000_000) + b".")
    tracemalloc.start()
    try:
        assert read_pickle(path) == []
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


def test_lists_within_lists_without_end_are_no_fedbn_pickle(tmp_path: Path) -> None:
    LAYOUTS["office_caltech10"][0](tmp_path)
    root = tmp_path / "office_caltech_10"
    for domain in ("amazon", "caltech", "dslr", "webcam"):
        for split in ("train", "test"):
            (root / f"{domain}_{split}.pkl").write_bytes(b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"\x85.")
    with pytest.raises(FedotpError, match="should hold two columns"):
        load_dataset("office_caltech10", root=tmp_path)


def test_what_the_pickles_of_cifar_need_is_still_read(tmp_path: Path) -> None:
    path = tmp_path / "batch"
    for protocol in (2, 4):
        content = {"data": np.arange(12, dtype=np.uint8).reshape(2, 6), "labels": [1, 2], "filenames": [b"a", "é"]}
        path.write_bytes(pickle.dumps(content, protocol))
        found = read_pickle(path)
        np.testing.assert_array_equal(found["data"], content["data"])
        assert found["labels"] == [1, 2]
        assert found["filenames"] == [b"a", "é"]


def test_a_name_too_long_for_a_path_is_no_data_set(tmp_path: Path) -> None:
    long = "long " * 1000
    for name, root in ((long, None), ("folder", tmp_path / long), ("cifar10", tmp_path / long)):
        with pytest.raises(FedotpError, match=r"unknown data set|is not a folder|is not at"):
            load_dataset(name, root=root)
