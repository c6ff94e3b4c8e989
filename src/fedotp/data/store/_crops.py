"""Hashing and cropping of single images, in decoding threads and processes.

A decoding process (`serve`) writes crops to shared memory. It ends when its pipe is closed or its parent exits for any
reason, and does not receive Ctrl-C. It imports neither torch nor NumPy, so that it starts in 0.1 s.
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

_SMALL = MAX_PIXELS // 64  # maximum pixels of an image in a decoding process, as many may run at once


Transform = EvalTransform | TrainTransform
StoredImage = Union["Portable", "SplitImage"]  # for any process, or for this process only; the same methods


class Portable(NamedTuple):
    """An image that can be sent to another process: the file `path`, or `content`; raw pixels also have a shape."""

    path: str = ""
    content: bytes = b""
    shape: tuple[int, ...] = ()

    def read(self) -> bytes:
        """Return the stored bytes."""
        return read_image(self.path) if self.path else self.content

    def decoded(self, content: bytes) -> AbstractContextManager[Image.Image]:
        """Decode a file, or wrap raw pixels."""
        if not self.shape:
            return decoded(content)
        height, width, _ = self.shape
        return nullcontext(Image.frombytes("RGB", (width, height), content))

    def portable(self) -> "Portable":
        """Return itself."""
        return self


class Request(NamedTuple):
    """Request to hash `image`, check its `digest` if not empty, and write its `crops` to the rows from `row` on."""

    image: StoredImage
    digest: bytes = b""
    crops: tuple[Crop, ...] = ()
    transform: Transform | None = None
    row: int = 0


class Decoded(NamedTuple):
    """The digest of an image, empty if it could not be read, and the error, if any."""

    digest: bytes
    broken: str = ""


class Rows:
    """Memory for crops: (rows, size, size, 3)."""

    def __init__(self, memory: memoryview | int) -> None:
        """Use `memory`, or a descriptor of it, which must have its final size before the first crop."""
        self._given = memory

    def put(self, row: int, crop: Image.Image) -> None:
        """Write an RGB image; all have the same size."""
        pixels = crop.tobytes()
        self._memory[row * len(pixels) : (row + 1) * len(pixels)] = pixels

    @cached_property
    def _memory(self) -> memoryview:
        return self._given if isinstance(self._given, memoryview) else memoryview(mmap.mmap(self._given, 0))


def decode(request: Request, rows: Rows) -> Decoded:
    """Process a request."""
    image, digest = request.image, b""
    try:
        content = image.read()
        digest = content_digest(content, image.shape)
        if request.digest not in (b"", digest):
            raise FedotpError("the image changed during encoding")
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
    """Return the SHA-256 of the bytes of a file, or of the shape and bytes of raw pixels."""
    return sha256((str(shape).encode() if shape else b"") + content).digest()


def crop_rng(digest: bytes, *, seed: int, crop: int) -> random.Random:
    """Return the generator of crop number `crop` of the image with this digest, the same on every platform."""
    return random.Random(int.from_bytes(sha256(f"{seed} {crop} ".encode() + digest).digest(), "big"))


def serve(pipe: int, memory: int, parent: int) -> None:
    """Answer requests from the descriptor `pipe` (None for images that are too large); write crops to `memory`."""
    die_with_parent(at_once=True)  # nothing is lost: only the parent writes files
    if os.getppid() != parent:  # the parent exited before the call
        return
    warnings.simplefilter("ignore")  # invalid metadata is harmless, and size limits are checked separately
    connection = Connection(pipe)
    share_room(_SmallRoom())
    rows = Rows(memory)
    with suppress(EOFError, ConnectionError):  # the parent has finished
        connection.send(None)  # ready
        while True:
            connection.send(_answer(connection.recv(), rows))


def _answer(requests: Sequence[Request], rows: Rows) -> list[Decoded | None] | Exception:
    try:
        return [_unless_large(request, rows) for request in requests]
    except Exception as error:  # for example out of memory: raised in the parent
        return error


def _unless_large(request: Request, rows: Rows) -> Decoded | None:
    try:
        return decode(request, rows)
    except _LargeError:
        return None


class _LargeError(Exception):
    """An image for the parent to decode, which limits the memory of concurrent decoding."""


class _SmallRoom:
    """Memory budget that allows small images only."""

    def taken(self, n: int) -> AbstractContextManager[None]:
        """Reserve memory for an image of `n` pixels."""
        if n > _SMALL:
            raise _LargeError
        return nullcontext()
