"""Images that lie on the GPU, where training and evaluation replay recorded graphs."""

import torch
from torch import Tensor

from fedotp.clip import ImageFeatures
from fedotp.federation._data import HeldFeatures, Images
from fedotp.federation._random import Ints
from fedotp.methods import Batch, Need


class ResidentImages:
    """The training images of a federation, on the device that trains."""

    def __init__(self, features: HeldFeatures, labels: Ints) -> None:
        """`labels` (n,) go where the features are."""
        self.features = features
        self.labels = torch.from_numpy(labels).to(features.pooled.device)

    @classmethod
    def of(cls, images: Images, device: torch.device) -> "ResidentImages | None":
        """Of images that are held on the GPU `device`; None of others."""
        features = images.features
        if device.type != "cuda" or not isinstance(features, HeldFeatures) or features.pooled.device != device:
            return None
        return cls(features, images.labels)

    def batch(self, rows: Tensor, crops: Tensor, dtype: torch.dtype, needs: frozenset[Need]) -> Batch:
        """The images `rows` (C, B), -1 for padding, in the clients' `crops` (C,); V is 0 without tokens."""
        at = rows.clamp_min(0)
        of = crops[:, None].expand_as(at)
        tokens = self.features.tokens if Need.TOKENS in needs else self.features.tokens[:, :, :0]
        image = ImageFeatures(self.features.pooled[of, at].to(dtype), tokens[of, at].to(dtype))
        return Batch(image, torch.where(rows < 0, -1, self.labels[at]))


def at_least(n: int, most: int) -> int:
    """The smallest of most, most / 2, most / 4, ... (rounded up) that is not less than n."""
    while -(-most // 2) >= n and most > 1:
        most = -(-most // 2)
    return most
