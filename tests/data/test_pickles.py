"""Pickles, MAT files and lists of data sets: read as their own libraries read them; forgeries are refused."""

import os
import pickle
import re
import struct
import tracemalloc
import zlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from layouts import LAYOUTS, OFFICE, cifar_batch, fedbn_pickles, python2_pickle

from fedotp._files import read_json
from fedotp.data import _unpickle, load_dataset
from fedotp.data._lists import MOST_BYTES
from fedotp.data._official import read_mat
from fedotp.data._unpickle import read_pickle
from fedotp.errors import FedotpError

# Pickles that are read


@pytest.mark.parametrize("protocol", range(5))  # CIFAR's files have 2, FedBN's 3 or 4
def test_plain_content_comes_through(protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "x.pkl"
    numbers = np.arange(6).reshape(2, 3)
    content = {code: numbers.astype(code) for code in ("u1", "i8", ">i4", "<f4", "?", "S5", "U7", "O")}
    content |= {f"{code}, turned": np.asfortranarray(array) for code, array in content.items()}
    content |= {"scalar": np.int64(3), "list": [1, 2.5, None, ("x", b"y", "é")]}
    path.write_bytes(pickle.dumps(content, protocol))
    found = read_pickle(path)
    for key, value in content.items():
        assert np.array_equal(found[key], value) if key != "list" else found[key] == value
        assert key == "list" or found[key].dtype == pickle.loads(path.read_bytes())[key].dtype
    path.write_bytes(path.read_bytes().replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))  # NumPy 1's names
    if protocol == 2:
        assert read_pickle(path)["u1"].tolist() == numbers.tolist()


# Pickles that are not


class _Evil:
    def __reduce__(self):
        return os.mkdir, ("executed",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_malicious_pickle_is_refused_and_runs_nothing(
    protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "evil.pkl"
    path.write_bytes(pickle.dumps([_Evil()], protocol=protocol))
    with pytest.raises(FedotpError, match=r"it contains a call of \w+\.mkdir"):
        read_pickle(path)
    assert not (tmp_path / "executed").exists()
    pickle.loads(path.read_bytes())  # the ordinary reader would have run it
    assert (tmp_path / "executed").exists()


_ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85C\x01btR"
_TYPE = b"cnumpy\ndtype\n(V%s\n\x89\x88tR"
_DEEP = b")" + b"\x85" * 200_000  # tuples, each in the next: Python hashes them one within the other


def _pushed(value: object) -> bytes:
    return pickle.dumps(value, 3)[2:-1]


def _array(shape: tuple[int, ...], code: bytes, content: object) -> bytes:
    """A pickle of an array whose state is as given."""
    return b"\x80\x03" + _ARRAY + b"(K\x01" + _pushed(shape) + _TYPE % code + b"\x89" + _pushed(content) + b"tb."


def _with_a_field_outside() -> bytes:
    """NumPy takes such a type as it is, and reads beyond the array's end."""
    field = b"(V" + b"a\nt}Va\n(" + _TYPE % b"f8" + b"J\xff\xff\xff\x7fts"  # ("a",), {"a": (f8, 2^31 - 1)}
    kind = _TYPE % b"V8" + b"(K\x03V|\nN" + field + b"K\x08K\x01K\x1btb"
    return b"\x80\x03" + _ARRAY + b"(K\x01K\x01\x85" + kind + b"\x89" + _pushed(b"12345678") + b"tb."


FORGED = {
    "eval": (b"cbuiltins\neval\n(S'1'\ntR.", ""),
    "load": (b"cnumpy\nload\n(S'x'\ntR.", ""),
    "rot13": (b"c_codecs\nencode\n(S'x'\nS'rot13'\ntR.", ""),
    "method": (b"cnumpy\nndarray.tofile\n.", ""),
    "objects": (_array((1 << 27,), b"O8", []), "an array of 134217728 values with data for 0"),
    "huge": (_array((1 << 60,), b"f8", b""), "an array of shape"),
    "negative": (_array((-1,), b"f8", b"12345678"), "an array of shape"),
    "short": (_array((3,), b"f8", b"12345678"), "an array of 3 values with data for 1"),
    "addresses": (_array((2,), b"O8", b"1234567812345678"), "an array of 2 values"),  # bytes for objects
    "records": (_array((1,), b"f8,O8", b"1234567812345678"), "an array of type 'f8,O8'"),
    "times": (_array((1,), b"M8[s]", b"12345678"), "an array of type"),
    "field": (_with_a_field_outside(), "an array of type 'V8'"),
    # `numpy.ndarray((2^31,))` is 16 GB of whatever was in memory before.
    "call": (b"\x80\x03cnumpy\nndarray\n" + _pushed(((1 << 31,),)) + b"R.", ""),
    # A state for attributes that are not in __dict__, of the function that reads the next pickle.
    "state": (
        b"\x80\x03c_codecs\nencode\n" + _pushed((None, {"__defaults__": ("utf-16",)})) + b"b.",
        "a state of an object that must not have one",
    ),
    "setitem": (b"\x80\x04}" + _DEEP + b"K\x01s.", ""),
    "setitems": (b"\x80\x04}(" + _DEEP + b"K\x01u.", ""),
    "dict": (b"\x80\x04(" + _DEEP + b"K\x01d.", ""),
    "additems": (b"\x80\x04\x8f(" + _DEEP + b"\x90.", ""),
    "frozenset": (b"\x80\x04(" + _DEEP + b"\x91.", "the opcode 0x91"),
    "object": (b"\x80\x02c_codecs\nencode\n)\x81.", "the opcode 0x81"),
}


@pytest.mark.parametrize("case", FORGED)
def test_forged_pickle_is_refused(case: str, tmp_path: Path) -> None:
    content, complaint = FORGED[case]
    (tmp_path / "x.pkl").write_bytes(content)
    with pytest.raises(FedotpError, match=f"not a pickle that can be read safely: .*{complaint}"):
        read_pickle(tmp_path / "x.pkl")
    assert _unpickle._encode.__defaults__ == ("latin1",)


_LAUGHS = b"]q\x00" + b"".join(b"](h%ch%ceq%c" % (i, i, i + 1) for i in range(40))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps((["a/b/c.jpg"], [])), "1 paths but 0 class names"),
        (pickle.dumps((["a/b/c.jpg"], ["spaceship"])), "unknown class 'spaceship'"),
        (pickle.dumps((["../../../c.jpg"], ["mug"])), "must be a path inside"),
        (pickle.dumps(3), "two columns"),
        # A list that holds the one before twice, 40 times over: to write it out as text would take for ever.
        (b"\x80\x02" + _LAUGHS + b"h\x28\x86.", "two columns of text"),
        (b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"\x85.", "must contain two columns"),
    ],
    ids=["columns", "class", "path", "number", "laughs", "deep"],
)
def test_wrong_fedbn_pickle_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    folder = LAYOUTS["office_caltech10"][0](tmp_path)
    fedbn_pickles(folder, OFFICE)
    (folder / "dslr_test.pkl").write_bytes(content)
    with pytest.raises(FedotpError, match=message):
        load_dataset("office_caltech10", root=tmp_path)


@pytest.mark.parametrize("names", ["cat", [b"cat", ["dog"]], [1, 2], {"cat": 1}])
def test_cifar_names_that_are_no_names_are_refused(names: object, tmp_path: Path) -> None:
    folder = LAYOUTS["cifar10"][0](tmp_path)
    python2_pickle(folder / "batches.meta", {"label_names": names})
    with pytest.raises(FedotpError, match=r"batches.meta: label_names must be a list of names"):
        load_dataset("cifar10", root=tmp_path)


@pytest.mark.parametrize("labels", [7, [0.5] * 10, ["a"] * 10, [[0]] * 10, [-1] * 10, [1 << 70] * 10, [True] * 10])
def test_cifar_labels_that_are_no_numbers_are_refused(labels: object, tmp_path: Path) -> None:
    folder = LAYOUTS["cifar10"][0](tmp_path)
    cifar_batch(folder / "data_batch_3", 10, {"labels": labels})  # type: ignore[dict-item]
    with pytest.raises(FedotpError, match=r"data_batch_3: labels must be a list of non-negative integers"):
        load_dataset("cifar10", root=tmp_path)


def test_cifar_pixels_of_another_shape_and_two_coarse_labels_for_a_class_are_refused(tmp_path: Path) -> None:
    folder = LAYOUTS["cifar10"][0](tmp_path)
    (folder / "test_batch").write_bytes(pickle.dumps({"data": np.zeros((2, 100), np.uint8), "labels": [0, 1]}))
    with pytest.raises(FedotpError, match=r"test_batch: data must be uint8 of shape \(2, 3072\)"):
        load_dataset("cifar10", root=tmp_path)
    folder = LAYOUTS["cifar100"][0](tmp_path)
    coarse = [k % 20 for k in range(100)] + [(k + 1) % 20 for k in range(100)]
    cifar_batch(folder / "train", 200, {"fine_labels": list(range(100)) * 2, "coarse_labels": coarse})
    with pytest.raises(FedotpError, match="every class must have one coarse label"):
        load_dataset("cifar100", root=tmp_path)


# MAT files and lists


@pytest.mark.parametrize("compressed", [False, True])
def test_mat_reader_agrees_with_scipy(compressed: bool, tmp_path: Path) -> None:
    scipy_io = pytest.importorskip("scipy.io")
    rng = np.random.default_rng(0)
    columns = {
        "a": rng.integers(0, 200, (1, 999)).astype(np.uint8),
        "longer_name": rng.integers(0, 9000, (1, 501)).astype(np.float64),
        "x": np.array([[7]], np.int16),
        "y": rng.integers(-9, 9, (4, 3)).astype(np.int32),
    }
    scipy_io.savemat(tmp_path / "a.mat", columns, do_compression=compressed)
    read = read_mat(tmp_path / "a.mat")
    assert list(read) == list(columns)
    for key, values in columns.items():
        assert np.array_equal(read[key], values.ravel(order="F"))


def test_mat_reader_refuses_a_cut_file(tmp_path: Path) -> None:
    scipy_io = pytest.importorskip("scipy.io")
    scipy_io.savemat(tmp_path / "a.mat", {"a": np.arange(1000)})
    (tmp_path / "cut.mat").write_bytes((tmp_path / "a.mat").read_bytes()[:-40])
    with pytest.raises(FedotpError, match="truncated"):
        read_mat(tmp_path / "cut.mat")


def test_a_pipe_in_place_of_a_list_is_refused(tmp_path: Path) -> None:
    LAYOUTS["dtd"][0](tmp_path)
    path = next(tmp_path.rglob("val1.txt"))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(FedotpError, match=f"cannot read {re.escape(str(path))}: not a regular file"):
        load_dataset("dtd", root=tmp_path)


@pytest.mark.parametrize("read", [partial(read_json, most_bytes=MOST_BYTES), read_mat, read_pickle])
def test_devices_and_gigantic_files_are_refused_unread(read: object, tmp_path: Path) -> None:
    (tmp_path / "endless").symlink_to("/dev/zero")
    with open(tmp_path / "holes", "wb") as file:
        file.truncate(1 << 40)
    for name, reason in (("endless", "not a regular file"), ("holes", "at most")):
        with pytest.raises(FedotpError, match=f"cannot read .*{name}: .*{reason}"):
            read(tmp_path / name)  # type: ignore[operator]


def test_brackets_without_end_are_not_json(tmp_path: Path) -> None:
    path = tmp_path / "split.json"
    path.write_text("[" * 200_000)
    with pytest.raises(FedotpError, match="is not JSON"):
        read_json(path, MOST_BYTES)


def _mat(kind: int, body: bytes) -> bytes:
    return bytes(124) + b"\0\1IM" + struct.pack("<II", kind, len(body)) + body


def test_a_variable_that_unfolds_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.mat"
    packed = zlib.compressobj(9)
    path.write_bytes(_mat(15, b"".join(packed.compress(bytes(1 << 20)) for _ in range(64)) + packed.flush()))
    tracemalloc.start()
    try:
        with pytest.raises(FedotpError, match="truncated or too large"):
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
    """Value number 100,000,000: the unpickler in C makes room for all those before it, too. A buffer of 100 MB."""
    path = tmp_path / "list.pkl"
    tracemalloc.start()
    try:
        path.write_bytes(b"\x80\x02]r" + struct.pack("<I", 100_000_000) + b".")
        assert read_pickle(path) == []
        path.write_bytes(b"\x80\x05\x96" + struct.pack("<Q", 100_000_000) + b".")
        with pytest.raises(FedotpError, match="the opcode 0x96"):
            read_pickle(path)
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()
