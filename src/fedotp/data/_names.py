"""Class names for CLIP, plain lower-case words, and the coarse labels of CIFAR-100."""

import re
import unicodedata
from collections.abc import Sequence

_SEPARATORS = re.compile(r"[\s_]+")


def readable(name: str) -> str:
    """Convert a folder or label name to words: `Egyptian_Mau` becomes `egyptian mau`.

    Hyphens and digits stay (`globe-flower`, `boeing 747`); CLIP's tokenizer converts to lower case anyway.
    """
    return _SEPARATORS.sub(" ", unicodedata.normalize("NFC", name)).strip().lower()


# Folder names of Caltech101 that are not plain class names, with CoOp's replacements.
CALTECH101 = {"airplanes": "airplane", "Faces": "face", "Leopards": "leopard", "Motorbikes": "motorbike"}

# Folder names of EuroSAT, and CoOp's class names.
EUROSAT = {
    "AnnualCrop": "Annual Crop Land",
    "HerbaceousVegetation": "Herbaceous Vegetation Land",
    "Highway": "Highway or Road",
    "Industrial": "Industrial Buildings",
    "Pasture": "Pasture Land",
    "PermanentCrop": "Permanent Crop Land",
    "Residential": "Residential Buildings",
    "SeaLake": "Sea or Lake",
}

# CLIP's names for ImageNet are equal for two pairs of classes; these are WordNet's names for one of each.
IMAGENET_TWICE = {"n04008634": "projectile", "n04355933": "sunglass"}

OFFICE_CALTECH10 = (
    *("backpack", "bike", "calculator", "headphones", "keyboard", "laptop computer", "monitor", "mouse", "mug"),
    "projector",
)

DOMAINNET10 = (
    *("bird", "feather", "headphones", "ice cream", "teapot", "tiger", "whale", "windmill", "wine glass"),
    "zebra",
)

PACS = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")

VLCS = ("bird", "car", "chair", "dog", "person")

_OFFICE31 = """
    backpack; bike; bike helmet; bookcase; bottle; calculator; desk chair; desk lamp; desktop computer; file cabinet;
    headphones; keyboard; laptop computer; letter tray; mobile phone; monitor; mouse; mug; paper notebook; pen; phone;
    printer; projector; punchers; ring binder; ruler; scissors; speaker; stapler; tape dispenser; trash can
"""
OFFICE31 = tuple(readable(name) for name in _OFFICE31.split(";"))

_OFFICE_HOME = """
    alarm clock; backpack; batteries; bed; bike; bottle; bucket; calculator; calendar; candles; chair; clipboards;
    computer; couch; curtains; desk lamp; drill; eraser; exit sign; fan; file cabinet; flip-flops; flowers; folder;
    fork; glasses; hammer; helmet; kettle; keyboard; knives; lamp shade; laptop; marker; monitor; mop; mouse; mug;
    notebook; oven; pan; paper clip; pen; pencil; post-it notes; printer; push pin; radio; refrigerator; ruler;
    scissors; screwdriver; shelf; sink; sneakers; soda; speaker; spoon; tv; table; telephone; toothbrush; toys;
    trash can; webcam
"""
OFFICE_HOME = tuple(readable(name) for name in _OFFICE_HOME.split(";"))

# Names of the classes 1 to 102 from the web page; the official archive has numbers only.
_FLOWERS = """
    pink primrose; hard-leaved pocket orchid; canterbury bells; sweet pea; english marigold; tiger lily;
    moon orchid; bird of paradise; monkshood; globe thistle; snapdragon; colt's foot; king protea;
    spear thistle; yellow iris; globe-flower; purple coneflower; peruvian lily; balloon flower;
    giant white arum lily; fire lily; pincushion flower; fritillary; red ginger; grape hyacinth; corn poppy;
    prince of wales feathers; stemless gentian; artichoke; sweet william; carnation; garden phlox;
    love in the mist; mexican aster; alpine sea holly; ruby-lipped cattleya; cape flower; great masterwort;
    siam tulip; lenten rose; barbeton daisy; daffodil; sword lily; poinsettia; bolero deep blue; wallflower;
    marigold; buttercup; oxeye daisy; common dandelion; petunia; wild pansy; primula; sunflower; pelargonium;
    bishop of llandaff; gaura; geranium; orange dahlia; pink-yellow dahlia; cautleya spicata;
    japanese anemone; black-eyed susan; silverbush; californian poppy; osteospermum; spring crocus;
    bearded iris; windflower; tree poppy; gazania; azalea; water lily; rose; thorn apple; morning glory;
    passion flower; lotus; toad lily; anthurium; frangipani; clematis; hibiscus; columbine; desert-rose;
    tree mallow; magnolia; cyclamen; watercress; canna lily; hippeastrum; bee balm; ball moss; foxglove;
    bougainvillea; camellia; mallow; mexican petunia; bromelia; blanket flower; trumpet creeper;
    blackberry lily
"""
FLOWERS102 = tuple(readable(name) for name in _FLOWERS.split(";"))

# For copies of CIFAR-100 without the 20 coarse labels.
_CIFAR100 = """
    aquatic mammals: beaver, dolphin, otter, seal, whale
    fish: aquarium_fish, flatfish, ray, shark, trout
    flowers: orchid, poppy, rose, sunflower, tulip
    food containers: bottle, bowl, can, cup, plate
    fruit and vegetables: apple, mushroom, orange, pear, sweet_pepper
    household electrical devices: clock, keyboard, lamp, telephone, television
    household furniture: bed, chair, couch, table, wardrobe
    insects: bee, beetle, butterfly, caterpillar, cockroach
    large carnivores: bear, leopard, lion, tiger, wolf
    large man-made outdoor things: bridge, castle, house, road, skyscraper
    large natural outdoor scenes: cloud, forest, mountain, plain, sea
    large omnivores and herbivores: camel, cattle, chimpanzee, elephant, kangaroo
    medium mammals: fox, porcupine, possum, raccoon, skunk
    non-insect invertebrates: crab, lobster, snail, spider, worm
    people: baby, boy, girl, man, woman
    reptiles: crocodile, dinosaur, lizard, snake, turtle
    small mammals: hamster, mouse, rabbit, shrew, squirrel
    trees: maple_tree, oak_tree, palm_tree, pine_tree, willow_tree
    vehicles 1: bicycle, bus, motorcycle, pickup_truck, train
    vehicles 2: lawn_mower, rocket, streetcar, tank, tractor
"""
_COARSE_OF = {
    readable(name): coarse.strip()
    for coarse, names in (line.split(":") for line in _CIFAR100.strip().splitlines())
    for name in names.split(",")
}


def coarse_labels(classes: Sequence[str]) -> tuple[str, ...] | None:
    """Return the coarse label of each of `classes` (K,), if they are those of CIFAR-100, else None."""
    return tuple(_COARSE_OF[name] for name in classes) if set(classes) == set(_COARSE_OF) else None
