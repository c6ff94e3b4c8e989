"""The paper's data sets in miniature, noise in the layouts in which they come, and a small random backbone."""

from pathlib import Path

from data.layouts import cifar10, cifar100, domain_tree, office_caltech10, zhou_layout
from fedotp.clip import CLIP, TINY, save
from fedotp.config import Config
from fedotp.data import DATASETS
from fedotp.data._names import names_of

LISTED = {  # CoOp's lists: where the images are, and what the list is called
    "food101": ("images", "Food101"),
    "dtd": ("images", "DescribableTextures"),
    "caltech101": ("101_ObjectCategories", "Caltech101"),
    "flowers102": ("jpg", "OxfordFlowers"),
    "oxford_pets": ("images", "OxfordPets"),
}
N_CLASSES = 10  # of the data sets with lists: one for each client
SHOTS = 16  # the most that an entry asks for


class Toy:
    """A folder with a backbone and the data sets, each made when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "data"
        save(CLIP.random(TINY, seed=0), folder / "tiny.safetensors")

    @property
    def places(self) -> list[str]:
        """The settings that say where all of it is."""
        return [
            f"backbone.name={self.folder / 'tiny.safetensors'}",
            f"data.root={self.root}",
            f"data.store={self.folder / 'store'}",
        ]

    def changes(self, config: Config) -> list[str]:
        """What makes a toy of a configuration: one round of one epoch on the miniature of its data."""
        self.make(config.data.dataset)
        is_large = config.partition.n_clients == 100
        n_clients = 10 if config.data.dataset == "cifar10" else 20
        few = [f"partition.n_clients={n_clients}", "federation.participation=0.5"] if is_large else []
        short = ["prompt.n_ctx=2", "federation.rounds=1", "federation.local_epochs=1", "compute.device=cpu"]
        return [*few, *self.places, *short]

    def make(self, name: str) -> None:
        """Write the miniature of a data set, if it is not there."""
        folder = self.root / DATASETS[name].folder
        if folder.exists():
            return
        self.root.mkdir(exist_ok=True)
        if name in LISTED:
            classes = {f"class_{label}": f"class {label}" for label in range(N_CLASSES)}
            images, called = LISTED[name]
            zhou_layout(folder.name, called, images, classes, self.root, train=SHOTS, val=0)
        elif name == "domainnet":
            domain_tree(folder, names_of("domainnet", "domains"), names_of("domainnet"), 5)
        else:
            {"office_caltech10": office_caltech10, "cifar10": cifar10, "cifar100": cifar100}[name](self.root)
