"""Pickles that call what they are allowed to call, with arguments that nobody would give."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from layouts import LAYOUTS, cifar_batch, python2_pickle

from fedotp.data import _unpickle, load_dataset
from fedotp.data._unpickle import read_pickle
from fedotp.errors import FedotpError

_ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85C\x01btR"
_TYPE = b"cnumpy\ndtype\n(V%s\n\x89\x88tR"


def _pushed(value: object) -> bytes:
    return pickle.dumps(value, 3)[2:-1]


def _array(shape: tuple[int, ...], code: bytes, content: object) -> bytes:
    """A pickle of an array whose state is as given."""
    return b"\x80\x03" + _ARRAY + b"(K\x01" + _pushed(shape) + _TYPE % code + b"\x89" + _pushed(content) + b"tb."


@pytest.mark.parametrize(
    ("shape", "code", "content", "complaint"),
    [
        ((1 << 27,), b"O8", [], "an array of 134217728 values that has 0"),
        ((1 << 60,), b"f8", b"", "an array of shape"),
        ((-1,), b"f8", b"12345678", "an array of shape"),
        ((3,), b"f8", b"12345678", "an array of 3 values that has 1"),
        ((2,), b"O8", b"1234567812345678", "an array of 2 values"),  # bytes as the addresses of objects
        ((1,), b"f8,O8", b"1234567812345678", "an array of type 'f8,O8'"),
        ((1,), b"M8[s]", b"12345678", "an array of type"),
    ],
)
def test_an_array_in_a_pickle_has_the_values_it_speaks_of(
    shape: tuple[int, ...], code: bytes, content: object, complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.pkl"
    path.write_bytes(_array(shape, code, content))
    with pytest.raises(FedotpError, match=f"not a pickle that can be read safely: {complaint}"):
        read_pickle(path)


def test_a_type_in_a_pickle_has_no_fields_that_lie_outside_of_it(tmp_path: Path) -> None:
    """NumPy takes such a state as it is, and reads beyond the array's end."""
    path = tmp_path / "x.pkl"
    field = b"(V" + b"a\nt}Va\n(" + _TYPE % b"f8" + b"J\xff\xff\xff\x7fts"  # ("a",), {"a": (f8, 2^31 - 1)}
    kind = _TYPE % b"V8" + b"(K\x03V|\nN" + field + b"K\x08K\x01K\x1btb"
    state = b"\x80\x03" + _ARRAY + b"(K\x01K\x01\x85" + kind + b"\x89" + _pushed(b"12345678") + b"tb."
    path.write_bytes(state)
    with pytest.raises(FedotpError, match="an array of type 'V8'"):
        read_pickle(path)


def test_an_array_in_a_pickle_is_not_made_by_calling_its_type(tmp_path: Path) -> None:
    """`numpy.ndarray((2^31,))` is 16 GB of whatever was in memory before."""
    path = tmp_path / "x.pkl"
    path.write_bytes(b"\x80\x03cnumpy\nndarray\n" + _pushed(((1 << 31,),)) + b"R.")
    with pytest.raises(FedotpError, match="not a pickle that can be read safely"):
        read_pickle(path)


def test_a_pickle_cannot_change_the_functions_that_read_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "x.pkl"
    defaults = (None, {"__defaults__": ("utf-16",)})  # a state for attributes that are not in __dict__
    path.write_bytes(b"\x80\x03c_codecs\nencode\n" + _pushed(defaults) + b"b.")
    with pytest.raises(FedotpError, match="a state for what has none"):
        read_pickle(path)
    assert _unpickle._encode.__defaults__ == ("latin1",)


@pytest.mark.parametrize("program", [b"}%sK\x01s.", b"}(%sK\x01u.", b"(%sK\x01d.", b"\x8f(%s\x90.", b"(%s\x91."])
def test_a_pickle_cannot_overflow_the_stack(program: bytes, tmp_path: Path) -> None:
    """Two hundred thousand tuples, each in the next, as a key: Python hashes them one within the other."""
    path = tmp_path / "x.pkl"
    path.write_bytes(b"\x80\x04" + program % (b")" + b"\x85" * 200_000))
    with pytest.raises(FedotpError, match="not a pickle that can be read safely"):
        read_pickle(path)


@pytest.mark.parametrize("code", ["u1", "i8", ">i4", "<f4", "?", "S5", "U7", "O"])
def test_arrays_of_numbers_and_strings_are_read(code: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pkl"
    array = np.arange(6).reshape(2, 3).astype(code)
    for protocol in range(2, 5):
        for stored in (array, np.asfortranarray(array), array[0, 1] if code != "O" else array):
            path.write_bytes(pickle.dumps(stored, protocol))
            found = read_pickle(path)
            np.testing.assert_array_equal(found, stored)
            assert found.dtype == pickle.loads(path.read_bytes()).dtype


def test_the_same_list_two_thousand_million_times_is_no_fedbn_pickle(tmp_path: Path) -> None:
    """A list that holds the one before twice, 40 times over: to write it out as text would take for ever."""
    LAYOUTS["office_caltech10"][0](tmp_path)
    root = tmp_path / "office_caltech_10"
    laughs = b"]q\x00" + b"".join(b"](h%ch%ceq%c" % (i, i, i + 1) for i in range(40))
    for domain in ("amazon", "caltech", "dslr", "webcam"):
        for split in ("train", "test"):
            (root / f"{domain}_{split}.pkl").write_bytes(b"\x80\x02" + laughs + b"h\x28\x86.")
    with pytest.raises(FedotpError, match="two columns of text"):
        load_dataset("office_caltech10", root=tmp_path)


@pytest.mark.parametrize("names", ["cat", [b"cat", ["dog"]], [1, 2], {"cat": 1}])
def test_cifar_names_that_are_no_names_are_refused(names: object, tmp_path: Path) -> None:
    folder = LAYOUTS["cifar10"][0](tmp_path)
    python2_pickle(folder / "batches.meta", {"label_names": names})
    with pytest.raises(FedotpError, match=r"batches.meta: label_names should be a list of names"):
        load_dataset("cifar10", root=tmp_path)


@pytest.mark.parametrize("labels", [7, [0.5] * 10, ["a"] * 10, [[0]] * 10, [-1] * 10, [1 << 70] * 10, [True] * 10])
def test_cifar_labels_that_are_no_numbers_are_refused(labels: object, tmp_path: Path) -> None:
    folder = LAYOUTS["cifar10"][0](tmp_path)
    cifar_batch(folder / "data_batch_3", 10, {"labels": labels})  # type: ignore[dict-item]
    with pytest.raises(FedotpError, match=r"data_batch_3: labels should be a list of whole numbers"):
        load_dataset("cifar10", root=tmp_path)
