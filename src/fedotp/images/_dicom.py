"""Safe reading of DICOM images by pydicom, without data of the patient.

PS3.3 C.7.6.3 (pixels), C.11.1 (from stored numbers to values), C.11.2 (windows).
"""

import io
import math
from typing import TYPE_CHECKING, Any

from PIL import Image

from fedotp.errors import FedotpError, MissingPackageError
from fedotp.images._greys import Function, Greys, Table, Window

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pydicom import Dataset

_MOST_READS = 100_000  # of a file's elements and their values
_DEFLATED = b"1.2.840.10008.1.2.1.99"  # the whole file compressed, with unlimited decompressed size
_RLE = "1.2.840.10008.1.2.5"
_JPEGS = tuple(f"1.2.840.10008.1.2.4.{n}" for n in (50, 51, 57, 70, 90, 91))
_NATIVE = ("1.2.840.10008.1.2", "1.2.840.10008.1.2.1", "1.2.840.10008.1.2.2")
_GREY, _PALETTE = ("MONOCHROME1", "MONOCHROME2"), "PALETTE COLOR"
_COLOUR = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT")
_TABLES = [f"{c}PaletteColorLookupTable{part}" for c in ("Red", "Green", "Blue") for part in ("Descriptor", "Data")]
_TAGS = [
    *("Rows", "Columns", "SamplesPerPixel", "PhotometricInterpretation", "PlanarConfiguration", "NumberOfFrames"),
    *("BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation", "PixelPaddingValue", "PixelPaddingRangeLimit"),
    *("RescaleSlope", "RescaleIntercept", "ModalityLUTSequence"),
    *("WindowCenter", "WindowWidth", "VOILUTFunction", "VOILUTSequence"),
    *("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence", *_TABLES),
    "SegmentedRedPaletteColorLookupTableData",  # not supported
    *("PixelData", "FloatPixelData", "DoubleFloatPixelData"),
]


class DicomFile:
    """A DICOM file whose pixels have not been decoded yet."""

    def __init__(self, content: bytes) -> None:
        """Read everything except the pixels, and require a single image of a supported kind."""
        try:
            from pydicom import dcmread
        except ImportError as error:
            raise MissingPackageError("DICOM images need pydicom: pip install 'fedotp[medical]'") from error
        if _DEFLATED in content:
            raise FedotpError("deflated DICOM files are not supported; save the file with another transfer syntax")
        self._file = dcmread(_Counted(content), specific_tags=list(_TAGS))
        self._kind = str(_one(self._file, "PhotometricInterpretation"))
        if self._kind not in (*_GREY, *_COLOUR, _PALETTE):
            raise FedotpError(f"unsupported photometric interpretation {self._kind[:40]!r} (DICOM)")
        if (n := int(self._file.get("NumberOfFrames") or 1)) != 1:
            raise FedotpError(f"{n} frames: must be 1; save the frame to classify as a separate file")
        self.size = int(_one(self._file, "Columns")), int(_one(self._file, "Rows"))
        self._syntax = str(self._file.file_meta.get("TransferSyntaxUID") or _NATIVE[0])

    @property
    def n_pixels(self) -> int:
        """Number of pixels."""
        return self.size[0] * self.size[1]

    @property
    def jpeg(self) -> bytes:
        """Embedded JPEG file, if any; its size must be checked before it is decoded."""
        return self._frame() if self._syntax in _JPEGS else b""

    def picture(self) -> Image.Image:
        """Decode the image: RGB, or greys with their `Greys`."""
        if self._kind in _GREY:
            return self._grey()
        pixels, kind = self._pixels()
        if self._kind == _PALETTE:
            pixels, kind = self._coloured(pixels), "RGB"
        if kind != "RGB" or pixels.ndim != 3 or pixels.dtype.itemsize > 2:
            raise FedotpError(f"unsupported photometric interpretation {kind} with {pixels.dtype} pixels (DICOM)")
        bits = 16 if self._kind == _PALETTE and pixels.dtype.itemsize == 2 else int(_one(self._file, "BitsStored"))
        return Image.fromarray((pixels >> max(0, bits - 8)).astype("uint8"))

    def _frame(self) -> bytes:
        from pydicom.encaps import generate_frames

        return next(generate_frames(self._file.PixelData, number_of_frames=1))

    def _pixels(self) -> "tuple[NDArray[Any], str]":
        """Return stored numbers (H, W) or (H, W, 3) and their kind; luminance and chrominance are converted to RGB."""
        from pydicom.pixels.decoders.base import get_decoder

        if self._syntax == _RLE:
            self._require_short_runs()
        elif self._syntax not in (*_JPEGS, *_NATIVE):
            raise FedotpError(f"unsupported transfer syntax {self._syntax[:64]} (DICOM)")
        decoder = get_decoder(self._syntax)
        if not decoder.is_available:
            raise MissingPackageError(
                f"the transfer syntax {self._syntax} (DICOM) needs: pip install pylibjpeg pylibjpeg-libjpeg"
            )
        pixels, facts = decoder.as_array(self._file, index=0)
        return pixels, str(facts["photometric_interpretation"])

    def _require_short_runs(self) -> None:
        """Require that runs do not expand to more pixels than the image has: two bytes can encode 128."""
        frame, most = self._frame(), self.size[0] * self.size[1]
        starts = [int.from_bytes(frame[i : i + 4], "little") for i in range(4, 64, 4)]
        starts = [start for start in starts if start]
        for start, end in zip(starts, [*starts[1:], len(frame)], strict=True):
            at, n = start, 0
            while at < min(end, len(frame)) - 1:
                head = frame[at]
                n += head + 1 if head < 128 else 257 - head if head > 128 else 0
                at += head + 2 if head < 128 else 2 if head > 128 else 1
                if n > most + 1:
                    raise FedotpError("run-length encoding of more pixels than the image has")

    def _coloured(self, pixels: "NDArray[Any]") -> "NDArray[Any]":
        from pydicom.pixels.processing import apply_color_lut

        if self._file.get("SegmentedRedPaletteColorLookupTableData"):  # six bytes can encode 65,535 colours
            raise FedotpError("palettes in segments are not supported (DICOM); save the file with another palette")
        coloured: NDArray[Any] = apply_color_lut(pixels, self._file)
        return coloured[..., :3]

    def _grey(self) -> Image.Image:
        """Return greys as numbers from 0, with the file's conversion to values in their `Greys`."""
        import numpy as np

        numbers, _ = self._pixels()
        if numbers.ndim != 2:
            raise FedotpError(f"{self._kind} must have 1 number per pixel, got {numbers.shape[-1]}")
        values = self._functional("PixelValueTransformationSequence")
        slope, intercept = (
            _number(values, key, usual) for key, usual in (("RescaleSlope", 1), ("RescaleIntercept", 0))
        )
        padding = self._padding(slope, intercept)
        bits = min(int(_one(self._file, "BitsStored")), 8 * numbers.dtype.itemsize)
        signed = numbers.dtype.kind == "i"
        if self._file.get("ModalityLUTSequence"):
            table = _table(self._file.ModalityLUTSequence[0])
            places = numbers.astype(np.int64) - table.first
            numbers, bits, signed = table.greys[places.clip(0, len(table.greys) - 1)], table.white.bit_length(), False
            slope, intercept, padding = 1.0, 0.0, None
        facts = {"slope": slope, "intercept": intercept, "padding": padding, "window": self._window()}
        inverted = self._kind == "MONOCHROME1"
        if numbers.dtype.kind == "f" or bits > 16:
            image = Image.fromarray(numbers.astype(np.float32))
            return Greys(None, inverted=inverted, by_data=True, **facts).attach(image)  # type: ignore[arg-type]
        least = -(1 << bits - 1) if signed else 0
        ends = sorted(slope * number + intercept for number in (least, least + (1 << bits) - 1))
        image = Image.fromarray((numbers.astype(np.int32) - least).clip(0, 65535).astype(np.uint16))
        return Greys((ends[0], ends[1]), offset=least, inverted=inverted, by_data=True, **facts).attach(image)  # type: ignore[arg-type]

    def _padding(self, slope: float, intercept: float) -> tuple[float, float] | None:
        if (first := self._file.get("PixelPaddingValue")) is None:
            return None
        last = self._file.get("PixelPaddingRangeLimit")
        ends = sorted(slope * float(number) + intercept for number in (first, first if last is None else last))
        return ends[0], ends[1]

    def _window(self) -> Window | Table | None:
        """Return the first table of the file, else its first window."""
        of = self._functional("FrameVOILUTSequence")
        if of.get("VOILUTSequence"):
            return _table(of.VOILUTSequence[0])
        if of.get("WindowCenter") is None or of.get("WindowWidth") is None:
            return None
        function: Function = of.get("VOILUTFunction") or "LINEAR"
        window = Window(_number(of, "WindowCenter", 0), _number(of, "WindowWidth", 0), function)
        if function not in ("LINEAR", "LINEAR_EXACT", "SIGMOID") or not window.is_sound:
            raise FedotpError(
                f"invalid window in the file: centre {window.centre:g}, width {window.width:g}, {str(function)[:20]}"
            )
        return window

    def _functional(self, name: str) -> "Dataset":
        """Return the item with the values of the sequence `name`: of the frame, of all frames, or the file itself."""
        for groups in ("PerFrameFunctionalGroupsSequence", "SharedFunctionalGroupsSequence"):
            for item in (self._file.get(groups) or [])[:1]:
                if item.get(name):
                    found: Dataset = item[name].value[0]
                    return found
        return self._file


class _Counted(io.BytesIO):
    """Bytes of a file with a limit of reads, because very many small elements would exhaust the memory."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self._n_reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self._n_reads += 1
        if self._n_reads > _MOST_READS:
            raise FedotpError(f"the DICOM file has more than {_MOST_READS:,} elements")
        return super().read(size)


def _one(of: "Dataset", key: str) -> Any:
    if (value := of.get(key)) is None:
        raise FedotpError(f"the DICOM file has no {key}")
    return value


def _number(of: "Dataset", key: str, usual: float) -> float:
    """Return a number, the first if there are several."""
    value = of.get(key)
    value = value[0] if hasattr(value, "__len__") and not isinstance(value, str) else value
    number = usual if value is None else float(value)
    if not math.isfinite(number):
        raise FedotpError(f"{key} = {number}: must be finite (DICOM)")
    return number


def _table(item: "Dataset") -> Table:
    """Read a table of greys with its descriptor: length, first value, bits."""
    import numpy as np

    n, first, bits = (int(value) for value in _one(item, "LUTDescriptor"))
    n, data = n or 65536, _one(item, "LUTData")
    if isinstance(data, bytes):
        data = np.frombuffer(data, np.uint8 if bits <= 8 and len(data) < 2 * n else "<u2")
    greys = np.atleast_1d(np.asarray(data))
    if not 1 <= n <= len(greys) or not 1 <= bits <= 16:
        raise FedotpError(f"a table in the DICOM file must have {n} greys of {bits} bits, got {len(greys)}")
    return Table(first, greys[:n].astype(np.uint16), (1 << bits) - 1)
