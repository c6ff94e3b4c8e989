"""Where prompts look: similarity and transport plan over the image (the paper's Figures 2 and A4)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from fedotp.errors import FedotpError
from fedotp.federation import Simulator
from fedotp.matching import Matching
from fedotp.report._client import MASSES, ClientImages, Floats, at_mass, choose, pixels, require_clients, restored
from fedotp.runs import Prepared, RunDirectory


@dataclass(frozen=True, eq=False)
class ImageMap:
    """One test image of a client and what each of its N prompts makes of it, for the image's own class.

    image (H, W, 3) in 0 to 1, as the tower sees it; similarity (N, g, g), cosines; `plans` by mass, each (N, g, g): the
    share of its column's mass that a patch receives, so that each sums to 1, and empty for a method without transport;
    `kinds` (N,) says what the prompts are, as `fedotp.methods.Kind` does.
    """

    client: str
    label: str
    predicted: str
    image: Floats
    kinds: tuple[str, ...]
    similarity: Floats
    plans: dict[float, Floats]


def transport_maps(run: str | Path, client: str, n_images: int = 4) -> list[ImageMap]:
    """The maps of the first test images of `client` in a run with transport plans, at the mass it was trained with.

    The classes of the client are taken in turn.
    """
    directory = RunDirectory.open(run)
    method = directory.config.method
    if not method.matching.has_plan:
        raise FedotpError(f"{run} is a run of {method.title}, which has no transport plan; give a run of FedOTP")
    require_clients(directory, [client])
    prepared, simulator = restored(directory)
    return _maps(prepared, simulator, client, n_images, {method.matching.mass: method.matching})


def image_maps(
    prepared: Prepared, simulator: Simulator, client: str, n_images: int, masses: Sequence[float]
) -> list[ImageMap]:
    """The maps of the first test images of a client of a restored run, with plans at several masses."""
    matching = simulator.method.matching
    rules = {mass: at_mass(matching, mass) for mass in masses} if matching.has_plan else {}
    return _maps(prepared, simulator, client, n_images, rules)


def _maps(
    prepared: Prepared, simulator: Simulator, client: str, n_images: int, rules: Mapping[float, Matching]
) -> list[ImageMap]:
    images = ClientImages.of(prepared, simulator, client, n_images)
    own = images.own_similarity()  # (n, V, N)
    predicted = images.predicted()
    plans = {mass: normalised(images.plan(own, rule)) for mass, rule in rules.items()}
    grid, names = simulator.task.clip.config.vision.grid, simulator.task.classes
    kinds, shown = images.predictor.kinds, images.predictor.shown

    def over_image(values: Tensor) -> Floats:
        return values.T[shown].reshape(-1, grid, grid).double().cpu().numpy()  # (N, g, g)

    return [
        ImageMap(
            client=client,
            label=names[int(images.labels[i])],
            predicted=names[int(predicted[i])],
            image=pixels(prepared, int(row)),
            kinds=tuple(kinds[n] for n in shown),
            similarity=over_image(own[i]),
            plans={mass: over_image(plan[i]) for mass, plan in plans.items()},
        )
        for i, row in enumerate(images.rows)
    ]


def normalised(plan: Tensor) -> Tensor:
    """A plan (..., V, N) with every column summing to 1: which patches a prompt looks at; 0 if it takes no mass."""
    column = plan.sum(-2, keepdim=True)
    return plan / column.where(column > 0, 1)


def some_maps(
    run: RunDirectory, n_images: int = 4, client: str | None = None, masses: Sequence[float] = MASSES
) -> list[ImageMap]:
    """The maps of `n_images` test images of a run: of `client`, or, if not given, one each of several clients."""
    if client is not None:
        require_clients(run, [client])
    prepared, simulator = restored(run)
    shown = choose(prepared, None if client is None else [client], n_images)
    each = -(-n_images // max(len(shown), 1))
    maps = [m for name in shown for m in image_maps(prepared, simulator, name, each, masses)]
    return maps[:n_images]


def same_images(
    runs: Sequence[RunDirectory], n_images: int = 4, client: str | None = None
) -> dict[str, list[ImageMap]]:
    """The maps of the same test images in several runs, by the name of the run's method (the paper's Figure 2).

    Images are chosen as by `some_maps`. All runs must divide the same data in the same way.
    """
    first = runs[0]
    for run in runs[1:]:
        if run.manifest["partition"] != first.manifest["partition"]:
            raise FedotpError(
                f"{run.path} and {first.path} divide different data, or the same in another way; maps side by side "
                "need the same clients"
            )
    titles = [run.config.method.title.removesuffix(" (local)") for run in runs]
    names = titles if len(set(titles)) == len(titles) else [run.path.name for run in runs]
    return {name: some_maps(run, n_images, client, ()) for run, name in zip(runs, names, strict=True)}
