"""From a data set and a backbone to tokens."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from fedotp.clip import CLIP, EvalTransform, TrainTransform
from fedotp.data._types import Ints, OnProgress
from fedotp.data.sets import Broken, Dataset, ImageRef, Split, SplitName
from fedotp.data.store._content import hash_images
from fedotp.data.store._decoders import Decoders
from fedotp.data.store._defaults import BATCH_SIZE, STORAGE, Storage
from fedotp.data.store._format import Encoding, Keys, make_keys
from fedotp.data.store._store import TokenStore, default_store
from fedotp.data.store._tokens import EncodedDataset, EncodedSplit
from fedotp.data.store._views import AHEAD, Encoder, Missing, Tower
from fedotp.errors import FedotpError


def encode(
    dataset: Dataset,
    clip: CLIP,
    *,
    views: int = 0,
    seed: int = 0,
    root: Path | None = None,
    storage: Storage = STORAGE,
    precision: torch.dtype | None = None,
    batch_size: int = BATCH_SIZE,
    workers: int | None = None,
    verify: bool = True,
    skip_broken: bool = False,
    on_progress: OnProgress | None = None,
    on_broken: Callable[[Broken], object] | None = None,
) -> EncodedDataset:
    """Return `dataset` as tokens; what the store below `root` lacks is encoded now, and kept.

    The tower runs where the weights of `clip` are. Test images are seen in their central part.

    Args:
        views: 0 shows training images in their central part, too. k > 0 draws k random crops and flips of
            each ahead, all from `seed`, the content of the image and the number of the view; with k = rounds
            x local epochs, training on view t in epoch t is the paper's protocol.
        storage: "int8" takes half the space of "float16".
        precision: a number format for the tower other than its weights' (autocast).
        batch_size: views in a step of the tower.
        workers: processes or, where there is little to do, threads that hash and decode; by default one per core.
        verify: compare the tokens found in the store with their checksums, and encode damaged ones again.
        skip_broken: leave images that cannot be decoded out of the data set; they are an error otherwise.
        on_progress: called with what is being done, how much of it is done, and of how much.
        on_broken: called with each broken content when it is met.
    """
    if views < 0 or seed < 0 or batch_size < 1:
        raise FedotpError(f"views {views}, seed {seed}, batch size {batch_size}: these must be at least 0, 0 and 1")
    size = clip.config.image_size
    central, drawn = EvalTransform(size), TrainTransform(size)
    with Decoders((AHEAD + 1) * batch_size, size, workers) as decoders:
        job = _Job(
            root=root or default_store(),
            tower=Tower(clip, precision),
            seed=seed,
            storage=storage,
            batch_size=batch_size,
            decoders=decoders,
            verify=verify,
            on_progress=on_progress or _ignore,
            on_broken=on_broken or _ignore,
        )
        train = job.encode("train", dataset.train, drawn if views else central, views)
        test = job.encode("test", dataset.test, central, 0)
    broken = [*train.broken, *test.broken]
    if broken and not skip_broken:
        raise FedotpError(
            f"{dataset.name}: {len(broken)} broken images, first {broken[0].where} ({broken[0].reason}); "
            "`fedotp data check` lists them, --skip-broken goes on without them"
        )
    return EncodedDataset(
        dataset=dataset.without(b.ref for b in broken) if broken else dataset,
        train=train.sound(),
        test=test.sound(),
        n_encoded=train.n_encoded + test.n_encoded,
        n_repaired=train.n_repaired + test.n_repaired,
    )


def encoding_of(
    clip: CLIP,
    transform: EvalTransform | TrainTransform,
    *,
    storage: Storage = STORAGE,
    precision: torch.dtype | None = None,
) -> Encoding:
    """What tokens made by this model and transform are, and so under which name they are stored."""
    config = clip.config
    tower = {"vision": asdict(config.vision), "activation": config.activation}
    return Encoding(
        backbone=clip.digest,
        tower=json.dumps(tower, sort_keys=True),
        transform=transform.spec,
        precision=str(precision or clip.text_projection.dtype).removeprefix("torch."),
        storage=storage,
        n_patches=config.n_patches,
        width=config.embed_dim,
    )


@dataclass(frozen=True)
class _Outcome:
    """Of a split: where its records are (k, n), -1 for broken images, and what was done."""

    store: TokenStore
    records: Ints
    broken: list[Broken]
    n_encoded: int
    n_repaired: int

    def sound(self) -> EncodedSplit:
        """The images that are not broken."""
        return EncodedSplit(self.store, self.records[:, (self.records >= 0).all(axis=0)])


@dataclass(frozen=True)
class _Job:
    """What is the same for both splits."""

    root: Path
    tower: Tower
    seed: int
    storage: Storage
    batch_size: int
    decoders: Decoders
    verify: bool
    on_progress: OnProgress
    on_broken: Callable[[Broken], object]

    def encode(self, name: SplitName, split: Split, transform: EvalTransform | TrainTransform, views: int) -> _Outcome:
        encoding = encoding_of(self.tower.clip, transform, storage=self.storage, precision=self.tower.precision)
        store = TokenStore(self.root, encoding)
        reasons: dict[int, str] = {}

        def note_broken(image: int, reason: str) -> None:
            reasons[image] = reason
            self.on_broken(Broken(ImageRef(name, image), split.where(image), reason))

        count = self._counter(f"hashing {name}", len(split))
        digests = hash_images(split, self.root, self.decoders, on_images=count, on_broken=note_broken)
        if views:
            keys = np.stack([make_keys(digests, seed=self.seed, view=j) for j in range(views)])
        else:
            keys = make_keys(digests, seed=0, view=0)[None]  # (k, n)
        n_repaired = self._repair(store, store.find(keys), f"checking {name}") if self.verify else 0
        wanted = store.find(keys) < 0
        wanted[:, list(reasons)] = False
        missing = Missing.of(keys, wanted)
        try:
            n_encoded = Encoder(missing, split, store, transform, self.tower).run(
                batch_size=self.batch_size,
                decoders=self.decoders,
                on_views=self._counter(f"encoding {name}", len(missing.keys)),
                on_broken=note_broken,
            )
        finally:
            store.close()
        store.refresh()
        records = store.find(keys)
        return _Outcome(store, records, _broken(name, split, records, keys, reasons), n_encoded, n_repaired)

    def _repair(self, store: TokenStore, numbers: Ints, what: str) -> int:
        """Strike damaged records out; return how many."""
        numbers = np.unique(numbers[numbers >= 0])
        count = self._counter(what, len(numbers))
        n_damaged = 0
        for n_checked, damaged in store.check(numbers):
            store.drop(damaged)
            n_damaged += len(damaged)
            count(n_checked)
        return n_damaged

    def _counter(self, what: str, total: int) -> Callable[[int], None]:
        """A function that adds to what is done and reports it."""
        done = 0

        def count(n: int) -> None:
            nonlocal done
            done += n
            self.on_progress(what, done, total)

        return count


def _broken(name: SplitName, split: Split, records: Ints, keys: Keys, reasons: dict[int, str]) -> list[Broken]:
    """The images without records, with the reason found for the first of equal content."""
    reason_of = {bytes(keys[0, image]): reason for image, reason in reasons.items()}
    broken = []
    for image in np.flatnonzero((records < 0).any(axis=0)).tolist():
        reason = reasons.get(image) or reason_of.get(bytes(keys[0, image]))
        if reason is None:
            raise FedotpError(
                f"the tokens of {split.where(image)} vanished while others were encoded; was the store pruned?"
            )
        broken.append(Broken(ImageRef(name, image), split.where(image), reason))
    return broken


def _ignore(*_: object) -> None:
    """Report to nobody."""
