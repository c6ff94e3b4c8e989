"""Safe decoding of untrusted images with limits, and windows for greys of more than 8 bits."""

from typing import TYPE_CHECKING

from fedotp._imports import lazy_face

if TYPE_CHECKING:
    from fedotp.images._decode import MAX_PIXELS as MAX_PIXELS
    from fedotp.images._decode import ImageLike as ImageLike
    from fedotp.images._decode import Room as Room
    from fedotp.images._decode import as_images as as_images
    from fedotp.images._decode import decode_image as decode_image
    from fedotp.images._decode import decoded as decoded
    from fedotp.images._decode import has_more_bits as has_more_bits
    from fedotp.images._decode import is_dicom_file as is_dicom_file
    from fedotp.images._decode import open_image as open_image
    from fedotp.images._decode import read_image as read_image
    from fedotp.images._decode import reason as reason
    from fedotp.images._decode import share_room as share_room
    from fedotp.images._greys import WINDOW as WINDOW
    from fedotp.images._greys import clipped_share as clipped_share
    from fedotp.images._greys import eight_bits as eight_bits
    from fedotp.images._greys import largest_share as largest_share
    from fedotp.images._greys import read_window as read_window
    from fedotp.images._greys import read_windows as read_windows

__getattr__, __dir__ = lazy_face(__name__)
