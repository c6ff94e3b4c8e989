"""The image tower, fed with pixels as they are decoded."""

import importlib.util
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from fedotp._graphs import Recorded, Recordings
from fedotp.clip import CLIP, ImageFeatures, Look, Shown, normalise

_ROOM = 512 * 512 * 3  # bytes: pictures that are larger are cropped before they come here


class Tower:
    """An image tower, run in `precision` where that is not the precision of its weights; `look` normalises."""

    def __init__(self, clip: CLIP, precision: torch.dtype | None = None, look: Look = "clip") -> None:
        self.clip, self.precision, self.look = clip, precision, look
        self._pixels: Tensor | None = None
        self._recorded: Future[Recorded[ImageFeatures] | None] | None = None

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.clip.text_projection.device

    @property
    def room(self) -> int:
        """Bytes of a picture that can be cropped and resized here; 0 where only crops can be taken.

        Two thirds of the work on a JPEG file is resizing it, which a GPU does to the same bits in no time.
        """
        if self.device.type != "cuda" or self.look != "clip":  # which is the one that is resized there
            return 0
        return _ROOM if importlib.util.find_spec("triton") is not None else 0

    def get_ready(self, batch_size: int) -> None:
        """Record the way of a batch of this size, in the background, if it goes through a GPU.

        Launching its kernels one by one takes longer than they do, where decoding keeps all cores busy.
        """
        if self.device.type != "cuda" or self._recorded is not None:
            return
        size = self.clip.config.image_size
        self._pixels = torch.zeros(batch_size, size, size, 3, dtype=torch.uint8, device=self.device)
        recording = ThreadPoolExecutor(1)
        self._recorded = recording.submit(self._record, self._pixels)
        recording.shutdown(wait=False)

    def __call__(self, pixels: Tensor, shown: Sequence[Shown] = ()) -> ImageFeatures:
        """RGB as uint8 (n, H, W, 3) to features on the device of the weights; `pixels` are not needed any more then.

        Or pictures (n, bytes), and what is to be seen of each.
        """
        recorded = self._recorded.result() if self._recorded is not None else None
        if recorded is None or self._pixels is None or len(pixels) != len(self._pixels):
            return self._encode(self._fetched(pixels, shown))
        self._fetched(pixels, shown, self._pixels)
        features = recorded()
        return ImageFeatures(features.pooled.clone(), features.tokens.clone())  # before the next batch comes

    def _fetched(self, pixels: Tensor, shown: Sequence[Shown], out: Tensor | None = None) -> Tensor:
        """Crops (n, H, W, 3) on the device, in `out` if that is given."""
        if shown and not self._resizes:
            pixels = torch.from_numpy(_cut(pixels, shown, self.clip.config.image_size))
        elif shown:
            pixels = pixels[:, : max(3 * one.width * one.height for one in shown)]
        if self.device.type == "cuda":  # a GPU fetches by itself from pinned memory, while the next batch is prepared
            pixels = torch.empty(pixels.shape, dtype=torch.uint8, pin_memory=True).copy_(pixels)
        pixels = pixels.to(self.device, non_blocking=True)
        if shown and self._resizes:
            from fedotp.clip import resize  # Triton is only there on CUDA machines

            return resize(pixels, shown, self.clip.config.image_size, out)
        return pixels if out is None else out.copy_(pixels)

    @cached_property
    def _resizes(self) -> bool:
        """Whether this device makes the pixels that Pillow makes; if not, Pillow does."""
        from fedotp.clip import resizes_like_pillow  # Triton is only there on CUDA machines

        return resizes_like_pillow(self.device)

    def _encode(self, pixels: Tensor) -> ImageFeatures:
        mixed = self.precision is not None
        with torch.no_grad(), torch.autocast(self.device.type, self.precision, enabled=mixed):
            return self.clip.encode_image(normalise(pixels, self.look))

    def _record(self, pixels: Tensor) -> Recorded[ImageFeatures] | None:
        with torch.cuda.device(self.device):
            if self.room:  # its kernels are compiled, or loaded
                _ = self._resizes
            try:
                recordings: Recordings[ImageFeatures] = Recordings()
                return recordings.get(None, lambda: self._encode(pixels))
            except torch.OutOfMemoryError:  # one by one it may do with less
                return None


def _cut(pixels: Tensor, shown: Sequence[Shown], size: int) -> NDArray[np.uint8]:
    """Crops (n, size, size, 3) of pictures (n, bytes), by Pillow."""
    pictures = (
        Image.frombytes("RGB", (one.width, one.height), row[: 3 * one.width * one.height].numpy().tobytes())
        for row, one in zip(pixels, shown, strict=True)
    )
    return np.stack([np.asarray(one.window.cut(picture, size)) for picture, one in zip(pictures, shown, strict=True)])
