"""PyTorch's archives are read as data: the same bits as torch's own readers give, nothing run, no size believed."""

import io
import os
import pickle
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from clip_oracles import RESNET, VIT, Holder, openai_holder, random_clip, write_openai
from torch import Tensor, nn
from typer.testing import CliRunner

from fedotp.cli import app
from fedotp.clip import load
from fedotp.clip._tensor_files import read_file
from fedotp.errors import FedotpError


class Spy(nn.Module):
    """Its TorchScript writes two files where the archive is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mark", torch.full((4,), 65, dtype=torch.uint8))

    def forward(self, x: Tensor) -> Tensor:
        return x

    @torch.jit.export
    def __getstate__(self) -> tuple[Tensor, bool]:
        return self.mark, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[Tensor, bool]) -> None:
        torch.save(state[0], "saved-by-the-archive")
        self.mark = torch.from_file("mapped-by-the-archive", shared=True, size=4, dtype=torch.uint8).copy_(state[0])
        self.training = state[1]


@pytest.fixture
def archive_that_spies(tmp_path: Path) -> Path:
    root = openai_holder(random_clip(VIT).state_dict())
    root.add_module("spy", Spy())
    torch.jit.save(torch.jit.script(root), tmp_path / "spy.pt")
    return tmp_path / "spy.pt"


@pytest.mark.parametrize("read", ["load", "weights info", "weights convert"])
def test_code_in_an_archive_never_runs(
    read: str, archive_that_spies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    words = [*read.split(), str(archive_that_spies), *(["out.safetensors"] if "convert" in read else [])]
    refusal = "a module with its own code for loading, which is not supported"
    with pytest.raises(FedotpError, match=refusal) as caught:
        _ = load(archive_that_spies) if read == "load" else CliRunner().invoke(app, words, catch_exceptions=False)
    assert "\n" not in str(caught.value)
    assert os.listdir() == []

    torch.jit.load(archive_that_spies)  # the code is real: torch's own loader runs it
    assert sorted(os.listdir()) == ["mapped-by-the-archive", "saved-by-the-archive"]


def test_torch_is_asked_to_load_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = random_clip(VIT).state_dict()
    write_openai(tensors, tmp_path / "openai.pt")
    torch.save(tensors, tmp_path / "state.pt")

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a loader of torch was called")

    monkeypatch.setattr(torch.jit, "load", forbidden)
    monkeypatch.setattr(torch, "load", forbidden)
    assert load(tmp_path / "openai.pt").digest == load(tmp_path / "state.pt").digest


class Many(nn.Module):
    """Tensors of every kind a module can have."""

    def __init__(self) -> None:
        super().__init__()
        base = torch.randn(6, 4)
        self.whole = nn.Parameter(base)
        self.turned = nn.Parameter(base.detach().T)  # of the same storage
        self.register_buffer("part", base[2:4, 1:3])
        self.register_buffer("scalar", torch.tensor(7))
        for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.uint8, torch.int32, torch.bool):
            self.register_buffer(f"of_{str(dtype)[6:]}", torch.arange(5).to(dtype))
        self.inner = nn.Sequential(nn.Linear(3, 2).half(), nn.Sequential(nn.BatchNorm1d(2)))
        self.number, self.word, self.numbers, self.table = 5, "x", [1, 2], {"a": 1.5}

    def forward(self, x: Tensor) -> Tensor:
        return self.inner[1](x)


def same_bits(ours: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    assert ours.keys() == right.keys()
    for name, tensor in right.items():
        assert ours[name].dtype == tensor.dtype
        assert ours[name].shape == tensor.shape
        assert bits(ours[name]) == bits(tensor)


def bits(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def test_scripted_and_traced_archives_hold_what_torchscript_finds_in_them(tmp_path: Path) -> None:
    module = Many().eval()
    torch.jit.script(module).save(tmp_path / "scripted.pt")
    torch.jit.trace(module, torch.zeros(1, 2)).save(tmp_path / "traced.pt")
    for name in ("scripted.pt", "traced.pt"):
        same_bits(read_file(tmp_path / name)[0], torch.jit.load(tmp_path / name).state_dict())


@pytest.mark.parametrize("config", [VIT, RESNET])
def test_archive_like_openais_in_half_precision_has_torchscripts_bits(config: object, tmp_path: Path) -> None:
    """OpenAI's were also written on a GPU, which is noted with every tensor."""
    path = tmp_path / "half.pt"
    write_openai(random_clip(config).state_dict(), path, half=True)
    right = torch.jit.load(path).state_dict()
    assert {torch.float16, torch.float32} <= {tensor.dtype for tensor in right.values()}
    rewrite(path, lambda pickled: pickled.replace(b"X\x03\0\0\0cpu", b"X\x06\0\0\0cuda:0"))
    same_bits(read_file(path)[0], right)


@pytest.mark.parametrize("wrap", [dict, OrderedDict, nn.ParameterDict])
def test_state_dicts_hold_what_was_saved(wrap: Callable[..., object], tmp_path: Path) -> None:
    module = Many()
    state = module.state_dict(keep_vars=True) if wrap is nn.ParameterDict else wrap(module.state_dict())
    torch.save(state, tmp_path / "state.pt")
    same_bits(read_file(tmp_path / "state.pt")[0], torch.load(tmp_path / "state.pt", weights_only=True))


def test_only_the_weights_of_a_training_checkpoint_are_read(tmp_path: Path) -> None:
    module = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(module.parameters())
    module(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    checkpoint = {"epoch": 3, "state_dict": module.state_dict(), "optimizer": optimizer.state_dict(), "loss": 0.5}
    torch.save(checkpoint, tmp_path / "last.pt")
    same_bits(read_file(tmp_path / "last.pt")[0], dict(module.state_dict()))


def rewrite(path: Path, change: Callable[[bytes], bytes], *, compress: str = "") -> None:
    """The archive with another pickle, and perhaps with one entry compressed."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            form = zipfile.ZIP_DEFLATED if compress and name.endswith(compress) else zipfile.ZIP_STORED
            archive.writestr(name, change(content) if name.endswith("/data.pkl") else content, form)


class Stored:
    """Twelve floats that lie in the archive as data/0, or whatever is said of them."""

    def __init__(self, n_items: int = 12, key: str = "0", kind: object = torch.FloatStorage) -> None:
        self.pid = ("storage", kind, key, "cpu", n_items)


class Window:
    """Pickled as a tensor is, with sizes of one's choice."""

    def __init__(self, shape: tuple[int, ...], stride: tuple[int, ...], offset: int = 0, **stored: object) -> None:
        self.parts = (Stored(**stored), offset, shape, stride, False, OrderedDict())

    def __reduce__(self) -> tuple[object, ...]:
        return torch._utils._rebuild_tensor_v2, self.parts


class Pickler(pickle.Pickler):
    def persistent_id(self, value: object) -> object:
        return value.pid if isinstance(value, Stored) else None


def forge(path: Path, content: object, **entries: bytes) -> None:
    """An archive with this pickle, or with the pickle of this."""
    pickled = io.BytesIO()
    if isinstance(content, bytes):
        pickled.write(content)
    else:
        Pickler(pickled, protocol=2).dump(content)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("forged/data.pkl", pickled.getvalue())
        archive.writestr("forged/data/0", torch.arange(12.0).numpy().tobytes())
        for name, more in entries.items():
            archive.writestr(f"forged/{name}", more)


def text(word: str) -> bytes:
    return b"X" + len(word).to_bytes(4, "little") + word.encode()


MODULE = b"c__torch__\nM\n)\x81"
PAIR = 40 * b"q\x00h\x00\x86"  # ((x, x), (x, x)), ... forty times: its text would fill any memory


def chain(n: int) -> bytes:
    """Modules in modules."""
    return b"\x80\x02" + n * (MODULE + b"}" + text("m")) + MODULE + b"}b" + n * b"sb" + b"."


DAMAGED = "corrupt or truncated"
FORGED: dict[str, tuple[object, str]] = {
    "a window beyond the end": ({"w": Window((3, 4), (4, 2))}, DAMAGED),
    "one number repeated for ever": ({"w": Window((10**6, 10**6), (0, 0))}, DAMAGED),
    "sizes beyond 64 bits": ({"w": Window((0, 10**30), (1, 1))}, DAMAGED),
    "a storage longer than its entry": ({"w": Window((2,), (1,), n_items=10**12)}, DAMAGED),
    "a storage outside the archive": ({"w": Window((2,), (1,), key="../data/0")}, DAMAGED),
    "complex numbers": ({"w": Window((2,), (1,), kind=torch.ComplexFloatStorage)}, "type ComplexFloatStorage"),
    "the same numbers ten thousand times": (
        {str(i): Window((12,), (1,)) for i in range(10_000)} | {"big": Window((12,), (1,))},
        "it contains 10,001 tensors",
    ),
    "a function": ({"f": os.getcwd}, r"contains a call of posix\.getcwd"),
    "no end": (b"\x80\x02}", DAMAGED),
    "a call of an unnamed object": (b"\x80\x02)" + PAIR + b")R.", DAMAGED),
    "an object of an unnamed object": (b"\x80\x02)" + PAIR + b")\x81.", "an object that is not a module"),
    "a key nested deeply": (b"\x80\x02})" + 100_000 * b"\x85" + b"K\x01s.", "neither text nor a number"),
    "a module that contains itself": (
        b"\x80\x02" + MODULE + b"q\x01}" + text("m") + b"h\x01sb.",
        "modules that do not form a tree",
    ),
    "a module in two places": (
        b"\x80\x02" + MODULE + b"}(" + text("a") + MODULE + b"q\x01" + text("b") + b"h\x01ub.",
        "modules that do not form a tree",
    ),
    "modules nested deeply": (chain(10_000), "modules that do not form a tree"),
    "a name with an escape sequence": (b"\x80\x02cos\nsys\x1b[31mtem\n)R.", r"a call of os\.sys \[31mtem,"),
    "a large pickle": (b"\x80\x02}" + bytes(5 << 20), "a pickle of 5,242,883 bytes"),
}


@pytest.mark.parametrize("case", FORGED)
def test_forged_archive_gives_one_clear_line(case: str, tmp_path: Path) -> None:
    content, complaint = FORGED[case]
    forge(tmp_path / "forged.pt", content)
    refused(tmp_path / "forged.pt", complaint)


def refused(path: Path, complaint: str) -> None:
    with pytest.raises(FedotpError, match=complaint) as caught:
        load(path)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


def test_windows_inside_their_storage_are_read(tmp_path: Path) -> None:
    """The forger's tools make a good archive when asked to, so that the refusals above mean something."""
    forge(tmp_path / "good.pt", {"w": Window((2, 3), (4, 2), offset=3), "whole": Window((12,), (1,))})
    tensors = read_file(tmp_path / "good.pt")[0]
    assert tensors["w"].tolist() == [[3, 5, 7], [7, 9, 11]]
    assert tensors["whole"].tolist() == list(range(12))


def test_many_large_tensors_from_few_numbers_are_refused(tmp_path: Path) -> None:
    forge(tmp_path / "forged.pt", {str(i): Window((12,), (1,)) for i in range(9_000)})
    read_file(tmp_path / "forged.pt")  # small against the pickle that names them
    numbers = torch.zeros(100_000).numpy().tobytes()
    forge(tmp_path / "forged.pt", {str(i): Window((100_000,), (1,), 0, n_items=100_000, key="big") for i in range(99)})
    with zipfile.ZipFile(tmp_path / "forged.pt", "a") as archive:
        archive.writestr("forged/data/big", numbers)
    refused(tmp_path / "forged.pt", "tensors more than 4 times as large as the file")


def test_compressed_tensors_are_not_unfolded(tmp_path: Path) -> None:
    torch.save({"w": torch.randn(10_000)}, tmp_path / "state.pt")
    rewrite(tmp_path / "state.pt", bytes, compress="/data/0")
    refused(tmp_path / "state.pt", "the entry data/0 compressed or overlapping")
    rewrite(tmp_path / "state.pt", bytes, compress="/data.pkl")
    refused(tmp_path / "state.pt", r"the entry data\.pkl compressed or overlapping")


def test_entries_that_overlap_are_not_multiplied(tmp_path: Path) -> None:
    """Many names for the same bytes of the file."""
    path = tmp_path / "state.pt"
    torch.save({str(i): torch.zeros(1_000) for i in range(64)}, path)
    with zipfile.ZipFile(path, "a") as archive:
        one = archive.getinfo("state/data/0")
        for entry in archive.infolist():
            if "/data/" in entry.filename and not entry.filename.endswith("_id"):
                entry.header_offset = one.header_offset
        archive.comment = b"written anew"
    refused(path, DAMAGED)


def test_numbers_of_another_byte_order_are_refused(tmp_path: Path) -> None:
    forge(tmp_path / "forged.pt", {"w": Window((2,), (1,))}, byteorder=b"big")
    refused(tmp_path / "forged.pt", "a byte order other than this machine's")


def test_two_entries_of_one_name_are_refused(tmp_path: Path) -> None:
    forge(tmp_path / "forged.pt", {"w": Window((2,), (1,))})
    with warnings.catch_warnings(), zipfile.ZipFile(tmp_path / "forged.pt", "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("forged/data/0", bytes(48))
    refused(tmp_path / "forged.pt", DAMAGED)


def test_masks_that_torchscript_keeps_in_every_block_do_not_matter(tmp_path: Path) -> None:
    root = openai_holder(random_clip(VIT).state_dict())
    root.transformer.resblocks.add_module("0", with_mask(root.transformer.resblocks.get_submodule("0")))
    torch.jit.save(torch.jit.script(root), tmp_path / "masked.pt")
    assert load(tmp_path / "masked.pt").digest == random_clip(VIT).digest


def with_mask(block: nn.Module) -> nn.Module:
    masked = Holder()
    for name, child in block.named_children():
        masked.add_module(name, child)
    masked.attn_mask = torch.zeros(12, 12)
    return masked
