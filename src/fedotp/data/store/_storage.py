"""Features as they are stored, and back.

float16 keeps 11 bits of every number. int8 writes a token as whole multiples, from -127 to 127, of a step of
its own, so that a component is off by at most half a step: 1/254 of the token's largest component.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fedotp.clip import ImageFeatures
from fedotp.data.store import Storage
from fedotp.data.store._format import Records
from fedotp.errors import FedotpError

_DTYPES = {"<f2": torch.float16, "<f4": torch.float32, "|i1": torch.int8}


def compress(features: ImageFeatures, storage: Storage, *, check: bool = True) -> dict[str, Tensor]:
    """The fields of the records of n images: pooled (n, e), tokens (n, V, e), for int8 also step (n, V).

    Numbers that cannot be stored are refused, unless nobody can look at them: in a graph that leaves Python.
    """
    fields = {"pooled": features.pooled.half(), "tokens": features.tokens.half()}
    if check and not all(values.isfinite().all() for values in fields.values()):
        raise FedotpError(
            "the image tower gave numbers that are not finite or beyond float16; "
            "check the weights, or let the tower run in float32"
        )
    if storage == "int8":
        tokens = features.tokens.float()
        fields["step"] = tokens.abs().amax(dim=-1) / 127
        steps = fields["step"].where(fields["step"] > 0, 1.0)
        fields["tokens"] = (tokens / steps[..., None]).round().clamp(-127, 127).to(torch.int8)
    return fields


def pack(fields: Mapping[str, Tensor], record: np.dtype[np.void]) -> Records:
    """Records (n,) of their fields, each (n, *shape of the field), which leave their device as a whole."""
    parts = [fields[name].contiguous().flatten(1).view(torch.uint8) for name in record.names or ()]
    return torch.cat(parts, dim=1).cpu().numpy().view(record)[:, 0]


def unpack(records: Records, device: str | torch.device) -> dict[str, Tensor]:
    """The fields (..., *shape of the field) of records (...), which travel to `device` as a whole."""
    raw = torch.from_numpy(records.ravel().view(np.uint8).reshape(records.size, -1)).to(device)  # (n, bytes)
    fields = {}
    for name, (field, offset, *_) in (records.dtype.fields or {}).items():
        dtype = _DTYPES[field.base.str]
        part = raw[:, offset : offset + field.itemsize]
        if offset % dtype.itemsize or raw.shape[1] % dtype.itemsize:  # where such numbers cannot be
            part = part.clone(memory_format=torch.contiguous_format)
        fields[name] = part.view(dtype).view(*records.shape, *field.shape)
    return fields


def restore(fields: Mapping[str, Tensor], dtype: torch.dtype) -> ImageFeatures:
    """Inverse of `compress`, up to rounding."""
    tokens = fields["tokens"]
    if "step" in fields:
        tokens = tokens * fields["step"][..., None]  # in float32
    return ImageFeatures(pooled=fields["pooled"].to(dtype).contiguous(), tokens=tokens.to(dtype).contiguous())


def as_stored(features: ImageFeatures, storage: Storage, dtype: torch.dtype, *, check: bool = True) -> ImageFeatures:
    """Features as they are read back from a store, without one; `check` as for `compress`."""
    return restore(compress(features, storage, check=check), dtype)
