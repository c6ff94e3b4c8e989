"""DICOM files as pydicom writes them."""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydicom import Dataset, FileMetaDataset, dcmread
from pydicom.pixels import set_pixel_data
from pydicom.uid import UID, ExplicitVRLittleEndian, RLELossless, generate_uid

CT = UID("1.2.840.10008.5.1.4.1.1.2")


def dataset(syntax: UID = ExplicitVRLittleEndian, **attributes: Any) -> Dataset:
    """What every file has, and `attributes` by their keywords."""
    made = Dataset()
    made.file_meta = FileMetaDataset()
    made.file_meta.TransferSyntaxUID = syntax
    made.SOPClassUID, made.SOPInstanceUID = CT, generate_uid()
    made.PatientName, made.PatientID = "Doe^Jane", "secret"
    for key, value in attributes.items():
        setattr(made, key, value)
    return made


def written(made: Dataset) -> bytes:
    """The bytes of its file."""
    content = io.BytesIO()
    made.save_as(content, enforce_file_format=True)
    return content.getvalue()


def dicom(
    pixels: NDArray[Any],
    photometric: str = "MONOCHROME2",
    bits: int = 16,
    *,
    syntax: UID = ExplicitVRLittleEndian,
    **attributes: Any,
) -> bytes:
    """A picture of `bits` stored bits as a file; `attributes` by their keywords."""
    made = dataset(**attributes)
    set_pixel_data(made, pixels, photometric, bits)
    if syntax == RLELossless:
        made.compress(RLELossless, generate_instance_uid=False)
    else:
        made.file_meta.TransferSyntaxUID = syntax
    return written(made)


def table(first: int, greys: Mapping[int, int] | NDArray[Any], bits: int) -> Dataset:
    """An item of a sequence of tables."""
    item = Dataset()
    values = np.asarray(greys, np.uint16)
    item.add_new("LUTDescriptor", "US" if first >= 0 else "SS", [len(values), first, bits])
    item.add_new("LUTData", "OW", values.astype("<u2").tobytes())
    return item


def palette(pixels: NDArray[np.uint8], colours: NDArray[Any]) -> Dataset:
    """A picture of the numbers of `colours` (256, 3), of 8 or 16 bits."""
    made = dataset()
    set_pixel_data(made, pixels, "MONOCHROME2", 8)
    made.PhotometricInterpretation = "PALETTE COLOR"
    for i, name in enumerate(("Red", "Green", "Blue")):
        setattr(made, f"{name}PaletteColorLookupTableDescriptor", [256, 0, 8 * colours.itemsize])
        setattr(made, f"{name}PaletteColorLookupTableData", np.ascontiguousarray(colours[:, i]).tobytes())
    return made


def read(content: bytes) -> Dataset:
    """What pydicom makes of a file."""
    return dcmread(io.BytesIO(content))
