"""What a calibration promises, in a line."""

from typing import TYPE_CHECKING

from fedotp._text import counted

if TYPE_CHECKING:  # torch takes a second to import, which `--help` need not wait for
    from fedotp.limits import Calibration


def promise(calibration: "Calibration") -> str:
    """In one line what can be promised with it."""
    from fedotp.limits import COVERAGES, least_images

    n = len(calibration)
    possible = [f"{coverage:g}" for coverage in COVERAGES if n >= least_images(coverage)]
    sets = f"sets up to a coverage of {possible[-1]}" if possible else f"too few for a coverage of {COVERAGES[0]:g}"
    flags = "unlike images are flagged" if calibration.can_flag else "too few to flag unlike images"
    return f"calibrated by {counted(n, 'image')}: {sets}; {flags}"
