"""Mutations of DICOM files: sizes, depths and windows that lie, tags and lengths of elements, segments of palettes."""

import io
import random
import struct

from pydicom import DataElement, dcmread
from pydicom.datadict import dictionary_VR, tag_for_keyword

from fuzz.mutations import raw

_NUMBERS = ("Rows", "Columns", "SamplesPerPixel", "BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation")
_WORDS = ("PhotometricInterpretation", "VOILUTFunction", "NumberOfFrames", "RescaleSlope", "RescaleIntercept")
_WINDOW = ("WindowCenter", "WindowWidth")
_KINDS = ("MONOCHROME1", "MONOCHROME2", "RGB", "YBR_FULL", "YBR_FULL_422", "PALETTE COLOR", "HSV", "")
_SYNTAXES = ("1.2", "1.2.1", "1.2.2", "1.2.1.99", "1.2.5", "1.2.4.50", "1.2.4.70", "1.2.4.90", "1.2.4.80", "9")
_ODD = ("1", "-1", "0", "1e308", "nan", "inf", "99999999", "x", "1\\2\\3")
_TAGS = ((0x28, 0x10), (0x28, 0x11), (0x28, 0x100), (0x7FE0, 0x10), (0x2, 0x10), (0x28, 0x3006), (0x28, 0x1050))


def is_dicom(content: bytes) -> bool:
    """Whether it begins as DICOM files do."""
    return content[128:132] == b"DICM"


def mutate(content: bytes, rng: random.Random) -> bytes:
    """Values that lie, an element whose length lies, another transfer syntax, or damage."""
    return rng.choice((_values, _values, _length, _syntax, _segments, raw.mutate))(content, rng)


def _values(content: bytes, rng: random.Random) -> bytes:
    file = dcmread(io.BytesIO(content))
    for _ in range(rng.randint(1, 3)):
        key = rng.choice((*_NUMBERS, *_WORDS, *_WINDOW))
        if rng.random() < 0.2:
            file.pop(tag_for_keyword(key), None)
            continue
        if key in _NUMBERS:
            value: object = rng.choice((0, 1, 3, 8, 12, 16, 32, 64, 4096, 65535))
        elif key == "PhotometricInterpretation":
            value = rng.choice(_KINDS)
        else:
            value = rng.choice(_ODD)
        file[key] = DataElement(tag_for_keyword(key), dictionary_VR(key), value, validation_mode=0)
    out = io.BytesIO()
    file.save_as(out)
    return out.getvalue()


def _segments(content: bytes, rng: random.Random) -> bytes:
    """A palette of other segments, where there is one in segments."""
    file = dcmread(io.BytesIO(content))
    if "SegmentedRedPaletteColorLookupTableData" not in file:
        return _values(content, rng)
    kinds = rng.choices((0, 1, 1, 1, 2, 9), k=rng.choice((1, 3, 2000)))
    segments = ((kind, rng.choice((0, 1, 300, 65535)), rng.choice((0, 7))) for kind in kinds)
    file.SegmentedRedPaletteColorLookupTableData = b"".join(struct.pack("<3H", *segment) for segment in segments)
    out = io.BytesIO()
    file.save_as(out)
    return out.getvalue()


def _length(content: bytes, rng: random.Random) -> bytes:
    """Of one of the elements that say how large a picture is, the length and what follows."""
    at = content.find(struct.pack("<HH", *rng.choice(_TAGS)), 132)
    if at < 0:
        return raw.mutate(content, rng)
    odd = rng.choice((0, 1, 2, 7, 0xFFFF, 0xFFFFFFFF, 0x7FFFFFFF))
    return content[: at + 6] + struct.pack("<I", odd)[: rng.choice((2, 4))] + content[at + rng.choice((8, 10, 12)) :]


def _syntax(content: bytes, rng: random.Random) -> bytes:
    file = dcmread(io.BytesIO(content))
    now = str(file.file_meta.TransferSyntaxUID).encode()
    other = f"1.2.840.10008.{rng.choice(_SYNTAXES)}".encode()
    return content.replace(now, other.ljust(len(now), b"\0")[: len(now)])
