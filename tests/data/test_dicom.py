"""DICOM files made by pydicom show the pixels that independent readings of the standard give."""

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from pydicom import Dataset, Sequence
from pydicom.encaps import encapsulate
from pydicom.pixels import apply_color_lut, apply_modality_lut, apply_voi_lut, set_pixel_data
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGLosslessSV1,
    RLELossless,
)

from data.dicom_made import dataset, dicom, palette, read, table, written
from fedotp.clip import to_rgb
from fedotp.data import check_dataset
from fedotp.data._folder import read_folder
from fedotp.errors import FedotpError
from fedotp.images import decode_image

RNG = np.random.default_rng(0)
BLANK = np.zeros((4, 4), np.uint8)


def seen(content: bytes, window: str = "file") -> NDArray[np.uint8]:
    """What a tower would be shown: (H, W) for greys, (H, W, 3) for colours."""
    rgb = np.asarray(to_rgb(decode_image(content), window))
    return rgb[..., 0] if (rgb[..., 0] == rgb[..., 1]).all() and (rgb[..., 0] == rgb[..., 2]).all() else rgb


def ct(shape: tuple[int, int] = (16, 20)) -> NDArray[np.int16]:
    return RNG.integers(-1024, 3072, shape).astype(np.int16)


def by_pydicom(content: bytes) -> NDArray[np.uint8]:
    """pydicom's own way from stored numbers to a window, then its range to 8 bits."""
    file = read(content)
    values = apply_modality_lut(file.pixel_array, file)
    shown = apply_voi_lut(values, file).astype(np.float64)
    if "VOILUTSequence" in file:
        low, high = 0.0, 2.0 ** file.VOILUTSequence[0].LUTDescriptor[2] - 1
    else:
        bits = file.BitsStored
        ends = [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1] if file.PixelRepresentation else [0, 2**bits - 1]
        low, high = (end * float(file.get("RescaleSlope", 1)) + float(file.get("RescaleIntercept", 0)) for end in ends)
    shares = (shown - low) / (high - low)
    if file.PhotometricInterpretation == "MONOCHROME1":
        shares = 1 - shares
    return np.rint(255 * shares).astype(np.uint8)


def within_a_rounding(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> None:
    """Equal, but for values that lie just between two greys."""
    apart = np.abs(one.astype(int) - other.astype(int))
    assert apart.max() <= 1
    assert (apart > 0).mean() < 0.01


def test_a_ct_slice_in_its_window_has_the_greys_of_the_formula() -> None:
    stored = RNG.integers(0, 4096, (16, 20)).astype(np.uint16)
    content = dicom(
        stored, bits=12, RescaleSlope=1, RescaleIntercept=-1024, WindowCenter=[40, 600], WindowWidth=[400, 1500]
    )
    hounsfield = stored.astype(int) - 1024
    expected = [  # PS3.3 C.11.2.1.2.1, value by value
        [0 if x <= 39.5 - 199.5 else 255 if x > 39.5 + 199.5 else round(255 * ((x - 39.5) / 399 + 0.5)) for x in row]
        for row in hounsfield.tolist()
    ]
    np.testing.assert_array_equal(seen(content), expected)
    within_a_rounding(seen(content), by_pydicom(content))
    np.testing.assert_array_equal(seen(content, "40/400"), expected)
    np.testing.assert_array_equal(seen(content, "full"), np.rint(stored / 4095 * 255))
    low, high = hounsfield.min(), hounsfield.max()
    np.testing.assert_array_equal(seen(content, "data"), np.rint((hounsfield - low) / (high - low) * 255))
    np.testing.assert_array_equal(seen(content, "-160..240"), np.rint(((hounsfield + 160) / 400).clip(0, 1) * 255))


@settings(max_examples=60, deadline=None)
@given(
    bits=st.integers(8, 16),
    signed=st.booleans(),
    photometric=st.sampled_from(["MONOCHROME1", "MONOCHROME2"]),
    slope=st.sampled_from([None, 1, 2, 0.5, 1.37]),
    intercept=st.integers(-2000, 2000),
    window=st.one_of(st.none(), st.tuples(st.integers(-1000, 4000), st.integers(2, 5000))),
    function=st.sampled_from([None, "LINEAR", "LINEAR_EXACT", "SIGMOID"]),
    syntax=st.sampled_from([ExplicitVRLittleEndian, ImplicitVRLittleEndian, RLELossless]),
    seed=st.integers(0, 99),
)
def test_greys_of_every_depth_are_pydicoms(
    bits: int,
    signed: bool,
    photometric: str,
    slope: float | None,
    intercept: int,
    window: tuple[int, int] | None,
    function: str | None,
    syntax: Any,
    seed: int,
) -> None:
    kind = np.dtype(f"{'i' if signed else 'u'}{1 if bits == 8 else 2}")
    least = -(2 ** (bits - 1)) if signed else 0
    pixels = np.random.default_rng(seed).integers(least, least + 2**bits, (7, 9)).astype(kind)
    facts: dict[str, Any] = {} if slope is None else {"RescaleSlope": slope, "RescaleIntercept": intercept}
    if window is not None:
        facts |= {"WindowCenter": window[0], "WindowWidth": window[1]}
        facts |= {} if function is None else {"VOILUTFunction": function}
    content = dicom(pixels, photometric, bits, syntax=syntax, **facts)
    mine = seen(content, "file" if window else "full").astype(int)
    assert np.abs(mine - by_pydicom(content)).max() <= 1
    assert (mine != by_pydicom(content)).sum() <= 2  # ties


def test_without_a_window_a_picture_is_seen_from_its_least_to_its_largest_value_without_padding() -> None:
    pixels = ct()
    pixels[0] = -2000
    content = dicom(pixels, PixelPaddingValue=-2000, RescaleSlope=1, RescaleIntercept=0)
    inside = pixels[1:].astype(float)
    expected = np.rint((inside - inside.min()) / (inside.max() - inside.min()) * 255)
    np.testing.assert_array_equal(seen(content)[1:], expected)
    np.testing.assert_array_equal(seen(dicom(pixels[1:])), expected)
    assert (seen(content)[0] == 0).all()


def test_tables_of_modality_and_window_are_applied() -> None:
    pixels = RNG.integers(0, 256, (8, 9)).astype(np.uint16)
    modality = table(0, (np.arange(256) ** 2 // 17).astype(np.uint16), 16)
    shown = table(-5, (np.arange(3000) * 4095 // 2999).astype(np.uint16), 12)
    content = dicom(
        pixels, bits=8, ModalityLUTSequence=Sequence([modality]), ModalityLUTType="US", VOILUTSequence=Sequence([shown])
    )
    values = pixels.astype(int) ** 2 // 17
    greys = np.arange(3000) * 4095 // 2999
    expected = np.rint(greys[(values + 5).clip(0, 2999)] / 4095 * 255)
    np.testing.assert_array_equal(seen(content), expected)
    file = read(content)
    theirs = apply_voi_lut(apply_modality_lut(file.pixel_array, file).astype(np.int32), file)
    np.testing.assert_array_equal(seen(content), np.rint(theirs / 4095 * 255))


@pytest.mark.parametrize("planar", [0, 1])
def test_rgb_is_itself(planar: int) -> None:
    pixels = RNG.integers(0, 256, (5, 7, 3)).astype(np.uint8)
    content = dicom(pixels, "RGB", 8)
    file = read(content)
    if planar:
        file.PlanarConfiguration, file.PixelData = 1, np.moveaxis(pixels, 2, 0).tobytes() + b"\0"
    np.testing.assert_array_equal(seen(written(file)), pixels)


def test_ybr_becomes_rgb() -> None:
    ybr = np.repeat(RNG.integers(60, 190, (6, 4, 3)), 2, axis=1).astype(np.uint8)  # two pixels share their colour
    y, cb, cr = (ybr[..., i].astype(float) - (0, 128, 128)[i] for i in range(3))
    rgb = np.stack([y + 1.402 * cr, y - 0.114 * 1.772 / 0.587 * cb - 0.299 * 1.402 / 0.587 * cr, y + 1.772 * cb], -1)
    full = seen(dicom(ybr, "YBR_FULL", 8))
    assert np.abs(full.astype(float) - rgb.clip(0, 255)).max() <= 1
    made = dataset()
    set_pixel_data(made, ybr, "YBR_FULL", 8)
    made.PhotometricInterpretation = "YBR_FULL_422"
    made.PixelData = np.stack([ybr[:, ::2, 0], ybr[:, 1::2, 0], ybr[:, ::2, 1], ybr[:, ::2, 2]], -1).tobytes()
    np.testing.assert_array_equal(seen(written(made)), full)


def test_big_endian_is_read_and_unused_bits_are_ignored() -> None:
    pixels = RNG.integers(0, 4096, (6, 6)).astype(np.uint16)
    window = {"WindowCenter": 2048, "WindowWidth": 4096}
    little = dicom(pixels, bits=12, **window)
    made = dataset(**window)
    set_pixel_data(made, pixels, "MONOCHROME2", 12)
    made.file_meta.TransferSyntaxUID = ExplicitVRBigEndian
    made.PixelData = pixels.astype(">u2").tobytes()
    made["PixelData"].VR = "OW"
    np.testing.assert_array_equal(seen(written(made)), seen(little))
    file = read(little)
    file.PixelData = (pixels | 0xA000).tobytes()  # an overlay, as old scanners put it there
    np.testing.assert_array_equal(seen(written(file)), seen(little))


@pytest.mark.parametrize("bits", [8, 16])
def test_palette_colours_are_looked_up(bits: int) -> None:
    pixels = RNG.integers(0, 256, (6, 7)).astype(np.uint8)
    colours = RNG.integers(0, 2**bits, (256, 3)).astype(f"<u{bits // 8}")
    made = palette(pixels, colours)
    expected = colours[pixels] >> (bits - 8)
    np.testing.assert_array_equal(seen(written(made)), expected)
    theirs = apply_color_lut(pixels, made)
    np.testing.assert_array_equal(expected, theirs >> (bits - 8))


def _compressed(syntax: Any, image: Image.Image, form: str, photometric: str, **facts: Any) -> bytes:
    pixels = np.asarray(image)
    made = dataset()
    set_pixel_data(made, pixels, "RGB" if pixels.ndim == 3 else "MONOCHROME2", 8)
    made.PhotometricInterpretation = photometric
    frame = io.BytesIO()
    image.save(frame, form, **facts)
    made.file_meta.TransferSyntaxUID = syntax
    made.PixelData = encapsulate([frame.getvalue()])
    made["PixelData"].is_undefined_length = True
    return written(made)


def test_jpeg_in_a_dicom_file_is_what_it_is_alone() -> None:
    smooth = np.add.outer(np.arange(24), np.arange(32)).astype(np.uint8)
    colour = Image.fromarray(np.stack([smooth, 255 - smooth, smooth // 2], -1).astype(np.uint8))
    content = _compressed(JPEGBaseline8Bit, colour, "JPEG", "YBR_FULL_422", quality=95)
    frame = io.BytesIO()
    colour.save(frame, "JPEG", quality=95)
    apart = np.abs(seen(content).astype(int) - np.asarray(Image.open(frame)).astype(int))
    assert apart.max() <= 2
    grey = Image.fromarray(smooth)
    content = _compressed(JPEG2000Lossless, grey, "JPEG2000", "MONOCHROME2", irreversible=False)
    np.testing.assert_array_equal(seen(content, "0..255"), smooth)


def test_enhanced_files_say_it_in_functional_groups() -> None:
    pixels = RNG.integers(0, 4096, (6, 6)).astype(np.uint16)
    values, window, shared = Dataset(), Dataset(), Dataset()
    values.RescaleSlope, values.RescaleIntercept = 2, -1024
    window.WindowCenter, window.WindowWidth = 50, 350
    shared.PixelValueTransformationSequence, shared.FrameVOILUTSequence = Sequence([values]), Sequence([window])
    content = dicom(pixels, bits=12, NumberOfFrames=1, SharedFunctionalGroupsSequence=Sequence([shared]))
    plain = dicom(pixels, bits=12, RescaleSlope=2, RescaleIntercept=-1024, WindowCenter=50, WindowWidth=350)
    np.testing.assert_array_equal(seen(content), seen(plain))


# Hostile ----------------------------------------------------------------------------------------------------


def _changed(**attributes: Any) -> bytes:
    made = dataset()
    set_pixel_data(made, np.zeros((4, 4), np.uint16), "MONOCHROME2", 12)
    for key, value in attributes.items():
        setattr(made, key, value)
    return written(made)


def _inflated() -> bytes:
    made = dataset(DeflatedExplicitVRLittleEndian)
    content = written(made)
    packed = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return content[: content.index(b"1.2.840.10008.1.2.1.99") + 22] + packed.compress(bytes(1 << 24)) + packed.flush()


def _runs() -> bytes:
    """A picture of 16 pixels, in runs for 128 thousand."""
    made = read(dicom(np.zeros((4, 4), np.uint8), bits=8, syntax=RLELossless))
    frame = struct.pack("<16I", 1, 64, *[0] * 14) + b"\x81\x07" * 1000
    made.PixelData = encapsulate([frame])
    made["PixelData"].is_undefined_length = True
    return written(made)


def _another_jpeg() -> bytes:
    """A file of 4 x 4 pixels with a JPEG of 4,000 x 4,000 in it."""
    content = _compressed(JPEGBaseline8Bit, Image.new("L", (4, 4)), "JPEG", "MONOCHROME2")
    made, frame = read(content), io.BytesIO()
    Image.new("L", (4000, 4000)).save(frame, "JPEG")
    made.PixelData = encapsulate([frame.getvalue()])
    made["PixelData"].is_undefined_length = True
    return written(made)


def _elements() -> bytes:
    made = read(_changed())
    tiny = b"".join(struct.pack("<HH2sH", 0x11, 0x1000 + i % 0xE000, b"LO", 0) for i in range(0xE000))
    tiny += tiny.replace(b"\x11\0", b"\x13\0")
    content = written(made)
    at = content.index(struct.pack("<HH", 0x28, 2))
    return content[:at] + tiny + content[at:]


def _segments() -> bytes:
    """Colours in a table of segments, PS3.3 C.7.9.2."""
    made = palette(BLANK, np.zeros((256, 3), "<u2"))
    made.SegmentedRedPaletteColorLookupTableData = np.array([0, 1, 7, 1, 65535, 7], "<u2").tobytes()
    return written(made)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: _changed(Rows=60_000, Columns=60_000), "3,600 million pixels: must be at most 120 million"),
        (lambda: _changed(Rows=400), "pixel data"),
        (lambda: _changed(Rows=0), "Rows"),
        (lambda: _changed(NumberOfFrames=60), "60 frames: must be 1"),
        (lambda: _changed(PhotometricInterpretation="HSV"), "unsupported photometric interpretation 'HSV'"),
        (lambda: _changed(WindowCenter=40, WindowWidth=0), "invalid window in the file: centre 40, width 0, LINEAR"),
        (lambda: _changed(VOILUTSequence=Sequence([table(0, np.zeros(4, np.uint16), 20)])), "a table .* got 4"),
        (lambda: _inflated(), "deflated DICOM files are not supported"),
        (lambda: _runs(), "run-length encoding of more pixels than the image has"),
        (lambda: _another_jpeg(), r"declares \(4, 4\) pixels, but its JPEG has \(4000, 4000\)"),
        (lambda: _elements(), "more than 100,000 elements"),
        (lambda: _segments(), "palettes in segments are not supported"),
        (lambda: bytes(128) + b"DICM", "the DICOM file has no PhotometricInterpretation"),
        (lambda: bytes(128) + b"DICM" + bytes(99), "the DICOM file has no"),
    ],
    ids=[
        *("gigantic", "short", "empty", "frames", "kind", "width", "table", "deflated", "runs", "jpeg", "elements"),
        *("segments", "nothing", "zeros"),
    ],
)
def test_hostile_files_are_refused_in_one_line(make: Callable[[], bytes], reason: str) -> None:
    with pytest.raises(FedotpError, match=reason) as refused:
        seen(make())
    assert "\n" not in str(refused.value)


def test_a_compression_that_needs_another_package_names_it() -> None:
    made = read(_compressed(JPEGBaseline8Bit, Image.new("L", (4, 4)), "JPEG", "MONOCHROME2"))
    made.file_meta.TransferSyntaxUID = JPEGLosslessSV1
    with pytest.raises(FedotpError, match=r"pip install pylibjpeg pylibjpeg-libjpeg"):
        seen(written(made))


def test_files_without_a_suffix_are_found_by_what_is_in_them(tmp_path: Path) -> None:
    for kind in ("sound", "broken"):
        (tmp_path / kind).mkdir()
        for i in range(5):
            (tmp_path / kind / f"IM{i:05d}").write_bytes(_changed(PatientID=f"{kind}{i}"))
        (tmp_path / kind / "1.2.840.113").write_bytes(_changed(PatientID=kind))
        (tmp_path / kind / "README").write_text("no picture")
        (tmp_path / kind / "notes.txt").write_bytes(_changed())
    found = read_folder(tmp_path)
    assert len(found.train) + len(found.test) == 12
    assert check_dataset(found).broken == ()
