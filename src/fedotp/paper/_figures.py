"""The paper's figures of results and of partitions, and all entries by name."""

from fedotp.errors import FedotpError
from fedotp.paper._entry import Entry, Part, plain
from fedotp.paper._tables import ALWAYS, FEW_SHOT, FEW_SHOT_NOTES, FOUR_AND_FEDOTP, TABLES, shots_of

_NO_NUMBERS = "The paper prints no numbers for this figure, so there is no comparison."
_CURVES = {"DTD": "dtd", "Caltech101": "caltech101", "Flowers102": "flowers102", "OxfordPets": "oxford_pets"}
_SCHEMES = (
    ("partition.scheme=pathological", "partition.n_clients=10"),  # it has ten classes
    ("partition.scheme=dirichlet",),
    ("partition.scheme=domain",),
    ("partition.scheme=domain-dirichlet",),
)

FIGURES = (
    Entry(
        "figure2",
        "heatmap",
        "Similarity of patches and prompts, three methods on the same images, OxfordPets, ViT-B/16",
        (Part("OxfordPets", "fewshot-pets", ("backbone.name=ViT-B/16",)),),
        {"CoOp": "coop", "PromptFL": "promptfl", "FedOTP": "fedotp"},
        "FedOTP",
        drawing="similarity",
        differs=(
            "The paper gives neither shots nor rounds here: 16 shots and the rounds of Table 1 are our choice. "
            "The images are the first test images of some clients, not the paper's.",
            *ALWAYS,
        ),
    ),
    Entry(
        "figure3",
        "few_shot",
        "Accuracy against the number of shots, five data sets, RN50",
        shots_of(tuple(FEW_SHOT), 1, 2, 4, 8, 16),
        FOUR_AND_FEDOTP,
        "FedOTP (Ours)",
        drawing="against shots",
        differs=(
            _NO_NUMBERS,
            "It does not name the methods either: these are those of its other tables. FedOTP at gamma 0.8 is in Table "
            "A4.",
            *FEW_SHOT_NOTES,
            *ALWAYS,
        ),
    ),
    Entry(
        "figureA2",
        "noniid",
        "Images of each client: four partitions of Office-Caltech10",
        tuple(Part("Office-Caltech10", "office", changes) for changes in _SCHEMES),
        {},
        drawing="partition",
        differs=("The paper draws three of its partition schemes without naming them; these are all four.",),
    ),
    Entry(
        "figureA3",
        "learning_curve",
        "Accuracy round by round, 50 rounds of one epoch, ten clients, ViT-B/16",
        tuple(Part(name, "curves", (f"data.dataset={dataset}",)) for name, dataset in _CURVES.items()),
        FOUR_AND_FEDOTP,
        "FedOTP (Ours)",
        drawing="curves",
        differs=(
            _NO_NUMBERS,
            "It names neither the four data sets, nor the methods, nor the shots (16 here): they are our choice.",
            *ALWAYS,
        ),
    ),
    Entry(
        "figureA4",
        "heatmap1",
        "Transport plans over images at several gammas, Caltech101, ViT-B/16",
        (Part("Caltech101", "fewshot-caltech", ("backbone.name=ViT-B/16",)),),
        {"FedOTP": "fedotp"},
        "FedOTP",
        drawing="maps",
        differs=(
            "The prompts were learned at gamma 0.8; the plans are those of these prompts at other gammas. The images "
            "are the first test images of some clients, not the paper's.",
            *ALWAYS,
        ),
    ),
    Entry(
        "figureA5",
        "tsne",
        "Local prompts in the plane, CIFAR-100 by coarse labels, 100 clients, ViT-B/16",
        (Part("CIFAR-100", "coarse-cifar100"),),
        {"FedOTP": "fedotp"},
        "FedOTP",
        drawing="tsne",
        differs=("The paper does not describe the training for this figure: it is that of Table 3.", *ALWAYS),
    ),
)

ENTRIES = {entry.name: entry for entry in (*TABLES, *FIGURES)}


def entry_named(name: str) -> Entry:
    """Find an entry by name in any spelling: "Table A2" is tableA2."""
    found = next((entry for entry in ENTRIES.values() if plain(entry.name) == plain(name)), None)
    if found is None:
        raise FedotpError(f"unknown entry {name!r}; must be one of {', '.join(ENTRIES)}")
    return found
