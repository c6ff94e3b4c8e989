"""One image looked at: its bytes hashed, the wanted crops taken.

This is what decoding threads and decoding processes both do. Such a process (`serve`) puts crops into shared memory. It
ends when its pipe is closed, and with the process that started it, however that ended; Ctrl-C does not reach it.
Neither torch nor NumPy is imported: a process starts in a tenth of a second without.
"""

import mmap
import os
import random
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from hashlib import sha256
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, NamedTuple, Union

from PIL import Image

from fedotp._system import die_with_parent
from fedotp.clip import EvalTransform, TrainTransform
from fedotp.errors import FedotpError, MissingPackageError
from fedotp.images import MAX_PIXELS, decoded, read_image, reason, share_room

if TYPE_CHECKING:  # it imports torch
    from fedotp.data.store._tower import SplitImage

Crop = tuple[int, int]  # seed and number; 0 and 0 for the plain crop

_SMALL = MAX_PIXELS // 64  # pixels of a picture that a process decodes: many may do so at once


Transform = EvalTransform | TrainTransform
StoredImage = Union["Portable", "SplitImage"]  # the same methods: another process looks at it, or only this one can


class Portable(NamedTuple):
    """An image that another process can look at: in the file `path`, or `content` itself, bare pixels with a shape."""

    path: str = ""
    content: bytes = b""
    shape: tuple[int, ...] = ()

    def read(self) -> bytes:
        """Return the stored bytes."""
        return read_image(self.path) if self.path else self.content

    def decoded(self, content: bytes) -> AbstractContextManager[Image.Image]:
        """Decode a file; make an image of bare pixels."""
        if not self.shape:
            return decoded(content)
        height, width, _ = self.shape
        return nullcontext(Image.frombytes("RGB", (width, height), content))

    def portable(self) -> "Portable":
        """Itself."""
        return self


class Request(NamedTuple):
    """Hash `image`, which must have the `digest` if one is given, and put `crops` of it into the rows from `row` on."""

    image: StoredImage
    digest: bytes = b""
    crops: tuple[Crop, ...] = ()
    transform: Transform | None = None
    row: int = 0


class Decoded(NamedTuple):
    """The digest of what was read, empty if nothing could be, and what is wrong with the image."""

    digest: bytes
    broken: str = ""


class Rows:
    """Memory for crops, one after the other: (rows, size, size, 3)."""

    def __init__(self, memory: memoryview | int) -> None:
        """`memory` may be a descriptor, which must have its size by the time of the first crop."""
        self._given = memory

    def put(self, row: int, crop: Image.Image) -> None:
        """Write an RGB picture down; all have the same size."""
        pixels = crop.tobytes()
        self._memory[row * len(pixels) : (row + 1) * len(pixels)] = pixels

    @cached_property
    def _memory(self) -> memoryview:
        return self._given if isinstance(self._given, memoryview) else memoryview(mmap.mmap(self._given, 0))


def decode(request: Request, rows: Rows) -> Decoded:
    """Do what is asked for."""
    image, digest = request.image, b""
    try:
        content = image.read()
        digest = content_digest(content, image.shape)
        if request.digest not in (b"", digest):
            raise FedotpError("it was changed while it was being encoded")
        if request.transform is not None:
            with image.decoded(content) as picture:
                for row, (seed, crop) in enumerate(request.crops, start=request.row):
                    rng = crop_rng(digest, seed=seed, crop=crop)
                    rows.put(row, request.transform.crop(picture, rng))
    except MissingPackageError:
        raise
    except (OSError, FedotpError) as error:
        return Decoded(digest, reason(error))
    return Decoded(digest)


def content_digest(content: bytes, shape: tuple[int, ...] = ()) -> bytes:
    """SHA-256 of the bytes of a file; for bare pixels, of their shape and them."""
    return sha256((str(shape).encode() if shape else b"") + content).digest()


def crop_rng(digest: bytes, *, seed: int, crop: int) -> random.Random:
    """The chance in crop number `crop` of the image with this digest, the same on every platform."""
    return random.Random(int.from_bytes(sha256(f"{seed} {crop} ".encode() + digest).digest(), "big"))


def serve(pipe: int, memory: int, parent: int) -> None:
    """Answer requests from the descriptor `pipe` with what was found (None: too large); crops go to `memory`."""
    die_with_parent(at_once=True)  # nothing is lost: only the parent writes what is to last
    if os.getppid() != parent:  # it died before the call
        return
    warnings.simplefilter("ignore")  # odd metadata does no harm, the limits are our own
    connection = Connection(pipe)
    share_room(_SmallRoom())
    rows = Rows(memory)
    with suppress(EOFError, ConnectionError):  # the parent is done
        connection.send(None)  # ready
        while True:
            connection.send(_answer(connection.recv(), rows))


def _answer(requests: Sequence[Request], rows: Rows) -> list[Decoded | None] | Exception:
    try:
        return [_unless_large(request, rows) for request in requests]
    except Exception as error:  # out of memory, for example: the parent raises it
        return error


def _unless_large(request: Request, rows: Rows) -> Decoded | None:
    try:
        return decode(request, rows)
    except _LargeError:
        return None


class _LargeError(Exception):
    """A picture that is left to the parent, which decodes no more of them at a time than there is memory for."""


class _SmallRoom:
    """Room for small pictures only."""

    def taken(self, n: int) -> AbstractContextManager[None]:
        """Room for a picture of `n` pixels."""
        if n > _SMALL:
            raise _LargeError
        return nullcontext()
