"""Hashing and cropping of single images, in decoding threads and processes.

A decoding process (`serve`) writes crops to shared memory. It ends when its pipe is closed or its parent exits for any
reason, and does not receive Ctrl-C. It imports neither torch nor NumPy, so that it starts in 0.1 s.
"""

import mmap
import os
import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, NamedTuple, Union

from fedotp._system import die_with_parent
from fedotp.clip import EvalTransform, TrainTransform
from fedotp.errors import FedotpError, MissingPackageError
from fedotp.images import MAX_PIXELS, Room, decoded, read_image, reason, share_room

if TYPE_CHECKING:  # it imports torch
    from fedotp.data.store._tower import SplitImage

Crop = tuple[int, int]  # seed and number; 0 and 0 for the plain crop

_SMALL = MAX_PIXELS // 64  # maximum pixels of an image in a decoding process, as many may run at once


Transform = EvalTransform | TrainTransform
StoredImage = Union[str, bytes, "SplitImage"]  # a path or the bytes of a file, for any process; one for this process


class Request(NamedTuple):
    """Request to hash `image`, check its `digest` if not empty, and write its `crops` to the rows from `row` on."""

    image: StoredImage
    digest: bytes = b""
    crops: tuple[Crop, ...] = ()
    transform: Transform | None = None
    row: int = 0

    def portable(self) -> "Request":
        """Return the request for another process, if the image can be sent to one."""
        return self if isinstance(self.image, str | bytes) else self._replace(image=self.image.portable())


class Decoded(NamedTuple):
    """The digest of an image, empty if it could not be read, and the error, if any."""

    digest: bytes
    broken: str = ""


Rows = mmap.mmap  # memory for crops: (rows, size, size, 3)


def decode(request: Request, rows: Rows) -> Decoded:
    """Process a request."""
    image, digest = request.image, b""
    try:
        content = read_image(image) if isinstance(image, str) else image if isinstance(image, bytes) else image.read()
        digest = sha256(content).digest()
        if request.digest not in (b"", digest):
            raise FedotpError("the image changed during encoding")
        if request.transform is not None:
            with decoded(content) as picture:
                for row, (seed, crop) in enumerate(request.crops, start=request.row):
                    rng = crop_rng(digest, seed=seed, crop=crop)
                    pixels = request.transform.crop(picture, rng).tobytes()  # of one size for all crops
                    rows[row * len(pixels) : (row + 1) * len(pixels)] = pixels
    except MissingPackageError:
        raise
    except (OSError, FedotpError) as error:
        return Decoded(digest, reason(error))
    return Decoded(digest)


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
    share_room(_SmallRoom(_SMALL))
    rows = mmap.mmap(memory, 0)
    with suppress(EOFError, ConnectionError):  # the parent has finished
        connection.send(None)  # ready
        while True:
            connection.send(_answer(connection.recv(), rows))


def _answer(requests: Sequence[Request], rows: Rows) -> list[Decoded | None] | Exception:
    answers: list[Decoded | None] = []
    for request in requests:
        try:
            answers.append(decode(request, rows))
        except _LargeError:
            answers.append(None)
        except Exception as error:  # for example out of memory: raised in the parent
            return error
    return answers


class _LargeError(Exception):
    """An image for the parent to decode, which limits the memory of concurrent decoding."""


class _SmallRoom(Room):
    """Memory budget that allows small images only."""

    @contextmanager
    def taken(self, n: int) -> Iterator[None]:
        """Reserve memory for an image of `n` pixels."""
        if n > _SMALL:
            raise _LargeError
        yield
