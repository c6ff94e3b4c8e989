"""The image tower, fed with pixels as they are decoded."""

from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from fedotp._graphs import Recorded, Recordings
from fedotp.clip import CLIP, ImageFeatures, normalise


class Tower:
    """An image tower, run in `precision` where that is not the precision of its weights."""

    def __init__(self, clip: CLIP, precision: torch.dtype | None = None) -> None:
        self.clip, self.precision = clip, precision
        self._pixels: Tensor | None = None
        self._recorded: Future[Recorded[ImageFeatures] | None] | None = None

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.clip.text_projection.device

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

    def __call__(self, pixels: Tensor) -> ImageFeatures:
        """RGB as uint8 (n, H, W, 3) to features on the device of the weights; `pixels` are not needed any more then."""
        if self.device.type == "cuda":  # a GPU fetches by itself from pinned memory, while the next batch is prepared
            pixels = pixels.pin_memory()
        recorded = self._recorded.result() if self._recorded is not None else None
        if recorded is None or self._pixels is None or len(pixels) != len(self._pixels):
            return self._encode(pixels.to(self.device, non_blocking=True))
        self._pixels.copy_(pixels, non_blocking=True)
        features = recorded()
        return ImageFeatures(features.pooled.clone(), features.tokens.clone())  # before the next batch comes

    def _encode(self, pixels: Tensor) -> ImageFeatures:
        mixed = self.precision is not None
        with torch.no_grad(), torch.autocast(self.device.type, self.precision, enabled=mixed):
            return self.clip.encode_image(normalise(pixels))

    def _record(self, pixels: Tensor) -> Recorded[ImageFeatures] | None:
        with torch.cuda.device(self.device):
            try:
                recordings: Recordings[ImageFeatures] = Recordings()
                return recordings.get(None, lambda: self._encode(pixels))
            except torch.OutOfMemoryError:  # one by one it may do with less
                return None
