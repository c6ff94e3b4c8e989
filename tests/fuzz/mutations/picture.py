"""Mutations of images: other modes and formats, sizes that lie, files that unfold."""

import io
import random
import struct
import zlib
from functools import cache

from PIL import Image
from pydicom import DataElement, dcmread
from pydicom.datadict import dictionary_VR, tag_for_keyword

from fuzz.mutations import raw

_SIGNATURES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"RIFF", b"II*\0", b"MM\0*", b"P6")
_MODES = {"PNG": ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"), "TIFF": ("1", "L", "CMYK", "YCbCr", "LAB", "F", "I")}
_MODES |= {"JPEG": ("L", "RGB", "CMYK"), "GIF": ("L", "P"), "BMP": ("1", "L", "P", "RGB"), "WEBP": ("RGB", "RGBA")}
_SIZES = ((1, 1), (1, 3000), (3000, 1), (7, 5), (32, 32))
_FOREIGN = ("PDF", "ICO", "TGA", "PCX", "SGI", "ICNS", "JPEG2000", "DDS", "IM", "MSP", "XBM")
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(intruder-was-here) (w) file closefile\n%%EOF\n"
_ORIENTATION = 0x0112


def is_picture(content: bytes) -> bool:
    """Whether it begins as an image does."""
    return content.startswith(_SIGNATURES)


def mutate_picture(content: bytes, rng: random.Random) -> bytes:
    """Mostly the image itself with damage; else another one that decoders or memory stumble over."""
    what = rng.random()
    if what < 0.4:
        return raw.mutate(content, rng)
    if what < 0.6:
        kind = rng.choice(tuple(_MODES))
        return raw.mutate(_image(kind, rng.choice(_MODES[kind]), rng.choice(_SIZES), rng.randrange(12)), rng)
    if what < 0.75:
        kind = rng.choice(tuple(_MODES))
        return _image(kind, rng.choice(_MODES[kind]), rng.choice(_SIZES), rng.randrange(12))
    return rng.choice((_foreign, _lying, _lying, _unfolding, _animated))(rng)


@cache
def _image(kind: str, mode: str, size: tuple[int, int], orientation: int) -> bytes:
    image = Image.new("RGB", size, (200, 30, 30))
    image = Image.new(mode, size) if mode in ("I;16", "I", "F", "LAB") else image.convert(mode)
    exif = Image.Exif()
    exif[_ORIENTATION] = orientation
    return _saved(image, kind, **({"exif": exif} if kind in ("JPEG", "PNG", "WEBP") else {}))


def _saved(image: Image.Image, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def _foreign(rng: random.Random) -> bytes:
    """A format that is not read."""
    kind = rng.choice(("EPS", *_FOREIGN))
    if kind == "EPS":
        return EPS
    return _saved(Image.new("1" if kind in ("MSP", "XBM") else "RGB", (32, 32)), kind)


def _lying(rng: random.Random) -> bytes:
    """A few bytes that speak of a large image."""
    width, height = rng.choice(((2**31 - 1, 1), (65535, 65535), (2**31 - 1, 2**31 - 1), (30_000, 30_000), (0, 5)))
    what = rng.randrange(5)
    if what == 0:
        return _png(width, height, zlib.compress(bytes(100)))
    if what == 1:
        return f"P6 {width} {height} 255\n".encode() + bytes(30)
    if what == 2:
        return b"GIF89a" + struct.pack("<HH", width % 65536, height % 65536) + b"\xf7\0\0" + bytes(768) + b";"
    if what == 3:
        header = struct.pack("<IiiHHIIiiII", 40, width, rng.choice((height, -1)), 1, 24, 0, 0, 0, 0, 0, 0)
        return b"BM" + struct.pack("<IHHI", 100, 0, 0, 54) + header + bytes(60)
    content = _image("TIFF", "L", (32, 32), 0)
    return content.replace(struct.pack("<I", 32), struct.pack("<I", width), 1)


def _unfolding(rng: random.Random) -> bytes:
    """A small file, a large image; or large notes beside a small one."""
    if rng.random() < 0.5:
        side = rng.choice((9_000, 12_000, 40_000))
        return _flat_png(side)
    return _png(1, 1, zlib.compress(b"\0\0\0\0"), _long_note())


@cache
def _long_note() -> bytes:
    return b"zTXt" + b"note\0\0" + zlib.compress(bytes(200 << 20), 1)


@cache
def _flat_png(side: int) -> bytes:
    packer = zlib.compressobj(1)
    row = bytes(1 + 3 * side)
    data = b"".join(packer.compress(row) for _ in range(min(side, 12_000))) + packer.flush()
    return _png(side, side, data)


def _png(width: int, height: int, data: bytes, *chunks: bytes) -> bytes:
    header = b"IHDR" + struct.pack(">IIBBBBB", width % 2**31, height % 2**31, 8, 2, 0, 0, 0)
    parts = [header, *chunks, b"IDAT" + data, b"IEND"]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in parts
    )


def _animated(rng: random.Random) -> bytes:
    frames = [Image.new("RGB", (8, 8), (i, 0, 0)) for i in range(rng.choice((2, 50)))]
    kind = rng.choice(("GIF", "WEBP", "PNG", "TIFF"))
    return _saved(frames[0], kind, save_all=True, append_images=frames[1:])


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


def mutate_dicom(content: bytes, rng: random.Random) -> bytes:
    """Values that lie, an element whose length lies, another transfer syntax, or damage."""
    return rng.choice((_values, _values, _length, _syntax, raw.mutate))(content, rng)


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
